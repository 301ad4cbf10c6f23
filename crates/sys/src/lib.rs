//! System calls of Linux that neither the standard library nor rustix wraps safely.
//!
//! All other crates forbid `unsafe`. Each module here wraps one interface of the kernel, states why its blocks are sound, and has
//! a test. Nothing here knows about images, mounts or forerun.

pub mod descriptor;
pub mod fuse;
pub mod fuse_device;
pub mod inherited;
pub mod loop_device;
mod mount_attributes;
pub mod table;
mod terminal_input;
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
