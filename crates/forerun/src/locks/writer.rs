//! The lock by which writers exclude each other.
//!
//! A write lock on a record needs a descriptor that is open for writing, so no process that may
//! only read the file can hold it. But such a process can hold a read lock on the same byte, which
//! also excludes writers. A writer that breaks locks therefore takes a read lock itself; it
//! conflicts with every writer that does not break locks.
//!
//! The lock belongs to the open file (`F_OFD_SETLK`), not to the process: threads and a second
//! descriptor of the same process exclude each other, and closing another descriptor does not
//! release it. If the filesystem has no record locks, only flock(2) protects the volume.

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc::{self, c_int, c_short};

/// The locked byte: past the end of every file.
const BYTE: i64 = 1 << 62;

/// Takes the lock. Returns false if another writer has it. With `breaks`, ignores read locks.
pub fn begin(file: &File, breaks: bool) -> bool {
    match set(file, libc::F_WRLCK) {
        Err(Errno::EAGAIN | Errno::EACCES) if breaks => {
            !matches!(set(file, libc::F_RDLCK), Err(Errno::EAGAIN | Errno::EACCES))
        }
        Err(Errno::EAGAIN | Errno::EACCES) => false,
        Ok(_) | Err(_) => true,
    }
}

/// Returns whether a process that may write the file holds the lock.
#[must_use]
pub fn is_at_work(file: &File) -> bool {
    conflicts(file, libc::F_RDLCK)
}

/// Returns whether any process holds a lock on the byte.
pub fn holds_any(file: &File) -> bool {
    conflicts(file, libc::F_WRLCK)
}

fn set(file: &File, kind: c_int) -> nix::Result<c_int> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&record(kind)))
}

fn conflicts(file: &File, kind: c_int) -> bool {
    let mut found = record(kind);
    let asked = fcntl(file, FcntlArg::F_OFD_GETLK(&mut found));
    asked.is_ok() && c_int::from(found.l_type) != libc::F_UNLCK
}

fn record(kind: c_int) -> libc::flock {
    // All of these constants are small.
    let short = |number: c_int| c_short::try_from(number).unwrap_or(c_short::MAX);
    libc::flock {
        l_type: short(kind),
        l_whence: short(libc::SEEK_SET),
        l_start: BYTE,
        l_len: 1,
        l_pid: 0,
    }
}
