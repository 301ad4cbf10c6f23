//! Direct reads from the moment on at which the filler ends.
//!
//! While it fetches and verifies, what the kernel's driver reads next is in the page cache already, and a direct read would
//! take it from the disk once more. Afterwards direct reads are the quicker ones, as for every mount of a file.

use std::fs::File;
use std::io;

use rustix::fs::{Mode, OFlags, fstat, fstatvfs, major, minor, open};
use rustix::mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fspick};

use crate::direct;
use crate::drivers::{Driver, FromFile};

/// Has a filesystem that is mounted already read `file` directly from now on.
///
/// # Errors
/// If it is mounted nowhere that can be reached, or the file, the blocks of the image or the kernel do not permit it.
pub fn read_directly(driver: &Driver, file: &File, device: (u32, u32)) -> io::Result<()> {
    let unfit = |why: &str| Err(io::Error::new(io::ErrorKind::Unsupported, why.to_string()));
    let Some(FromFile { direct: option, .. }) = driver.from_file else {
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
    if fstatvfs(&dir)?.f_bsize < u64::from(direct::ALIGNMENT) {
        return unfit("its blocks are too small");
    }
    if !direct::opens_directly(file) {
        return unfit("the file does not permit it");
    }
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = fspick(&dir, c"", flags)?;
    fsconfig_set_flag(&context, option)?;
    fsconfig_reconfigure(&context)?;
    Ok(())
}
