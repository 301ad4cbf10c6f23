//! Open files of images that keep their data in files of the host.
//!
//! Where the kernel permits it (this takes CAP_SYS_ADMIN), it is given such a file when it is opened,
//! and reads it by itself from then on: no byte of it goes through this process. The kernel refuses a
//! second handle of an inode unless it is opened with the number under which the file was registered
//! for the first one. So registrations are kept by inode, and in a [ledger](Registered) for the next
//! server.
//!
//! A registration belongs to the connection and not to the process, so the next server continues with
//! those of the old one. It cannot tell which of them the kernel still uses: a number is valid for an
//! inode with open handles and for one without. It keeps them all until the mount ends, because only an
//! ioctl(2) without a safe wrapper gives back a number that another process was given.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use forerun_vfs::{Error, Result};
use fuser::{BackingId, FileHandle, ReplyOpen};

use crate::MountOptions;
use crate::ledger::{HostFile, Registered, Registration, RegistrationSlot};

const REPLACED: &str = "the object was replaced while a file with its data was open";

/// The type that statfs(2) reports for overlayfs.
const OVERLAYFS: u64 = 0x794c_7630;

/// Files that are open, and how they are served.
#[derive(Debug)]
pub struct Backings {
    /// How many file systems may be stacked below this one: 2 where the objects are on an overlayfs
    /// themselves, which then must not be stacked on this mount; else 1.
    depth: u32,
    /// Whether the kernel is still to be asked: after a refusal it is not.
    wanted: AtomicBool,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// Registered by this process and open, by inode number.
    open: HashMap<u64, OpenFile>,
    /// Registered by earlier servers, by inode number.
    earlier: HashMap<u64, Vec<Registration>>,
    /// The connection to answer on with a registration of an earlier server, if there was one.
    connection: Option<Arc<OwnedFd>>,
    /// Nothing where no other process can take the mount over.
    ledger: Option<Registered>,
}

#[derive(Debug)]
struct OpenFile {
    backing: Arc<BackingId>,
    file: HostFile,
    slot: Option<RegistrationSlot>,
    /// By number: a RELEASE can come twice, or be of a handle that an earlier server opened.
    handles: HashSet<u64>,
}

/// How a handle is served.
pub enum Way {
    /// By reads of this process.
    Here,
    /// By the kernel, under a registration of this process.
    Kernel(Arc<BackingId>),
    /// By the kernel, under the number that an earlier server registered.
    Earlier(u32, Arc<OwnedFd>),
}

impl Backings {
    /// Begins without open files. Nothing is registered unless the image `has_objects`. Registrations are
    /// written to the ledger of `options`.
    pub fn new(options: &MountOptions, has_objects: bool) -> Self {
        let store = options.objects.as_deref();
        let ledger = options.ledger.as_ref().filter(|_| has_objects);
        let stat = store.and_then(|path| rustix::fs::statfs(path).ok());
        let kind = stat.and_then(|stat| u64::try_from(stat.f_type).ok());
        Self {
            depth: if kind == Some(OVERLAYFS) { 2 } else { 1 },
            wanted: AtomicBool::new(has_objects),
            files: Mutex::new(Files {
                ledger: ledger.map(Registered::new),
                ..Files::default()
            }),
        }
    }

    /// Continues with the registrations of earlier servers, which have ended.
    ///
    /// # Errors
    /// Those of the ledger.
    pub fn inherit(&self, ledger: OwnedFd, connection: OwnedFd) -> io::Result<()> {
        let (ledger, earlier) = Registered::inherit(ledger)?;
        if earlier.has_stopped {
            self.wanted.store(false, Ordering::Relaxed);
        }
        let mut files = self.lock();
        for registration in earlier.registrations {
            let of_inode = files.earlier.entry(registration.number).or_default();
            of_inode.push(registration);
        }
        files.connection = Some(Arc::new(connection));
        files.ledger = Some(ledger);
        Ok(())
    }

    /// Returns the stacking depth that INIT is answered with.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Registers no more files, in this process or a later one.
    pub fn unavailable(&self) {
        self.stop(&self.lock());
    }

    fn stop(&self, files: &Files) {
        self.wanted.store(false, Ordering::Relaxed);
        if let Some(Err(error)) = files.ledger.as_ref().map(Registered::stop) {
            tracing::error!("writing to the ledger of open files: {error}");
        }
    }

    /// Returns whether another process could go on with the files that the kernel reads by itself.
    pub fn can_be_kept(&self) -> bool {
        let files = self.lock();
        files.ledger.is_some() || (!self.wanted.load(Ordering::Relaxed) && files.open.is_empty())
    }

    /// Makes a descriptor of the ledger, where there is one.
    pub fn share(&self) -> Option<io::Result<OwnedFd>> {
        self.lock().ledger.as_ref().map(Registered::share)
    }

    /// Stops opening and releasing files: requests wait, and another process answers them.
    pub fn close(&self) {
        std::mem::forget(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unpoisoned()
    }

    /// Decides how a new handle is served. `find` opens the file with the data, if there is one.
    ///
    /// # Errors
    /// Those of `find`; `Io` for a file that took the place of one that is open.
    pub fn way(
        &self,
        find: impl FnOnce() -> Result<Option<File>>,
        (number, handle): (u64, u64),
        reply: &ReplyOpen,
    ) -> Result<Way> {
        let mut files = self.lock();
        let is_wanted = self.wanted.load(Ordering::Relaxed);
        let is_known = files.open.contains_key(&number) || files.earlier.contains_key(&number);
        if !is_wanted && !is_known {
            return Ok(Way::Here);
        }
        // Opened again, so that it is verified again if it was changed.
        let Some(object) = find()? else {
            return Ok(Way::Here);
        };
        let file = host_file(&object)?;
        if let Some(open) = files.open.get_mut(&number) {
            // The kernel goes on to read the file that is registered, so another one cannot stand in
            // for it.
            if open.file != file {
                return Err(Error::io(0, 0, io::Error::other(REPLACED)));
            }
            open.handles.insert(handle);
            return Ok(Way::Kernel(Arc::clone(&open.backing)));
        }
        // If the object was replaced while the kernel still reads the old one, the kernel refuses the
        // new one: EIO, as above.
        let earlier = files.earlier.get(&number);
        let earlier = earlier.and_then(|all| all.iter().find(|earlier| earlier.file == file));
        if let (Some(earlier), Some(connection)) = (earlier, &files.connection) {
            return Ok(Way::Earlier(earlier.id, Arc::clone(connection)));
        }
        match is_wanted {
            true => Ok(self.register(&mut files, &object, (number, handle), reply, file)),
            false => Ok(Way::Here),
        }
    }

    /// Registers `object`, so that the kernel reads it by itself. Where that fails, no more are registered.
    fn register(
        &self,
        files: &mut Files,
        object: &File,
        (number, handle): (u64, u64),
        reply: &ReplyOpen,
        file: HostFile,
    ) -> Way {
        let registered = reply.open_backing(object).and_then(|backing| {
            let Some(ledger) = &mut files.ledger else {
                return Ok((backing, None));
            };
            let id = id_of(&backing)?;
            let slot = ledger.add(&Registration { number, file, id })?;
            Ok((backing, Some(slot)))
        });
        match registered {
            Ok((backing, slot)) => {
                let backing = Arc::new(backing);
                let open = OpenFile {
                    backing: Arc::clone(&backing),
                    file,
                    slot,
                    handles: HashSet::from([handle]),
                };
                files.open.insert(number, open);
                Way::Kernel(backing)
            }
            Err(error) => {
                tracing::debug!(%error, "the kernel reads no more objects by itself");
                self.stop(files);
                Way::Here
            }
        }
    }

    /// Removes a handle. With the last one, the registration is given back.
    pub fn release(&self, number: u64, handle: FileHandle) {
        let mut files = self.lock();
        let Some(open) = files.open.get_mut(&number) else {
            return;
        };
        open.handles.remove(&handle.0);
        if !open.handles.is_empty() {
            return;
        }
        let Some(OpenFile { backing, slot, .. }) = files.open.remove(&number) else {
            return;
        };
        let removed = match (&mut files.ledger, slot) {
            (Some(ledger), Some(slot)) => ledger.remove(slot),
            _ => Ok(()),
        };
        if let Err(error) = removed {
            tracing::error!("writing to the ledger of open files: {error}");
            // The next server may use the number.
            std::mem::forget(backing);
        }
    }
}

/// Returns the kernel's number of a registration. `fuser` shows it to `Debug` only, or to a caller that
/// will not have it closed. The version of `fuser` is pinned; without a number no file is registered.
fn id_of(backing: &BackingId) -> io::Result<u32> {
    let shown = format!("{backing:?}");
    let found = shown.split_once("backing_id: ").map(|(_, rest)| rest);
    let digits = found.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    let id = digits.and_then(|digits| digits.parse().ok());
    id.ok_or_else(|| io::Error::other(format!("no number in {shown}")))
}

fn host_file(file: &File) -> Result<HostFile> {
    let metadata = file.metadata().map_err(|error| Error::io(0, 0, error))?;
    Ok(HostFile {
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}
