//! Makes mounts in a mount namespace without living in it.
//!
//! The kernel destroys a mount namespace, with all its mounts, when its last process has ended. A
//! process that serves a mount in that namespace would keep it alive forever. So the processes of a
//! mount move to a copy of the namespace, and a thread joins the original one only to mount or
//! unmount. They also hold no descriptor of the original namespace, which would keep it alive too.
//! Instead they find a process in it through `/proc` each time.
//!
//! A copy keeps the filesystems of all its mounts in use. forerun's mounts are detached from the
//! copy, so that none of them waits for another one's end.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use forerun_sys::mount_table::{MountEntry, mounts};
use forerun_sys::threads;
use nix::sched::{CloneFlags, setns, unshare};
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change, unmount};

use crate::FSTYPE;

const OWN: &str = "/proc/thread-self/ns/mnt";
/// The initial user namespace; see user_namespaces(7) and the kernel's headers for the number.
const FIRST_USER_NAMESPACE: &str = "user:[4026531837]";

/// A mount namespace, identified by number. This value does not keep it alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountNamespace {
    /// As in `/proc`: `mnt:[4026532201]`.
    link: PathBuf,
}

impl MountNamespace {
    /// Creates it from the output of [`Display`](fmt::Display).
    #[must_use]
    pub fn from_link(link: impl Into<PathBuf>) -> Self {
        Self { link: link.into() }
    }

    /// Moves this thread, and the processes and threads that it starts later, to a copy of their
    /// mount namespace. Returns the original one. `caller` is a process that stays there until the
    /// mount is made; `used` lists the devices of filesystems that the copy must keep.
    ///
    /// Returns `None` without moving in the namespace of process 1, which ends only with the
    /// machine or the container, and if this process is not permitted to move.
    ///
    /// # Errors
    /// The errors of mount(2), if the copy cannot be used.
    pub fn leave(caller: Option<u32>, used: &[(u32, u32)]) -> io::Result<Option<Self>> {
        let Some(old) = caller.and_then(Self::to_leave) else {
            return Ok(None);
        };
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNS) {
            tracing::debug!("the processes of the mount keep its namespace: unshare(2): {error}");
            return Ok(None);
        }
        // Mounts and unmounts here must not propagate to the original. Unmounts there still
        // propagate here if it is shared.
        let flags = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", flags)?;
        detach(|entry| entry.fstype == FSTYPE && !used.contains(&entry.device))?;
        Ok(Some(old))
    }

    /// Returns this process's namespace if it should be left, because its mounts should end with
    /// its last process.
    fn to_leave(caller: u32) -> Option<Self> {
        let link = std::fs::read_link(OWN).ok()?;
        let of = |process: u32| std::fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        // Process 2 is kthreadd, which root can inspect even if it lacks a privilege to inspect
        // process 1.
        let is_temporary = match of(1).or_else(|| of(2)) {
            Some(first) => first != link,
            // Only root may inspect them. A user without its own namespace may not leave anyway.
            None => std::fs::read_link("/proc/self/ns/user")
                .is_ok_and(|user| user != Path::new(FIRST_USER_NAMESPACE)),
        };
        // Leaving would escape from a chroot.
        let has_root = mounts().is_ok_and(|all| all.iter().any(is_root));
        let leaves = is_temporary && has_root && of(caller).as_ref() == Some(&link);
        // This process may be permitted to copy the namespace but not to return.
        let this = leaves.then_some(Self { link })?;
        this.run(|| ()).is_ok().then_some(this)
    }

    /// Runs `job` in a thread that has joined the namespace. Fails if no process lives there, or if
    /// this process may not join it.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> io::Result<T> {
        let namespace = self.find()?;
        let join = move || {
            // setns(2) requires that the thread shares no working directory with others.
            unshare(CloneFlags::CLONE_FS)?;
            setns(&namespace, CloneFlags::CLONE_NEWNS)?;
            drop(namespace);
            Ok(job())
        };
        std::thread::scope(|scope| {
            let ran = threads::spawn_scoped(scope, "forerun-namespace", join)?.join();
            ran.unwrap_or_else(|_| Err(io::Error::other("a thread has failed")))
        })
    }

    fn find(&self) -> io::Result<File> {
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let name = entry.file_name();
            let is_process = name
                .to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok());
            if !is_process {
                continue;
            }
            // The process belongs to another user, or has ended.
            let Ok(opened) = File::open(entry.path().join("ns/mnt")) else {
                continue;
            };
            let link = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()))?;
            if link == self.link {
                return Ok(opened);
            }
        }
        let why = "the mount namespace in which it was made has no process left";
        Err(io::Error::new(ErrorKind::NotFound, why))
    }
}

impl fmt::Display for MountNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.link.display().fmt(f)
    }
}

/// Runs `job` in the namespace that contains the mount; `None` is this process's.
pub fn within<T: Send>(
    namespace: Option<&MountNamespace>,
    job: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    match namespace {
        None => Ok(job()),
        Some(namespace) => namespace.run(job),
    }
}

/// Detaches mounts of this device from this process's own namespace, the copy, into which a mount
/// in a shared namespace propagates.
pub fn forget(device: (u32, u32)) -> io::Result<()> {
    detach(|entry| entry.device == device)
}

/// Detaches mounts from this thread's namespace, newest first.
fn detach(is_meant: impl Fn(&MountEntry) -> bool) -> io::Result<()> {
    for entry in mounts()?.iter().rev().filter(|entry| is_meant(entry)) {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if let Err(error) = unmount(&entry.mount_point, flags) {
            tracing::debug!("{}: {error}", entry.mount_point.display());
        }
    }
    Ok(())
}

fn is_root(entry: &MountEntry) -> bool {
    entry.mount_point == Path::new("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_of_the_first_process_is_not_left() {
        if !forerun_testkit::require::root() {
            return;
        }
        let here = std::fs::read_link(OWN).unwrap();
        if std::fs::read_link("/proc/2/ns/mnt").is_ok_and(|first| first == here) {
            assert_eq!(MountNamespace::to_leave(std::process::id()), None);
        }
    }

    #[test]
    fn a_namespace_without_a_process_is_not_found() {
        let namespace = MountNamespace::from_link("mnt:[1]");
        let error = namespace.run(|| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(namespace.to_string(), "mnt:[1]");
    }
}
