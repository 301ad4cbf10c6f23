//! Open files of images that keep their data in files of the host.
//!
//! Where the kernel permits it (this takes CAP_SYS_ADMIN), it is given such a file when it is opened,
//! and reads it by itself from then on: no byte of it goes through this process. The kernel refuses a
//! second handle of an inode unless it is opened with the number under which the file was registered
//! for the first one. So registrations are kept by inode, and in a [state table](Registered) for the next
//! server.
//!
//! A registration belongs to the connection and not to the process, so the next server continues with
//! those of the old one. It gives a number back when the last handle of the state table that uses it is released.

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
    /// Registered by earlier servers, by inode number and by the kernel's. An inode has several where its object was replaced.
    earlier: HashMap<u64, HashMap<u32, EarlierFile>>,
    /// Numbers that earlier servers were given are kept: the state table may lack handles that use them.
    keeps_earlier: bool,
    /// The connection to answer on with a registration of an earlier server, if there was one.
    connection: Option<Arc<OwnedFd>>,
    /// Nothing where no other process can take the mount over.
    table: Option<Registered>,
}

#[derive(Debug)]
struct OpenFile {
    backing: Arc<BackingId>,
    file: HostFile,
    /// The kernel's number; nothing where no other process can take the mount over.
    id: Option<u32>,
    handles: Handles,
}

/// The handles that use a number, and their slots in the state table. By number: a RELEASE can come twice, or be of a
/// handle that an earlier server opened under another number.
type Handles = HashMap<u64, Option<RegistrationSlot>>;

#[derive(Debug)]
struct EarlierFile {
    file: HostFile,
    handles: Handles,
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
    /// written to the state table of `options`.
    pub fn new(options: &MountOptions, has_objects: bool) -> Self {
        let store = options.objects.as_deref();
        let table = options.state.as_ref().filter(|_| has_objects);
        let stat = store.and_then(|path| rustix::fs::statfs(path).ok());
        let kind = stat.and_then(|stat| u64::try_from(stat.f_type).ok());
        Self {
            depth: if kind == Some(OVERLAYFS) { 2 } else { 1 },
            wanted: AtomicBool::new(has_objects),
            files: Mutex::new(Files {
                table: table.map(Registered::new),
                ..Files::default()
            }),
        }
    }

    /// Continues with the registrations of earlier servers, which have ended.
    ///
    /// # Errors
    /// The errors of the state table.
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
        if let Some(Err(error)) = files.table.as_ref().map(Registered::stop) {
            tracing::error!("writing to the table of open files: {error}");
        }
    }

    /// Returns whether another process could go on with the files that the kernel reads by itself.
    pub fn can_be_kept(&self) -> bool {
        let files = self.lock();
        files.table.is_some() || (!self.wanted.load(Ordering::Relaxed) && files.open.is_empty())
    }

    /// Makes a descriptor of the state table, where there is one.
    pub fn share(&self) -> Option<io::Result<OwnedFd>> {
        self.lock().table.as_ref().map(Registered::share)
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
    /// The errors of `find`; `Io` for a file that took the place of one that is open.
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
            let backing = Arc::clone(&open.backing);
            let id = open.id;
            let (handles, table) = (&mut open.handles, &mut files.table);
            let noted = note(handles, table, (number, file, handle), id);
            self.stop_after(noted, files);
            return Ok(Way::Kernel(backing));
        }
        // If the object was replaced while the kernel still reads the old one, the kernel refuses the
        // new one: EIO, as above.
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

    /// Stops after an error of the state table. Later servers keep all numbers then.
    fn stop_after(&self, noted: io::Result<()>, files: &Files) {
        if let Err(error) = noted {
            tracing::error!("writing to the table of open files: {error}");
            self.stop(files);
        }
    }

    /// Removes a handle. With the last one, the registration is given back.
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
                // The next server may use the number.
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

/// Adds a handle that uses a number, and writes it to the state table if there is one. An OPEN that is sent again has been added.
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

/// Clears the slot of a handle. Returns whether no later server reads of it.
fn clear(table: &mut Option<Registered>, slot: Option<RegistrationSlot>) -> bool {
    let (Some(table), Some(slot)) = (table, slot) else {
        return true;
    };
    let removed = table.remove(slot);
    removed
        .inspect_err(|error| tracing::error!("writing to the table of open files: {error}"))
        .is_ok()
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
