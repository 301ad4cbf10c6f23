//! The mount API of Linux, with descriptors, so that no path is looked up twice.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use forerun_sys::set_mount_attributes;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

/// Longest kernel message about a filesystem that it refuses to mount.
const MESSAGE_LEN: usize = 1024;
/// Most messages that are read. The kernel keeps eight.
const MOST_MESSAGES: usize = 8;

/// Creates a detached filesystem. An option without a value is a flag.
pub fn filesystem(
    fstype: &str,
    options: &[(&str, Option<&str>)],
    attributes: MountAttrFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(fstype, FsOpenFlags::FSOPEN_CLOEXEC)?;
    let made = options.iter().try_for_each(|(key, value)| match value {
        Some(value) => fsconfig_set_string(&context, *key, *value),
        None => fsconfig_set_flag(&context, *key),
    });
    let made = made.and_then(|()| fsconfig_create(&context));
    made.map_err(|error| match messages(&context) {
        told if told.is_empty() => error.into(),
        told => {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("{error}: {told}"))
        }
    })?;
    Ok(fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        attributes,
    )?)
}

/// Returns the kernel's messages about a filesystem that it refuses to mount.
fn messages(context: &OwnedFd) -> String {
    let mut messages = Vec::new();
    let mut buffer = [0; MESSAGE_LEN];
    while messages.len() < MOST_MESSAGES {
        let Ok(len @ 1..) = rustix::io::read(context, &mut buffer[..]) else {
            break;
        };
        let text = String::from_utf8_lossy(buffer.get(..len).unwrap_or_default());
        let text = text.trim();
        messages.push(text.strip_prefix("e ").unwrap_or(text).to_string());
    }
    messages.join("; ")
}

/// Creates a detached copy of the mounts at and below `path`.
pub fn tree(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    Ok(open_tree(CWD, path.as_ref(), flags)?)
}

/// Creates a detached, read-only copy of the mounts at and below `path`.
pub fn read_only_tree(path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let copy = tree(path)?;
    set_mount_attributes(&copy, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
    Ok(copy)
}

pub fn attach(mount: impl AsFd, place: impl AsFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, "", place, "", flags)?)
}

/// Opens a file or directory below `root`, as a process with that root directory would.
pub fn inside(root: impl AsFd, path: impl AsRef<Path>) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(root, path.as_ref(), flags, Mode::empty(), resolve)?)
}

pub fn path_of(file: &impl AsFd) -> io::Result<PathBuf> {
    std::fs::read_link(by_descriptor(file))
}

/// Returns a path that refers to an open file in this process.
pub fn by_descriptor(file: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}
