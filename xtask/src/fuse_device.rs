//! A `/dev/fuse` that every user may open, for the tests alone.
//!
//! udev opens the device to all users; a machine without udev leaves it to root, and tests mount without root. As root
//! they get a device node of their own, in a mount namespace of their own: the machine stays as it is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use forerun_testkit::require;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Dev, FileType, Mode, mknodat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, unmount,
};

const DEVICE: &str = "/dev/fuse";
const FOR_ALL: u32 = 0o666;

/// Gives the device to this thread, and to the threads and processes that it starts from then on, if the
/// machine's device is not open to all users.
///
/// # Errors
/// In CI, that root cannot make one. Elsewhere, and for other users, the tests that need it are skipped.
pub fn provide() -> Result<()> {
    let Ok(metadata) = fs::metadata(DEVICE) else {
        return Ok(()); // Tests report that the machine has no FUSE.
    };
    if metadata.mode() & FOR_ALL == FOR_ALL || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match cover(metadata.rdev()) {
        Err(error) if require::in_ci() => Err(error),
        Err(error) => {
            println!("SKIP: tests that mount without root will be skipped: {error:#}");
            Ok(())
        }
        Ok(()) => {
            println!("only root may open {DEVICE}: the tests have a device node of their own");
            Ok(())
        }
    }
}

/// Moves this thread to a new mount namespace, and mounts a node of the same device over the machine's.
fn cover(device: Dev) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("a mount namespace")?;
    // The machine does not see the mounts of the tests, but its own unmounts keep no image of a test busy.
    let inward = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", inward).context("mounts that the machine does not see")?;
    let dir = tempfile::tempdir()?;
    // Temporary directories are often on file systems whose device nodes cannot be opened.
    let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
    mount("forerun-tests", dir.path(), "tmpfs", flags, None).context("a tmpfs")?;
    let covered = mount_node(&dir.path().join("fuse"), device);
    // The node stays for as long as it is mounted.
    unmount(dir.path(), UnmountFlags::DETACH)?;
    covered
}

fn mount_node(node: &Path, device: Dev) -> Result<()> {
    mknodat(CWD, node, FileType::CharacterDevice, Mode::empty(), device)
        .context("a device node")?;
    fs::set_permissions(node, Permissions::from_mode(FOR_ALL))?;
    mount_bind(node, DEVICE).context(DEVICE)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn users_open_the_device_of_the_tests_and_the_machine_keeps_its_own() {
        if !require::root() || !require::fuse() || require::program("setpriv").is_none() {
            return;
        }
        let before = fs::metadata(DEVICE).unwrap();
        std::thread::scope(|scope| {
            let tests = scope.spawn(|| {
                cover(before.rdev()).unwrap();
                let inside = fs::metadata(DEVICE).unwrap();
                assert_eq!(inside.rdev(), before.rdev());
                assert_ne!(inside.dev(), before.dev());
                let mut user = Command::new("setpriv");
                user.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
                user.args(["sh", "-c", "exec 3<>/dev/fuse"]);
                assert!(user.status().unwrap().success());
            });
            tests.join().unwrap();
        });
        let after = fs::metadata(DEVICE).unwrap();
        assert_eq!((after.dev(), after.mode()), (before.dev(), before.mode()));
    }
}
