//! Makes sure that a volume's last changes are written when it is unmounted.
//!
//! Before umount(2), an fsync of the root makes the server write all changes and reports failures,
//! because umount(2) reports nothing of what the server does at its end. Afterwards, the server of
//! a writable mount holds the volume's lock until everything is written.
//!
//! The volume is named by the source of the mount, which any user with fusermount3 can choose: it
//! may be a FIFO, on which open(2) blocks forever, or a file on an unresponsive filesystem. So only
//! block devices and regular files of the mount's user, or of the caller's own mount, are opened,
//! by another thread for which the command does not wait.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use forerun::unstable::locks::writer_is_at_work;
use forerun_sys::mount_table::is_mounted_for_writing;
use forerun_sys::threads;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use forerun_sys::mount_table::MountEntry;

const WRITING_TIMEOUT: Duration = Duration::from_secs(60);
const OPENED_WITHIN: Duration = Duration::from_secs(5);

/// Maximum time for writing changes of a mount that is unmounted in any case.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes the server of the mount on `path` write all changes, with a timeout of ten seconds if
/// `limited`.
pub fn sync(path: &Path, limited: bool) -> io::Result<()> {
    let path = path.to_path_buf();
    // Close the root before answering, so that the mount is not in use then.
    let work = move || File::open(path).and_then(|root| root.sync_all());
    let synced = if limited {
        let (answer, answered) = sync_channel(1);
        threads::spawn("forerun-fuse-sync", move || {
            let synced = work();
            let _too_late = answer.send(synced);
        })?;
        let late = |_| Err(io::ErrorKind::TimedOut.into());
        answered.recv_timeout(SYNC_TIMEOUT).unwrap_or_else(late)
    } else {
        work()
    };
    synced.or_else(|error| match Errno::from_io_error(&error) {
        // Another user's mount cannot be opened, a dead server has nothing to write, and other
        // servers do not support the request.
        Some(Errno::ACCESS | Errno::PERM) => Ok(()),
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::NOSYS | Errno::INVAL) => Ok(()),
        _ => Err(error),
    })
}

/// Waits until the volume of an ended mount has been written. A source that is not a file has no
/// lock.
///
/// The lock does not identify its holder. If another writable mount of the same source is still
/// visible, the lock is that mount's: either it is the same mount at another path, which continues,
/// or it was made after the volume had been written.
pub fn wait(gone: &MountEntry) {
    let source = Path::new(&gone.source);
    let Some(file) = open_in_time(source, user_of(gone)) else {
        return;
    };
    let patience = Instant::now() + WRITING_TIMEOUT;
    while writer_is_at_work(&file) {
        if is_mounted_for_writing(source) {
            return;
        }
        if Instant::now() > patience {
            tracing::warn!("{} is still being written to", source.display());
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the user that made a FUSE mount, from its options.
#[must_use]
pub fn user_of(mount: &MountEntry) -> Option<u32> {
    let mut words = mount.options.split(',');
    words.find_map(|word| word.strip_prefix("user_id=")?.parse().ok())
}

fn open_in_time(source: &Path, user: Option<u32>) -> Option<File> {
    if !source.as_os_str().as_bytes().starts_with(b"/") {
        return None;
    }
    let source: PathBuf = source.to_path_buf();
    let (answer, answered) = sync_channel(1);
    let opening = threads::spawn("forerun-fuse-source", move || {
        let _too_late = answer.send(open(&source, user));
    });
    opening.ok()?;
    answered.recv_timeout(OPENED_WITHIN).ok()?
}

/// Opens the source of a mount of `user` if it is a file or device that may be the volume.
fn open(source: &Path, user: Option<u32>) -> Option<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = rustix::fs::open(source, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&found).ok()?;
    let caller = rustix::process::geteuid().as_raw();
    let is_callers = user == Some(caller);
    let is_volume = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => is_callers || user == Some(stat.st_uid),
        FileType::BlockDevice => true,
        _ => false,
    };
    if !is_volume {
        return None;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let opened = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    Some(File::from(opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_volumes_of_the_mounts_user_are_opened() {
        let temp = forerun_testkit::temp_dir("sources");
        let (file, fifo) = (temp.path().join("file"), temp.path().join("fifo"));
        std::fs::write(&file, "").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        let caller = rustix::process::geteuid().as_raw();
        for (source, user, is_opened) in [
            (&*file, Some(caller), true),
            (&*file, Some(caller + 1), false),
            (&*file, None, false),
            (&*fifo, Some(caller), false),
            (temp.path(), Some(caller), false),
            (Path::new("/dev/null"), Some(caller), false),
            (Path::new("forerun"), Some(caller), false),
        ] {
            let opened = open_in_time(source, user).is_some();
            assert_eq!(opened, is_opened, "{} of {user:?}", source.display());
        }
    }
}
