//! The parts of a system that every command expects beside its files: /proc, /dev, /sys and /tmp.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;

use rustix::mount::MountAttrFlags;

use super::attach::{attach, by_descriptor, filesystem, inside, make_read_only, tree};

/// Directories that are there for each command.
pub const DIRECTORIES: [&str; 4] = ["/proc", "/dev", "/sys", "/tmp"];
/// Devices that do no harm.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Links of /dev.
const LINKS: [(&str, &str); 6] = [
    ("/proc/self/fd", "fd"),
    ("/proc/self/fd/0", "stdin"),
    ("/proc/self/fd/1", "stdout"),
    ("/proc/self/fd/2", "stderr"),
    ("/proc/kcore", "core"),
    ("pts/ptmx", "ptmx"),
];
/// Settings of the whole system in /proc, which root may change even without the rights of root.
const SETTINGS: [&str; 4] = ["sys", "sysrq-trigger", "irq", "bus"];

/// Mounts of the system that the command gets, copied before its root directory hides them.
#[derive(Debug)]
pub struct System {
    devices: Vec<(&'static str, OwnedFd)>,
    sys: Option<OwnedFd>,
    proc: OwnedFd,
}

impl System {
    /// Takes it.
    pub fn take() -> io::Result<Self> {
        let devices = DEVICES.into_iter();
        let devices =
            devices.filter_map(|name| Some((name, tree(Path::new("/dev").join(name)).ok()?)));
        Ok(Self {
            devices: devices.collect(),
            // A container may have none.
            sys: tree("/sys").ok(),
            proc: proc()?,
        })
    }

    /// Attaches all of it below `root`.
    pub fn attach(self, root: &OwnedFd) -> io::Result<()> {
        let place = |path: &str| inside(root, path);
        attach(&self.proc, place("/proc")?)?;
        let is_root = is_root_of_system();
        for name in SETTINGS {
            let path = format!("/proc/{name}");
            if let Ok(setting) = place(&path)
                && is_root
            {
                attach(tree(by_descriptor(&setting))?, &setting)?;
                make_read_only(&place(&path)?)?;
            }
        }
        if let Some(sys) = self.sys {
            attach(sys, place("/sys")?)?;
            make_read_only(&place("/sys")?)?;
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
            fs::set_permissions(
                path.join(name),
                std::os::unix::fs::PermissionsExt::from_mode(mode),
            )?;
        }
        attach(terminals()?, inside(&dev, "pts")?)
    }
}

/// Returns whether root of the user namespace is the system's, which owns its settings.
fn is_root_of_system() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mut owners = map
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    owners.any(|first| first == "0")
}

/// Makes a filesystem in memory.
pub fn memory(mode: &str) -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    filesystem("tmpfs", &[("mode", Some(mode))], attributes)
}

/// Makes a /proc of this PID namespace. A container that hides parts of its own permits none: then it is that one.
fn proc() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    match filesystem("proc", &[], attributes) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => tree("/proc"),
        made => made,
    }
}

/// Makes a /dev/pts, whose terminals are of the group tty where the namespace has that.
fn terminals() -> io::Result<OwnedFd> {
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let options = [("ptmxmode", Some("0666")), ("mode", Some("0620"))];
    let with_group = [options[0], options[1], ("gid", Some("5"))];
    filesystem("devpts", &with_group, attributes)
        .or_else(|_| filesystem("devpts", &options, attributes))
}

/// Makes the place for something to be mounted on in a directory of [`memory`]: it has none of its own.
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
