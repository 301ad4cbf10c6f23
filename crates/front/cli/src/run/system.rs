//! The parts of a system that every command expects besides its files: /proc, /dev, /sys and /tmp.

use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, io};

use forerun_sys::mount_table::mounts;
use forerun_sys::set_mount_attributes;
use rustix::mount::MountAttrFlags;

use super::attach::{attach, by_descriptor, filesystem, inside, read_only_tree, tree};
use super::ids::is_root_of_system;
use super::skeleton::TargetKind;

pub const DIRECTORIES: [&str; 4] = ["/proc", "/dev", "/sys", "/tmp"];
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
    ("pts/ptmx", "ptmx"),
];
/// The mount below /sys that the command sees: programs read their memory limit there. All others
/// are for administration, and show root what no other user may read.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The limit on cgroup namespaces of a user namespace.
const CGROUP_NAMESPACES: &str = "sys/user/max_cgroup_namespaces";

/// Mounts of the system that the command gets, copied before its root directory hides them.
#[derive(Debug)]
pub struct System {
    devices: Vec<(&'static str, OwnedFd)>,
    sys: Option<OwnedFd>,
    /// Mounts below /sys to hide.
    hidden: Vec<PathBuf>,
    proc: OwnedFd,
}

impl System {
    pub fn take() -> io::Result<Self> {
        let mut devices = Vec::new();
        for name in DEVICES {
            // A device on a read-only mount can be written to, but its owner and permissions, which
            // are the system's, cannot be changed.
            let device = copy(&Path::new("/dev").join(name))?;
            devices.extend(device.map(|device| (name, device)));
        }
        let mut hidden = Vec::new();
        if is_root_of_system()? {
            let below = mounts()?.into_iter().map(|entry| entry.mount_point);
            hidden.extend(below.filter(|mount| mount.starts_with("/sys") && mount != "/sys"));
            hidden.retain(|mount| !mount.starts_with(CGROUPS));
        }
        Ok(Self {
            devices,
            sys: copy(Path::new("/sys"))?,
            hidden,
            proc: proc()?,
        })
    }

    /// Attaches all of these mounts below `root`.
    pub fn attach(self, root: &OwnedFd) -> io::Result<()> {
        let place = |path: &str| inside(root, path);
        attach(&self.proc, place("/proc")?)?;
        if is_root_of_system()? {
            protect_settings(&place("/proc")?)?;
        }
        if let Some(sys) = self.sys {
            attach(sys, place("/sys")?)?;
        }
        for mount in self.hidden {
            hide(root, &mount)?;
        }
        attach(memory("1777")?, place("/tmp")?)?;
        attach(memory("755")?, place("/dev")?)?;
        let dev = place("/dev")?;
        let path = by_descriptor(&dev);
        for (name, device) in self.devices {
            fs::write(path.join(name), "")?;
            attach(device, inside(&dev, name)?)?;
        }
        for (target, name) in LINKS {
            symlink(target, path.join(name))?;
        }
        for (name, mode) in [("shm", 0o1777), ("pts", 0o755)] {
            let mut builder = fs::DirBuilder::new();
            builder.mode(mode).create(path.join(name))?;
            fs::set_permissions(path.join(name), PermissionsExt::from_mode(mode))?;
        }
        attach(terminals()?, inside(&dev, "pts")?)
    }
}

/// Returns a read-only copy of a part of the system, or `None` if it is missing, as in a container.
fn copy(path: &Path) -> io::Result<Option<OwnedFd>> {
    match read_only_tree(path) {
        Ok(copy) => Ok(Some(copy)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(
            error.kind(),
            format!("{}: {error}", path.display()),
        )),
    }
}

/// Makes system settings read-only, because the system's root owns them and could change them
/// without a capability.
fn protect_settings(proc: &OwnedFd) -> io::Result<()> {
    let path = by_descriptor(proc);
    // In its own cgroup namespace, a command could mount a writable cgroup filesystem.
    match fs::write(path.join(CGROUP_NAMESPACES), "0") {
        // In a container, /proc may already protect these settings.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {}
        written => written?,
    }
    for entry in fs::read_dir(&path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_of_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        let kind = entry.file_type()?;
        if is_of_process || !(kind.is_dir() || kind.is_file()) {
            continue;
        }
        // Also covers files that nobody may write, because owner and mode of a file in /proc are
        // the same in all its mounts.
        let setting = inside(proc, &name)?;
        attach(read_only_tree(by_descriptor(&setting))?, &setting)?;
    }
    Ok(())
}

/// Hides a mount of the system with an empty directory.
fn hide(root: &OwnedFd, mount: &Path) -> io::Result<()> {
    match inside(root, mount) {
        // A mount above it is hidden.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(place) if TargetKind::of(&place)? == TargetKind::File => Ok(()),
        Ok(place) => {
            let empty = memory("555")?;
            set_mount_attributes(&empty, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
            attach(empty, place)
        }
    }
}

/// Creates a filesystem in memory.
pub fn memory(mode: &str) -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    filesystem("tmpfs", &[("mode", Some(mode))], attributes)
}

/// Creates a /proc of this PID namespace. A container with a partly hidden /proc does not permit
/// that; then uses the container's /proc.
fn proc() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    match filesystem("proc", &[], attributes) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => tree("/proc"),
        made => made,
    }
}

/// Creates a /dev/pts. Its terminals belong to the group tty if the namespace has it.
fn terminals() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [("ptmxmode", Some("0666")), ("mode", Some("0620"))];
    let with_group = [options[0], options[1], ("gid", Some("5"))];
    filesystem("devpts", &with_group, attributes)
        .or_else(|_| filesystem("devpts", &options, attributes))
}

/// Creates a mount point inside a directory of [`memory`], which is empty.
pub fn make_in_memory(root: &OwnedFd, path: &Path, is_directory: bool) -> io::Result<()> {
    let in_memory = ["/tmp", "/dev"]
        .iter()
        .find_map(|dir| Some((dir, path.strip_prefix(dir).ok()?)));
    let Some((dir, rest)) = in_memory else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let dir = inside(root, dir)?;
    let place = by_descriptor(&dir).join(rest);
    match (is_directory, place.parent()) {
        (true, _) => fs::create_dir_all(&place),
        (false, parent) => {
            if let Some(parent) = parent {
                fs::create_dir_all(parent)?;
            }
            fs::write(&place, "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_copied_is_an_error_that_names_it() {
        let error = copy(Path::new("/dev/null/none")).unwrap_err().to_string();
        assert!(error.starts_with("/dev/null/none: "), "{error}");
    }
}
