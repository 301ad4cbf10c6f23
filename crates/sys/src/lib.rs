//! Facts about the system, and interfaces of the kernel that need a wrapper.
//!
//! Each module is one interface: the table of mounts ([`mount_table`], [`mountpoint`]), the memory
//! that the process may use ([`memory_limit`]), threads and their CPUs ([`threads`]), descriptors
//! sent over sockets ([`packet`]), and so on.
//!
//! All other crates except the library for C forbid `unsafe`. A module with `unsafe` blocks states
//! why they are sound, and has a test. Nothing here knows about images.

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

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub use mount_attributes::set_mount_attributes;
pub use terminal_input::refuse_terminal_input;

/// Converts the return value of a libc call, which is negative if the call failed.
fn checked(returned: libc::c_int) -> io::Result<libc::c_int> {
    match returned {
        ..0 => Err(io::Error::last_os_error()),
        returned => Ok(returned),
    }
}

/// Reads a file of the kernel, which does not have its length. [`std::fs::read`] would ask for the
/// length and then begin with 32 bytes.
fn read_kernel_file(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}
