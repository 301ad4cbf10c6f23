//! Mounts with mount(2) in this process.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::process::{getgid, getuid};

use super::{FSTYPE, plain};
use crate::failure::Failure;

/// Opens `/dev/fuse`. The mount must be made in the user namespace that opened it.
pub fn open_device() -> Result<OwnedFd, Failure> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty());
    let device = device.map_err(|error| Failure::io("opening /dev/fuse", &error.into()))?;
    let kind = rustix::fs::fstat(&device).map(|stat| stat.st_mode);
    match kind.map(rustix::fs::FileType::from_raw_mode) {
        Ok(rustix::fs::FileType::CharacterDevice) => Ok(device),
        _ => Err(Failure::new("/dev/fuse is not a device")),
    }
}

pub fn attach_to(connection: &OwnedFd, place: &Path, name: &str) -> Result<(), Failure> {
    let failed = |error: rustix::io::Errno| Failure::io("mounting", &error.into());
    // Mount through a descriptor, so that replacing the path has no effect.
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(place, through, Mode::empty()).map_err(failed)?;
    let target = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        connection.as_raw_fd(),
        getuid().as_raw(),
        getgid().as_raw(),
    );
    let data = CString::new(data).map_err(|_| failed(rustix::io::Errno::INVAL))?;
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount(plain(name), target, FSTYPE, flags, data.as_c_str()).map_err(failed)
}

pub fn attach(place: &Path, name: &str) -> Result<OwnedFd, Failure> {
    let connection = open_device()?;
    attach_to(&connection, place, name)?;
    Ok(connection)
}
