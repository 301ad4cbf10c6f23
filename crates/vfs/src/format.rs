use std::sync::Arc;

use forerun_io::{BlockDevice, Limits, Observer, ReadAt};

use crate::{
    ArchiveSearch, FileSystem, FileSystemMut, KeepIndex, Magic, MakeSpool, Measure, NoBlobs,
    ResolveBlob, Result, Verity, Zone,
};

#[derive(Clone)]
pub struct OpenWith {
    /// The source of metadata: the image, cached in blocks of the source.
    pub metadata: Arc<dyn ReadAt>,
    pub limits: Limits,
    /// Counts the metadata that the driver decodes.
    pub observer: Arc<Observer>,
    /// Most bytes of decoded metadata that the driver may cache.
    pub cache: u64,
    pub blobs: OpenBlobs,
    /// Owners, permissions and time zone for formats that store none.
    pub ownership: Ownership,
    /// Reads as much of a damaged image as possible instead of refusing it. A driver that can do so
    /// ignores damage to the structures that describe the image as a whole and reports it in
    /// [`VolumeInfo::warnings`](crate::VolumeInfo::warnings). It reads the files whose data it can
    /// still locate.
    pub rescue: bool,
    pub archive: OpenArchive,
}

/// How to open data outside the image.
#[derive(Clone)]
pub struct OpenBlobs {
    /// Opens the image's blobs. The default refuses all of them.
    pub resolve: Arc<dyn ResolveBlob>,
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

#[derive(Clone, Default)]
pub struct OpenArchive {
    /// Makes temporary files for bytes that a driver must decode once and keep. Without it, images
    /// that need such files are refused.
    pub spool: Option<Arc<dyn MakeSpool>>,
    /// Keeps an index that takes long to make. Without it, each opening makes the index.
    pub index: Option<Arc<dyn KeepIndex>>,
    /// Whether the archive is one layer of several. If so, the tree has nodes that stand for files
    /// of lower layers, and [`Layered`](crate::Layered) names them; otherwise they are left out.
    pub is_layer: bool,
    /// The table of contents to open the archive with. Without it, a table in the archive is not
    /// trusted.
    pub table: Option<ProvenTable>,
}

/// A table of contents, in the image or beside it, and its digest from a document that the caller
/// trusts. The table in turn has a digest for each piece of the contents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProvenTable {
    /// SHA-256 of the table: of its decoded bytes for [`TablePlace::Footer`], otherwise of its
    /// stored bytes.
    pub digest: [u8; 32],
    pub place: TablePlace,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TablePlace {
    /// The last bytes of the image say where the table is.
    Footer,
    At {
        offset: u64,
        len: u64,
        /// Length of the table after decoding.
        decoded_len: u64,
    },
    /// The table is not in the image; these are its bytes.
    Beside(Arc<[u8]>),
}

/// Substitutes for attributes that a format lacks, from the options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    pub uid: u32,
    pub gid: u32,
    /// Permission bits to remove from files.
    pub file_mask: u16,
    /// Permission bits to remove from directories.
    pub directory_mask: u16,
    /// The zone of stored times without one, and of new times.
    pub zone: Zone,
}

impl Default for Ownership {
    /// Returns owner root, `rwxr-xr-x`, UTC.
    fn default() -> Self {
        Self {
            uid: 0,
            gid: 0,
            file_mask: 0o022,
            directory_mask: 0o022,
            zone: Zone::default(),
        }
    }
}

#[derive(Clone)]
pub struct OpenMutWith {
    /// The device. The driver reads metadata from it, and keeps changed metadata until it is
    /// written. No other code writes metadata.
    pub device: Arc<dyn BlockDevice>,
    pub limits: Limits,
    /// Counts the driver's reads and writes.
    pub observer: Arc<Observer>,
    /// Most bytes of clean metadata that the driver may cache.
    pub cache: u64,
    pub ownership: Ownership,
    pub dirsync: bool,
    /// Whether each write of data is durable when it returns.
    pub sync: bool,
    /// Whether to discard clusters that become free.
    pub discard: bool,
    /// Whether to continue as far as possible after damage in metadata, instead of taking no more
    /// changes.
    pub continue_on_error: bool,
    /// The options that are set and that only one driver has. A driver ignores the options of
    /// others.
    pub driver_options: Vec<&'static str>,
}

impl OpenMutWith {
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

pub type OpenMut = fn(with: OpenMutWith) -> Result<Arc<dyn FileSystemMut>>;

impl OpenWith {
    /// Most bytes of decoded metadata to cache if the caller sets no budget.
    pub const CACHE: u64 = 32 << 20;

    /// Creates parameters with the default limits and budget, and with counters of their own.
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

pub type OpenFormat = fn(with: OpenWith) -> Result<Arc<dyn FileSystem>>;

/// A format as the registry sees it: how to recognise it, and how to open it. A struct and not a
/// trait, because the set of formats is closed and listed in one place.
#[derive(Clone, Copy)]
pub struct Format {
    /// The name that `--format` takes and `info` prints.
    pub name: &'static str,
    /// Bytes from the start of the image that [`probe`](Self::probe) needs; it gets fewer if the
    /// image is shorter.
    pub probe_len: usize,
    /// Returns whether the image claims to be of this format. Looks only at magic numbers, so it is
    /// cheap.
    pub probe: fn(head: &[u8]) -> bool,
    /// How to recognise images that have other bytes before them, such as self-extracting archives.
    /// Tried if no format recognises the first bytes.
    pub tail: Option<TailProbe>,
    /// The magic numbers that a search looks for in files of unknown contents.
    pub magics: &'static [Magic],
    /// How a search finds archives, which have no superblock.
    pub archive: Option<&'static ArchiveSearch>,
    /// Validates a superblock that a search has found, and returns where its image ends.
    pub measure: Measure,
    pub open: OpenFormat,
    /// Opens the image for reading and writing, if the driver can.
    pub open_mut: Option<OpenMut>,
}

/// How to recognise an image by its end.
#[derive(Clone, Copy, Debug)]
pub struct TailProbe {
    /// Bytes before the end of the file that [`probe`](Self::probe) needs; it gets fewer if the
    /// file is shorter.
    pub len: usize,
    pub probe: fn(tail: &[u8]) -> bool,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Format")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
