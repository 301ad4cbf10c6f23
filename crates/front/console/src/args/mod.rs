//! Arguments that commands share. The help, man pages and completions are made from these
//! definitions, so a doc comment here is documentation for users. Nothing here knows a command;
//! `cli` combines them.

#[cfg(feature = "network")]
mod remote;
#[cfg(not(feature = "network"))]
mod without_network;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::{ArgAction, Args};
use forerun::unstable::locks::Locking;
use forerun::vfs::{Ownership, Verity, Zone};
use forerun::{EngineOptions, Limits, OpenOptions};

use crate::size;

#[cfg(feature = "network")]
pub use remote::{CacheArgs, Mirrors, RemoteArgs, ServerArgs};
#[cfg(not(feature = "network"))]
pub use without_network::LocalArgs as RemoteArgs;

/// Options that every command understands.
#[derive(Args, Clone, Debug, Default)]
pub struct Global {
    /// Print errors only, no progress bar and no notes
    #[arg(help_heading = "Output", short, long, global = true)]
    pub quiet: bool,
    /// Print JSON: data to standard output, errors to standard error
    #[arg(help_heading = "Output", long, global = true)]
    pub json: bool,
    /// Print counters at the end: requests, bytes, cache hits
    #[arg(help_heading = "Output", long, global = true)]
    pub stats: bool,
    /// Log to standard error; -vv logs more
    #[arg(help_heading = "Output", short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Turn off the sandbox. In the sandbox, the process gives up all rights that it does not need
    /// once its files are open
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
    /// Stack several images as one tree, the lowest first; repeat for each
    ///
    /// Replaces the argument IMAGE. The images are stacked like the layers of a container.
    #[arg(help_heading = "Image", id = LAYERS, long = "layer", value_name = "IMAGE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["offset", "size", "partition", "format", "image_devices"])]
    pub layers: Vec<PathBuf>,
    #[command(flatten)]
    pub source: SourceArgs,
    #[command(flatten)]
    pub limits: LimitArgs,
}

/// The parser's name of `--layer`.
pub const LAYERS: &str = "image_layers";

/// How an image is read.
#[derive(Args, Clone, Debug, Default)]
pub struct SourceArgs {
    /// Open the image as this format instead of detecting it
    #[arg(help_heading = "Image", long, value_name = "NAME")]
    pub format: Option<String>,
    /// Byte offset of the image in the file, such as 1M or 0x100000 [default: 0]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
    /// Length of the image in the file [default: to the end of the file]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// Open partition N of the file; forerun scan shows the numbers
    #[arg(help_heading = "Image", long, value_name = "N", conflicts_with_all = ["offset", "size"])]
    pub partition: Option<u32>,
    /// File or block device with data of an EROFS image; repeat for more, in the order of the
    /// image's device table
    #[arg(help_heading = "Image", id = "image_devices", long = "device", value_name = "PATH", value_hint = clap::ValueHint::FilePath)]
    pub device: Vec<PathBuf>,
    #[command(flatten)]
    pub store: StoreArgs,
    /// Read up to this many bytes ahead of sequential readers; 0 turns readahead off [default: 8M]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub readahead: Option<u64>,
    /// Memory for cached blocks [default: 256M, or an eighth of the available memory if that is
    /// less]
    #[arg(help_heading = "Image", long, value_name = "BYTES", value_parser = size::parse)]
    pub cache: Option<u64>,
    /// Number of threads that read and decode ahead [default: 0, one per CPU, or fewer if memory is
    /// scarce]
    #[arg(help_heading = "Image", long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=256))]
    pub threads: Option<u16>,
    /// Read without a lock, even if another process or the kernel writes to the image; the data may be
    /// inconsistent
    #[arg(help_heading = "Image", long)]
    pub no_lock: bool,
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Read a truncated or damaged image as far as possible; files without a name appear in
    /// lost+found
    #[arg(help_heading = "Image", long = "salvage")]
    pub rescue: bool,
    /// Zone of times that are stored without one (exFAT, ZIP), such as Europe/Berlin [default: UTC]
    #[arg(help_heading = "Image", long, value_name = "ZONE", value_parser = zone)]
    pub tz: Option<Zone>,
    /// Attributes that the format lacks. Only mounts have options for them.
    #[arg(skip)]
    pub ownership: Ownership,
    /// Reads in the legacy way: 1 KiB blocks, one at a time, nothing ahead. Only mounts have an option for it.
    #[arg(skip)]
    pub legacy_blocks: bool,
}

fn zone(name: &str) -> Result<Zone, String> {
    Zone::named(name).ok_or_else(|| "no zone of that name in /usr/share/zoneinfo".to_string())
}

/// The objects of a composefs image.
#[derive(Args, Clone, Debug, Default)]
pub struct StoreArgs {
    /// Object store of a composefs image
    #[arg(help_heading = "Image", long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub objects: Option<PathBuf>,
    /// Directory below which a composefs image names files by any path; repeat to search several in order
    #[arg(help_heading = "Image", long = "basedir", value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub base_dirs: Vec<PathBuf>,
    /// Check objects of a composefs image against their digests before use [default: off]
    #[arg(help_heading = "Image", long, value_name = "MODE")]
    pub verity: Option<VerityMode>,
    /// Refuse another digest of the image: the mount option `digest=`
    #[arg(skip)]
    pub digest: Option<String>,
}

impl StoreArgs {
    /// Returns the object store and the base directories.
    pub fn dirs(&self) -> impl Iterator<Item = &PathBuf> {
        self.objects.iter().chain(&self.base_dirs)
    }
}

/// A use of the digests of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum VerityMode {
    /// Do not check objects
    Off,
    /// Refuse objects whose digest differs from the one in the image
    On,
    /// Also refuse objects without a digest in the image
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
    /// Change a limit that protects against hostile images; repeat for more
    #[arg(help_heading = "Limits", long = "limit", value_name = "NAME=VALUE", long_help = LIMITS)]
    pub limits: Vec<Limit>,
}

const LIMITS: &str = "\
Change a limit that protects against hostile images; repeat for more

- total-bytes: bytes of files that are written or checked, holes included [default: 64G or 1000 times the image, whichever is more]
- entries: number of entries in all directories [default: 64 million]
- depth: depth of the directory tree [default: 1024]
- walk-memory: memory for a walk or a listing [default: 128M]
- decoded: bytes that a compressed file decodes to [default: 2G or 50 times the bytes read, whichever is more]";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    TotalBytes(u64),
    Entries(u64),
    Depth(usize),
    WalkMemory(u64),
    Decoded(u64),
    /// Of one name. Not set by an option.
    NameLength(usize),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("not NAME=VALUE")?;
        let count = |_| format!("{name} takes a number");
        match name {
            "total-bytes" => size::parse(value).map(Self::TotalBytes),
            "entries" => value.parse().map(Self::Entries).map_err(count),
            "depth" => value.parse().map(Self::Depth).map_err(count),
            "walk-memory" => size::parse(value).map(Self::WalkMemory),
            "decoded" => size::parse(value).map(Self::Decoded),
            _ => Err(
                "the limits are total-bytes, entries, depth, walk-memory and decoded".to_string(),
            ),
        }
    }
}

impl ImageArgs {
    /// Returns the names of the images to read: the layers, or the image itself.
    pub fn images(&self) -> &[PathBuf] {
        match self.layers.as_slice() {
            [] => std::slice::from_ref(&self.image),
            layers => layers,
        }
    }

    pub fn of_layer(&self, layer: &Path) -> Self {
        Self {
            image: layer.to_path_buf(),
            layers: Vec::new(),
            ..self.clone()
        }
    }

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
            base_dirs: self.source.store.base_dirs.clone(),
            rescue: self.source.rescue,
            ownership: Ownership {
                zone: self
                    .source
                    .tz
                    .clone()
                    .unwrap_or_else(|| self.source.ownership.zone.clone()),
                ..self.source.ownership.clone()
            },
            verity: self
                .source
                .store
                .verity
                .map(Verity::from)
                .unwrap_or_default(),
            digest: self.source.store.digest.clone(),
            locking: locking(self.source.no_lock),
            remote: self.source.remote.options(),
            ..OpenOptions::default()
        }
    }
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        for limit in &self.limits {
            match *limit {
                Limit::TotalBytes(bytes) => limits.total_bytes = bytes,
                Limit::Entries(entries) => limits.tree_entries = entries,
                Limit::Depth(depth) => limits.depth = depth,
                Limit::WalkMemory(bytes) => limits.walk_bytes = bytes,
                Limit::Decoded(bytes) => limits.stream_bytes = bytes,
                Limit::NameLength(len) => limits.name_len = len,
            }
        }
        limits
    }
}

/// Returns a path in the image as bytes, since it need not be UTF-8. A leading slash has no effect.
pub fn image_path(path: &OsString) -> &[u8] {
    use std::os::unix::ffi::OsStrExt;
    path.as_bytes()
}

pub const fn locking(no_lock: bool) -> Locking {
    if no_lock {
        Locking::Ignore
    } else {
        Locking::Respect
    }
}

/// Returns whether a name means standard input or output.
pub fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}
