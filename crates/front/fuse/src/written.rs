//! The last writes to a volume, before and after its mount goes.
//!
//! Before, an fsync of the root directory has the server write all changes, and tells what failed: umount(2) tells nothing of
//! what the server does at its end. The volume was mounted for writing, so the serving process holds the lock of a writer until the volume is
//! written. The volume is named by the source of the mount, and every user with fusermount3 chooses
//! that name: it may be a FIFO, at which open(2) waits forever, or lie on a filesystem whose server
//! answers nothing. So only block devices and regular files of the mount's user, or of the caller's own
//! mount, are opened; and another thread opens them, which the command does not wait for.

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

/// How long a volume may take to be written to its end.
const WRITING_TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take to open.
const OPENED_WITHIN: Duration = Duration::from_secs(5);

/// How long a mount that is taken down in any case may take to write its changes.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Has the server of the mount on `path` write all changes. With `limited` it has ten seconds.
///
/// # Errors
/// The server's own: the device fails, or is full.
pub fn sync(path: &Path, limited: bool) -> io::Result<()> {
    let path = path.to_path_buf();
    // The root is closed before the answer: the mount must not be in use then.
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
        // Another user's mount cannot be opened; a dead server has nothing to write; others do not know the request.
        Some(Errno::ACCESS | Errno::PERM) => Ok(()),
        Some(Errno::NOTCONN | Errno::CONNABORTED | Errno::NOSYS | Errno::INVAL) => Ok(()),
        _ => Err(error),
    })
}

/// Waits until the volume of a mount that is gone has been written. A source that is no file has no
/// lock.
///
/// The lock alone does not tell which process holds it. Where a mount for writing of the same source is
/// still visible, the lock is that mount's: either it is another place of the same mount, which goes
/// on, or it was made after the volume had been written.
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

/// Returns the user that made a FUSE mount, as the kernel shows it.
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

/// Opens the source of a mount of `user`, if it is a file or device that may be the volume.
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
