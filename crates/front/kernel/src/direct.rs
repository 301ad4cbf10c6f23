//! Direct reads of an image's file by the kernel's driver (EROFS, Linux 6.13).
//!
//! Without them file data is in the page cache twice, as part of the image and as part of the mount, and
//! each readahead window of the mount waits for the disk in the reading thread: a file is read at a third
//! of the disk's speed. Metadata is read through the page cache either way.
//!
//! Where another process reads the same bytes first, to verify them, it is the other way round: what it read is in the
//! page cache already, and a direct read would take it from the disk once more.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use rustix::fs::{Mode, OFlags, fstat, fstatvfs, major, minor, open};
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};

use crate::context::Context;
use crate::drivers::{Driver, FromFile};

/// Bytes of the shortest direct read that every disk takes. Images with smaller blocks need shorter
/// reads, which some disks refuse.
const ALIGNMENT: u32 = 4096;

/// Sets the option where the file and the kernel's driver support it.
pub fn ask(context: Context, driver: &Driver, file: &File, block_size: u32) -> Context {
    match driver.from_file {
        Some(FromFile { direct, .. }) if block_size >= ALIGNMENT && opens_directly(file) => {
            context.set_flag_if_known(direct)
        }
        _ => context,
    }
}

/// Has a filesystem that is mounted already read `file` directly from now on.
///
/// # Errors
/// If it is mounted nowhere that can be reached, or the file, the blocks of the image or the kernel do not permit it.
#[cfg(feature = "network")]
pub fn from_now_on(driver: &Driver, file: &File, device: (u32, u32)) -> io::Result<()> {
    let unfit = |why: &str| Err(io::Error::new(io::ErrorKind::Unsupported, why.to_string()));
    let Some(FromFile { direct, .. }) = driver.from_file else {
        return unfit("the driver reads no files");
    };
    let mounts = forerun::mounts()?;
    let Some(mount) = mounts.iter().find(|mount| mount.device == device) else {
        return unfit("it is not mounted here");
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = open(&mount.mount_point, flags, Mode::empty())?;
    let found = fstat(&dir)?.st_dev;
    if (major(found), minor(found)) != device {
        return unfit("another filesystem is mounted over it");
    }
    if fstatvfs(&dir)?.f_bsize < u64::from(ALIGNMENT) {
        return unfit("its blocks are too small");
    }
    if !opens_directly(file) {
        return unfit("the file does not permit it");
    }
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = fspick(&dir, c"", flags)?;
    fsconfig_set_flag(&context, direct)?;
    fsconfig_reconfigure(&context)?;
    Ok(())
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
