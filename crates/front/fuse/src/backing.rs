//! Open files of images that store their data in host files.
//!
//! If the kernel permits it (this needs CAP_SYS_ADMIN), the server registers the host file when it
//! answers OPEN. The kernel then reads the file itself, and no data passes through this process. A
//! second handle of the same inode must be opened with the registration number of the first, so
//! registrations are kept by inode, and in a [state table](Registered) for the next server.
//!
//! A registration belongs to the connection, not to the process, so the next server continues to
//! use it. It is released with the last handle in the state table that uses it.

use std::collections::HashMap;
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
use crate::state_table::{HostFile, Registered, Registration, RegistrationSlot};

const REPLACED: &str = "the object was replaced while a file with its data was open";

/// `f_type` of overlayfs in statfs(2).
const OVERLAYFS: u64 = 0x794c_7630;

/// Open files and their registrations.
#[derive(Debug)]
pub struct Backings {
    /// The stacking depth for INIT: 2 if the objects are on an overlayfs, which then cannot be
    /// stacked on this mount; otherwise 1.
    depth: u32,
    /// Whether to register files. Cleared when the kernel refuses.
    wanted: AtomicBool,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    /// Files registered by this process, by inode number.
    open: HashMap<u64, OpenFile>,
    /// Files registered by earlier servers, by inode number and registration number. An inode has
    /// several if its object was replaced.
    earlier: HashMap<u64, HashMap<u32, EarlierFile>>,
    /// Whether to keep all registrations of earlier servers, because the state table may lack
    /// handles that use them.
    keeps_earlier: bool,
    /// The connection on which to answer with an earlier server's registration, if there was an
    /// earlier server.
    connection: Option<Arc<OwnedFd>>,
    /// `None` if no other process can take over the mount.
    table: Option<Registered>,
}

#[derive(Debug)]
struct OpenFile {
    backing: Arc<BackingId>,
    file: HostFile,
    /// The kernel's registration number; `None` if no other process can take over the mount.
    id: Option<u32>,
    handles: Handles,
}

/// The handles that use a registration, and their slots in the state table. A map, because a
/// RELEASE can arrive twice, or for a handle that an earlier server opened with a different
/// registration.
type Handles = HashMap<u64, Option<RegistrationSlot>>;

#[derive(Debug)]
struct EarlierFile {
    file: HostFile,
    handles: Handles,
}

pub enum Way {
    /// This process reads it.
    Here,
    /// The kernel reads it, with a registration of this process.
    Kernel(Arc<BackingId>),
    /// The kernel reads it, with the registration number of an earlier server.
    Earlier(u32, Arc<OwnedFd>),
}

impl Backings {
    /// Creates the state without open files. Registers files only if the image `has_objects`, and
    /// records them in the state table of `options`.
    pub fn new(options: &MountOptions, has_objects: bool) -> Self {
        let table = options.state.as_ref().filter(|_| has_objects);
        let is_overlayfs = |path| {
            let stat = rustix::fs::statfs::<&std::path::PathBuf>(path);
            stat.is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(OVERLAYFS))
        };
        Self {
            depth: if options.stores().any(is_overlayfs) {
                2
            } else {
                1
            },
            wanted: AtomicBool::new(has_objects),
            files: Mutex::new(Files {
                table: table.map(Registered::new),
                ..Files::default()
            }),
        }
    }

    /// Takes over the registrations of earlier servers, which have ended.
    pub fn inherit(&self, table: OwnedFd, connection: OwnedFd) -> io::Result<()> {
        let (table, earlier) = Registered::inherit(table)?;
        if earlier.has_stopped {
            self.wanted.store(false, Ordering::Relaxed);
        }
        let mut files = self.lock();
        files.keeps_earlier = earlier.has_stopped;
        for (registration, slot) in earlier.registrations {
            let Registration {
                number,
                file,
                id,
                handle,
            } = registration;
            let of_inode = files.earlier.entry(number).or_default();
            let known = of_inode.entry(id).or_insert_with(|| EarlierFile {
                file,
                handles: Handles::new(),
            });
            known.handles.insert(handle, Some(slot));
        }
        files.connection = Some(Arc::new(connection));
        files.table = Some(table);
        Ok(())
    }

    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// Stops registering files, in this and all later processes.
    pub fn unavailable(&self) {
        self.stop(&self.lock());
    }

    fn stop(&self, files: &Files) {
        self.wanted.store(false, Ordering::Relaxed);
        if let Some(Err(error)) = files.table.as_ref().map(Registered::stop) {
            tracing::error!("writing to the table of open files: {error}");
        }
    }

    /// Returns whether another process could take over the registered files.
    pub fn can_be_kept(&self) -> bool {
        let files = self.lock();
        files.table.is_some() || (!self.wanted.load(Ordering::Relaxed) && files.open.is_empty())
    }

    /// Duplicates the state table's descriptor, if there is a table.
    pub fn share(&self) -> Option<io::Result<OwnedFd>> {
        self.lock().table.as_ref().map(Registered::share)
    }

    /// Stops opening and releasing files: requests block, and another process will answer them.
    pub fn close(&self) {
        std::mem::forget(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unpoisoned()
    }

    /// Decides how to read a new handle. `find` opens the host file with the data, if there is one.
    ///
    /// # Errors
    /// The errors of `find`; `Io` if the host file of an open inode was replaced.
    pub fn way(
        &self,
        find: impl FnOnce() -> Result<Option<File>>,
        (number, handle): (u64, u64),
        reply: &ReplyOpen,
    ) -> Result<Way> {
        let mut guard = self.lock();
        let files = &mut *guard;
        let is_wanted = self.wanted.load(Ordering::Relaxed);
        let is_known = files.open.contains_key(&number) || files.earlier.contains_key(&number);
        if !is_wanted && !is_known {
            return Ok(Way::Here);
        }
        // Open the host file again, so that it is verified again after a change.
        let Some(object) = find()? else {
            return Ok(Way::Here);
        };
        let file = host_file(&object)?;
        if let Some(open) = files.open.get_mut(&number) {
            // The kernel continues to read the registered file, so a replacement cannot be used.
            if open.file != file {
                return Err(Error::io(0, 0, io::Error::other(REPLACED)));
            }
            let backing = Arc::clone(&open.backing);
            let id = open.id;
            let (handles, table) = (&mut open.handles, &mut files.table);
            let noted = note(handles, table, (number, file, handle), id);
            self.stop_after(noted, files);
            return Ok(Way::Kernel(backing));
        }
        // If the object was replaced while the kernel still reads the old one, the kernel refuses
        // the new one: EIO, as above.
        let earlier = files.earlier.get_mut(&number);
        let earlier = earlier.and_then(|all| all.iter_mut().find(|(_, known)| known.file == file));
        if let (Some((&id, known)), Some(connection)) = (earlier, &files.connection) {
            let connection = Arc::clone(connection);
            let (handles, table) = (&mut known.handles, &mut files.table);
            let noted = note(handles, table, (number, file, handle), Some(id));
            self.stop_after(noted, files);
            return Ok(Way::Earlier(id, connection));
        }
        if is_wanted {
            Ok(self.register(files, &object, (number, handle), reply, file))
        } else {
            Ok(Way::Here)
        }
    }

    /// Registers `object` with the kernel. On failure, stops registering files.
    fn register(
        &self,
        files: &mut Files,
        object: &File,
        (number, handle): (u64, u64),
        reply: &ReplyOpen,
        file: HostFile,
    ) -> Way {
        let registered = reply.open_backing(object).and_then(|backing| {
            let id = files.table.is_some().then(|| id_of(&backing)).transpose()?;
            let mut handles = Handles::new();
            note(&mut handles, &mut files.table, (number, file, handle), id)?;
            Ok((backing, id, handles))
        });
        match registered {
            Ok((backing, id, handles)) => {
                let backing = Arc::new(backing);
                let open = OpenFile {
                    backing: Arc::clone(&backing),
                    file,
                    id,
                    handles,
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

    /// Stops registering files after an error of the state table. Later servers then keep all
    /// registrations.
    fn stop_after(&self, noted: io::Result<()>, files: &Files) {
        if let Err(error) = noted {
            tracing::error!("writing to the table of open files: {error}");
            self.stop(files);
        }
    }

    /// Removes a handle. Releases the registration with its last handle.
    pub fn release(&self, number: u64, handle: FileHandle) {
        let mut guard = self.lock();
        let files = &mut *guard;
        if let Some(open) = files.open.get_mut(&number)
            && let Some(slot) = open.handles.remove(&handle.0)
        {
            let cleared = clear(&mut files.table, slot);
            if open.handles.is_empty()
                && let Some(OpenFile { backing, .. }) = files.open.remove(&number)
                && !cleared
            {
                // Keep the registration, because the next server may use it.
                std::mem::forget(backing);
            }
            return;
        }
        let Some(of_inode) = files.earlier.get_mut(&number) else {
            return;
        };
        let mut all = of_inode.iter_mut();
        let found = all.find_map(|(id, known)| {
            let slot = known.handles.remove(&handle.0)?;
            Some((*id, slot, known.handles.is_empty()))
        });
        let Some((id, slot, is_last)) = found else {
            return;
        };
        let cleared = clear(&mut files.table, slot);
        if !is_last || !cleared || files.keeps_earlier {
            return;
        }
        of_inode.remove(&id);
        if of_inode.is_empty() {
            files.earlier.remove(&number);
        }
        if let Some(connection) = &files.connection
            && let Err(error) = forerun_sys::fuse::close_backing(connection, id)
        {
            tracing::debug!(%error, id, "the kernel keeps an object");
        }
    }
}

/// Adds a handle to a registration, and to the state table if there is one. A repeated OPEN has
/// already been added.
fn note(
    handles: &mut Handles,
    table: &mut Option<Registered>,
    (number, file, handle): (u64, HostFile, u64),
    id: Option<u32>,
) -> io::Result<()> {
    if handles.contains_key(&handle) {
        return Ok(());
    }
    handles.insert(handle, None);
    if let (Some(table), Some(id)) = (table, id) {
        let registration = Registration {
            number,
            file,
            id,
            handle,
        };
        handles.insert(handle, Some(table.add(&registration)?));
    }
    Ok(())
}

/// Clears a handle's slot. Returns whether later servers cannot see the handle.
fn clear(table: &mut Option<Registered>, slot: Option<RegistrationSlot>) -> bool {
    let (Some(table), Some(slot)) = (table, slot) else {
        return true;
    };
    let removed = table.remove(slot);
    removed
        .inspect_err(|error| tracing::error!("writing to the table of open files: {error}"))
        .is_ok()
}

/// Returns the kernel's registration number. `fuser` exposes it only in its `Debug` output, or to
/// callers that leak the registration. The version of `fuser` is pinned; if there is no number,
/// nothing is registered.
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
