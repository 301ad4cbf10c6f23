use std::cell::RefCell;

use forerun_io::AlignedBuffer;
use fuser::{
    Errno, FileHandle, InitFlags, KernelConfig, ReplyData, ReplyEmpty, ReplyLseek, ReplyOpen,
};

use super::OPENED;
use super::core::CoreMut;
use super::entries::reply_empty;
use super::numbers::LOST;
use crate::connection::Negotiated;
use crate::counts::Operation;

/// The file handle, the same for all open files.
pub const HANDLE: FileHandle = FileHandle(0);
/// Maximum background requests (readahead) in flight.
const MAX_BACKGROUND: u16 = 64;
/// Maximum length of a read or write, from the kernel's page limit.
const MAX_REQUEST: u32 = 1 << 20;
const KEEP_SIZE: i32 = 1;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

thread_local! {
    /// The thread's read buffer, as long as its longest answer so far.
    static BUFFER: RefCell<AlignedBuffer> = const { RefCell::new(AlignedBuffer::new()) };
}

pub fn configure(config: &mut KernelConfig) -> Negotiated {
    let mut asked = InitFlags::empty();
    // Without FUSE_ATOMIC_O_TRUNC: with it, the server would truncate a file before the kernel
    // finds that it is being executed. Request each capability separately: old kernels lack some,
    // which is not an error.
    for wanted in [
        InitFlags::FUSE_ASYNC_READ,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_DO_READDIRPLUS,
        InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        InitFlags::FUSE_EXPLICIT_INVAL_DATA,
        InitFlags::FUSE_MAX_PAGES,
        InitFlags::FUSE_HAS_IOCTL_DIR,
        // There are no capabilities and set-user-ID bits that a write would have to remove.
        InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    ] {
        asked |= wanted;
        if let Err(missing) = config.add_capabilities(wanted) {
            tracing::debug!(?missing, "the kernel's FUSE lacks a capability");
        }
    }
    let set = [
        config.set_max_write(MAX_REQUEST).is_ok(),
        config.set_max_background(MAX_BACKGROUND).is_ok(),
    ];
    if set != [true; 2] {
        tracing::debug!("the kernel's defaults for requests stay");
    }
    Negotiated::new(config, asked)
}

pub fn open(core: &CoreMut, number: u64, reply: ReplyOpen) {
    let opened = core.fs().open(core.node(number));
    match core.noted(Operation::Open, number, opened) {
        Ok(()) => {
            core.known.opened(core.node(number));
            reply.opened(HANDLE, OPENED);
        }
        Err(errno) => reply.error(errno),
    }
}

pub fn release(core: &CoreMut, number: u64) -> forerun_vfs::Result<()> {
    let node = core.node(number);
    if node == LOST {
        return Ok(());
    }
    let released = if core.known.close_uncounted(node) {
        Ok(())
    } else {
        core.fs().release(node)
    };
    core.known.closed(node);
    core.drop_aliases(node);
    released
}

pub fn read(core: &CoreMut, number: u64, offset: u64, size: u32, reply: ReplyData) {
    let node = match core.opened_node(number) {
        Ok(node) => node,
        Err(errno) => return reply.error(errno),
    };
    BUFFER.with_borrow_mut(|buffer| {
        // The kernel knows this limit, but the buffer must not depend on it.
        let size = usize::try_from(size.min(MAX_REQUEST)).unwrap_or_default();
        buffer.reserve(size);
        let room = buffer.get_mut(..size).unwrap_or_default();
        let read = core.volume.read(node, offset, room);
        match core.noted(Operation::Read, number, read) {
            Ok(len) => reply.data(room.get(..len).unwrap_or_default()),
            Err(errno) => reply.error(errno),
        }
    });
}

pub fn write(core: &CoreMut, number: u64, offset: u64, data: &[u8]) -> Result<usize, Errno> {
    let node = core.opened_node(number)?;
    core.changed(Operation::Write, number, core.write(node, offset, data))
}

pub fn fsync(core: &CoreMut, number: u64) -> Result<(), Errno> {
    let node = core.opened_node(number)?;
    core.noted(Operation::Fsync, number, core.fs().sync(node))
}

/// Makes a directory durable. Fails once if changes of its names were lost with an earlier server.
pub fn fsyncdir(core: &CoreMut, number: u64) -> Result<(), Errno> {
    let node = core.opened_node(number)?;
    // The kernel does not forward syncfs(2), so fsync(2) of the root does the same.
    let synced = if node == core.fs().root() {
        core.fs().sync_all()
    } else {
        core.fs().sync(node)
    };
    core.noted(Operation::Fsync, number, synced)?;
    if core.known.reports.report(node) {
        // The kernel may have dropped the last reference in the meantime.
        core.forget(number, 0);
        return Err(Errno::EIO);
    }
    Ok(())
}

pub fn fallocate(core: &CoreMut, number: u64, range: (u64, u64), mode: i32, reply: ReplyEmpty) {
    let node = match core.opened_node(number) {
        Ok(node) => node,
        Err(errno) => return reply.error(errno),
    };
    if mode & !KEEP_SIZE != 0 {
        return reply.error(Errno::EOPNOTSUPP);
    }
    let Some(end) = range.0.checked_add(range.1) else {
        return reply.error(Errno::EFBIG);
    };
    let keep_size = mode & KEEP_SIZE != 0;
    let allocated = core.with_room(|| core.volume.allocate(node, range.0..end, keep_size));
    reply_empty(core.changed(Operation::Write, number, allocated), reply);
}

pub fn lseek(core: &CoreMut, number: u64, offset: i64, whence: i32, reply: ReplyLseek) {
    let Ok(from) = u64::try_from(offset) else {
        return reply.error(Errno::ENXIO);
    };
    let node = match core.opened_node(number) {
        Ok(node) => node,
        Err(errno) => return reply.error(errno),
    };
    let found = match whence {
        SEEK_DATA => core.volume.seek_data(node, from),
        SEEK_HOLE => core.volume.seek_hole(node, from),
        _ => return reply.error(Errno::EINVAL),
    };
    match core.noted(Operation::Lseek, number, found) {
        Ok(Some(at)) => match i64::try_from(at) {
            Ok(at) => reply.offset(at),
            Err(_) => reply.error(Errno::EOVERFLOW),
        },
        Ok(None) => reply.error(Errno::ENXIO),
        Err(errno) => reply.error(errno),
    }
}
