//! The FUSE protocol structures for a read-only filesystem, from `linux/fuse.h`.
//!
//! Integers have native byte order, because both sides are on the same machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version 7.31 of Linux 5.4; later kernels accept its structures.
pub const MAJOR: u32 = 7;
pub const MINOR: u32 = 31;

pub const ROOT: u64 = 1;

pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const READLINK: u32 = 5;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const BATCH_FORGET: u32 = 42;
    pub const READDIRPLUS: u32 = 44;
}

pub mod flag {
    pub const ASYNC_READ: u32 = 1 << 0;
    pub const DO_READDIRPLUS: u32 = 1 << 13;
    pub const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub const NO_OPEN_SUPPORT: u32 = 1 << 17;
    pub const PARALLEL_DIROPS: u32 = 1 << 18;
    pub const MAX_PAGES: u32 = 1 << 22;
    pub const CACHE_SYMLINKS: u32 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u32 = 1 << 24;
}

macro_rules! structure {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
        #[repr(C)]
        pub struct $name {
            $(pub $field: $kind,)*
        }
    };
}

structure!(
    /// Header of each request.
    InHeader {
        len: u32,
        opcode: u32,
        unique: u64,
        nodeid: u64,
        uid: u32,
        gid: u32,
        pid: u32,
        padding: u32,
    }
);

structure!(
    /// Header of each answer.
    OutHeader { len: u32, error: i32, unique: u64 }
);

structure!(
    /// The part of INIT that all kernels send.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
);

structure!(InitOut {
    major: u32,
    minor: u32,
    max_readahead: u32,
    flags: u32,
    max_background: u16,
    congestion_threshold: u16,
    max_write: u32,
    time_gran: u32,
    max_pages: u16,
    map_alignment: u16,
    flags2: u32,
    unused: [u32; 7],
});

structure!(Attr {
    ino: u64,
    size: u64,
    blocks: u64,
    atime: u64,
    mtime: u64,
    ctime: u64,
    atimensec: u32,
    mtimensec: u32,
    ctimensec: u32,
    mode: u32,
    nlink: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    blksize: u32,
    flags: u32,
});

structure!(AttrOut {
    valid: u64,
    valid_nsec: u32,
    dummy: u32,
    attr: Attr
});

structure!(EntryOut {
    nodeid: u64,
    generation: u64,
    entry_valid: u64,
    attr_valid: u64,
    entry_valid_nsec: u32,
    attr_valid_nsec: u32,
    attr: Attr,
});

structure!(
    /// Body of READ, READDIR and READDIRPLUS.
    ReadIn {
        fh: u64,
        offset: u64,
        size: u32,
        read_flags: u32,
        lock_owner: u64,
        flags: u32,
        padding: u32,
    }
);

structure!(
    /// Header of each directory entry; the name follows.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
);

structure!(
    /// Body of GETXATTR and LISTXATTR. Size 0 asks for the required size.
    XattrIn { size: u32, padding: u32 }
);

structure!(XattrOut {
    size: u32,
    padding: u32
});

structure!(StatfsOut {
    blocks: u64,
    bfree: u64,
    bavail: u64,
    files: u64,
    ffree: u64,
    bsize: u32,
    namelen: u32,
    frsize: u32,
    padding: u32,
    spare: [u32; 6],
});

const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<Attr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<Dirent>() == 24);
    assert!(size_of::<StatfsOut>() == 80);
};
