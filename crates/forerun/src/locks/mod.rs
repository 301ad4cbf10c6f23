//! Locks of volumes that change: shared by readers, exclusive for a writer.
//!
//! There are two kinds of locks, because any process that may open a file for reading can hold any
//! flock(2) lock on it, and so exclude all others forever:
//!
//! - flock(2), shared by readers and exclusive for writers. `/proc/locks` names the processes that
//!   hold it. A writer may be told to break it ([`Locking::Break`]): it then continues although
//!   others read.
//! - a record lock (in `writer.rs`), which needs a descriptor that is open for writing. It excludes
//!   other writers, and is never broken. Readers check whether it is held.
//!
//! The kernel's use of a file or device is not a lock: `uses.rs` finds loop devices and mounts.
//! Formats that never change need no locks.

mod held;
mod holders;
mod in_use;
mod uses;
mod writer;

use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use forerun_io::{FileDevice, FileSource, ReadAt};
use forerun_vfs::{Error, Result};

use crate::OpenOptions;
use crate::identify::format_of;

pub use crate::locking::Locking;
pub use held::Held;
pub use holders::{Holder, Kind};
pub use in_use::InUse;
pub use writer::is_at_work as writer_is_at_work;

use in_use::By;

/// Adds the lock of a reader to a source if its format changes and the options ask for it.
///
/// # Errors
/// The errors of [`for_reading`].
pub fn source(file: FileSource, options: &OpenOptions) -> Result<Held<FileSource>> {
    // An image of unknown format cannot be opened, and one inside a container is never changed.
    let changes = format_of(&file, options).is_some_and(|format| format.open_mut.is_some());
    let locked = match options.locking {
        Locking::Respect | Locking::Break if changes => {
            for_reading(file.file(), options.range(file.len()))?
        }
        Locking::Respect | Locking::Break | Locking::Ignore => Vec::new(),
    };
    Ok(Held::new(file, locked))
}

/// Opens a device for writing, with the locks of a writer if its format changes. The locks end with
/// the process, even if it is killed.
///
/// # Errors
/// The errors of [`for_writing`]; [`Error::Io`] if the file cannot be opened for writing.
pub fn device(path: &Path, options: &OpenOptions) -> Result<Held<FileDevice>> {
    let device = exclusive(path)?;
    let range = options.range(device.len());
    // A volume of unknown format may have a damaged boot sector that is about to be repaired.
    let locked = match format_of(&device, options) {
        Some(format) if format.open_mut.is_none() => Vec::new(),
        _ => for_writing(device.file(), range, options.locking)?,
    };
    Ok(Held::new(device, locked))
}

/// Opens a device for writing, whatever its format is, and takes a writer's locks for its full
/// length.
///
/// # Errors
/// The errors of [`for_writing`]; [`Error::Io`] if the file cannot be opened for writing.
pub fn blank(path: &Path, locking: Locking) -> Result<Held<FileDevice>> {
    let device = exclusive(path)?;
    let locked = for_writing(device.file(), 0..device.len(), locking)?;
    Ok(Held::new(device, locked))
}

fn exclusive(path: &Path) -> Result<FileDevice> {
    FileDevice::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => of_busy_device(path),
        _ => Error::io(0, 0, error),
    })
}

/// Takes the lock of a reader of `range`. It is held as long as `file` and the returned files are
/// open.
///
/// # Errors
/// [`Error::Io`] with an [`InUse`] if a process or the kernel writes to the volume.
pub fn for_reading(file: &File, range: Range<u64>) -> Result<Vec<File>> {
    if let Some(by) = uses::that_write(file, range) {
        return Err(InUse::for_reading(by).into());
    }
    let backing = backing(file, false);
    for file in backing.iter().chain([file]) {
        share(file)?;
    }
    Ok(backing)
}

/// Takes the locks of a writer of `range`. They are held as long as `file` and the returned files
/// are open.
///
/// # Errors
/// The errors of [`for_reading`]; also if a process or the kernel only reads.
pub fn for_writing(file: &File, range: Range<u64>, locking: Locking) -> Result<Vec<File>> {
    if let Some(by) = uses::of(file, range) {
        return Err(InUse::for_writing(by).into());
    }
    let backing = backing(file, true);
    for file in backing.iter().chain([file]) {
        exclude(file, locking)?;
    }
    Ok(backing)
}

/// Returns why a block device cannot be opened exclusively.
fn of_busy_device(path: &Path) -> Error {
    let file = File::open(path);
    let by = file.as_ref().ok().and_then(|file| {
        let known = uses::of(file, 0..u64::MAX);
        known.or_else(|| By::holders(holders::of(file)))
    });
    InUse::for_writing(by.unwrap_or(By::Kernel)).into()
}

fn share(file: &File) -> Result<()> {
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let by = By::holders(holders::of(file)).unwrap_or(By::Unseen);
            return Err(InUse::for_reading(by).into());
        }
        // On filesystems without locks, writers cannot lock either.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    if writer::holds_any(file) {
        Err(InUse::for_reading(By::Unseen).into())
    } else {
        Ok(())
    }
}

fn exclude(file: &File, locking: Locking) -> Result<()> {
    let breaks = locking == Locking::Break;
    if !writer::begin(file, breaks) {
        let writers = holders::of(file).into_iter();
        let writers = writers.filter(|holder| holder.kind == Kind::Write);
        let by = By::holders(writers.collect()).unwrap_or(By::Unseen);
        return Err(InUse::by_writer(by).into());
    }
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) if breaks => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let by = By::holders(holders::of(file)).unwrap_or(By::Unseen);
            Err(InUse::for_writing(by).into())
        }
        Err(TryLockError::Error(error)) => Err(Error::io(0, 0, error)),
    }
}

/// Opens the file behind a loop device if possible: other processes may have locked that file.
fn backing(device: &File, writing: bool) -> Vec<File> {
    let Some(path) = uses::backing_file(device) else {
        return Vec::new();
    };
    let file = File::options().read(true).write(writing).open(path);
    let is_other = |file: &File| file.metadata().is_ok_and(|metadata| metadata.is_file());
    file.ok().filter(is_other).into_iter().collect()
}

/// Returns the number of a block device, or `None` if `file` is not one.
fn block_device(file: &File) -> io::Result<Option<(u32, u32)>> {
    let metadata = file.metadata()?;
    let number = metadata.rdev();
    let is_block = metadata.file_type().is_block_device();
    Ok(is_block.then(|| (rustix::fs::major(number), rustix::fs::minor(number))))
}

#[cfg(test)]
mod tests;
