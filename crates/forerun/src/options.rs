//! The options of opening an image.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use forerun_engine::EngineOptions;
use forerun_io::{EventSink, Limits};
#[cfg(any(feature = "layouts", feature = "remote"))]
use forerun_remote::RemoteOptions;
use forerun_vfs::{KeepIndex, MakeSpool, Ownership, ProvenTable, Verity};

use crate::locking::Locking;

/// Options of opening an image. The defaults suit a whole local file of any format.
///
/// ```
#[doc = include_str!("example.md")]
/// use forerun::OpenOptions;
///
/// // An image that lies behind 4 KiB of other bytes.
/// # let image = std::fs::read("x.sqsh")?;
/// # std::fs::write("firmware.bin", [vec![0; 4096], image].concat())?;
/// let options = OpenOptions::new().offset(4096).format("squashfs");
/// let image = options.open("firmware.bin")?;
/// assert_eq!(image.read("/etc/passwd")?, b"root:x:0:0\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Offset of the image in the source, in bytes. At 0, a source that is not an image may be a
    /// container that holds one: an AppImage, another executable, a SIF file.
    pub offset: u64,
    /// Length of the image in the source, in bytes; up to the end if not given.
    pub size: Option<u64>,
    /// Name of the format; found by content if not given.
    pub format: Option<String>,
    /// Blocks, readahead, cache, threads.
    pub engine: EngineOptions,
    /// Bounds on what the image may ask for.
    pub limits: Limits,
    /// Files and devices that hold data of the image, in the order of its device table.
    pub devices: Vec<PathBuf>,
    /// The object store of a composefs image. An EROFS image opened with one is opened as composefs.
    pub objects: Option<PathBuf>,
    /// The base directories of a composefs image, whose files it names by any path below them. Searched in this order,
    /// after the object store.
    pub base_dirs: Vec<PathBuf>,
    /// How the digests of objects in the image are used.
    pub verity: Verity,
    /// The fs-verity digest that a composefs image must have, in hexadecimal digits. The whole
    /// image is read to compute it.
    pub digest: Option<String>,
    /// Owners, permissions and time zone for formats that do not store them.
    pub ownership: Ownership,
    /// Reads as much of a damaged image as possible instead of refusing it: exFAT volumes with a
    /// damaged bitmap, up-case table, root directory or boot region, and files up to where their
    /// cluster chain breaks.
    pub rescue: bool,
    /// How to treat locks of other processes, for formats that change.
    pub locking: Locking,
    /// Makes temporary files for archives compressed in one piece, whose decoded bytes must be
    /// kept. By default they are in the directory for temporary files.
    pub spool: Option<Arc<dyn MakeSpool>>,
    /// Stores the index of a compressed archive for the next opening; see `KeptIndex`. Without it,
    /// each opening makes the index again.
    pub index: Option<Arc<dyn KeepIndex>>,
    /// The table of contents to read an archive of the format `tar` by, with its digest from a
    /// document that the caller trusts. Without it, a table in the archive is ignored.
    pub table: Option<ProvenTable>,
    /// Receives an event for each crossing of a boundary.
    pub events: Option<Arc<dyn EventSink>>,
    /// How an image on a server is fetched and cached.
    #[cfg(any(feature = "layouts", feature = "remote"))]
    pub remote: RemoteOptions,
}

impl OpenOptions {
    /// Creates the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the [offset](#structfield.offset) of the image in its file, in bytes.
    #[must_use]
    pub fn offset(mut self, offset: u64) -> Self {
        self.offset = offset;
        self
    }

    /// Sets the [length](#structfield.size) of the image in its file, in bytes.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// Sets the name of the [format](#structfield.format), one of [`format_names`](crate::format_names).
    #[must_use]
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.format = Some(name.into());
        self
    }

    /// Sets the [bounds](#structfield.limits) on what the image may ask for.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Returns the limits for an image of `len` bytes. The image's length does not bound data in
    /// files outside it.
    pub(crate) fn limits_of(&self, len: u64) -> Limits {
        let mut limits = self.limits.clone();
        if !self.has_store() && self.devices.is_empty() {
            limits.total_bytes = limits.total_bytes_of(len);
        }
        limits
    }

    /// Adds the next of the [devices](#structfield.devices) that hold data of the image.
    #[must_use]
    pub fn device(mut self, path: impl Into<PathBuf>) -> Self {
        self.devices.push(path.into());
        self
    }

    /// Sets the [object store](#structfield.objects) of a composefs image.
    #[must_use]
    pub fn objects(mut self, path: impl Into<PathBuf>) -> Self {
        self.objects = Some(path.into());
        self
    }

    /// Returns whether the image is opened with an object store or a base directory.
    pub(crate) const fn has_store(&self) -> bool {
        self.objects.is_some() || !self.base_dirs.is_empty()
    }

    /// Sets how an image [on a server](#structfield.remote) is fetched and cached.
    #[cfg(any(feature = "layouts", feature = "remote"))]
    #[must_use]
    pub fn remote(mut self, remote: RemoteOptions) -> Self {
        self.remote = remote;
        self
    }

    /// If `breaks`, lets a writer continue although other processes read.
    pub const fn break_lock(&mut self, breaks: bool) {
        if breaks {
            self.locking = Locking::Break;
        }
    }

    /// Returns the part of a source of `len` bytes that the options select, clamped to the source.
    pub(crate) fn range(&self, len: u64) -> Range<u64> {
        let end = self.size.and_then(|size| self.offset.checked_add(size));
        self.offset.min(len)..end.map_or(len, |end| end.min(len))
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("offset", &self.offset)
            .field("size", &self.size)
            .field("format", &self.format)
            .field("devices", &self.devices)
            .field("objects", &self.objects)
            .field("verity", &self.verity)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}
