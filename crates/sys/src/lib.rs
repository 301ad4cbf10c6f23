//! The system below forerun: facts about it, and interfaces of the kernel that need a wrapper.
//!
//! Each module is one interface: the table of mounts ([`mount_table`], [`mountpoint`]), the memory that the process may
//! use ([`memory_limit`]), threads and their CPUs ([`threads`]), descriptors sent over sockets ([`packet`]), and so on.
//!
//! All other crates but the library for C forbid `unsafe`. A module that has it states why its blocks are sound, and has a
//! test. Nothing here knows about images.

pub mod beneath;
pub mod descriptor;
pub mod fuse;
pub mod fuse_device;
pub mod inherited;
pub mod loop_device;
pub mod memory_limit;
mod mount_attributes;
pub mod mount_table;
pub mod mountpoint;
pub mod packet;
pub mod programs;
pub mod table;
mod terminal_input;
pub mod threads;
pub mod verity;

use std::io;

pub use mount_attributes::set_mount_attributes;
pub use terminal_input::refuse_terminal_input;

/// Returns what a system call of libc returned, or its error.
fn checked(returned: libc::c_int) -> io::Result<libc::c_int> {
    match returned {
        ..0 => Err(io::Error::last_os_error()),
        returned => Ok(returned),
    }
}
