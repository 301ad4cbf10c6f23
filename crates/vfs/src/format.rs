//! A format as the registry knows it.

use std::sync::Arc;

use forerun_io::{BlockDevice, Limits, Observer, ReadAt};

use crate::{
    ArchiveSearch, FileSystem, FileSystemMut, KeepIndex, Magic, MakeSpool, Measure, NoBlobs,
    ResolveBlob, Result, Verity,
};

/// The parameters of opening an image.
#[derive(Clone)]
pub struct OpenWith {
    /// The source of metadata: the image, cached in blocks of the source.
    pub metadata: Arc<dyn ReadAt>,
    /// Bounds on what the image may ask for.
    pub limits: Limits,
    /// Counts the metadata that the driver decodes.
    pub observer: Arc<Observer>,
    /// Bytes that the driver may keep of decoded metadata.
    pub cache: u64,
    /// Data outside the image.
    pub blobs: OpenBlobs,
    /// Owners, permissions and time zone for formats that keep none.
    pub ownership: Ownership,
    /// Reads as much of a damaged image as possible instead of refusing it. A driver that can do so
    /// ignores damage to the structures that describe the image as a whole, reports it in
    /// [`VolumeInfo::warnings`](crate::VolumeInfo::warnings), and reads files as far as their
    /// places are known.
    pub rescue: bool,
    /// Parameters that only archives need.
    pub archive: OpenArchive,
}

/// How data outside the image is opened.
#[derive(Clone)]
pub struct OpenBlobs {
    /// Opens the image's blobs. The default refuses each.
    pub resolve: Arc<dyn ResolveBlob>,
    /// How the digests of blobs are used.
    pub verity: Verity,
}

impl Default for OpenBlobs {
    fn default() -> Self {
        Self {
            resolve: Arc::new(NoBlobs),
            verity: Verity::default(),
        }
    }
}

/// The parameters of opening an archive.
#[derive(Clone, Default)]
pub struct OpenArchive {
    /// Makes files for bytes that a driver must decode once and keep. Without it, images that need
    /// such files are refused.
    pub spool: Option<Arc<dyn MakeSpool>>,
    /// Keeps an index that takes long to make. Without it, each opening makes it.
    pub index: Option<Arc<dyn KeepIndex>>,
    /// Whether the archive is one layer of several. Nodes that stand for files of lower layers are
    /// then in the tree, and [`Layered`](crate::Layered) names them; otherwise they are left out.
    pub is_layer: bool,
    /// The table of contents by which the driver opens the archive, if its formats may have one. Without it, a table in
    /// the archive is not trusted.
    pub table: Option<ProvenTable>,
}

/// A table of the contents of an image, in the image or beside it, and the digest that proves it: from a
/// document that the caller trusts. The table in turn has a digest for each piece of the contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProvenTable {
    /// SHA-256 of the table: of its decoded bytes for [`TablePlace::Footer`], and of its stored
    /// bytes for the others.
    pub digest: [u8; 32],
    /// Where it is.
    pub place: TablePlace,
}

/// Where a table of contents is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TablePlace {
    /// The last bytes of the image say where.
    Footer,
    /// At this place.
    At {
        /// Offset in the image.
        offset: u64,
        len: u64,
        /// Bytes that these decode to.
        decoded_len: u64,
    },
    /// In another place: its bytes.
    Beside(Arc<[u8]>),
}

/// Substitutes for attributes that a format lacks, from the options of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Owner of all nodes.
    pub uid: u32,
    /// Group of all nodes.
    pub gid: u32,
    /// Permission bits that files lack.
    pub file_mask: u16,
    /// Permission bits that directories lack.
    pub directory_mask: u16,
    /// The time zone, in minutes east of UTC, of stored times without a zone and of new times.
    pub utc_offset: i16,
}

impl Default for Ownership {
    /// Returns owner root, `rwxr-xr-x`, UTC.
    fn default() -> Self {
        Self {
            uid: 0,
            gid: 0,
            file_mask: 0o022,
            directory_mask: 0o022,
            utc_offset: 0,
        }
    }
}

/// The parameters of opening a volume for changes.
#[derive(Clone)]
pub struct OpenMutWith {
    /// The device. The driver reads metadata from it, and keeps changed metadata until it is
    /// written. No other code writes metadata.
    pub device: Arc<dyn BlockDevice>,
    /// Bounds on what the image may ask for.
    pub limits: Limits,
    /// Counts the driver's reads and writes.
    pub observer: Arc<Observer>,
    /// Bytes that the driver may keep of clean metadata.
    pub cache: u64,
    /// Owners, permissions and time zone.
    pub ownership: Ownership,
    /// Each operation is durable when it returns.
    pub dirsync: bool,
    /// Each write of data is durable when it returns.
    pub sync: bool,
    /// Clusters that become free are discarded.
    pub discard: bool,
    /// After damage in metadata, continue as far as possible instead of taking no more changes.
    pub continue_on_error: bool,
    /// Names of the options that are set and that only this driver has. It ignores those of other drivers.
    pub driver_options: Vec<&'static str>,
}

impl OpenMutWith {
    /// Creates parameters with the default limits, budget and options.
    #[must_use]
    pub fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            limits: Limits::default(),
            observer: Arc::default(),
            cache: OpenWith::CACHE,
            ownership: Ownership::default(),
            dirsync: false,
            sync: false,
            discard: false,
            continue_on_error: false,
            driver_options: Vec::new(),
        }
    }
}

impl std::fmt::Debug for OpenMutWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenMutWith")
            .field("len", &self.device.len())
            .field("limits", &self.limits)
            .field("cache", &self.cache)
            .field("ownership", &self.ownership)
            .field("dirsync", &self.dirsync)
            .finish_non_exhaustive()
    }
}

/// Opens an image for reading and writing.
pub type OpenMut = fn(with: OpenMutWith) -> Result<Arc<dyn FileSystemMut>>;

impl OpenWith {
    /// Bytes of decoded metadata that are kept if the caller has no budget of its own.
    pub const CACHE: u64 = 32 << 20;

    /// Creates parameters with the default limits and budget, and counters of their own.
    #[must_use]
    pub fn new(metadata: Arc<dyn ReadAt>) -> Self {
        Self {
            metadata,
            limits: Limits::default(),
            observer: Arc::default(),
            cache: Self::CACHE,
            blobs: OpenBlobs::default(),
            ownership: Ownership::default(),
            rescue: false,
            archive: OpenArchive::default(),
        }
    }
}

impl std::fmt::Debug for OpenWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenWith")
            .field("len", &self.metadata.len())
            .field("limits", &self.limits)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// Opens an image for reading.
pub type OpenFormat = fn(with: OpenWith) -> Result<Arc<dyn FileSystem>>;

/// A format as the registry sees it: how to recognise it, and how to open it. A table entry, not a
/// trait: the set of formats is closed and listed in one place.
#[derive(Clone, Copy)]
pub struct Format {
    /// Name, as `--format` takes it and `info` prints it.
    pub name: &'static str,
    /// Bytes from the start of the image that [`probe`](Self::probe) needs; it gets fewer if the
    /// image is shorter.
    pub probe_len: usize,
    /// Returns whether the image claims to be of this format. Cheap; looks at magic numbers only.
    pub probe: fn(head: &[u8]) -> bool,
    /// How images are recognised that have other bytes before them, as archives that unpack themselves do. Tried
    /// if no format knows the first bytes.
    pub tail: Option<TailProbe>,
    /// The magic numbers of images that the driver reads: a search looks for them in files of unknown contents.
    pub magics: &'static [Magic],
    /// How a search finds archives, which have no superblock.
    pub archive: Option<&'static ArchiveSearch>,
    /// Validates a superblock that a search has found, and says where its image ends.
    pub measure: Measure,
    /// Opens the image for reading.
    pub open: OpenFormat,
    /// Opens the image for reading and writing, if the driver can.
    pub open_mut: Option<OpenMut>,
}

/// How an image is recognised by its end.
#[derive(Clone, Copy, Debug)]
pub struct TailProbe {
    /// Bytes before the end of the file that [`probe`](Self::probe) needs; it gets fewer if the file is shorter.
    pub len: usize,
    /// Returns whether the file claims to be of this format.
    pub probe: fn(tail: &[u8]) -> bool,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Format")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
