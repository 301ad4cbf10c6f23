//! Whether the kernel's EROFS driver is to read an image's file past the page cache (`directio`,
//! Linux 6.13).
//!
//! Otherwise whatever is read of a file lies in memory twice, as part of the image and as part of the
//! mount, and each readahead window of the mount waits for the disk in the thread that wants it: a
//! file is read at a third of the disk's speed. Metadata is read through the page cache either way.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags, open};

use crate::context::Context;

/// The driver's name for it.
const OPTION: &str = "directio";
/// Bytes of the shortest direct read that every disk takes. Images with smaller blocks need shorter
/// reads, which some disks refuse.
const ALIGNMENT: u32 = 4096;

/// Asks for it where the file and the kernel's driver can do it.
pub fn ask(context: Context, file: &File, block_size: u32) -> Context {
    match block_size >= ALIGNMENT && opens_directly(file) {
        true => context.set_flag_if_known(OPTION),
        false => context,
    }
}

fn opens_directly(file: &File) -> bool {
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
