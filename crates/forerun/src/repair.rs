//! Repair of volumes that can be changed: chooses the driver, the device and the lock.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use forerun_io::{BlockDevice, FileSource, Observer, ReadAt, UndoDevice, Window, usize_from};
pub use forerun_io::{Restored, UndoError, UndoFile};
use forerun_vfs::repair::Repair;
pub use forerun_vfs::repair::{Answer, Finding, Kind, RepairOptions, Summary};
use forerun_vfs::{Error, Result};

use crate::OpenOptions;
use crate::identify::{find_format, named, probe_len, unknown};
use crate::locks::{self, Held, Locking};
use crate::part::part;
use crate::registry::repairs;
pub use crate::undo::{UndoFailed, UndoPlace, restore};

/// Returns whether images of the format with this name can be repaired.
#[must_use]
pub fn is_possible(format: &str) -> bool {
    of_format(format).is_some()
}

/// Returns whether a repair recognises the volume that the options select. It may recognise a
/// volume with an overwritten boot sector by the backup boot sector.
#[must_use]
pub fn recognises(source: &Arc<dyn ReadAt>, options: &OpenOptions) -> bool {
    let window = Window::new(Arc::clone(source), options.offset, options.size);
    window.is_ok_and(|volume| repairs().iter().any(|repair| (repair.recognises)(&volume)))
}

/// Returns the names of the formats whose images can be repaired.
pub fn formats() -> impl Iterator<Item = &'static str> {
    repairs().iter().map(|repair| repair.format)
}

fn of_format(format: &str) -> Option<&'static Repair> {
    repairs().iter().find(|repair| repair.format == format)
}

/// Opens a volume to be repaired, with the lock of a writer; for a dry run, only for reading.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened or is in use.
pub fn open_for(
    path: &Path,
    options: &OpenOptions,
    how: &RepairOptions,
) -> Result<Arc<dyn BlockDevice>> {
    if how.dry_run {
        Ok(part(ReadOnly::open(path, options)?, options)?)
    } else {
        open(path, options)
    }
}

/// Repairs a volume that [`open_for`] has opened. Calls `decide` for each finding, which returns
/// whether to repair it.
///
/// With `undo`, an undo file saves the bytes that the repair overwrites, even if the repair fails.
///
/// # Errors
/// [`Error::Unsupported`] for formats that are never changed, [`Error::UnknownFormat`], and the
/// errors of the repair; if the undo file cannot be written, an error that contains an
/// [`UndoFailed`].
pub fn repair(
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
    how: &RepairOptions,
    undo: Option<&Arc<UndoPlace>>,
    observer: &Arc<Observer>,
    decide: &mut dyn FnMut(&Finding) -> Answer,
) -> Result<Summary> {
    let driver = driver(&device, options)?;
    let Some(undo) = undo.filter(|_| !how.dry_run) else {
        return (driver.repair)(&device, observer, how, decide);
    };
    undo.try_out()?;
    let saving = Arc::new(UndoDevice::new(device, undo.log()));
    let device: Arc<dyn BlockDevice> = Arc::<UndoDevice<_>>::clone(&saving);
    let summary = (driver.repair)(&device, observer, how, decide)?;
    let finished = saving.finish();
    finished.map_err(|error| Error::write(0, 0, error))?;
    Ok(summary)
}

/// Repairs the damage that an interrupted commit left in a volume of this format; leaves other
/// damage. The caller holds the lock of a writer. Returns `None` if the format has no repair.
pub(crate) fn after_a_kill(
    format: &str,
    device: Arc<dyn BlockDevice>,
    options: &OpenOptions,
) -> Result<Option<Summary>> {
    let Some(driver) = of_format(format) else {
        return Ok(None);
    };
    let how = RepairOptions {
        limits: options.limits.clone(),
        ..RepairOptions::default()
    };
    let observer = Arc::new(Observer::new(options.events.clone()));
    (driver.after_a_kill)(&device, &observer, &how).map(Some)
}

/// Returns the name of the format of a volume that [`open_for`] has opened. Recognises the format
/// even if the first bytes are damaged.
///
/// # Errors
/// [`Error::Unsupported`] for formats that are never changed, [`Error::UnknownFormat`],
/// [`Error::Io`].
pub fn format(device: &dyn BlockDevice, options: &OpenOptions) -> Result<&'static str> {
    driver(device, options).map(|driver| driver.format)
}

/// Opens a volume for writing, with the lock of a writer.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened or is in use.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Arc<dyn BlockDevice>> {
    Ok(part(locks::device(path, options)?, options)?)
}

fn driver(source: &dyn ReadAt, options: &OpenOptions) -> Result<&'static Repair> {
    let wanted = options.format.as_deref();
    let mut head = vec![0; probe_len().min(usize_from(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    let Some(format) = find_format(&head, wanted).or_else(|| named(wanted)) else {
        let mut drivers = repairs().iter();
        let driver = drivers.find(|driver| (driver.recognises)(source));
        return driver.ok_or_else(|| unknown(wanted, &head, None, options.offset));
    };
    of_format(format.name).ok_or_else(|| {
        Error::Unsupported(format!(
            "repair of {} images, which are read-only",
            format.name
        ))
    })
}

/// A file opened for reading, with the lock of a reader.
struct ReadOnly(Held<FileSource>);

impl ReadOnly {
    fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let source = FileSource::open(path).map_err(|error| Error::io(0, 0, error))?;
        let range = options.range(source.len());
        let locked = match options.locking {
            Locking::Ignore => Vec::new(),
            Locking::Respect | Locking::Break => locks::for_reading(source.file(), range)?,
        };
        Ok(Self(Held::new(source, locked)))
    }
}

impl ReadAt for ReadOnly {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, out)
    }
}

impl BlockDevice for ReadOnly {
    fn write_all_at(&self, _offset: u64, _data: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn write_zeros(&self, _range: Range<u64>) -> io::Result<bool> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
