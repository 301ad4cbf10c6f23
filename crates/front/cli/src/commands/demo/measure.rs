//! The measured work: a file read in an image, and a tree listed, through a mount where there is FUSE,
//! else by the library.
//!
//! All caches are dropped before. Work that may take very long on a slow disk gets some seconds, and the
//! rest is extrapolated.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use forerun::vfs::{Error, FollowLast, resolve};
use forerun::{EngineOptions, Image, OpenOptions};
use forerun_fuse::{Mount, MountOptions};
use forerun_io::{Counter, StatsSnapshot};
use md5::{Digest, Md5};

use super::model::{Row, RowRole, extrapolate, ratio};
use super::place::{DemoDir, drop_caches, interrupt, is_interrupted};
use super::{Data, FILE};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;

/// Bytes of one read, where a way has none of its own.
pub const CHUNK: usize = 256 << 10;
/// Longest time for a line of a legacy way.
pub const LEGACY_TIME: Duration = Duration::from_secs(4);

/// State that all parts share.
pub struct Kit {
    /// Where the files are.
    pub place: DemoDir,
    /// The bytes of all images.
    pub data: Data,
    /// Bytes of the largest file.
    pub size: u64,
    /// The reason why nothing is mounted, once a mount has failed.
    no_mount: RefCell<Option<String>>,
    /// Whether all caches could be dropped each time.
    dropped_all: Cell<bool>,
}

impl Kit {
    /// Creates it.
    pub const fn new(place: DemoDir, data: Data, size: u64) -> Self {
        Self {
            place,
            data,
            size,
            no_mount: RefCell::new(None),
            dropped_all: Cell::new(true),
        }
    }

    /// Makes the next read of the file come from the disk.
    pub fn drop_caches(&self, path: &Path) -> Result<()> {
        let all = drop_caches(path)?;
        self.dropped_all.set(self.dropped_all.get() && all);
        Ok(())
    }

    /// Returns whether all caches of the machine were dropped each time.
    pub const fn dropped_all(&self) -> bool {
        self.dropped_all.get()
    }

    /// Returns the work that was left out of a part, which mounts an image where it can or never does.
    pub fn left_out(&self, mounts: bool) -> Vec<String> {
        let no_mount = self.no_mount().filter(|_| mounts);
        let no_mount = no_mount.map(|why| format!("a mount ({why}). The library did the work."));
        let cached = (!self.dropped_all())
            .then(|| "dropping all caches of the machine, which only root can do.".to_string());
        no_mount.into_iter().chain(cached).collect()
    }

    /// Returns the reason why nothing is mounted, if a mount has failed.
    pub fn no_mount(&self) -> Option<String> {
        self.no_mount.borrow().clone()
    }

    /// Mounts with `mount`, unless that failed before. Remembers why it failed.
    pub fn mounted(
        &self,
        mount: impl FnOnce(&Path) -> std::result::Result<Mount, forerun_fuse::MountError>,
    ) -> Result<Option<DemoMount>> {
        if self.no_mount.borrow().is_some() {
            return Ok(None);
        }
        match mount(&self.place.mountpoint()?) {
            Ok(mount) => {
                let unmounter = mount.unmounter();
                let guard = OnInterrupt::new(move || {
                    interrupt();
                    let _ = unmounter.unmount();
                });
                Ok(Some(DemoMount {
                    mount,
                    _guard: guard,
                }))
            }
            Err(error) => {
                let why = crate::error::without_errno(&error.to_string());
                *self.no_mount.borrow_mut() = Some(why);
                Ok(None)
            }
        }
    }
}

/// A mount that goes with the work, also when that is interrupted.
pub struct DemoMount {
    /// The mount.
    pub mount: Mount,
    _guard: OnInterrupt,
}

/// A way to read a file in an image.
#[derive(Clone, Debug)]
pub struct ReadWay {
    /// How the engine reads.
    pub engine: EngineOptions,
    /// Whether the kernel asks a mount for more than one page at a time.
    pub kernel_readahead: bool,
    /// Bytes of one read by the library.
    pub piece: usize,
    /// Longest time, for a way that may take very long.
    pub patience: Option<Duration>,
}

impl ReadWay {
    /// Returns forerun's own way.
    pub fn ours() -> Self {
        Self {
            engine: EngineOptions::default(),
            kernel_readahead: true,
            piece: CHUNK,
            patience: None,
        }
    }
}

/// The result of reading.
pub struct FileReading {
    bytes: u64,
    total: u64,
    time: Duration,
    md5: String,
    /// Counters of the engine; none for files that it does not read.
    stats: Option<StatsSnapshot>,
}

impl FileReading {
    /// Returns whether all was read.
    pub const fn is_complete(&self) -> bool {
        self.bytes == self.total
    }

    /// Makes a line of it.
    pub fn row(
        &self,
        id: &'static str,
        role: RowRole,
        what: impl Into<String>,
        counter: Counter,
    ) -> Row {
        let count = self.stats.as_ref().map(|stats| stats.get(counter));
        Row {
            id,
            role,
            what: what.into(),
            seconds: self.time.as_secs_f64() * ratio(self.total, self.bytes),
            count: count.map(|count| extrapolate(count, self.total, self.bytes)),
            extrapolated: !self.is_complete(),
        }
    }

    /// Fails where other bytes were read than `md5` says.
    pub fn verify(&self, md5: &str) -> Result<()> {
        if self.is_complete() && self.md5 != md5 {
            let message = format!("md5 {} of what was read instead of {md5}", self.md5);
            return Err(Failure::new(Exit::Image, "mismatch", message));
        }
        Ok(())
    }

    /// Returns the faster of two.
    pub fn better(self, other: Self) -> Self {
        match self.time <= other.time {
            true => self,
            false => other,
        }
    }
}

/// Reads a file that is no image, or an image itself, to `len`, from the disk.
pub fn plain(kit: &Kit, path: &Path, len: u64) -> Result<FileReading> {
    kit.drop_caches(path)?;
    by_system(path, len)
}

/// Reads a file as the system has it, to `len`.
pub fn by_system(path: &Path, len: u64) -> Result<FileReading> {
    let failed = |error: io::Error| Failure::source(&error).of(path.display());
    let file = File::open(path).map_err(failed)?;
    let reading = timed(len, None, CHUNK, |at, chunk| file.read_at(chunk, at));
    reading.map_err(failed)
}

/// Reads the file in an image, mounted where that is possible.
pub fn in_image(kit: &Kit, path: &Path, way: &ReadWay) -> Result<FileReading> {
    kit.drop_caches(path)?;
    let open = OpenOptions {
        engine: way.engine.clone(),
        ..OpenOptions::default()
    };
    let image = Image::open_with(path, &open).map_err(Error::from)?;
    let options = mount_options(way.kernel_readahead);
    let mounted = kit.mounted(|dir| forerun_fuse::mount(&image, dir, &options))?;
    match mounted {
        Some(mounted) => through_mount(&mounted.mount, way),
        None => by_library(&image, way),
    }
}

/// Returns the options of a mount; the engine's are those of the image.
fn mount_options(kernel_readahead: bool) -> MountOptions {
    let mut options = MountOptions::default();
    options.large_blocks = kernel_readahead;
    options
}

fn through_mount(mount: &Mount, way: &ReadWay) -> Result<FileReading> {
    let path = mount.path().join(FILE);
    let failed = |error: io::Error| Failure::source(&error).of(path.display());
    let before = mount.stats();
    let file = File::open(&path).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let read = timed(total, way.patience, CHUNK, |at, chunk| {
        file.read_at(chunk, at)
    });
    let mut reading = read.map_err(failed)?;
    reading.stats = Some(mount.stats().since(&before));
    Ok(reading)
}

/// Reads the file in an image by the library.
pub fn by_library(image: &Image, way: &ReadWay) -> Result<FileReading> {
    let reader = image.reader();
    let fs = reader.fs();
    let node = resolve(fs, FILE.as_bytes(), FollowLast::Yes, reader.limits())?;
    let total = fs.metadata(node)?.size;
    let stats = reader.observer().stats();
    let before = stats.snapshot();
    let read = timed(total, way.patience, way.piece, |at, chunk| {
        reader.read_into(node, at, chunk).map_err(io::Error::other)
    });
    let mut reading = read.map_err(|error| Failure::source(&error))?;
    reading.stats = Some(stats.snapshot().since(&before));
    Ok(reading)
}

/// Reads to the end, or until patience ends, and computes the md5 meanwhile.
fn timed(
    total: u64,
    patience: Option<Duration>,
    piece: usize,
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<FileReading> {
    let mut md5 = Md5::new();
    let mut chunk = vec![0; piece];
    let mut bytes = 0_u64;
    let start = Instant::now();
    while bytes < total {
        if is_interrupted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let want = usize::try_from(total - bytes).unwrap_or(piece).min(piece);
        let got = read(bytes, chunk.get_mut(..want).unwrap_or_default())?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        md5.update(chunk.get(..got).unwrap_or_default());
        bytes = bytes.saturating_add(u64::try_from(got).unwrap_or(u64::MAX));
        if patience.is_some_and(|patience| start.elapsed() >= patience) {
            break;
        }
    }
    Ok(FileReading {
        bytes,
        total,
        time: start.elapsed(),
        md5: hex(&md5.finalize()),
        stats: None,
    })
}

/// Formats bytes in hexadecimal, as md5sum does.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The result of listing a tree.
pub struct TreeListing {
    /// Entries that were listed.
    pub entries: u64,
    /// The time that it took.
    pub time: Duration,
    /// Counters of the engine, from the opening of the image on.
    pub stats: StatsSnapshot,
}

/// Lists the tree in an image with the metadata of every entry, mounted where that is possible. The time
/// is from the opening on, since that is when metadata is read ahead.
pub fn list(kit: &Kit, path: &Path, engine: &EngineOptions) -> Result<TreeListing> {
    kit.drop_caches(path)?;
    let open = OpenOptions {
        engine: engine.clone(),
        ..OpenOptions::default()
    };
    let start = Instant::now();
    let image = Image::open_with(path, &open).map_err(Error::from)?;
    let options = mount_options(engine.large_blocks);
    let mounted = kit.mounted(|dir| forerun_fuse::mount(&image, dir, &options))?;
    let entries = match &mounted {
        Some(mounted) => {
            let dir = mounted.mount.path();
            let listed = list_directory(dir);
            listed.map_err(|error| Failure::source(&error).of(dir.display()))?
        }
        None => walk(&image)?,
    };
    let time = start.elapsed();
    Ok(TreeListing {
        entries,
        time,
        stats: image.reader().observer().stats().snapshot(),
    })
}

/// Lists a directory of the system and all below it, as `ls -lR` does.
fn list_directory(top: &Path) -> io::Result<u64> {
    let mut entries = 0;
    let mut pending = vec![top.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let mut names = Vec::new();
        for entry in fs::read_dir(&dir)? {
            names.push(entry?.file_name());
        }
        names.sort();
        for name in names {
            let path = dir.join(name);
            let metadata = path.symlink_metadata()?;
            entries += 1;
            if metadata.is_dir() {
                pending.push(path);
            } else if metadata.is_symlink() {
                path.read_link()?;
            }
        }
    }
    Ok(entries)
}

fn walk(image: &Image) -> Result<u64> {
    let reader = image.reader();
    let mut entries = 0;
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.map_err(Error::from)?;
        entry.metadata?;
        // The root is no entry of a directory.
        entries += u64::from(!entry.path.is_empty());
    }
    Ok(entries)
}
