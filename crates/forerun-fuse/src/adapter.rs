//! `fuser`'s trait in terms of [`Core`]: takes requests apart, picks the reply.
//!
//! What makes a read-only filesystem cheap is mostly what is *not* answered here: ENOSYS to OPEN and
//! OPENDIR makes the kernel open files by itself from then on, with the page cache and the listing
//! cache kept; likewise ACCESS, FLUSH and, where the format has none, extended attributes. Names
//! and attributes, missing names too, hold without end. Only where files have their data outside the
//! image is each OPEN answered: it may fail, and the kernel may take the data from there itself.
//!
//! Writes reach this file only if root remounts read-write: they are refused.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use crate::attr;
use crate::core::{Core, Seek, Xattr};
use crate::counts::Operation;
use crate::errno::errno;
use crate::handover::Negotiated;
use crate::push::Pusher;
use crate::push_tree::TreePusher;
use crate::takers::{Asks, Takers};
use crate::workers::Workers;
use refused::refused;

mod refused;

/// How long the kernel may keep what it was told: longer than any machine is up. (The kernel adds
/// it to its clock, so the very largest number would not do on all versions.)
const ENDLESS: Duration = Duration::from_secs(1 << 31);
/// A name that does not change its meaning needs no generations.
const GENERATION: Generation = Generation(0);
/// The longest read that is about as quick as a question for metadata.
const MAX_LITTLE: u32 = 64 << 10;
/// Background requests (readahead) that the kernel may have under way.
const MAX_BACKGROUND: u16 = 64;

/// The filesystem that `fuser` calls.
pub struct Adapter {
    core: Arc<Core>,
    workers: Workers,
    pusher: Arc<OnceLock<Pusher>>,
    tree_pusher: Arc<OnceLock<TreePusher>>,
    takers: Takers,
    kernel_readahead: bool,
}

impl Adapter {
    /// Answers with `core`, on `takers` threads and what helps them. The pushers may be set later.
    pub fn new(
        core: Arc<Core>,
        takers: usize,
        pusher: Arc<OnceLock<Pusher>>,
        tree_pusher: Arc<OnceLock<TreePusher>>,
        kernel_readahead: bool,
    ) -> Self {
        Self {
            core,
            workers: Workers::new(takers),
            pusher,
            tree_pusher,
            takers: Takers::new(takers),
            kernel_readahead,
        }
    }

    /// Counts, and answers on some thread.
    fn serve(
        &self,
        request: &Request,
        operation: Operation,
        answer: impl FnOnce(&Core) + Send + 'static,
    ) {
        self.serve_as(Asks::Little(request.pid()), operation, answer);
    }

    /// The same, where more may be asked for.
    fn serve_as(
        &self,
        asks: Asks,
        operation: Operation,
        answer: impl FnOnce(&Core) + Send + 'static,
    ) {
        self.core.counts.add(operation);
        let core = Arc::clone(&self.core);
        let answer = move || answer(&core);
        self.takers.take(asks, || self.workers.run(answer));
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut asked = InitFlags::empty();
        // Each on its own: an old kernel may lack some, and works without.
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_MAX_PAGES,
        ] {
            asked |= wanted;
            if let Err(missing) = config.add_capabilities(wanted) {
                tracing::debug!(?missing, "the kernel's FUSE lacks a capability");
            }
        }
        if self.core.volume.opens {
            asked |= InitFlags::FUSE_PASSTHROUGH;
            let added = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
            let depth = config.set_max_stack_depth(self.core.backings.depth());
            if added.is_err() || depth.is_err() {
                self.core.backings.unavailable();
            }
        }
        let _is_set_once = self.core.negotiated.set(Negotiated::new(config, asked));
        // The largest requests that the kernel's limit allows come of `fuser`'s largest write size;
        // readahead stays at the most that the kernel offers unless it is to be off. One byte means
        // no page.
        if !self.kernel_readahead && config.set_max_readahead(1).is_err() {
            tracing::warn!("the kernel's readahead cannot be turned off");
        }
        if config.set_max_background(MAX_BACKGROUND).is_err() {
            tracing::debug!("the kernel's default for background requests stays");
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        self.serve(req, Operation::Lookup, move |core| {
            if u64::try_from(name.len()).is_ok_and(|len| len > u64::from(core.volume.name_max)) {
                return reply.error(Errno::ENAMETOOLONG);
            }
            let found = core.lookup(parent.0, &name);
            match core.noted(Operation::Lookup, parent.0, found) {
                Ok(Some(attr)) => reply.entry(&ENDLESS, &attr, GENERATION),
                // Number 0 is a name that is known not to exist.
                Ok(None) => {
                    let nobody = attr::unknown(0, fuser::FileType::RegularFile);
                    reply.entry(&ENDLESS, &nobody, GENERATION);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn forget(&self, _req: &Request, _ino: INodeNo, _nlookup: u64) {
        self.core.counts.add(Operation::Forget);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.serve(req, Operation::Getattr, move |core| {
            let attr = core.attr(core.node(ino.0));
            match core.noted(Operation::Getattr, ino.0, attr) {
                Ok(attr) => reply.attr(&ENDLESS, &attr),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        self.serve(req, Operation::Readlink, move |core| {
            let target = core.read_link(ino.0);
            match core.noted(Operation::Readlink, ino.0, target) {
                Ok(target) => reply.data(&target),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if !self.core.volume.opens {
            self.core.counts.add(Operation::Open);
            return reply.error(Errno::ENOSYS);
        }
        self.serve(req, Operation::Open, move |core| {
            core.backings.open(core, ino.0, reply);
        });
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.core.counts.add(Operation::Release);
        if self.core.volume.opens {
            self.core.backings.release(ino.0);
        }
        reply.ok();
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
        let pusher = Arc::clone(&self.pusher);
        let tree_pusher = Arc::clone(&self.tree_pusher);
        let asks = match size {
            0..=MAX_LITTLE => Asks::Little(req.pid()),
            _ => Asks::Much,
        };
        self.serve_as(asks, Operation::Read, move |core| {
            let pusher = pusher.get();
            if let Some((pusher, gap)) = pusher.and_then(|p| Some((p, p.gap(ino.0, offset, size)?)))
            {
                reply.data(&gap);
                return pusher.on_read(ino.0, offset, &gap);
            }
            let data = core.read(ino.0, offset, size);
            match core.noted(Operation::Read, ino.0, data) {
                Ok(data) => {
                    let tree_pusher = tree_pusher.get().filter(|_| offset == 0);
                    if let Some(tree_pusher) = tree_pusher {
                        tree_pusher.is_behind();
                    }
                    reply.data(&data);
                    if let Some(tree_pusher) = tree_pusher {
                        tree_pusher.wake();
                    }
                    if let Some(pusher) = pusher {
                        pusher.on_read(ino.0, offset, &data);
                    }
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.core.counts.add(Operation::Opendir);
        reply.error(Errno::ENOSYS);
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.serve(req, Operation::Readdir, move |core| {
            let listed = core.list(ino.0, offset, &mut |entry| {
                let name = OsStr::from_bytes(&entry.name);
                reply.add(INodeNo(entry.number), entry.cookie, entry.kind, name)
            });
            match core.noted(Operation::Readdir, ino.0, listed) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let tree_pusher = Arc::clone(&self.tree_pusher);
        self.serve(req, Operation::Readdirplus, move |core| {
            // What the answer before this one showed is known to the kernel now.
            if let Some(tree_pusher) = tree_pusher.get().filter(|_| offset > 0) {
                tree_pusher.listed(ino.0);
            }
            let listed = core.list(ino.0, offset, &mut |entry| {
                let (attr, ttl) = match core.entry_attr(entry) {
                    Some(attr) => (attr, ENDLESS),
                    // No time at all: whoever uses the entry looks again.
                    None => (attr::unknown(entry.number, entry.kind), Duration::ZERO),
                };
                let name = OsStr::from_bytes(&entry.name);
                reply.add(attr.ino, entry.cookie, name, &ttl, &attr, GENERATION)
            });
            match core.noted(Operation::Readdirplus, ino.0, listed) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.serve(req, Operation::Statfs, move |core| {
            let all = core.statistics();
            let (size, name_max) = (all.block_size, all.name_max);
            reply.statfs(all.blocks, 0, 0, all.inodes, 0, size, name_max, size);
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_os_string().into_vec();
        self.serve(req, Operation::Getxattr, move |core| {
            let found = core.xattr(ino.0, &name);
            let found = core.noted(Operation::Getxattr, ino.0, found);
            reply_xattr(found.map_err(|error| errno(&error)), size, reply);
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.serve(req, Operation::Listxattr, move |core| {
            let names = core.xattr_names(ino.0);
            match core.noted(Operation::Listxattr, ino.0, names) {
                Ok(names) => attr::reply_bytes(&names, size, reply),
                Err(error) => reply.error(errno(&error)),
            }
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
            let found = core.seek(ino.0, offset, whence);
            match core.noted(Operation::Lseek, ino.0, found) {
                Ok(Seek::At(at)) => match i64::try_from(at) {
                    Ok(at) => reply.offset(at),
                    Err(_) => reply.error(Errno::EOVERFLOW),
                },
                Ok(Seek::Nowhere) => reply.error(Errno::ENXIO),
                Ok(Seek::Unknown) => reply.error(Errno::EINVAL),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    refused!();
}

fn reply_xattr(found: Result<Xattr, Errno>, room: u32, reply: ReplyXattr) {
    match found {
        Ok(Xattr::Found(bytes)) => attr::reply_bytes(&bytes, room, reply),
        Ok(Xattr::Missing) => reply.error(Errno::ENODATA),
        Ok(Xattr::Never) => reply.error(Errno::ENOSYS),
        Err(errno) => reply.error(errno),
    }
}
