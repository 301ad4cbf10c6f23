//! Answers to the kernel's driver: each of its reads waits until its range was fetched.
//!
//! One thread takes events in, and answers at once where the range is here and verified. A pool of threads waits for
//! ranges that have to be fetched or verified; what an earlier process has stored is verified ahead of sequential
//! readers. Dropping an event in any of these threads fails its read.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use forerun::remote::{CheckAhead, RemoteImage};
use forerun::{AlignedBuffer, ReadAt, Unpoisoned};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::Ended;
use super::channel::{self, Word};
use super::event::Verdict;
use super::group::{Group, PrivateMount, answer, answer_for_another, fail_all, read};
use super::guard::{Guard, GuardArgs};
use super::ledger::Ledger;
use super::reconfigure;
use super::watch::Watch;
use crate::drivers::ON_DEMAND;

/// Reads that are fetched for at once. Further ones wait in a queue.
const WORKERS: usize = 32;
/// Longest piece that is read into memory at once.
const PIECE: u64 = 1 << 20;
/// Margin above the numbers of recorded events, for those that a filler had not recorded when it died:
/// the events of one read(2), and its other descriptors.
const UNRECORDED: RawFd = 1024;
/// Interval of looking whether everything is here, and whether a guard can be started again.
const TICK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Time without a question after which the filler verifies what no read has asked for.
const IDLE: Duration = Duration::from_secs(1);

/// The state that the answering threads share.
#[derive(Debug)]
pub struct Shared {
    pub remote: Arc<RemoteImage>,
    pub ahead: Arc<CheckAhead>,
    pub group: Group,
    pub mount: PrivateMount,
    pub watch: Watch,
    pub ledger: Ledger,
    pub guard_args: GuardArgs,
    pub counts: Counts,
    /// The channel to the guard, for any thread.
    pub guard: Mutex<Option<OwnedFd>>,
}

/// Counters of requests and answers.
#[derive(Debug, Default)]
pub struct Counts {
    /// Reads that sent an event.
    pub events: AtomicU64,
    /// Reads for which something had to be fetched.
    pub fetched: AtomicU64,
    /// Reads of what was here that waited until it was verified.
    pub unverified: AtomicU64,
    /// Reads that failed.
    pub failed: AtomicU64,
    /// The process of the guard; 0 while there is none.
    pub guard: AtomicU64,
}

impl Shared {
    /// Starts a guard that holds all that it needs.
    pub fn start_guard(&self) -> io::Result<Guard> {
        let descriptors = [
            self.group.as_fd(),
            self.watch.as_fd(),
            self.mount.as_fd(),
            self.ledger.as_fd(),
        ];
        let guard = Guard::start(&self.guard_args, descriptors)?;
        self.guarded_by(&guard);
        Ok(guard)
    }

    /// Has no other filler take the place of this one.
    pub fn is_last(&self) {
        let guard = self.guard.lock().unpoisoned();
        if let Some(guard) = &*guard {
            // A guard that is gone starts nothing.
            let _gone = channel::send(guard, Word::Last, &[]);
        }
    }

    /// Records which process guards the mount.
    pub fn guarded_by(&self, guard: &Guard) {
        let channel = guard.as_fd().try_clone_to_owned().ok();
        *self.guard.lock().unpoisoned() = channel;
        let id = guard.id().into();
        self.counts.guard.store(id, Ordering::Release);
    }

    /// Answers the events that a dead filler took and did not answer: fetches for those that it
    /// recorded, and fails the rest. No event may be taken before, since it could have the number of
    /// one of these.
    pub fn finish_what_was_left(&self) -> io::Result<()> {
        let (left, limit) = self.ledger.waiting()?;
        let count = left.len();
        let mut buffer = AlignedBuffer::new();
        for event in left {
            let verdict = verdict(self, event.range.as_ref(), &mut buffer);
            answer_for_another(self.group.as_fd(), event.fd, verdict);
            self.ledger.take(event.fd);
        }
        fail_all(self.group.as_fd(), limit.saturating_add(UNRECORDED));
        tracing::info!(count, "reads that waited were answered");
        Ok(())
    }
}

/// A read that waits for its answer.
struct PendingRead {
    shared: Arc<Shared>,
    event: RawFd,
    range: Option<Range<u64>>,
    verdict: Verdict,
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        if self.verdict != Verdict::Allow {
            self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
        }
        let shared = &self.shared;
        answer(shared.group.as_fd(), self.event, self.verdict, || {
            shared.ledger.take(self.event);
        });
    }
}

/// Raises the limit of open files to the hard limit: each read that waits takes a descriptor, and the
/// kernel fails reads for which there is none.
pub fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the number of open files stays limited");
    }
}

/// Starts the threads that answer. They end when the filesystem does, when everything is here, or when
/// the other end of `stop` is closed.
pub fn start(shared: Arc<Shared>, guard: Guard, stop: OwnedFd) -> io::Result<JoinHandle<Ended>> {
    let (queue, asked) = unbounded::<PendingRead>();
    shared.ahead.start()?;
    let ending = EndsChecks(Arc::clone(&shared.ahead));
    for _ in 0..WORKERS {
        let asked = asked.clone();
        std::thread::Builder::new()
            .name("forerun-fill".to_string())
            .spawn(move || work(&asked))?;
    }
    let server = Server {
        shared,
        queue,
        guard: Some(guard),
        marked: true,
        asked: Instant::now(),
        checking: false,
        _ending: ending,
    };
    std::thread::Builder::new()
        .name("forerun-events".to_string())
        .spawn(move || server.run(&stop))
}

struct Server {
    shared: Arc<Shared>,
    queue: Sender<PendingRead>,
    guard: Option<Guard>,
    /// Whether reads send events.
    marked: bool,
    /// When a read asked last.
    asked: Instant,
    /// Whether the rest of the cache is being verified.
    checking: bool,
    _ending: EndsChecks,
}

/// Ends the threads that verify ahead when it is dropped.
struct EndsChecks(Arc<CheckAhead>);

impl Drop for EndsChecks {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Server {
    fn run(mut self, stop: &OwnedFd) -> Ended {
        let ended = loop {
            if let Some(ended) = self.step(stop) {
                break ended;
            }
        };
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        ended
    }

    fn step(&mut self, stop: &OwnedFd) -> Option<Ended> {
        let (events, watch, stopped, guard) = self.wait(stop);
        if watch || stopped {
            return Some(Ended::Unmounted);
        }
        if guard {
            tracing::error!("the process that guards the mount has died; starting another one");
            if let Some(guard) = self.guard.take() {
                self.shared.counts.guard.store(0, Ordering::Release);
                let channel = self.shared.guard.lock();
                *channel.unpoisoned() = None;
                guard.bury();
            }
        }
        if self.guard.is_none() {
            match self.shared.start_guard() {
                Ok(guard) => self.guard = Some(guard),
                Err(error) => tracing::error!(%error, "there is no guard of the mount"),
            }
        }
        if events {
            self.take_events();
        }
        let remote = &self.shared.remote;
        if self.marked
            && !self.checking
            && remote.blob().is_complete()
            && self.asked.elapsed() >= IDLE
        {
            // Chunks that this process has not verified yet are all that keeps it. Readers verify what they come for, and
            // need the disk and the processors for that.
            remote.check_rest();
            self.checking = true;
        }
        if self.marked && remote.status().detached {
            match self.shared.group.forget(&self.shared.mount) {
                Ok(()) => {
                    self.marked = false;
                    self.read_directly();
                }
                Err(error) => tracing::error!(%error, "reads still ask for what is here"),
            }
            return None;
        }
        // The kernel sends no more events. A read that still waits for a worker finds everything here.
        (!self.marked && !events).then_some(Ended::Complete)
    }

    /// Has the kernel read the file past the page cache, once this process verifies no bytes ahead of readers any more.
    fn read_directly(&self) {
        let shared = &self.shared;
        let file = shared.remote.blob().data_file();
        let done = shared.watch.device();
        match done.and_then(|device| reconfigure::read_directly(&ON_DEMAND, file, device)) {
            Ok(()) => tracing::debug!("the kernel reads the file directly from now on"),
            Err(error) => tracing::debug!(%error, "the kernel reads through the page cache"),
        }
    }

    /// Returns whether there are events, the filesystem has ended, we are to stop, and the guard is gone.
    fn wait(&self, stop: &OwnedFd) -> (bool, bool, bool, bool) {
        let shared = &self.shared;
        let mut waiting = vec![
            PollFd::new(&shared.group, PollFlags::IN),
            PollFd::new(&shared.watch, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        waiting.extend(
            self.guard
                .as_ref()
                .map(|guard| PollFd::new(guard, PollFlags::IN)),
        );
        let tick = match self.marked {
            true => TICK,
            // Only events from before the mark was removed can still be there.
            false => Timespec::default(),
        };
        match poll(&mut waiting, Some(&tick)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => tracing::error!(%error, "waiting for events"),
        }
        let mut ready = waiting.iter().map(|waiting| !waiting.revents().is_empty());
        let mut next = || ready.next().unwrap_or(false);
        (next(), next(), next(), next())
    }

    /// Takes in the events that have come, and answers those whose range is here.
    fn take_events(&mut self) {
        let group = self.shared.group.as_fd();
        let events = read(group).unwrap_or_else(|error| {
            tracing::error!(%error, "reading events");
            Vec::new()
        });
        if !events.is_empty() {
            self.asked = Instant::now();
        }
        for event in &events {
            self.shared.ledger.put(event);
        }
        for event in events {
            let counts = &self.shared.counts;
            counts.events.fetch_add(1, Ordering::Relaxed);
            let mut asked = PendingRead {
                shared: Arc::clone(&self.shared),
                event: event.fd,
                range: event.range.map(|range| within(&self.shared.remote, range)),
                verdict: Verdict::Fail,
            };
            if let Some(range) = &asked.range {
                self.shared.ahead.note(range);
                if self.shared.remote.read_outside(range) {
                    asked.verdict = Verdict::Allow;
                    continue;
                }
            }
            let waits_for = match is_here(&asked) {
                true => &counts.unverified,
                false => &counts.fetched,
            };
            waits_for.fetch_add(1, Ordering::Relaxed);
            // Without workers it is dropped, which fails the read.
            let _ = self.queue.send(asked);
        }
    }
}

/// Returns the part of `range` that is in the image: the driver reads whole blocks, also behind the end.
fn within(remote: &RemoteImage, range: Range<u64>) -> Range<u64> {
    let end = range.end.min(remote.len());
    range.start.min(end)..end
}

fn is_here(asked: &PendingRead) -> bool {
    let blob = asked.shared.remote.blob();
    let Some(range) = &asked.range else {
        return false;
    };
    let chunks = blob.geometry().chunks_of(range);
    let here = blob.known_present(chunks.clone());
    chunks.is_empty() || here.first() == Some(&chunks)
}

fn work(asked: &Receiver<PendingRead>) {
    let mut buffer = AlignedBuffer::new();
    for mut asked in asked {
        asked.verdict = verdict(&asked.shared, asked.range.as_ref(), &mut buffer);
    }
}

/// Fetches and verifies what a read waits for, and returns whether it may go on.
fn verdict(shared: &Shared, range: Option<&Range<u64>>, buffer: &mut AlignedBuffer) -> Verdict {
    let Some(range) = range else {
        tracing::error!("a read of unknown extent is refused");
        return Verdict::Fail;
    };
    // A panic concerns this read only.
    match catch_unwind(AssertUnwindSafe(|| fill(shared, range, buffer))) {
        Ok(Ok(())) => return Verdict::Allow,
        Ok(Err(error)) => {
            let (start, end) = (range.start, range.end);
            tracing::warn!(%error, start, end, "could not be fetched");
        }
        Err(_) => tracing::error!("filling the cache panicked"),
    }
    Verdict::Fail
}

/// Returns once `range` is in the cache's file. What has to be fetched is read from there, so that the cache records
/// the use.
fn fill(shared: &Shared, range: &Range<u64>, buffer: &mut AlignedBuffer) -> io::Result<()> {
    let remote = &shared.remote;
    let range = within(remote, range.clone());
    shared.ahead.check(&range, buffer)?;
    if remote.read_outside(&range) {
        return Ok(());
    }
    if range.end.saturating_sub(range.start) > PIECE {
        remote.will_need(range.clone());
    }
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(PIECE);
        let needed = usize::try_from(len).map_err(io::Error::other)?;
        buffer.reserve(needed);
        remote.read_exact_at(at, buffer.get_mut(..needed).unwrap_or_default())?;
        at += len;
    }
    Ok(())
}
