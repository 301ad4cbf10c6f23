//! The snapshotter's directory layout.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::record::Id;
use crate::{Error, Result};

/// The snapshotter's root directory.
///
/// `records/ID.json` is a snapshot's record, `snapshots/ID/fs` has its files and
/// `snapshots/ID/work` is overlayfs's work directory. A chain of layers is mounted on `chains/ID`,
/// and that mount logs to `logs/ID`. `trash` has files to be deleted, and `cache` has data fetched
/// from registries.
#[derive(Debug)]
pub struct Place {
    root: PathBuf,
    /// Locked, because two snapshotters would overwrite each other's snapshots.
    _lock: File,
}

impl Place {
    /// Opens or creates the directory and locks it for this process.
    pub fn open(root: &Path) -> Result<Self> {
        let refused = |reason| Error::Root {
            path: root.to_owned(),
            reason,
        };
        let root_path = std::path::absolute(root).map_err(Error::io(root))?;
        // The paths become overlayfs options, in which these characters are separators.
        let divides = |byte: &u8| b":,\\\"\n".contains(byte);
        if root_path.as_os_str().as_bytes().iter().any(divides) {
            return Err(refused(
                "the path must not contain any of : , \\ \", which separate options of overlayfs",
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

    pub fn records(&self) -> PathBuf {
        self.root.join("records")
    }

    /// Returns the directory that contains all snapshots' directories.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// Returns the directory that contains a snapshot's `fs` and `work`.
    pub fn snapshot(&self, id: Id) -> PathBuf {
        self.snapshots().join(id.to_string())
    }

    pub fn files(&self, id: Id) -> PathBuf {
        self.snapshot(id).join("fs")
    }

    pub fn work(&self, id: Id) -> PathBuf {
        self.snapshot(id).join("work")
    }

    pub fn chains(&self) -> PathBuf {
        self.root.join("chains")
    }

    /// Returns the mountpoint of the layers up to this snapshot.
    pub fn chain(&self, id: Id) -> PathBuf {
        self.chains().join(id.to_string())
    }

    pub fn log(&self, id: Id) -> PathBuf {
        self.root.join("logs").join(id.to_string())
    }

    /// Returns the directories whose entries are named by snapshot ID.
    pub fn numbered(&self) -> [PathBuf; 3] {
        [self.snapshots(), self.chains(), self.root.join("logs")]
    }

    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }
}

/// Creates a directory with mode 0700.
pub fn make_private(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(Error::io(path))
}

/// Returns the snapshot IDs in the names of a directory's entries, which end in `ending`.
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

pub fn sync_names(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
