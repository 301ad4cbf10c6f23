//! Watching for the end of a filesystem: its last mount and its last user are gone.
//!
//! A mount that was detached lazily is in no list any more, but may still be read. inotify(7) reports
//! the end of the filesystem itself (IN_UNMOUNT), and a watch keeps nothing alive.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// A watch of a filesystem. Its descriptor is readable once the filesystem has ended, and so are all
/// copies of it, since no process takes the event.
#[derive(Debug)]
pub struct Watch {
    inotify: OwnedFd,
}

impl Watch {
    /// Returns a watch that is not set yet.
    pub fn new() -> io::Result<Self> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        let inotify = inotify::init(flags)?;
        Ok(Self { inotify })
    }

    /// Sets the watch on the filesystem of `mount`.
    pub fn set(&self, mount: &OwnedFd) -> io::Result<()> {
        let path = format!("/proc/self/fd/{}", mount.as_raw_fd());
        // IN_UNMOUNT comes in any case; the requested event never happens on a read-only filesystem.
        inotify::add_watch(&self.inotify, path, WatchFlags::DELETE_SELF)?;
        Ok(())
    }

    /// Returns major and minor number of the filesystem that is watched.
    pub fn device(&self) -> io::Result<(u32, u32)> {
        let line = watched(self.as_fd())?;
        let device = line.as_deref().and_then(device);
        device.ok_or_else(|| io::Error::other("the mount has ended"))
    }
}

/// Returns the line of `/proc/self/fdinfo` that says what is watched, if there is one.
fn watched(watch: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let path = format!("/proc/self/fdinfo/{}", watch.as_raw_fd());
    let info = std::fs::read_to_string(path)?;
    let mut lines = info.lines();
    Ok(lines.find_map(|line| Some(line.strip_prefix("inotify ")?.to_string())))
}

/// Returns major and minor number of the filesystem in a line of [`watched`].
fn device(line: &str) -> Option<(u32, u32)> {
    let mut words = line.split(' ');
    let number = words.find_map(|word| word.strip_prefix("sdev:"))?;
    let number = u32::from_str_radix(number, 16).ok()?;
    Some((number >> 20, number & 0xf_ffff))
}

impl From<OwnedFd> for Watch {
    fn from(inotify: OwnedFd) -> Self {
        Self { inotify }
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// Returns whether a watch was never set: its filesystem was not made, and is not going to be.
pub fn is_of_nothing(watch: BorrowedFd<'_>) -> io::Result<bool> {
    // A watch whose filesystem has ended has no line either, but its event is still there.
    Ok(watched(watch)?.is_none() && !has_ended(watch)?)
}

/// Returns whether what is watched has ended.
pub fn has_ended(watch: BorrowedFd<'_>) -> io::Result<bool> {
    let mut waiting = [PollFd::from_borrowed_fd(watch, PollFlags::IN)];
    Ok(poll(&mut waiting, Some(&Timespec::default()))? > 0)
}

#[cfg(test)]
mod tests {
    use forerun_testkit::temp_dir;

    use super::*;

    #[test]
    fn of_nothing_and_of_something() {
        let watch = Watch::new().unwrap();
        assert!(is_of_nothing(watch.as_fd()).unwrap());
        let dir = temp_dir("kernel-watch");
        let file = std::fs::File::open(dir.path()).unwrap();
        watch.set(&file.into()).unwrap();
        assert!(!is_of_nothing(watch.as_fd()).unwrap());
        let stat = rustix::fs::stat(dir.path()).unwrap();
        let expected = (
            rustix::fs::major(stat.st_dev),
            rustix::fs::minor(stat.st_dev),
        );
        assert_eq!(watch.device().unwrap(), expected);
        // As at the end of a filesystem, the event stays and the watch does not.
        drop(dir);
        assert!(!is_of_nothing(watch.as_fd()).unwrap());
    }
}
