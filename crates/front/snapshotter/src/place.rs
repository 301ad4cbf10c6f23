//! The directories of the snapshotter, and what is done to them as a whole.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::record::Id;
use crate::{Error, Result};

/// The directory with all that the snapshotter keeps.
///
/// `records/ID.json` has what is known of a snapshot, `snapshots/ID/fs` its files and `snapshots/ID/work` what overlayfs
/// needs besides, `chains/ID` is where a chain of layers is mounted, `logs/ID` is the log of that mount, `trash` has what
/// is being removed, and `cache` what was fetched of images.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    /// Kept locked: two snapshotters would not know of each other's snapshots.
    _lock: File,
}

impl Place {
    /// Opens the directory, or makes it, for this process alone.
    pub fn open(root: &Path) -> Result<Self> {
        let refused = |reason| Error::Root {
            path: root.to_owned(),
            reason,
        };
        let root_path = std::path::absolute(root).map_err(Error::io(root))?;
        // The paths become options of overlayfs, where these divide.
        let divides = |byte: &u8| b":,\\\"\n".contains(byte);
        if root_path.as_os_str().as_bytes().iter().any(divides) {
            return Err(refused(
                "the path must have none of : , \\ \" in it, as overlayfs divides its options there",
            ));
        }
        for name in ["", "records", "snapshots", "chains", "logs", "trash"] {
            make_private(&root_path.join(name))?;
        }
        let lock = root_path.join("lock");
        let file = File::options().create(true).append(true).open(&lock);
        let file = file.map_err(Error::io(&lock))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(refused("another snapshotter works in it"));
            }
            Err(TryLockError::Error(error)) => return Err(Error::io(&lock)(error)),
        }
        Ok(Self {
            root: root_path,
            _lock: file,
        })
    }

    /// Returns the directory of records.
    pub fn records(&self) -> PathBuf {
        self.root.join("records")
    }

    /// Returns the directory of the files of all snapshots.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Returns the directory of the files and the work of a snapshot.
    pub fn snapshot(&self, id: Id) -> PathBuf {
        self.snapshots().join(id.to_string())
    }

    /// Returns the directory with the files of a snapshot.
    pub fn files(&self, id: Id) -> PathBuf {
        self.snapshot(id).join("fs")
    }

    /// Returns the directory that overlayfs works in.
    pub fn work(&self, id: Id) -> PathBuf {
        self.snapshot(id).join("work")
    }

    /// Returns the directory with the mounts of chains.
    pub fn chains(&self) -> PathBuf {
        self.root.join("chains")
    }

    /// Returns the directory where the layers up to this snapshot are mounted.
    pub fn chain(&self, id: Id) -> PathBuf {
        self.chains().join(id.to_string())
    }

    /// Returns the file for what goes wrong in the mount of a chain.
    pub fn log(&self, id: Id) -> PathBuf {
        self.root.join("logs").join(id.to_string())
    }

    /// Returns the directories whose entries have the numbers of snapshots.
    pub fn numbered(&self) -> [PathBuf; 3] {
        [self.snapshots(), self.chains(), self.root.join("logs")]
    }

    /// Returns the directory of what is being removed.
    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }
}

/// Makes a directory that only its owner may look into.
pub fn make_private(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(Error::io(path))
}

/// Returns the entries of a directory whose names are numbers of snapshots, without an ending.
pub fn ids(dir: &Path, ending: &str) -> Result<Vec<Id>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io(dir))? {
        let name = entry.map_err(Error::io(dir))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(ending));
        ids.extend(number.and_then(|number| number.parse().ok()).map(Id));
    }
    ids.sort_unstable();
    Ok(ids)
}

/// Makes the names in a directory durable.
pub fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
