//! Mounts a FUSE connection on a directory.
//!
//! The kernel is asked first for every user: root may mount, and so may root of a user namespace,
//! which cannot be recognised by its user ID. If it refuses, fusermount3 from the fuse3 package, a
//! set-user-ID program, mounts and sends the open device back over a socket.
//!
//! The directory was opened before it was checked, and the mount goes to that descriptor: with
//! move_mount(2) (Linux 5.2), with mount(2) on the descriptor's path in /proc, or with fusermount3,
//! which gets the directory as its working directory. fusermount3 resolves the path again; a mount
//! that ends up elsewhere is an error.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use forerun_sys::mount_table::{MountEntry, mounts};
use forerun_sys::mountpoint::{Mountpoint, mount_of};
use forerun_sys::packet;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::helper::{find_helper, without_name};
use crate::liveness::is_fuse;
use crate::{MountError, MountOptions};

#[derive(Debug)]
pub struct Attached {
    /// The device to serve the mount on.
    pub connection: OwnedFd,
    /// The mount's line in mountinfo.
    pub mount: MountEntry,
}

pub fn attach(
    place: &Mountpoint,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<Attached, MountError> {
    match by_mount_api(place, source, options, writable) {
        Ok(attached) => return Ok(attached),
        // The kernel is old, a sandbox refuses the call, the name is long, or mount(2) will fail
        // for the same reason.
        Err(error) => tracing::debug!("fsopen(2): {error}"),
    }
    let failed = |source| MountError::System {
        path: place.path().to_path_buf(),
        source,
    };
    let before = mounts().map_err(MountError::MountInfo)?;
    let connection = match by_mount(place, source, options, writable) {
        Ok(connection) => connection,
        Err(Refused::Permission) => by_helper(place, source, options, writable)?,
        Err(Refused::Error(error)) => return Err(error),
    };
    // If the mount is not found, dropping the connection ends it.
    let mount = made(place, &before).map_err(failed)?;
    Ok(Attached { connection, mount })
}

fn made(place: &Mountpoint, before: &[MountEntry]) -> io::Result<MountEntry> {
    let path = place.current_path()?;
    // The kernel reuses the IDs of ended mounts.
    let is_same = |old: &MountEntry, entry: &MountEntry| {
        (old.id, old.device) == (entry.id, entry.device) && old.mount_point == entry.mount_point
    };
    let is_new = |entry: &MountEntry| !before.iter().any(|old| is_same(old, entry));
    let mut all = mounts()?;
    all.retain(|entry| entry.mount_point == path && is_fuse(entry) && is_new(entry));
    let elsewhere = || io::Error::new(io::ErrorKind::NotFound, "it was mounted elsewhere");
    all.pop().ok_or_else(elsewhere)
}

fn open_device() -> io::Result<File> {
    File::options().read(true).write(true).open("/dev/fuse")
}

fn connection_options(device: &File) -> [(&'static str, String); 4] {
    [
        ("fd", device.as_raw_fd().to_string()),
        ("rootmode", "40000".to_string()),
        ("user_id", rustix::process::getuid().as_raw().to_string()),
        ("group_id", rustix::process::getgid().as_raw().to_string()),
    ]
}

fn words(options: &MountOptions) -> impl Iterator<Item = &'static str> {
    let words = [
        (options.kernel_checks(), "default_permissions"),
        (options.allow_other, "allow_other"),
    ];
    words
        .into_iter()
        .filter_map(|(wanted, word)| wanted.then_some(word))
}

#[derive(Debug)]
pub struct Detached {
    /// The device to serve the mount on.
    pub connection: OwnedFd,
    /// The mount, for move_mount(2).
    pub mount: OwnedFd,
}

/// Creates a detached read-only mount. Its source is named `/dev/fd/N`. It ends with the last
/// descriptor or namespace that contains it.
///
/// # Errors
/// [`MountError::Device`]; [`MountError::Detached`] for errors of the mount API.
pub fn detached(source: &OsStr, options: &MountOptions) -> Result<Detached, MountError> {
    let device = open_device().map_err(|source| MountError::Device { source })?;
    make(device, source, options, false).map_err(MountError::Detached)
}

fn make(
    device: File,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> io::Result<Detached> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    if !options.subtype.is_empty() {
        fsconfig_set_string(&context, "subtype", options.subtype.as_str())?;
    }
    for (key, value) in connection_options(&device) {
        fsconfig_set_string(&context, key, value.as_str())?;
    }
    for (key, label) in options.kernel_labels() {
        fsconfig_set_string(&context, *key, label.as_str())?;
    }
    for word in words(options).chain((!writable).then_some("ro")) {
        fsconfig_set_flag(&context, word)?;
    }
    fsconfig_create(&context)?;
    let mut attributes = MountAttrFlags::empty();
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, !writable);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, !options.suid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, !options.dev);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, !options.exec);
    let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    Ok(Detached {
        connection: device.into(),
        mount,
    })
}

/// Creates a detached mount and attaches it to the descriptor, so that its mount ID is known from
/// the beginning.
fn by_mount_api(
    place: &Mountpoint,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> io::Result<Attached> {
    let Detached { connection, mount } = make(open_device()?, source, options, writable)?;
    place.attach(&mount)?;
    let entry = mount_of(&mount).inspect_err(|_| {
        let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
        let _gone_already = rustix::mount::unmount(path, UnmountFlags::DETACH);
    })?;
    Ok(Attached {
        connection,
        mount: entry,
    })
}

enum Refused {
    /// The kernel refuses this user, but fusermount3 may succeed.
    Permission,
    Error(MountError),
}

fn by_mount(
    place: &Mountpoint,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<OwnedFd, Refused> {
    let device = open_device();
    let device = device.map_err(|source| Refused::Error(MountError::Device { source }))?;
    let options_of = connection_options(&device).map(|(key, value)| format!("{key}={value}"));
    let mut data = options_of.join(",");
    for word in words(options) {
        data.push(',');
        data.push_str(word);
    }
    for (key, label) in options.kernel_labels() {
        data.push_str(&format!(",{key}=\"{label}\""));
    }
    let system = |source: Errno| {
        Refused::Error(MountError::System {
            path: place.path().to_path_buf(),
            source: source.into(),
        })
    };
    let data = CString::new(data).map_err(|_| system(Errno::INVAL))?;
    let fstype = match options.subtype.as_str() {
        "" => "fuse".to_string(),
        subtype => format!("fuse.{subtype}"),
    };
    match rustix::mount::mount(
        source,
        place.by_descriptor(),
        fstype,
        flags(options, writable),
        data.as_c_str(),
    ) {
        Ok(()) => Ok(device.into()),
        Err(Errno::PERM | Errno::ACCESS) => Err(Refused::Permission),
        Err(error) => Err(system(error)),
    }
}

pub fn flags(options: &MountOptions, writable: bool) -> MountFlags {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, !writable);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    flags
}

fn by_helper(
    place: &Mountpoint,
    source: &OsStr,
    options: &MountOptions,
    writable: bool,
) -> Result<OwnedFd, MountError> {
    for (asked, option) in [(options.suid, "suid"), (options.dev, "dev")] {
        if asked {
            return Err(MountError::NeedsRoot { option });
        }
    }
    let program = find_helper().ok_or(MountError::NoHelper)?;
    let failed = |message: String| MountError::Helper {
        message: without_name(&program, message),
        program: program.clone(),
    };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| failed(error.to_string()))?;
    // The socket is standard input, so no other descriptor needs to be inherited. Dropping the
    // command at the end of the statement closes our copy of the helper's socket, so that its exit
    // is our end of file.
    let process = Command::new(&program)
        .arg("-o")
        .arg(helper_options(source, options, writable))
        .args(["--", "."])
        .current_dir(place.by_descriptor())
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let Some(device) = receive_device(&ours) else {
        return Err(failed(last_words(process)));
    };
    drop(ours);
    let words = last_words(process);
    if !words.is_empty() {
        tracing::warn!("{}: {}", program.display(), words.trim());
    }
    Ok(device)
}

/// Waits for the helper to exit. Returns its error output, or its exit status if it failed
/// silently.
fn last_words(mut process: Child) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = process.stderr.take() {
        // Bound the length of the message.
        let _as_far_as_it_goes = stderr.take(64 << 10).read_to_end(&mut words);
    }
    match process.wait() {
        Ok(status) if words.is_empty() && !status.success() => status.to_string(),
        Ok(_) | Err(_) => String::from_utf8_lossy(&words).into_owned(),
    }
}

/// Receives the device, which comes with one byte; `None` if the helper exited without sending it.
fn receive_device(socket: &OwnedFd) -> Option<OwnedFd> {
    let received = packet::receive(socket, 1).ok()??;
    received.descriptors.into_iter().next()
}

fn helper_options(source: &OsStr, options: &MountOptions, writable: bool) -> OsString {
    let mut list = OsString::from(if writable { "rw" } else { "ro" });
    if !options.subtype.is_empty() {
        list.push(",subtype=");
        list.push(escape(OsStr::new(&options.subtype)));
    }
    list.push(",fsname=");
    list.push(escape(source));
    for (wanted, word) in [
        (!options.suid, ",nosuid"),
        (!options.dev, ",nodev"),
        (!options.exec, ",noexec"),
        (options.kernel_checks(), ",default_permissions"),
        (options.allow_other, ",allow_other"),
    ] {
        if wanted {
            list.push(word);
        }
    }
    list
}

/// Escapes commas, which separate options, and backslashes.
fn escape(text: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsStr::from_bytes(&out).to_os_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_is_told() {
        let options = MountOptions::parse("allow_other,noexec").unwrap();
        let list = helper_options(OsStr::new("/a,b\\c"), &options, false);
        assert_eq!(
            list,
            "ro,subtype=forerun,fsname=/a\\,b\\\\c,nosuid,nodev,noexec,default_permissions,allow_other"
        );
        let plain = MountOptions::parse("subtype=").unwrap();
        let list = helper_options(OsStr::new("a"), &plain, true);
        assert_eq!(list, "rw,fsname=a,nosuid,nodev");
    }

    #[test]
    fn nosuid_and_nodev_unless_asked() {
        let all = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(flags(&MountOptions::default(), false), all);
        let asked = MountOptions::parse("suid,dev").unwrap();
        assert_eq!(flags(&asked, false), MountFlags::RDONLY);
        assert_eq!(flags(&asked, true), MountFlags::empty());
    }

    #[test]
    fn a_mountpoint_swapped_for_a_link_after_the_check_gets_the_mount_all_the_same() {
        if !forerun_testkit::require::root() || !forerun_testkit::require::fuse() {
            return;
        }
        let temp = forerun_testkit::temp_dir("swapped");
        let at = |name: &str| temp.path().canonicalize().unwrap().join(name);
        for name in ["mnt", "elsewhere"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let checked = crate::mountpoint::prepare(&at("mnt")).unwrap();
        std::fs::rename(at("mnt"), at("checked")).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("mnt")).unwrap();
        let options = MountOptions::default();
        let attached = attach(&checked, OsStr::new("swapped"), &options, false).unwrap();
        let is_mounted = |name: &str| {
            forerun_sys::mountpoint::mount_at(&at(name))
                .unwrap()
                .is_some()
        };
        let places = ["checked", "elsewhere"].map(is_mounted);
        for name in ["checked", "elsewhere"] {
            let _not_there = rustix::mount::unmount(at(name), UnmountFlags::DETACH);
        }
        drop(attached);
        assert_eq!(places, [true, false]);
    }

    /// Tests mount(2), which kernels before 5.2 need.
    #[test]
    fn mount_2_goes_to_the_descriptor_as_well() {
        if !forerun_testkit::require::root() || !forerun_testkit::require::fuse() {
            return;
        }
        let temp = forerun_testkit::temp_dir("swapped-old");
        let at = |name: &str| temp.path().canonicalize().unwrap().join(name);
        for name in ["mnt", "elsewhere"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let place = Mountpoint::open(&at("mnt")).unwrap();
        std::fs::rename(at("mnt"), at("checked")).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("mnt")).unwrap();
        let before = mounts().unwrap();
        let options = MountOptions::default();
        let connection = by_mount(&place, OsStr::new("swapped"), &options, false);
        let Ok(connection) = connection else {
            panic!("mount(2) refuses");
        };
        let mount = made(&place, &before).unwrap();
        let mut ended = mount.clone();
        ended.mount_point = at("ended");
        assert_eq!(
            made(&place, &[ended]).unwrap(),
            mount,
            "its number was used before"
        );
        rustix::mount::unmount(&mount.mount_point, UnmountFlags::DETACH).unwrap();
        drop(connection);
        assert_eq!(mount.mount_point, at("checked"));
    }
}
