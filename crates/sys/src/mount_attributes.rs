//! mount_setattr(2), of Linux 5.12.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::mount::MountAttrFlags;

/// Sets attributes of the mount with the root `mount`, and of all mounts below it. Other attributes
/// stay.
///
/// # Errors
/// The errors of mount_setattr(2).
pub fn set_mount_attributes(mount: impl AsFd, attributes: MountAttrFlags) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: attributes.bits().into(),
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a NUL-terminated string, and the size is that of `attributes`, which is
    // initialised. The kernel reads both only during the call. The descriptor is borrowed, so it
    // stays open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, StatVfsMountFlags, fstatvfs};
    use rustix::mount::{OpenTreeFlags, open_tree};

    use super::*;

    #[test]
    fn a_copy_of_a_mount_becomes_read_only_and_the_mount_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let Ok(copy) = open_tree(CWD, dir.path(), flags | OpenTreeFlags::AT_RECURSIVE) else {
            assert!(!rustix::process::geteuid().is_root(), "root may copy it");
            return;
        };
        let is_read_only = || {
            let flags = fstatvfs(&copy).unwrap().f_flag;
            flags.contains(StatVfsMountFlags::RDONLY)
        };
        assert!(!is_read_only());
        set_mount_attributes(&copy, MountAttrFlags::MOUNT_ATTR_RDONLY).unwrap();
        assert!(is_read_only());
        fs::write(dir.path().join("file"), "").unwrap();
    }

    #[test]
    fn what_is_no_mount_is_refused() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(set_mount_attributes(&reader, MountAttrFlags::MOUNT_ATTR_RDONLY).is_err());
    }
}
