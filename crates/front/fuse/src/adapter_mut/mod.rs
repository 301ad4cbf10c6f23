//! Implements `fuser`'s trait on [`CoreMut`], for writable volumes.
//!
//! Only this mount changes the volume, so the kernel may cache names, attributes, pages and
//! listings indefinitely here too. Unlike an image, a volume must track open files (which outlive
//! their names), forgotten nodes, and changes to be made durable.
//!
//! The kernel's writeback cache (FUSE_WRITEBACK_CACHE) is off. So the driver alone determines
//! lengths and times, the write that hits an error such as a full volume returns it, and requests
//! of up to 1 MiB arrive in order, so that files grow without holes.

mod caller;
mod case_rename;
mod core;
mod entries;
mod files;
mod flusher;
mod ioctl;
mod known;
mod names;
mod numbers;
mod orphans;
mod recover;
mod refused;
mod reports;
mod setattr;
mod stale;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::SystemTime;

use forerun_io::Unpoisoned;
use forerun_vfs::FileType;
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use crate::attr;
use crate::counts::Operation;
use crate::request_threads::{RequestSize, RequestThreads};
use crate::workers::{Lane, Workers};
pub use core::CoreMut;
use entries::{GENERATION, make, new_node, reply_empty};
use files::HANDLE;
use ioctl::Ioctl;
use names::is_resent;
pub use numbers::MOST_SERVERS;
use refused::refuse_for_volumes;
use setattr::{Wanted, setattr};
pub use stale::Stale;

/// The kernel keeps cached pages when a file is opened, and sends no FLUSH on close(2).
const OPENED: FopenFlags = FopenFlags::FOPEN_KEEP_CACHE.union(FopenFlags::FOPEN_NOFLUSH);
const S_IFMT: u32 = 0o170_000;
const S_IFREG: u32 = 0o100_000;

/// The writable filesystem that `fuser` calls.
pub struct AdapterMut {
    core: Arc<CoreMut>,
    workers: Workers,
    threads: RequestThreads,
}

impl AdapterMut {
    /// Creates an adapter of `core` that answers on `threads` and on workers.
    pub fn new(core: Arc<CoreMut>, threads: RequestThreads) -> Self {
        Self {
            core,
            workers: Workers::new(threads.count()),
            threads,
        }
    }

    pub fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// Counts a request and answers it on a suitable thread.
    fn serve(
        &self,
        request: &Request,
        operation: Operation,
        answer: impl FnOnce(&CoreMut) + Send + 'static,
    ) {
        self.core.counts.add(operation);
        // More path components may follow these requests. RELEASE belongs to an earlier system
        // call.
        let is_in_path = matches!(
            operation,
            Operation::Lookup | Operation::Getattr | Operation::Release
        );
        if !is_in_path {
            self.core.case_renames.requested(request.pid());
        }
        let (asks, lane) = match operation {
            Operation::Fsync => (RequestSize::Large, Lane::Data),
            _ => (RequestSize::Small(request.pid()), Lane::Metadata),
        };
        self.serve_as(asks, lane, answer);
    }

    /// Answers a counted request on a suitable thread.
    fn serve_as(
        &self,
        asks: RequestSize,
        lane: Lane,
        answer: impl FnOnce(&CoreMut) + Send + 'static,
    ) {
        let core = Arc::clone(&self.core);
        let answer = move || {
            let _until_answered = core.gate.read().unpoisoned();
            answer(&core);
        };
        self.take(asks, || self.workers.run_once(lane, answer));
    }

    fn take(&self, asks: RequestSize, answer: impl FnOnce()) {
        if self.threads.is_following() {
            self.core.counts.add(Operation::Followed);
        }
        self.threads.take(asks, answer);
    }
}

impl Filesystem for AdapterMut {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let negotiated = files::configure(config);
        let _is_set_once = self.core.negotiated.set(negotiated);
        Ok(())
    }

    fn destroy(&mut self) {
        // A worker may still be answering a RELEASE, which frees space.
        self.workers.drain();
        self.core.flusher.end();
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, thread) = (name.as_bytes().to_vec(), req.pid());
        self.serve(req, Operation::Lookup, move |core| {
            entries::lookup(core, thread, parent.0, &name, reply);
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.core.counts.add(Operation::Forget);
        self.core.forget(ino.0, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let thread = req.pid();
        self.serve(req, Operation::Getattr, move |core| {
            entries::getattr(core, thread, ino.0, reply);
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        created: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted {
            mode,
            uid,
            gid,
            size,
            accessed,
            modified,
            created,
        };
        self.serve(req, Operation::Write, move |core| {
            let checked = handle.map_or(Ok(()), |_| core.opened_node(ino.0).map(drop));
            match checked.and_then(|()| setattr(core, ino.0, &wanted)) {
                Ok(attr) => reply.attr(&core.ttl(), &attr),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve(req, Operation::Readlink, move |core| {
            let target = core.fs().read_link(core.node(ino.0));
            match core.noted(Operation::Readlink, ino.0, target) {
                Ok(target) => reply.data(&target),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        if !matches!(mode & S_IFMT, 0 | S_IFREG) {
            return reply.error(Errno::EPERM);
        }
        let new = new_node(req, FileType::Regular, mode, umask);
        let (name, resent) = (name.as_bytes().to_vec(), is_resent(req));
        self.serve(req, Operation::Write, move |core| {
            make(core, (parent.0, &name), &new, resent, reply);
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(req, FileType::Directory, mode, umask);
        let (name, resent) = (name.as_bytes().to_vec(), is_resent(req));
        self.serve(req, Operation::Write, move |core| {
            make(core, (parent.0, &name), &new, resent, reply);
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_node(req, FileType::Regular, mode, umask);
        let (name, resent) = (name.as_bytes().to_vec(), is_resent(req));
        self.serve(req, Operation::Write, move |core| {
            let create = || core.create(core.node(parent.0), &name, &new, (true, resent));
            let made = core.with_room(create);
            match core.changed(Operation::Write, parent.0, made) {
                // CREATE has one lifetime for name and attributes. A new name is never an alias.
                Ok(entry) => {
                    reply.created(&entry.name_ttl, &entry.attr, GENERATION, HANDLE, OPENED);
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, resent) = (name.as_bytes().to_vec(), is_resent(req));
        self.serve(req, Operation::Write, move |core| {
            let removed = core.remove(core.node(parent.0), &name, false, resent);
            reply_empty(core.changed(Operation::Write, parent.0, removed), reply);
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, resent) = (name.as_bytes().to_vec(), is_resent(req));
        self.serve(req, Operation::Write, move |core| {
            let removed = core.remove(core.node(parent.0), &name, true, resent);
            reply_empty(core.changed(Operation::Write, parent.0, removed), reply);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !(flags - RenameFlags::RENAME_NOREPLACE).is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let how = (flags.is_empty(), is_resent(req));
        let (name, newname) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec());
        self.serve(req, Operation::Write, move |core| {
            let (from, to) = (core.node(parent.0), core.node(newparent.0));
            let renamed = core.with_room(|| core.rename((from, &name), (to, &newname), how));
            let renamed = core.changed(Operation::Write, parent.0, renamed);
            reply_empty(renamed, reply);
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.serve(req, Operation::Open, move |core| {
            files::open(core, ino.0, reply);
        });
    }

    fn release(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(req, Operation::Release, move |core| {
            let released = files::release(core, ino.0);
            reply_empty(core.changed(Operation::Release, ino.0, released), reply);
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.core.counts.add(Operation::Read);
        self.core.case_renames.requested(req.pid());
        let asks = RequestSize::of_read(size, req.pid());
        self.serve_as(asks, Lane::Data, move |core| {
            files::read(core, ino.0, offset, size, reply);
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.core.counts.add(Operation::Write);
        self.core.case_renames.requested(req.pid());
        let core = Arc::clone(&self.core);
        let answer = move |data: &[u8]| {
            let _until_answered = core.gate.read().unpoisoned();
            match files::write(&core, ino.0, offset, data) {
                Ok(len) => reply.written(u32::try_from(len).unwrap_or(u32::MAX)),
                Err(errno) => reply.error(errno),
            }
        };
        let asks = RequestSize::of_write(data, req.pid());
        self.take(asks, || self.workers.run_with(Lane::Data, data, answer));
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(req, Operation::Fsync, move |core| {
            reply_empty(files::fsync(core, ino.0), reply);
        });
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.serve(req, Operation::Fsync, move |core| {
            reply_empty(files::fsyncdir(core, ino.0), reply);
        });
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.serve(req, Operation::Readdir, move |core| {
            entries::readdir(core, ino.0, offset, reply);
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.serve(req, Operation::Readdirplus, move |core| {
            entries::readdirplus(core, ino.0, offset, reply);
        });
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.serve(req, Operation::Statfs, move |core| {
            entries::statfs(core, ino.0, reply);
        });
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.serve(req, Operation::Write, move |core| {
            files::fallocate(core, ino.0, (offset, length), mode, reply);
        });
    }

    fn lseek(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.serve(req, Operation::Lseek, move |core| {
            files::lseek(core, ino.0, offset, whence, reply);
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: fuser::IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        let asked = Ioctl {
            caller: req.uid(),
            number: ino.0,
            command: cmd,
            input: in_data.to_vec(),
        };
        self.serve(req, Operation::Other, move |core| {
            match ioctl::ioctl(core, &asked) {
                Ok(output) => reply.ioctl(0, &output),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn listxattr(&self, _req: &Request, _ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.core.counts.add(Operation::Listxattr);
        attr::reply_bytes(&[], size, reply);
    }

    refuse_for_volumes!();
}
