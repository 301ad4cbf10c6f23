//! Arguments that commands share. The help, man pages and completions are made from these definitions, so a
//! doc comment here is documentation. Nothing here knows a command: `cli` puts them together.

#[cfg(feature = "network")]
mod remote;
#[cfg(not(feature = "network"))]
mod without_network;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use forerun::unstable::locks::Locking;
use forerun::vfs::{Ownership, Verity};
use forerun::{EngineOptions, Limits, OpenOptions};

use crate::size;

#[cfg(feature = "network")]
pub use remote::{CacheArgs, Mirrors, RemoteArgs, ServerArgs};
#[cfg(not(feature = "network"))]
pub use without_network::LocalArgs as RemoteArgs;

/// Options that every command understands.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print errors only: no progress bar, no notes
    #[arg(help_heading = "Output", short, long, global = true)]
    pub quiet: bool,
    /// Print JSON, for programs: data to standard output, errors to standard error
    #[arg(help_heading = "Output", long, global = true)]
    pub json: bool,
    /// At the end, print to standard error what crossed each boundary: requests, bytes, cache hits
    #[arg(help_heading = "Output", long, global = true)]
    pub stats: bool,
    /// Log what is done to standard error; twice for more
    #[arg(help_heading = "Output", short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Keep all rights while an image is read. Without this option a process gives up what it does not
    /// need once its files are open
    #[arg(help_heading = "Output", long, global = true)]
    pub no_sandbox: bool,
}

/// The image to read, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct ImageArgs {
    #[cfg_attr(
        feature = "network",
        doc = "File, device, https://, s3:// or oci:// name; - for standard input"
    )]
    #[cfg_attr(not(feature = "network"), doc = "File or device; - for standard input")]
    #[arg(value_name = "IMAGE", value_hint = clap::ValueHint::FilePath)]
    pub image: PathBuf,
    /// Read several images as one tree, as containers stack layers: again for each, the lowest first. There is no
    /// IMAGE then
    #[arg(help_heading = "Image", id = LAYERS, long = "layer", value_name = "IMAGE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["offset", "size", "partition", "format", "image_devices"])]
    pub layers: Vec<PathBuf>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// The name by which the parser knows `--layer`.
pub const LAYERS: &str = "image_layers";

/// How an image is read.
#[derive(Args, Clone, Debug, Default)]
pub struct SourceArgs {
    /// Open the image as this format, whatever it looks like
    #[arg(help_heading = "Image", long, value_name = "NAME")]
    pub format: Option<String>,
    /// The image starts this far into the file
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
    /// The image is this long [default: to the end of the file]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// The image is this partition of the file, numbered as `forerun scan` numbers them
    #[arg(help_heading = "Image", long, value_name = "N", conflicts_with_all = ["offset", "size"])]
    pub partition: Option<u32>,
    /// A file or block device with data that the image keeps outside itself; again for the next
    /// one of its device table
    #[arg(help_heading = "Image", id = "image_devices", long = "device", value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub device: Vec<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Read this far ahead of a sequential reader; 0 turns it off [default: 8M]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub readahead: Option<u64>,
    /// Memory that cached blocks may take [default: 256M, or an eighth of what the process may use]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Threads that read and decode ahead; 0 for one per CPU, or fewer where memory is scarce [default: 0]
    #[arg(help_heading = "Image", long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub threads: Option<u16>,
    /// Take no lock, and read a volume although another process or the kernel writes to it: what is
    /// read may be inconsistent
    #[arg(help_heading = "Image", long)]
    pub no_lock: bool,
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Read what can be read of an image that is cut or damaged; what has no name is in lost+found
    #[arg(help_heading = "Image", long = "salvage")]
    pub rescue: bool,
    /// Attributes that the format lacks. Only mounts have options for them.
    #[arg(skip)]
    pub ownership: Ownership,
    /// Reads in the legacy way: 1 KiB blocks, one at a time, nothing ahead. Only mounts have an option for it.
    #[arg(skip)]
    pub legacy_blocks: bool,
}

/// The objects of a composefs image.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreArgs {
    /// The object store of a composefs image; an EROFS image is opened as composefs with it
    #[arg(help_heading = "Image", long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub objects: Option<PathBuf>,
    /// Check objects against their digests before they are used
    #[arg(help_heading = "Image", long, value_name = "MODE")]
    pub verity: Option<VerityMode>,
    /// Refuse another digest of the image: the mount option `digest=`
    #[arg(skip)]
    pub digest: Option<String>,
}

/// A use of the digests of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum VerityMode {
    /// Nothing (default)
    Off,
    /// Refuse an object with another digest than the image says
    On,
    /// Also refuse objects of which the image has no digest
    Require,
}

impl From<VerityMode> for Verity {
    fn from(mode: VerityMode) -> Self {
        match mode {
            VerityMode::Off => Self::Off,
            VerityMode::On => Self::On,
            VerityMode::Require => Self::Require,
        }
    }
}

impl From<Verity> for VerityMode {
    fn from(verity: Verity) -> Self {
        match verity {
            Verity::Off => Self::Off,
            Verity::On => Self::On,
            Verity::Require => Self::Require,
        }
    }
}

/// Bounds on what an image may ask for.
#[derive(Args, Clone, Debug, Default)]
pub struct LimitArgs {
    /// Bytes of files, holes included, that may be written, or read by check [default: 64G, or 1000
    /// times the length of the image]
    #[arg(help_heading = "Limits on what the image may ask for", long, value_name = "BYTES", value_parser = size::parse)]
    pub max_total_bytes: Option<u64>,
    /// Entries of all directories together [default: 64 million]
    #[arg(
        help_heading = "Limits on what the image may ask for",
        long,
        value_name = "N"
    )]
    pub max_entries: Option<u64>,
    /// Depth of the directory tree [default: 1024]
    #[arg(
        help_heading = "Limits on what the image may ask for",
        long,
        value_name = "N"
    )]
    pub max_depth: Option<usize>,
    /// Bytes that a walk or a listing may hold in memory [default: 128M]
    #[arg(help_heading = "Limits on what the image may ask for", long, value_name = "BYTES", value_parser = size::parse)]
    pub max_walk_memory: Option<u64>,
    /// Bytes that a compressed file may decode to [default: 2G, and 50 times what was read of it]
    #[arg(help_heading = "Limits on what the image may ask for", long, value_name = "BYTES", value_parser = size::parse)]
    pub max_decoded: Option<u64>,
}

impl ImageArgs {
    /// Returns the names of the images that are read: the layers, or the image itself.
    pub fn images(&self) -> &[PathBuf] {
        match self.layers.as_slice() {
            [] => std::slice::from_ref(&self.image),
            layers => layers,
        }
    }

    /// Returns the arguments for opening one of the layers.
    pub fn of_layer(&self, layer: &Path) -> Self {
        Self {
            image: layer.to_path_buf(),
            layers: Vec::new(),
            ..self.clone()
        }
    }

    /// Converts the arguments into the library's options.
    pub fn open_options(&self) -> OpenOptions {
        let mut engine = EngineOptions {
            large_blocks: !self.source.legacy_blocks,
            guess_metadata: self.source.remote.fetches_ahead(),
            ..EngineOptions::default()
        };
        if let Some(readahead) = self.source.readahead {
            engine.readahead = readahead;
        }
        if let Some(cache) = self.source.cache {
            engine.cache = cache;
        }
        if let Some(threads) = self.source.threads {
            engine.threads = usize::from(threads);
        }
        OpenOptions {
            offset: self.source.offset,
            size: self.source.size,
            format: self.source.format.clone(),
            engine,
            limits: self.limits.limits(),
            devices: self.source.device.clone(),
            objects: self.source.store.objects.clone(),
            rescue: self.source.rescue,
            ownership: self.source.ownership,
            verity: self
                .source
                .store
                .verity
                .map(Verity::from)
                .unwrap_or_default(),
            digest: self.source.store.digest.clone(),
            locking: locking(self.source.no_lock),
            ..OpenOptions::default()
        }
    }
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if let Some(bytes) = self.max_total_bytes {
            limits.total_bytes = bytes;
        }
        if let Some(entries) = self.max_entries {
            limits.tree_entries = entries;
        }
        if let Some(depth) = self.max_depth {
            limits.depth = depth;
        }
        if let Some(bytes) = self.max_walk_memory {
            limits.walk_bytes = bytes;
        }
        if let Some(bytes) = self.max_decoded {
            limits.stream_bytes = bytes;
        }
        limits
    }
}

/// Returns a path in the image as bytes, since it need not be UTF-8. An absolute and a relative one are
/// the same.
pub fn image_path(path: &OsString) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_bytes()
}

/// Returns what `--no-lock` asks for.
pub const fn locking(no_lock: bool) -> Locking {
    if no_lock {
        Locking::Ignore
    } else {
        Locking::Respect
    }
}

/// Returns whether a name stands for standard input or output.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
