//! A volume open for reading and writing: device, driver and engine.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use forerun_engine::Volume;
use forerun_io::{BlockDevice, FileSource, Observer, ReadAt, usize_from};
use forerun_vfs::{Error, Format, OpenMut, OpenMutWith, Result};

use crate::OpenOptions;
use crate::identify::{find_format, named, probe_len, unknown};
use crate::part::part;
use crate::{locks, repair};

/// Options that apply only to a volume that is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Makes each operation on directories durable before it returns.
    pub dirsync: bool,
    /// Makes each write of data durable before it returns.
    pub sync: bool,
    /// Discards clusters on the device when they become free.
    pub discard: bool,
    /// After damage, continues as far as possible instead of refusing further changes.
    pub continue_on_error: bool,
    /// Names of options that are set and that only some drivers have. A driver ignores the options
    /// of others.
    pub driver_options: Vec<&'static str>,
}

/// A volume open for reading and writing. While it is open, its file is locked against other
/// forerun processes.
#[derive(Clone)]
pub struct VolumeMut {
    format: &'static Format,
    volume: Arc<Volume>,
}

impl fmt::Debug for VolumeMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeMut")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

impl VolumeMut {
    /// Opens the volume in a file or block device.
    ///
    /// # Errors
    /// The errors of [`from_device`](Self::from_device); [`Error::Io`] if the file cannot be opened
    /// for writing, or with an [`InUse`](crate::locks::InUse) if another process or the kernel uses
    /// the volume.
    pub fn open(path: &Path, options: &OpenOptions, how: &WriteOptions) -> Result<Self> {
        let device = locks::device(path, options)?;
        Self::from_device(Arc::new(device), options, how)
    }

    /// Opens a volume as [`from_device`](Self::from_device) does, after a process that wrote to it
    /// was killed. The caller holds the lock of a writer. If `was_clean`, the volume was undamaged
    /// when that process opened it: any damage now comes from an interrupted commit, and is
    /// repaired. Returns a summary of that repair.
    ///
    /// # Errors
    /// The errors of [`from_device`](Self::from_device), and the errors of the repair.
    pub fn recover(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        how: &WriteOptions,
        was_clean: bool,
    ) -> Result<(Self, Option<repair::Summary>)> {
        let opened = Self::from_device(Arc::clone(&device), options, how)?;
        let is_clean = opened.volume.fs().volume().warnings.is_empty();
        let format = opened.format();
        if is_clean || !was_clean || !repair::is_possible(format) {
            return Ok((opened, None));
        }
        // Its state in memory dates from before the repair.
        drop(opened);
        let repaired = repair::after_a_kill(format, part(Arc::clone(&device), options)?, options)?;
        Ok((Self::from_device(device, options, how)?, repaired))
    }

    /// Opens the volume on any device.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`] if no driver recognises the bytes, [`Error::ReadOnly`] if the
    /// driver cannot change volumes, and the errors of the driver.
    pub fn from_device(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        how: &WriteOptions,
    ) -> Result<Self> {
        let observer = Arc::new(Observer::new(options.events.clone()));
        let device: Arc<dyn BlockDevice> = part(device, options)?;
        let (format, open) = writable(&device, options)?;
        let open = open.ok_or_else(|| {
            Error::ReadOnly(format!("forerun cannot change {} images", format.name))
        })?;
        let fs = open(OpenMutWith {
            device: Arc::clone(&device),
            limits: options.limits.clone(),
            observer: Arc::clone(&observer),
            cache: options.engine.cache / 8,
            ownership: options.ownership.clone(),
            dirsync: how.dirsync,
            sync: how.sync,
            discard: how.discard,
            continue_on_error: how.continue_on_error,
            driver_options: how.driver_options.clone(),
        })?;
        options.engine.log_memory_use();
        let window = if options.engine.large_blocks {
            options.engine.readahead
        } else {
            0
        };
        let volume = Volume::new(fs, device, observer).with_readahead(window);
        let volume = Arc::new(volume);
        Ok(Self { format, volume })
    }

    /// Returns whether the format of the file can be changed.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`]; [`Error::Io`].
    pub fn is_possible(path: &Path, options: &OpenOptions) -> Result<bool> {
        let source = FileSource::open(path).map_err(|error| Error::io(0, 0, error))?;
        let source = part(source, options)?;
        writable(&source, options).map(|(_, open)| open.is_some())
    }

    /// Returns the name of the format.
    #[must_use]
    pub const fn format(&self) -> &'static str {
        self.format.name
    }

    /// Returns the volume, which reads and writes files.
    #[must_use]
    pub const fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }
}

fn writable(
    source: &dyn ReadAt,
    options: &OpenOptions,
) -> Result<(&'static Format, Option<OpenMut>)> {
    let wanted = options.format.as_deref();
    let mut head = vec![0; probe_len().min(usize_from(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    let format = find_format(&head, wanted).or_else(|| named(wanted));
    let format = format.ok_or_else(|| unknown(wanted, &head, None, options.offset))?;
    Ok((format, format.open_mut))
}
