//! Waits for the threads of a mount.
//!
//! When a mount has ended, its request threads end too, except those that hang in a source. They
//! are left behind, so that the process can exit.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use forerun_sys::threads;
use fuser::{Filesystem, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::workers::Workers;

/// Interval between checks of the connection. Needed for a mount in another mount namespace, whose
/// unmount is not reported.
const LOOK: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// Interval between checks after the connection has ended.
const LAST_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// How long an image's request threads may continue after the mount has ended.
pub const IMAGE_END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a writable device may make no progress before waiting for it ends. The last changes are
/// lost then.
pub const DEVICE_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Added to the timeout, for a request that has just begun.
const MARGIN: Duration = Duration::from_millis(300);

/// The thread that runs the session and waits for all request threads.
#[derive(Debug)]
pub struct Serving {
    thread: JoinHandle<io::Result<()>>,
    /// Hangs up when the thread ends.
    ended: UnixStream,
}

#[derive(Debug)]
pub enum Ended {
    /// All threads have ended, with this result.
    Joined(io::Result<()>),
    /// The mount has ended, and some threads hang.
    Hung,
}

/// Serves a mount until it has ended.
///
/// A thread that had just taken a request when the kernel aborted the connection gets ECONNABORTED
/// instead of ENODEV. (On an abort by other means, only sessions that requested it in INIT get this
/// error.)
pub fn serve_session(session: Session<impl Filesystem>) -> io::Result<()> {
    match session.run() {
        Err(error) if is_end(&error) => Ok(()),
        ended => ended,
    }
}

fn is_end(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::CONNABORTED)
}

impl Serving {
    pub fn start(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (ended, end) = UnixStream::pair()?;
        let thread = threads::spawn("forerun-fuse", move || {
            let _hangs_up_at_the_end = end;
            work()
        })?;
        Ok(Self { thread, ended })
    }

    /// Waits for the end. After `is_connected` returns false, stops waiting when `progress` has not
    /// changed for `patience`.
    pub fn wait<P: PartialEq>(
        self,
        patience: Duration,
        is_connected: impl Fn() -> bool,
        progress: impl Fn() -> P,
    ) -> Ended {
        // poll(2) on mountinfo reports each mount and unmount.
        let mounts = File::open("/proc/self/mountinfo").ok();
        let mut gone: Option<(Instant, P)> = None;
        // Check at once the first time: the mount may have ended before mountinfo was opened.
        let mut pause = Timespec::default();
        loop {
            let mut watched = vec![PollFd::new(&self.ended, PollFlags::IN)];
            watched.extend(mounts.as_ref().map(|m| PollFd::new(m, PollFlags::PRI)));
            let polled = poll(&mut watched, Some(&pause));
            let has_ended = watched.first().is_some_and(|fd| !fd.revents().is_empty());
            if polled.is_ok() && has_ended {
                let panicked = |_| Err(io::Error::other("a thread panicked"));
                return Ended::Joined(self.thread.join().unwrap_or_else(panicked));
            }
            if is_connected() {
                (gone, pause) = (None, LOOK);
                continue;
            }
            pause = LAST_LOOK;
            let now = progress();
            match &gone {
                Some((since, before)) if *before == now => {
                    if since.elapsed() >= patience {
                        return Ended::Hung;
                    }
                }
                _ => gone = Some((Instant::now(), now)),
            }
        }
    }
}

/// A handle to end a mount with open files, for instance from a signal handler.
#[derive(Clone, Debug)]
pub struct Ending {
    workers: Workers,
    patience: Duration,
}

impl Ending {
    pub(crate) const fn new(workers: Workers, patience: Duration) -> Self {
        Self { workers, patience }
    }

    /// Fails, from now on, each request that waits longer than a second for its source, with EIO.
    /// Other requests are answered as before.
    pub fn begin(&self) {
        self.workers.end();
    }

    /// Waits, and returns whether the source blocked a request thread for the whole time, so that
    /// only the end of the process can end its request. Takes a little more than one second, or ten
    /// for a volume, whose last changes would be lost.
    #[must_use]
    pub fn hangs(&self) -> bool {
        std::thread::sleep(self.patience.saturating_add(MARGIN));
        self.workers.is_stuck(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const SHORT: Duration = Duration::from_millis(200);

    #[test]
    fn a_cut_connection_is_the_end_and_no_other_error_is() {
        for (errno, expected) in [
            (Errno::CONNABORTED, true),
            (Errno::IO, false),
            (Errno::CONNREFUSED, false),
        ] {
            assert_eq!(is_end(&errno.into()), expected, "{errno}");
        }
        assert!(!is_end(&io::Error::other("a thread panicked")));
    }

    #[test]
    fn threads_that_end_are_joined() {
        let serving = Serving::start(|| Err(io::Error::other("on purpose"))).unwrap();
        let ended = serving.wait(SHORT, || true, || ());
        assert!(matches!(ended, Ended::Joined(Err(_))), "{ended:?}");
        let serving = Serving::start(|| panic!("on purpose")).unwrap();
        let ended = serving.wait(SHORT, || true, || ());
        assert!(matches!(ended, Ended::Joined(Err(_))), "{ended:?}");
    }

    #[test]
    fn threads_that_hang_are_left_once_nothing_moves() {
        let (end, ends) = channel::<()>();
        let serving = Serving::start(move || {
            let _until_the_end = ends.recv();
            Ok(())
        });
        // Ten steps of progress, then none.
        let steps = std::cell::Cell::new(0);
        let progress = || {
            steps.set(steps.get() + 1);
            steps.get().min(10)
        };
        let ended = serving.unwrap().wait(SHORT, || false, progress);
        assert!(matches!(ended, Ended::Hung), "{ended:?}");
        assert!(steps.get() > 10);
        drop(end);
    }
}
