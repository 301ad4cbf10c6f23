//! Packs a directory into an image file, with the format and compressor by name.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_build::{BuildError, ImageOutput, NotKept, Patterns, ScanOptions, Tree, scan};
use forerun_io::Observer;

use crate::levels::compressor_level;

/// How a directory becomes an image file. The defaults make a SquashFS image as `mksquashfs` does.
///
/// ```
/// use forerun::{Image, PackOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let (files, image) = (dir.path().join("files"), dir.path().join("x.erofs"));
/// # std::fs::create_dir(&files)?;
/// # std::fs::write(files.join("a"), "hello")?;
/// let mut options = PackOptions::new("erofs");
/// options.compressor = Some("lz4".to_string());
/// let packed = options.pack(&files, &image)?;
/// assert_eq!(packed.len, image.metadata()?.len());
/// assert_eq!(Image::open(&image)?.read("a")?, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PackOptions {
    /// Name of the format, one of [`FORMATS`](Self::FORMATS).
    pub format: String,
    /// Name of the compressor; the format's default if not given: `gzip` for SquashFS, none for the
    /// others.
    pub compressor: Option<String>,
    /// Compression level; the compressor's default if not given.
    pub level: Option<u8>,
    /// Block size in bytes; the format's default if not given.
    pub block_size: Option<u32>,
    /// Number of encoding threads; 0 means one for each CPU.
    pub threads: usize,
    /// Patterns of paths to leave out, with everything below them.
    pub exclude: Vec<String>,
    /// Leaves extended attributes out.
    pub no_xattrs: bool,
    /// Sets later modification times to this one, in seconds since the epoch.
    pub latest: Option<i64>,
    /// Replaces an existing image.
    pub replace: bool,
    /// Cancels the packing with an error once the caller sets it.
    pub stop: Arc<AtomicBool>,
}

/// The result of packing.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Packed {
    /// Length of the image in bytes.
    pub len: u64,
    /// Total length of all regular files, each counted once.
    pub content_bytes: u64,
    /// Number of files, directories and other nodes.
    pub nodes: u64,
    /// Properties of the directory that the format cannot store.
    pub not_kept: Vec<NotKept>,
}

/// The error of packing. No image file exists afterwards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// An option that no format or compressor has.
    #[error("{0}")]
    Option(String),
    /// The directory could not be read, or the format cannot hold it.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The image could not be written.
    #[error("{}: {source}", path.display())]
    Output {
        /// The file to be written.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

impl PackOptions {
    /// Creates the default options of a format.
    pub fn new(format: impl Into<String>) -> Self {
        Self {
            format: format.into(),
            compressor: None,
            level: None,
            block_size: None,
            threads: 0,
            exclude: Vec::new(),
            no_xattrs: false,
            latest: None,
            replace: false,
            stop: Arc::default(),
        }
    }

    /// Packs the directory `source` into the file `image`. The file appears under its name only
    /// when it is complete and synced.
    ///
    /// # Errors
    /// [`PackError`].
    pub fn pack(&self, source: &Path, image: &Path) -> Result<Packed, PackError> {
        let writer = self.writer()?;
        let failed = |source| PackError::Output {
            path: image.to_path_buf(),
            source,
        };
        let is_there = image.try_exists().map_err(failed)?;
        if is_there && !self.replace {
            return Err(failed(io::ErrorKind::AlreadyExists.into()));
        }
        let mut out = beside(image).map_err(failed)?;
        let metadata = out.as_file().metadata().map_err(failed)?;
        let tree = self.tree(source, (metadata.dev(), metadata.ino()))?;
        let mut stoppable = Stoppable {
            out: out.as_file_mut(),
            stop: &self.stop,
        };
        let written = writer.write(&tree, &mut stoppable, &Arc::new(Observer::default()));
        let written = written.map_err(|error| match error {
            BuildError::Output { source, .. } => failed(source),
            other => other.into(),
        })?;
        out.flush().map_err(failed)?;
        out.as_file().sync_all().map_err(failed)?;
        let named = if self.replace {
            out.persist(image)
        } else {
            out.persist_noclobber(image)
        };
        named.map_err(|error| failed(error.error))?;
        Ok(Packed {
            len: written.len,
            content_bytes: tree.content_bytes(),
            nodes: forerun_io::u64_from(tree.len()),
            not_kept: writer.not_kept(&tree),
        })
    }

    /// Reads the directory, without the file that is being written.
    fn tree(&self, source: &Path, image: (u64, u64)) -> Result<Tree, PackError> {
        let options = ScanOptions {
            exclude: Patterns::new(&self.exclude)?,
            xattrs: !self.no_xattrs,
            skip: vec![image],
            latest: self.latest,
            ..ScanOptions::default()
        };
        Ok(scan(source, &options)?)
    }

    /// Returns the error for a compressor that the format does not have.
    pub(crate) fn no_compressor(&self, name: &str) -> PackError {
        PackError::Option(format!("{} has no compressor {name}", self.format))
    }

    /// Returns the level of a compressor, or of a format without compressors.
    pub(crate) fn level(&self, name: &str) -> Result<u8, PackError> {
        compressor_level(&self.format, name, self.level).map_err(PackError::Option)
    }

    /// Rejects options for blocks and compressors, for a format that has neither.
    #[cfg(any(feature = "romfs", feature = "exfat"))]
    pub(crate) fn plain(&self) -> Result<(), PackError> {
        match (&self.compressor, self.block_size) {
            (Some(name), _) if name != "none" => Err(self.no_compressor(name)),
            (_, Some(size)) => Err(PackError::Option(format!(
                "block size {size}: {} has a fixed block size",
                self.format
            ))),
            _ => self.level(&self.format).map(drop),
        }
    }
}

/// An output that fails once the caller wants to stop.
struct Stoppable<'s> {
    out: &'s mut File,
    stop: &'s AtomicBool,
}

impl Stoppable<'_> {
    fn check(&self) -> io::Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            Err(io::Error::other("stopped by the caller"))
        } else {
            Ok(())
        }
    }
}

impl Write for Stoppable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl ImageOutput for Stoppable<'_> {
    fn patch(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.out.patch(offset, bytes)
    }

    fn zeros(&mut self, len: u64) -> io::Result<()> {
        self.check()?;
        self.out.zeros(len)
    }
}

impl Default for PackOptions {
    fn default() -> Self {
        Self::new("squashfs")
    }
}

/// Makes a hidden file next to the image, which is renamed at the end. The user's umask applies.
fn beside(image: &Path) -> io::Result<tempfile::NamedTempFile> {
    let name = image.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut prefix = std::ffi::OsString::from(".");
    prefix.push(name);
    prefix.push(".");
    let dir = image.parent().filter(|dir| !dir.as_os_str().is_empty());
    let mut builder = tempfile::Builder::new();
    let builder = builder.prefix(&prefix).suffix(".partial");
    builder.make_in(dir.unwrap_or(Path::new(".")), |path| {
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
    })
}
