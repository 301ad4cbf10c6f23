//! Implements `fuser`'s trait on [`Core`]: decodes requests and sends replies.
//!
//! A read-only filesystem is cheap mostly because of requests that the kernel does not send. After
//! ENOSYS to OPEN and OPENDIR the kernel opens files itself and keeps the page cache and listings.
//! ENOSYS also ends ACCESS, FLUSH and, if the format has none, requests for extended attributes.
//! Names, attributes and negative lookups are cached indefinitely. OPEN is answered only if files
//! have their data outside the image: it may fail, and the kernel may read the data itself.
//!
//! Writes arrive only after root has remounted read-write. They are refused.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use forerun_engine::Data;
use forerun_io::{Unpoisoned, wait};
use fuser::{
    Errno, FileHandle, Filesystem, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};

use crate::about_to_read::AboutToRead;
use crate::attr::{self, GET_FAT_ATTRIBUTES};
use crate::connection::{Negotiated, invalidate};
use crate::core::{Core, Seek, Xattr};
use crate::counts::Operation;
use crate::directory::ListedEntry;
use crate::errno::errno;
use crate::listers::Listers;
use crate::listing::Listing;
use crate::open;
use crate::push::Pusher;
use crate::request_threads::{RequestSize, RequestThreads};
use crate::tuning::MAX_LITTLE;
use crate::workers::{About, Lane, Workers};
use refused::refuse_for_images;

mod refused;

/// How long the kernel may cache answers: longer than any uptime. The kernel adds it to its clock,
/// which the largest value would overflow in some versions.
const ENDLESS: Duration = Duration::from_secs(1 << 31);
/// Generations are not needed, because node IDs are never reused.
const GENERATION: Generation = Generation(0);
/// Maximum background requests (readahead) in flight.
const MAX_BACKGROUND: u16 = 64;

/// The read-only filesystem that `fuser` calls.
pub struct Adapter {
    core: Arc<Core>,
    workers: Workers,
    pusher: Arc<OnceLock<Pusher>>,
    threads: RequestThreads,
    about_to_read: AboutToRead,
    listers: Arc<Listers>,
    /// The connection, to answer listings on.
    connection: Arc<OnceLock<Arc<OwnedFd>>>,
    kernel_readahead: bool,
}

impl Adapter {
    /// Creates an adapter of `core` that answers on `threads` and on workers. The pusher and the
    /// connection may be set later.
    pub fn new(
        core: Arc<Core>,
        threads: RequestThreads,
        pusher: Arc<OnceLock<Pusher>>,
        connection: Arc<OnceLock<Arc<OwnedFd>>>,
        kernel_readahead: bool,
    ) -> Self {
        Self {
            core,
            workers: Workers::new(threads.count()),
            pusher,
            threads,
            about_to_read: AboutToRead::default(),
            listers: Arc::default(),
            connection,
            kernel_readahead,
        }
    }

    pub fn workers(&self) -> Workers {
        self.workers.clone()
    }

    /// Counts the request, runs `find` on a suitable thread, and passes the result to `reply`. If
    /// the image is slow, `find` may run twice: first in a mode that fails instead of waiting.
    fn serve<T: 'static>(
        &self,
        request: &Request,
        (operation, number): (Operation, u64),
        find: impl Fn(&Core) -> forerun_vfs::Result<T> + Send + 'static,
        reply: impl FnOnce(&Core, Result<T, Errno>) + Send + 'static,
    ) {
        let asks = RequestSize::Small(request.pid());
        self.serve_as(request, (asks, operation, number), find, reply);
    }

    /// Does the same as [`serve`](Self::serve) for requests of any size.
    fn serve_as<T: 'static>(
        &self,
        request: &Request,
        (asks, operation, number): (RequestSize, Operation, u64),
        find: impl Fn(&Core) -> forerun_vfs::Result<T> + Send + 'static,
        reply: impl FnOnce(&Core, Result<T, Errno>) + Send + 'static,
    ) {
        self.core.counts.add(operation);
        let lane = match operation {
            Operation::Read => Lane::Data,
            _ => Lane::Metadata,
        };
        let about = About {
            lane,
            pid: request.pid(),
            is_slow: self.core.reader.is_slow(),
        };
        let (core, of_reply) = (Arc::clone(&self.core), Arc::clone(&self.core));
        let find = move || find(&core);
        let answer = move |found: Result<forerun_vfs::Result<T>, Errno>| {
            let noted = |found| of_reply.noted(operation, number, found);
            let found = found.and_then(|found| noted(found).map_err(|error| errno(&error)));
            reply(&of_reply, found);
        };
        if self.threads.is_following() {
            self.core.counts.add(Operation::Followed);
        }
        self.threads
            .take(asks, || self.workers.run(about, find, answer));
    }
}

/// The reply to READDIR or READDIRPLUS, filled before it is sent.
type Filled<R> = Arc<Mutex<Option<R>>>;

/// Adds an entry to a listing. Returns whether the listing is full or has been answered already.
fn add<R>(filled: &Filled<R>, add: impl FnOnce(&mut R) -> bool) -> bool {
    let mut reply = filled.lock().unpoisoned();
    reply.as_mut().is_none_or(add)
}

/// Makes the kernel forget its copies of listings.
fn forget_listings(connection: &OnceLock<Arc<OwnedFd>>, directories: HashSet<u64>) {
    let Some(connection) = connection.get() else {
        return;
    };
    for dir in directories {
        // The kernel may have forgotten the directory.
        let _it_has_gone = invalidate(connection, dir, 0);
    }
}

/// Adds an entry, with attributes if it gets them. Returns whether the listing is full.
fn add_plus(core: &Core, listing: &mut Listing, entry: &ListedEntry) -> bool {
    if !listing.wants_attributes(entry) {
        return listing.add(entry, None);
    }
    match core.entry_attr(entry) {
        Some(attr) => listing.add(entry, Some((attr, ENDLESS))),
        // Send the entries collected so far first.
        None if wait::was_refused() => true,
        // Without a lifetime, so that the kernel looks the entry up before using it.
        None => {
            let unknown = attr::unknown(entry.number, entry.kind);
            listing.add(entry, Some((unknown, Duration::ZERO)))
        }
    }
}

fn take<R>(filled: &Filled<R>) -> Option<R> {
    let mut reply = filled.lock().unpoisoned();
    reply.take()
}

enum Bytes {
    /// Data that the pusher did not store in the page cache but kept for this request.
    Gap(Vec<u8>),
    Read(Data),
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut asked = InitFlags::empty();
        // Request each capability separately: old kernels lack some, which is not an error.
        for wanted in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            // Numbers of nodes are the same in every mount, so file handles are, too.
            InitFlags::FUSE_EXPORT_SUPPORT,
            InitFlags::FUSE_MAX_PAGES,
        ] {
            asked |= wanted;
            if let Err(missing) = config.add_capabilities(wanted) {
                tracing::debug!(?missing, "the kernel's FUSE lacks a capability");
            }
        }
        if self.core.opens {
            asked |= InitFlags::FUSE_PASSTHROUGH;
            let added = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
            let depth = config.set_max_stack_depth(self.core.backings.depth());
            if added.is_err() || depth.is_err() {
                self.core.backings.unavailable();
            }
        }
        let _is_set_once = self.core.negotiated.set(Negotiated::new(config, asked));
        // The maximum request size follows from `fuser`'s largest write size. Readahead keeps the
        // kernel's maximum, or is turned off: one byte means no page.
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
        let limit = u64::from(self.core.volume.name_max);
        if u64::try_from(name.len()).is_ok_and(|len| len > limit) {
            self.core.counts.add(Operation::Lookup);
            return reply.error(Errno::ENAMETOOLONG);
        }
        let find = move |core: &Core| core.lookup(parent.0, &name);
        let asked = (Operation::Lookup, parent.0);
        let (listers, thread) = (Arc::clone(&self.listers), req.pid());
        let connection = Arc::clone(&self.connection);
        self.serve(req, asked, find, move |_, found| match found {
            Ok(Some(attr)) => {
                if attr.kind != fuser::FileType::Directory {
                    let outdated = listers.on_lookup(thread, parent.0);
                    forget_listings(&connection, outdated);
                }
                reply.entry(&ENDLESS, &attr, GENERATION);
            }
            // Node ID 0 lets the kernel cache that the name does not exist.
            Ok(None) => {
                let missing = attr::unknown(0, fuser::FileType::RegularFile);
                reply.entry(&ENDLESS, &missing, GENERATION);
            }
            Err(error) => reply.error(error),
        });
    }

    fn forget(&self, _req: &Request, _ino: INodeNo, _nlookup: u64) {
        self.core.counts.add(Operation::Forget);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let find = move |core: &Core| core.attr(core.node(ino.0));
        let asked = (Operation::Getattr, ino.0);
        self.serve(req, asked, find, move |_, attr| match attr {
            Ok(attr) => reply.attr(&ENDLESS, &attr),
            Err(error) => reply.error(error),
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let find = move |core: &Core| core.read_link(ino.0);
        let asked = (Operation::Readlink, ino.0);
        self.serve(req, asked, find, move |_, target| match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.core.counts.add(Operation::Open);
        if !self.core.opens {
            return reply.error(Errno::ENOSYS);
        }
        let core = Arc::clone(&self.core);
        let request = req.unique();
        let answer = move || open::open(&core, request, ino.0, reply);
        let asks = RequestSize::Small(req.pid());
        self.threads.take(asks, || {
            if self.core.reader.is_slow() {
                self.workers.run_aside(Lane::Metadata, answer)
            } else {
                self.workers.run_once(Lane::Metadata, answer)
            }
        });
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.core.counts.add(Operation::Release);
        if self.core.opens {
            self.core.backings.release(ino.0, fh);
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
        if offset == 0 {
            self.about_to_read.on_read(req.pid(), ino.0);
        }
        let pusher = Arc::clone(&self.pusher);
        let asks = RequestSize::of_read(size, req.pid());
        let of_gaps = Arc::clone(&pusher);
        // The kernel has locked the READ's pages until it is answered.
        let range = offset..offset.saturating_add(size.into());
        let reading = self.core.under_way.begin(ino.0, range);
        let find = move |core: &Core| {
            let gap = of_gaps.get().and_then(|p| p.gap(ino.0, offset, size));
            match gap {
                Some(gap) => Ok(Bytes::Gap(gap)),
                None => core.read(ino.0, offset, size).map(Bytes::Read),
            }
        };
        let asked = (asks, Operation::Read, ino.0);
        self.serve_as(req, asked, find, move |_, bytes| {
            let pushed = |bytes: &[u8]| {
                drop(reading);
                if let Some(pusher) = pusher.get() {
                    pusher.on_read(ino.0, offset, bytes);
                }
            };
            let data = match bytes {
                Ok(Bytes::Gap(gap)) => {
                    reply.data(&gap);
                    return pushed(&gap);
                }
                Ok(Bytes::Read(data)) => data,
                Err(error) => return reply.error(error),
            };
            reply.data(&data);
            pushed(&data);
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
        reply: ReplyDirectory,
    ) {
        let reply = Arc::new(Mutex::new(Some(reply)));
        let filled = Arc::clone(&reply);
        let find = move |core: &Core| {
            core.list(ino.0, offset, &mut |entry| {
                let name = OsStr::from_bytes(&entry.name);
                add(&filled, |reply| {
                    reply.add(INodeNo(entry.number), entry.cookie, entry.kind, name)
                })
            })
        };
        let asked = (Operation::Readdir, ino.0);
        self.serve(req, asked, find, move |_, listed| {
            match (take(&reply), listed) {
                (Some(reply), Ok(())) => reply.ok(),
                (Some(reply), Err(error)) => reply.error(error),
                (None, _) => {}
            }
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
        let thread = req.pid();
        let attributes = self.listers.on_listing(thread, ino.0);
        let answers = (self.connection.get().cloned(), req.unique());
        let listing = Listing::new(reply, attributes, answers);
        let listers = Arc::clone(&self.listers);
        let listing = Arc::new(Mutex::new(Some(listing)));
        let filled = Arc::clone(&listing);
        let find = move |core: &Core| {
            // The kernel now knows the entries of the previous answer.
            if offset > 0 {
                core.reader.listed(core.node(ino.0));
            }
            core.list(ino.0, offset, &mut |entry| {
                core.note_name(ino.0, entry);
                add(&filled, |listing| add_plus(core, listing, entry))
            })
        };
        let asked = (Operation::Readdirplus, ino.0);
        self.serve(req, asked, find, move |_, listed| {
            match (take(&listing), listed) {
                (Some(listing), Ok(())) => {
                    listers.listed(thread, listing.files, listing.without);
                    listing.send();
                }
                (Some(listing), Err(error)) => listing.fail(error),
                (None, _) => {}
            }
        });
    }

    fn statfs(&self, req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let find = |core: &Core| Ok(core.statistics());
        let asked = (Operation::Statfs, ino.0);
        self.serve(req, asked, find, move |_, all| match all {
            Ok(all) => {
                let (size, name_max) = (all.block_size, all.name_max);
                reply.statfs(all.blocks, 0, 0, all.inodes, 0, size, name_max, size);
            }
            Err(error) => reply.error(error),
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_os_string().into_vec();
        let find = move |core: &Core| core.xattr(ino.0, &name);
        let asked = (Operation::Getxattr, ino.0);
        self.serve(req, asked, find, move |_, found| {
            reply_xattr(found, size, reply);
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let find = move |core: &Core| core.xattr_names(ino.0);
        let asked = (Operation::Listxattr, ino.0);
        self.serve(req, asked, find, move |_, names| match names {
            Ok(names) => attr::reply_bytes(&names, size, reply),
            Err(error) => reply.error(error),
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
        let find = move |core: &Core| core.seek(ino.0, offset, whence);
        let asked = (Operation::Lseek, ino.0);
        self.serve(req, asked, find, move |_, found| match found {
            Ok(Seek::At(at)) => match i64::try_from(at) {
                Ok(at) => reply.offset(at),
                Err(_) => reply.error(Errno::EOVERFLOW),
            },
            Ok(Seek::Nowhere) => reply.error(Errno::ENXIO),
            Ok(Seek::Unknown) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: fuser::IoctlFlags,
        command: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        if command == GET_FAT_ATTRIBUTES {
            let asked = (Operation::Other, ino.0);
            let find = move |core: &Core| {
                let known = core.reader.fs().capabilities().fat_attributes;
                known
                    .map(|known| known.fat_attributes(core.node(ino.0)))
                    .transpose()
            };
            return self.serve(req, asked, find, move |_, found| match found {
                Ok(Some(attributes)) => reply.ioctl(0, &attributes.to_ne_bytes()),
                Ok(None) => reply.error(Errno::ENOTTY),
                Err(errno) => reply.error(errno),
            });
        }
        self.core.counts.add(Operation::Other);
        let is_stored = self.about_to_read.on_ioctl(command, req.pid(), ino.0);
        // On a slow image, only the pusher stores files.
        if !is_stored || self.core.reader.is_slow() {
            return reply.error(Errno::ENOTTY);
        }
        let core = Arc::clone(&self.core);
        let answer = move || {
            // If storing fails, the READ reports the error.
            let _is_read_later = core.reader.push(core.node(ino.0), MAX_LITTLE);
            reply.error(Errno::ENOTTY);
        };
        let asks = RequestSize::Small(req.pid());
        self.threads
            .take(asks, || self.workers.run_once(Lane::Data, answer));
    }

    refuse_for_images!();
}

fn reply_xattr(found: Result<Xattr, Errno>, room: u32, reply: ReplyXattr) {
    match found {
        Ok(Xattr::Found(bytes)) => attr::reply_bytes(&bytes, room, reply),
        Ok(Xattr::Missing) => reply.error(Errno::ENODATA),
        Ok(Xattr::Unsupported) => reply.error(Errno::EOPNOTSUPP),
        Ok(Xattr::Never) => reply.error(Errno::ENOSYS),
        Err(errno) => reply.error(errno),
    }
}
