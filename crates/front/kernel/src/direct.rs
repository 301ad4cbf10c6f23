//! Direct I/O on the image file by the kernel's driver (EROFS, Linux 6.13).
//!
//! Without it the page cache holds file data twice, for the image and for the mount, and each
//! readahead window of the mount waits for the disk in the reading thread: files are read at a
//! third of the disk's speed. Metadata is read through the page cache either way.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags, open};

use crate::context::Context;
use crate::drivers::{Driver, FromFile};

/// Length in bytes of the shortest direct read that every disk accepts. Images with smaller blocks
/// need shorter reads, which some disks refuse.
pub const ALIGNMENT: u32 = 4096;

/// Requests direct I/O if the driver, the file and the block size support it.
pub fn ask(context: Context, driver: &Driver, file: &File, block_size: u32) -> Context {
    match driver.from_file {
        Some(FromFile { direct, .. }) if block_size >= ALIGNMENT && opens_directly(file) => {
            context.set_flag_if_known(direct)
        }
        _ => context,
    }
}

pub fn opens_directly(file: &File) -> bool {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    open(path, flags, Mode::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use forerun_testkit::temp_dir;

    use super::*;

    #[test]
    fn some_files_are_only_read_through_the_page_cache() {
        let dir = temp_dir("kernel-direct");
        let path = dir.path().join("file");
        std::fs::write(&path, "bytes").unwrap();
        assert!(opens_directly(&File::open(&path).unwrap()));
        assert!(!opens_directly(&File::open("/proc/version").unwrap()));
    }
}
