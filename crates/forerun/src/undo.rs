//! Undo files on disk: where the undo file of a repair is created, and restoring from one.

use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use forerun_io::{
    BlockDevice, CountedDevice, Observer, Restored, UndoError, UndoFile, UndoLog, Unpoisoned,
};
use forerun_vfs::{Error, Result};

const SUFFIX: &str = ".forerun-undo";
/// Largest number appended to a name.
const MOST_NUMBERED: u32 = 10_000;

/// The path of a repair's undo file. The first write creates the file, and never replaces an
/// existing one.
#[derive(Debug)]
pub struct UndoPlace {
    path: PathBuf,
    /// Whether to append a number if the name is taken.
    is_numbered: bool,
    made: Mutex<Option<PathBuf>>,
}

impl UndoPlace {
    /// Uses exactly this path, which must not exist.
    #[must_use]
    pub fn exactly(path: &Path) -> Self {
        Self::new(path.to_path_buf(), false)
    }

    /// Chooses a path by the name of the volume: next to a file; for a block device, `forerun` in
    /// `$XDG_STATE_HOME` or `~/.local/state`. Appends a number if the name is taken.
    ///
    /// # Errors
    /// [`Error::Io`] with an [`UndoFailed`] for a block device without a home directory.
    pub fn default_for(volume: &Path) -> Result<Self> {
        let is_device = fs::metadata(volume).is_ok_and(|found| found.file_type().is_block_device());
        let mut name = volume.file_name().unwrap_or_default().to_os_string();
        name.push(SUFFIX);
        if !is_device {
            return Ok(Self::new(volume.with_file_name(name), true));
        }
        match state_dir() {
            Some(dir) => Ok(Self::new(dir.join(name), true)),
            None => {
                let why = "neither XDG_STATE_HOME nor HOME names a directory for it";
                let source = io::Error::new(io::ErrorKind::NotFound, why);
                let failed = UndoFailed::new(Path::new(&name), source);
                Err(Error::io(0, 0, failed.into()))
            }
        }
    }

    const fn new(path: PathBuf, is_numbered: bool) -> Self {
        let made = Mutex::new(None);
        Self {
            path,
            is_numbered,
            made,
        }
    }

    /// Returns the path of the file once it has been created.
    #[must_use]
    pub fn made(&self) -> Option<PathBuf> {
        let made = self.made.lock().unpoisoned();
        made.clone()
    }

    /// Checks that the file can be created. Leaves nothing behind except its directory.
    ///
    /// # Errors
    /// [`Error::Io`] with an [`UndoFailed`].
    pub fn try_out(&self) -> Result<()> {
        let failed = |source| Error::io(0, 0, UndoFailed::new(&self.path, source).into());
        self.prepare().map_err(failed)
    }

    /// Returns a writer of the undo file.
    #[must_use]
    pub fn log(self: &Arc<Self>) -> Box<dyn UndoLog> {
        Box::new(Log {
            place: Arc::clone(self),
            file: None,
            is_synced: false,
        })
    }

    fn prepare(&self) -> io::Result<()> {
        if !self.is_numbered && fs::symlink_metadata(&self.path).is_ok() {
            return Err(exists());
        }
        self.make_dir()?;
        tempfile::tempfile_in(self.dir()).map(drop)
    }

    /// Creates the directory of the file, if it is the one for block devices.
    ///
    /// # Errors
    /// The errors of the system.
    pub fn make_dir(&self) -> io::Result<()> {
        let dir = self.dir();
        if Some(dir) == state_dir().as_deref() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)
        } else {
            Ok(())
        }
    }

    /// Returns the directory of the file.
    #[must_use]
    pub fn dir(&self) -> &Path {
        match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            _ => Path::new("."),
        }
    }

    /// Creates the file under the first free name.
    fn make(&self) -> io::Result<File> {
        let most = if self.is_numbered { MOST_NUMBERED } else { 1 };
        for number in 0..most {
            let path = self.numbered(number);
            let mut options = File::options();
            // The file holds metadata of a volume that other users may not be allowed to read.
            options.write(true).create_new(true).mode(0o600);
            match options.open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    let mut made = self.made.lock().unpoisoned();
                    *made = Some(path);
                    return Ok(file);
                }
            }
        }
        Err(exists())
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }

    /// Removes the created file, which no write of the volume needs yet.
    fn discard(&self) {
        let mut made = self.made.lock().unpoisoned();
        if let Some(path) = made.take() {
            let _best_effort = fs::remove_file(path);
        }
    }
}

fn exists() -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, "exists already")
}

/// Returns `forerun` in the directory for state that programs keep between runs.
fn state_dir() -> Option<PathBuf> {
    let set = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    state.map(|state| state.join("forerun"))
}

struct Log {
    place: Arc<UndoPlace>,
    file: Option<File>,
    /// Whether the file was synced, so that the volume may have been written.
    is_synced: bool,
}

impl Log {
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.file.is_none() {
            self.file = Some(self.place.make()?);
        }
        match &self.file {
            Some(file) => file.write_all_at(data, offset),
            None => Ok(()),
        }
    }

    fn make_durable(&self) -> io::Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        file.sync_data()?;
        // Sync the directory entry, too.
        if self.is_synced {
            Ok(())
        } else {
            File::open(self.place.dir())?.sync_all()
        }
    }

    fn failed(&mut self, source: io::Error) -> io::Error {
        let path = self.place.made().unwrap_or_else(|| self.place.path.clone());
        if !self.is_synced {
            self.file = None;
            self.place.discard();
        }
        UndoFailed::new(&path, source).into()
    }
}

impl UndoLog for Log {
    fn write_all_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write(offset, data).map_err(|error| self.failed(error))
    }

    fn sync(&mut self) -> io::Result<()> {
        let synced = self.make_durable();
        synced.map_err(|error| self.failed(error))?;
        self.is_synced = true;
        Ok(())
    }
}

/// The error of an undo file that cannot be written. The volume was not changed any further.
#[derive(Debug)]
pub struct UndoFailed {
    path: PathBuf,
    source: io::Error,
}

impl UndoFailed {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        Self { path, source }
    }

    /// Finds an `UndoFailed` inside an error of the library.
    #[must_use]
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Io { source, .. } | Error::Write { source, .. } => {
                source.get_ref()?.downcast_ref()
            }
            _ => None,
        }
    }

    /// Returns the path of the undo file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for UndoFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "undo file {}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for UndoFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl From<UndoFailed> for io::Error {
    fn from(failed: UndoFailed) -> Self {
        Self::new(failed.source.kind(), failed)
    }
}

/// Restores the bytes of an undo file to a volume from [`open`](crate::repair::open).
///
/// # Errors
/// The errors of [`UndoFile::restore`].
pub fn restore(
    file: &UndoFile,
    volume: &Arc<dyn BlockDevice>,
    observer: &Arc<Observer>,
    force: bool,
) -> Result<Restored, UndoError> {
    let counted = CountedDevice::new(Arc::clone(volume), Arc::clone(observer));
    file.restore(&counted, force)
}

#[cfg(test)]
mod tests {
    use forerun_io::{FileSource, MemoryDevice, UndoDevice};

    use super::*;

    /// Changes a volume, with its undo file at `place`. Returns the volume's bytes.
    fn change(place: &Arc<UndoPlace>) -> io::Result<Vec<u8>> {
        let device = UndoDevice::new(MemoryDevice::new(vec![0; 4096]), place.log());
        device.write_all_at(512, &[1; 512])?;
        device.finish()?;
        Ok(device.inner().to_vec())
    }

    #[test]
    fn an_undo_file_never_replaces_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        for expected in [
            "image.forerun-undo",
            "image.forerun-undo.1",
            "image.forerun-undo.2",
        ] {
            let place = Arc::new(UndoPlace::default_for(&image).unwrap());
            place.try_out().unwrap();
            assert_eq!(place.made(), None);
            let volume = change(&place).unwrap();
            let made = place.made().unwrap();
            assert_eq!(made, dir.path().join(expected));
            let source = Arc::new(FileSource::open(&made).unwrap());
            let file = UndoFile::open(source).unwrap();
            let volume: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(volume));
            let restored = restore(&file, &volume, &Arc::default(), false).unwrap();
            assert_eq!(restored.written, 512);
        }
        let place = Arc::new(UndoPlace::exactly(&dir.path().join("image.forerun-undo")));
        let error = place.try_out().unwrap_err();
        assert!(UndoFailed::of(&error).is_some(), "{error}");
        let error = change(&place).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(place.made(), None);
    }

    #[test]
    fn a_place_that_does_not_exist_is_refused_and_trying_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let place = Arc::new(UndoPlace::exactly(&dir.path().join("missing/undo")));
        assert!(place.try_out().is_err());
        assert!(change(&place).is_err());
        let place = UndoPlace::exactly(&dir.path().join("undo"));
        place.try_out().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
