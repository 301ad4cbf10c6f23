//! Open files, where opening means something: images with their data in files of the host.
//!
//! Where the kernel permits (it takes CAP_SYS_ADMIN) it is given such a file when it is opened, and
//! reads it by itself from then on: no byte of it goes through this process. All open handles of a
//! file must be served the same way and share one registration, so both are kept by file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forerun_vfs::{Error, Result};
use fuser::{BackingId, FileHandle, FopenFlags, ReplyOpen};

use crate::core::Core;
use crate::counts::Operation;
use crate::errno::errno;

const REPLACED: &str = "the object was replaced while a file with its data was open";

/// What overlayfs reports to statfs(2).
const OVERLAYFS: u64 = 0x794c_7630;

/// Files that are open, and how they are served.
#[derive(Debug)]
pub struct Backings {
    /// How many file systems may lie upon each other below this one: 2 where the objects are on an
    /// overlayfs themselves, which then must not be laid upon this mount; else 1.
    depth: u32,
    /// Whether the kernel is still to be asked: after a refusal it is not.
    wanted: AtomicBool,
    next: AtomicU64,
    open: Mutex<HashMap<u64, OpenFile>>,
}

/// Device and number of a file of the host.
type Inode = (u64, u64);

#[derive(Debug)]
struct OpenFile {
    /// Its registration, and which file that is; nothing where it is read through this process.
    backing: Option<(Arc<BackingId>, Inode)>,
    handles: u64,
}

impl Backings {
    /// For objects in `store`, where that is known.
    pub fn new(store: Option<&std::path::Path>) -> Self {
        let stat = store.and_then(|path| rustix::fs::statfs(path).ok());
        let kind = stat.and_then(|stat| u64::try_from(stat.f_type).ok());
        Self {
            depth: if kind == Some(OVERLAYFS) { 2 } else { 1 },
            wanted: AtomicBool::new(true),
            next: AtomicU64::new(1),
            open: Mutex::default(),
        }
    }

    /// What the kernel is told when the mount begins.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// The kernel offers no such thing.
    pub fn unavailable(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// Whether the kernel is asked to read files by itself.
    pub fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Open files that the kernel reads by itself.
    pub fn registered(&self) -> usize {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        count_registered(&open)
    }

    /// Opens no file any more: who asks waits, and is answered by another process. Fails with the
    /// number of files that are registered, and that only this process can keep.
    pub fn close(&self) -> std::result::Result<(), usize> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        match count_registered(&open) {
            0 => {
                std::mem::forget(open);
                Ok(())
            }
            count => Err(count),
        }
    }

    /// Answers an OPEN: opens the data outside the image, and gives it to the kernel if it takes it.
    pub fn open(&self, core: &Core, number: u64, reply: ReplyOpen) {
        let opened = core.reader.open(core.node(number));
        if let Err(error) = core.noted(Operation::Open, number, opened) {
            return reply.error(errno(&error));
        }
        let handle = FileHandle(self.next.fetch_add(1, Ordering::Relaxed));
        match self.backing(core, number, &reply) {
            Ok(Some(backing)) => reply.opened_passthrough(handle, FopenFlags::empty(), &backing),
            Ok(None) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => {
                let error = core.noted(Operation::Open, number, Err::<(), _>(error));
                reply.error(error.map_or_else(|error| errno(&error), |()| fuser::Errno::EIO));
            }
        }
    }

    fn backing(
        &self,
        core: &Core,
        number: u64,
        reply: &ReplyOpen,
    ) -> Result<Option<Arc<BackingId>>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get_mut(&number) {
            if let Some((_, registered)) = &file.backing {
                // Opened again, so that it is verified again if it was changed. The kernel goes on to
                // read the file that is registered, so another one cannot stand in for it.
                let now = core.reader.fs().backing(core.node(number))?;
                if now.as_ref().map(inode).transpose()?.as_ref() != Some(registered) {
                    return Err(Error::io(0, 0, io::Error::other(REPLACED)));
                }
            }
            file.handles += 1;
            return Ok(file.backing.as_ref().map(|(id, _)| Arc::clone(id)));
        }
        let backing = match self.wanted.load(Ordering::Relaxed) {
            true => core.reader.fs().backing(core.node(number))?,
            false => None,
        };
        let backing = match backing {
            Some(file) => self.register(&file, reply)?,
            None => None,
        };
        let id = backing.as_ref().map(|(id, _)| Arc::clone(id));
        let handles = 1;
        open.insert(number, OpenFile { backing, handles });
        Ok(id)
    }

    /// Has the kernel read `file` by itself, where it does.
    fn register(&self, file: &File, reply: &ReplyOpen) -> Result<Option<(Arc<BackingId>, Inode)>> {
        let inode = inode(file)?;
        match reply.open_backing(file) {
            Ok(backing) => Ok(Some((Arc::new(backing), inode))),
            Err(error) => {
                tracing::debug!(%error, "the kernel does not read objects by itself");
                self.unavailable();
                Ok(None)
            }
        }
    }

    /// One handle fewer.
    pub fn release(&self, number: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get_mut(&number) {
            file.handles = file.handles.saturating_sub(1);
            if file.handles == 0 {
                open.remove(&number);
            }
        }
    }
}

fn inode(file: &File) -> Result<Inode> {
    let metadata = file.metadata().map_err(|error| Error::io(0, 0, error))?;
    Ok((metadata.dev(), metadata.ino()))
}

fn count_registered(open: &HashMap<u64, OpenFile>) -> usize {
    let registered = |file: &&OpenFile| file.backing.is_some();
    open.values().filter(registered).count()
}
