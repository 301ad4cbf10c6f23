//! The threads that serve a mount, and what keeps them from keeping the process.
//!
//! When a mount has ended, the threads that take requests end too, except those that hang in a
//! source. These are left behind: the process can end without them.

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

/// Pause between two looks at a connection that was not told to end: its mount may be seen from
/// another mount namespace only.
const LOOK: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};
/// Pause between two looks once the connection has ended.
const LAST_LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// How long threads that take requests of an image may go on after the mount has ended.
pub const IMAGE_END_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a device that is written to may show no sign of life before it is given up: the last
/// changes are lost then.
pub const DEVICE_END_TIMEOUT: Duration = Duration::from_secs(10);

/// Added to a patience before a verdict, for a request that had just begun.
const MARGIN: Duration = Duration::from_millis(300);

/// The thread that waits for all that take requests.
#[derive(Debug)]
pub struct Serving {
    thread: JoinHandle<io::Result<()>>,
    /// Hangs up when the thread ends.
    ended: UnixStream,
}

/// How the threads of a mount ended.
#[derive(Debug)]
pub enum Ended {
    /// All threads have ended, with this result.
    Joined(io::Result<()>),
    /// The mount has ended, and some of them hang.
    Hung,
}

/// Serves a mount until it has ended.
///
/// A thread that had just taken a request when the kernel cut the connection gets ECONNABORTED instead of
/// ENODEV. (Where a mount was cut by other means, the kernel says so by this error only to those that asked
/// for that at its start.)
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
    /// Starts the thread, which does `work`.
    pub fn start(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (ended, end) = UnixStream::pair()?;
        let thread = threads::spawn("forerun-fuse", move || {
            let _hangs_up_at_the_end = end;
            work()
        })?;
        Ok(Self { thread, ended })
    }

    /// Waits for the end. Once `is_connected` says that the mount has ended, gives up when `progress`
    /// has stayed the same for `patience`.
    pub fn wait<P: PartialEq>(
        self,
        patience: Duration,
        is_connected: impl Fn() -> bool,
        progress: impl Fn() -> P,
    ) -> Ended {
        // Reports each mount and unmount.
        let mounts = File::open("/proc/self/mountinfo").ok();
        let mut gone: Option<(Instant, P)> = None;
        // At first only a look: the mount may have ended before there was anything to tell of it.
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

/// A handle that ends a mount of which files are still open, to be kept by a signal handler.
#[derive(Clone, Debug)]
pub struct Ending {
    workers: Workers,
    patience: Duration,
}

impl Ending {
    pub(crate) const fn new(workers: Workers, patience: Duration) -> Self {
        Self { workers, patience }
    }

    /// Fails, from now on, each request that waits for its source longer than a second, with EIO. Others
    /// are answered as before.
    pub fn begin(&self) {
        self.workers.end();
    }

    /// Waits for a moment, and returns whether the source kept a thread that takes requests all that
    /// time. Then nothing but the end of the process ends its request. The moment is a bit more than a
    /// second, or than ten for a volume, whose last changes would be lost.
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
        // Ten steps forward, and no more.
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
