//! Requests handed to a worker, which may be answered before the worker is done.
//!
//! A request that waits for a source need not wait until the end. If its reader was killed or the
//! mount is ending, it is answered with an error, whether it is being processed, waits for the
//! source, or has not begun. Its worker is told to stop waiting, and finds that the request is
//! answered.
//!
//! One thread watches all such requests. The first request starts it. It ends when there have been
//! none for a while, or when the mount has ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;
use forerun_io::wait::{self, Stop};
use forerun_sys::threads;
use fuser::Errno;

use crate::guarded::guarded;
use crate::interrupted::is_interrupted;

/// Interval between checks of waiting requests. Younger requests are not checked.
const LOOK: Duration = Duration::from_millis(100);
/// Minimum ratio of a pause to the duration of the preceding check, so that thousands of requests
/// do not use up a CPU.
const PAUSE: u32 = 20;
/// How long the watching thread waits for more requests.
const IDLE: Duration = Duration::from_secs(10);
/// How long a request may still wait while the mount is ending.
const LAST_WAIT: Duration = Duration::from_secs(1);

pub struct Pending {
    pid: u32,
    since: Instant,
    stop: Arc<Stop>,
    question: Box<dyn Question>,
}

/// A request that is answered once, by the first thread to finish.
trait Question: Send + Sync {
    /// Finds the answer and sends it, unless the request is answered.
    fn work(&self);
    /// Answers with an error, unless the request is answered.
    fn refuse(&self, errno: Errno);
    fn is_answered(&self) -> bool;
}

struct Unanswered<W, A> {
    work: Mutex<Option<W>>,
    answer: Mutex<Option<A>>,
}

impl<T, W, A> Question for Unanswered<W, A>
where
    W: FnOnce() -> T + Send,
    A: FnOnce(Result<T, Errno>) + Send,
{
    fn work(&self) {
        let Some(work) = lock(&self.work).take().filter(|_| !self.is_answered()) else {
            return;
        };
        let result = work();
        let answer = lock(&self.answer).take();
        if let Some(answer) = answer {
            answer(Ok(result));
        }
    }

    fn refuse(&self, errno: Errno) {
        let answer = lock(&self.answer).take();
        if let Some(answer) = answer {
            answer(Err(errno));
        }
    }

    fn is_answered(&self) -> bool {
        lock(&self.answer).is_none()
    }
}

impl Pending {
    /// Creates a pending request of thread `pid`; `work` finds its answer.
    pub fn new<T: 'static>(
        pid: u32,
        work: impl FnOnce() -> T + Send + 'static,
        answer: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            pid,
            since: Instant::now(),
            stop: Arc::default(),
            question: Box::new(Unanswered {
                work: Mutex::new(Some(work)),
                answer: Mutex::new(Some(answer)),
            }),
        })
    }

    /// Finds the answer and sends it. A panic becomes an error answer.
    pub fn work(&self) {
        let work = || wait::until(&self.stop, || self.question.work());
        if !guarded(work) {
            self.refuse(Errno::EIO);
        }
    }

    /// Answers with an error, and ends the wait of the worker.
    pub fn refuse(&self, errno: Errno) {
        self.stop.set();
        guarded(|| self.question.refuse(errno));
    }

    pub fn is_answered(&self) -> bool {
        self.question.is_answered()
    }
}

/// The pending requests that can be refused.
#[derive(Default)]
pub struct Watch {
    state: Mutex<PendingState>,
    changed: Condvar,
    ending: OnceLock<Instant>,
    refused: AtomicU64,
}

#[derive(Default)]
struct PendingState {
    pending: Vec<Arc<Pending>>,
    is_watched: bool,
    is_closed: bool,
}

impl Watch {
    pub fn add(self: &Arc<Self>, pending: Arc<Pending>) {
        let mut state = lock(&self.state);
        state.pending.push(pending);
        if state.is_watched {
            // The watching thread waits for the first request.
            if state.pending.len() == 1 {
                self.changed.notify_all();
            }
            return;
        }
        let watch = Arc::clone(self);
        match threads::spawn("forerun-fuse-watch", move || watch.run()) {
            Ok(_detached) => state.is_watched = true,
            Err(error) => tracing::debug!("readers that are killed wait for the source: {error}"),
        }
    }

    /// Fails, from now on, all requests that wait longer than a second.
    pub fn end(&self) {
        self.ending.get_or_init(Instant::now);
        // Lock once, so that a thread about to wait does not miss the notification.
        drop(lock(&self.state));
        self.changed.notify_all();
    }

    /// Makes the thread end once no request is waiting.
    pub fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// Returns the number of requests that wait or are being processed.
    pub fn waiting(&self) -> usize {
        let state = lock(&self.state);
        let waits = |pending: &&Arc<Pending>| !pending.is_answered();
        state.pending.iter().filter(waits).count()
    }

    /// Returns the number of requests that were answered with an error because they waited.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn run(&self) {
        let mut pause = LOOK;
        let mut state = lock(&self.state);
        loop {
            if state.pending.is_empty() {
                let idle = |state: &mut PendingState| state.pending.is_empty() && !state.is_closed;
                let waited = self.changed.wait_timeout_while(state, IDLE, idle);
                state = waited.unpoisoned().0;
                if state.pending.is_empty() {
                    state.is_watched = false;
                    return;
                }
            }
            let waited = self.changed.wait_timeout(state, pause);
            state = waited.unpoisoned().0;
            state.pending.retain(|pending| !pending.is_answered());
            let pending = state.pending.clone();
            drop(state);
            let begin = Instant::now();
            self.look(&pending);
            pause = LOOK.max(begin.elapsed().saturating_mul(PAUSE));
            state = lock(&self.state);
        }
    }

    fn look(&self, pending: &[Arc<Pending>]) {
        let is_ending = self.ending.get().is_some();
        for pending in pending {
            let age = pending.since.elapsed();
            let errno = if age >= LAST_WAIT && is_ending {
                Errno::EIO
            } else if age >= LOOK && is_interrupted(pending.pid) {
                Errno::EINTR
            } else {
                continue;
            };
            // Count first, because the reader may ask for the count after the answer.
            self.refused.fetch_add(1, Ordering::Relaxed);
            pending.refuse(errno);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic while holding the lock affects only one request's answer.
    mutex.lock().unpoisoned()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_request_is_answered_once_and_its_wait_ends() {
        let (answer, answers) = channel();
        let pending = Pending::new(
            0,
            || {
                while wait::allowed().is_ok() {
                    std::thread::yield_now();
                }
                7
            },
            move |result: Result<i32, Errno>| answer.send(result.map_err(|e| e.code())).unwrap(),
        );
        let working = Arc::clone(&pending);
        let thread = std::thread::spawn(move || working.work());
        pending.refuse(Errno::EINTR);
        pending.refuse(Errno::EIO);
        thread.join().unwrap();
        assert_eq!(
            answers.iter().collect::<Vec<_>>(),
            [Err(Errno::EINTR.code())]
        );
    }

    #[test]
    fn a_request_that_was_refused_is_not_worked_on() {
        let (began, begins) = channel();
        let pending = Pending::new(0, move || began.send(()).unwrap(), |_| {});
        pending.refuse(Errno::EIO);
        pending.work();
        assert!(begins.recv().is_err());
    }

    #[test]
    fn a_panic_answers_with_an_error() {
        let (answer, answers) = channel();
        let pending = Pending::new(
            0,
            || panic!("on purpose"),
            move |result: Result<(), Errno>| answer.send(result.map_err(|e| e.code())).unwrap(),
        );
        pending.work();
        assert_eq!(answers.recv().unwrap(), Err(Errno::EIO.code()));
    }

    #[test]
    fn requests_of_threads_that_are_gone_are_refused() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let watch = Arc::new(Watch::default());
        let (answer, answers) = channel();
        for pid in [child.id(), std::process::id(), 0] {
            let answer = answer.clone();
            let answer = move |_: Result<(), Errno>| answer.send(pid).unwrap();
            watch.add(Pending::new(pid, || (), answer));
        }
        assert_eq!(answers.recv().unwrap(), child.id());
        assert_eq!((watch.waiting(), watch.refused()), (2, 1));
        watch.end();
        let mut rest: Vec<_> = answers.iter().take(2).collect();
        rest.sort_unstable();
        assert_eq!(rest, [0, std::process::id()]);
    }
}
