//! The threads that take requests from the kernel.
//!
//! There are several, so that a slow answer does not delay other requests. But the kernel wakes
//! them in turn: a program that sends requests one after the other would use a different thread
//! each time, on another CPU with cold caches. So while a requesting thread is being followed
//! (`cpu_follower.rs`), one thread takes all requests, and the others step aside after their
//! answer. They return as soon as a second thread sends requests or much data is moved. One of the
//! threads aside keeps watch, and calls all back if the active thread is slow to answer or gets no
//! request for a while.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use forerun_io::{Unpoisoned, u32_from, u64_from};

use crate::cpu_follower::{CpuFollower, unpin_thread};
use crate::tuning::{MAX_LITTLE, QUIET_WAITS, SLOW_ANSWER};

/// The size of a request and its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestSize {
    /// Metadata or a few KiB for the waiting thread with this ID; 0 if unknown.
    Small(u32),
    /// More file data, or a sync.
    Large,
}

impl RequestSize {
    pub const fn of_read(len: u32, pid: u32) -> Self {
        match len {
            0..=MAX_LITTLE => Self::Small(pid),
            _ => Self::Large,
        }
    }

    pub fn of_write(data: &[u8], pid: u32) -> Self {
        Self::of_read(u32_from(u64_from(data.len())), pid)
    }
}

pub struct RequestThreads {
    count: usize,
    follower: CpuFollower,
    /// Number of threads that have a request or are aside.
    busy: AtomicUsize,
    begun: AtomicU64,
    /// Whether a thread aside keeps watch.
    watched: Mutex<bool>,
    back: Condvar,
}

impl RequestThreads {
    pub fn new(count: usize) -> Self {
        Self {
            count,
            follower: CpuFollower::new(),
            busy: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            watched: Mutex::new(false),
            back: Condvar::new(),
        }
    }

    pub const fn count(&self) -> usize {
        self.count
    }

    pub fn is_following(&self) -> bool {
        self.follower.is_following()
    }

    /// Runs `answer` on the thread that took the request. If the requesting thread is being
    /// followed, small requests run pinned to its CPU.
    pub fn take(&self, size: RequestSize, answer: impl FnOnce()) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.begun.fetch_add(1, Ordering::Relaxed);
        let followed = self.follower.is_following();
        match size {
            RequestSize::Small(pid) => self.follower.small_request(pid),
            RequestSize::Large => self.follower.large_request(),
        }
        if followed && !self.follower.is_following() {
            self.call_back();
        }
        // Moving data overlaps with its reader, so it may run on any CPU.
        if size == RequestSize::Large || !self.follower.is_following() {
            unpin_thread();
        }
        answer();
        if self.follower.is_following() {
            self.step_aside();
        }
        self.follower.place_thread();
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits aside while a thread is being followed. Returns at once if no other thread would take
    /// requests.
    fn step_aside(&self) {
        let mut watched = self.watched.lock().unpoisoned();
        // Threads aside count as busy: the last one always stays.
        if self.busy.load(Ordering::Acquire) >= self.count {
            return;
        }
        let mut quiet = 0;
        while self.follower.is_following() {
            if *watched {
                let woken = self.back.wait(watched);
                watched = woken.unpoisoned();
                continue;
            }
            *watched = true;
            let before = self.begun.load(Ordering::Relaxed);
            let woken = self.back.wait_timeout(watched, SLOW_ANSWER);
            let (guard, waited) = woken.unpoisoned();
            watched = guard;
            *watched = false;
            let is_new = !waited.timed_out() || self.begun.load(Ordering::Relaxed) != before;
            quiet = if is_new { 0 } else { quiet + 1 };
            let is_slow = !is_new && self.busy.load(Ordering::Acquire) >= self.count;
            if is_slow || quiet == QUIET_WAITS {
                self.follower.stop();
                self.back.notify_all();
            }
        }
    }

    fn call_back(&self) {
        // With the lock held, a thread stepping aside either waits already or will see that
        // following has ended.
        drop(self.watched.lock().unpoisoned());
        self.back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::{Duration, Instant};

    use rustix::thread::sched_getaffinity;

    use super::*;
    use crate::tuning::REQUESTS_IN_A_ROW;

    type Request = (RequestSize, Duration);

    /// Threads that take requests from a queue, as those of a mount do, and report which one
    /// answered.
    struct Mount {
        request_threads: Arc<RequestThreads>,
        requests: Option<Sender<Request>>,
        answers: Receiver<thread::ThreadId>,
        threads: Vec<thread::JoinHandle<()>>,
    }

    impl Mount {
        fn new(count: usize) -> Self {
            let request_threads = Arc::new(RequestThreads::new(count));
            let (requests, queue) = channel::<Request>();
            let (answer, answers) = channel();
            let queue = Arc::new(Mutex::new(queue));
            let threads = (0..count).map(|_| {
                let (request_threads, queue) = (Arc::clone(&request_threads), Arc::clone(&queue));
                let answer = answer.clone();
                thread::spawn(move || {
                    loop {
                        let next = queue.lock().unwrap().recv();
                        let Ok((size, takes)) = next else {
                            return;
                        };
                        request_threads.take(size, || {
                            thread::sleep(takes);
                            answer.send(thread::current().id()).unwrap();
                        });
                    }
                })
            });
            Self {
                request_threads: Arc::clone(&request_threads),
                requests: Some(requests),
                answers,
                threads: threads.collect(),
            }
        }

        fn ask(&self, size: RequestSize, takes: Duration) {
            let requests = self.requests.as_ref().unwrap();
            requests.send((size, takes)).unwrap();
        }

        /// Sends requests one by one until the sender is followed, if possible.
        fn row(&self) {
            for _ in 0..1000 {
                self.ask(RequestSize::Small(std::process::id()), Duration::ZERO);
                self.answers.recv().unwrap();
            }
        }

        fn end(mut self) {
            drop(self.requests.take());
            for thread in self.threads {
                thread.join().unwrap();
            }
        }
    }

    #[test]
    fn threads_aside_come_back_for_a_slow_answer() {
        let mount = Mount::new(4);
        mount.row();
        let begin = Instant::now();
        let own = RequestSize::Small(std::process::id());
        mount.ask(own, Duration::from_secs(3));
        // This request is taken only after the watching thread notices the slow answer.
        mount.ask(own, Duration::ZERO);
        mount.answers.recv().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(2));
        mount.answers.recv().unwrap();
        mount.end();
    }

    #[test]
    fn four_slow_answers_are_given_at_the_same_time() {
        let mount = Mount::new(4);
        mount.row();
        for _ in 0..4 {
            mount.ask(RequestSize::Large, Duration::from_millis(200));
        }
        let who: std::collections::HashSet<_> =
            (0..4).map(|_| mount.answers.recv().unwrap()).collect();
        assert_eq!(who.len(), 4, "all four at the same time");
        assert!(!mount.request_threads.follower.is_following());
        mount.end();
    }

    #[test]
    fn small_answers_are_given_on_the_readers_cpu_and_large_ones_on_any() {
        let all = thread::available_parallelism().unwrap().get();
        let threads = RequestThreads::new(1);
        let own = RequestSize::Small(std::process::id());
        let cpus_of = |size, times: u32| {
            let mut cpus = 0;
            for _ in 0..times {
                let here = || sched_getaffinity(None).unwrap().count();
                threads.take(size, || cpus = here());
            }
            usize::try_from(cpus).unwrap()
        };
        assert_eq!(cpus_of(own, REQUESTS_IN_A_ROW + 1), all);
        assert_eq!(cpus_of(own, 1), 1);
        assert_eq!(cpus_of(RequestSize::Large, 1), all);
        assert_eq!(cpus_of(own, 1), 1, "back after a larger file");
        let another = RequestSize::Small(std::process::id() + 1);
        assert_eq!(cpus_of(another, 1), all, "no longer followed");
        assert_eq!(cpus_of(own, 1), all);
    }

    #[test]
    fn no_thread_stays_aside_when_nothing_is_asked() {
        let mount = Mount::new(4);
        mount.row();
        let begin = Instant::now();
        while mount.request_threads.busy.load(Ordering::Acquire) > 0 {
            assert!(begin.elapsed() < Duration::from_secs(10));
            thread::sleep(Duration::from_millis(1));
        }
        mount.end();
    }

    #[test]
    fn reads_of_small_files_are_small_requests() {
        assert_eq!(RequestSize::of_write(&[0; 4096], 7), RequestSize::Small(7));
        assert_eq!(RequestSize::of_read(4096, 7), RequestSize::Small(7));
        assert_eq!(RequestSize::of_read(MAX_LITTLE, 7), RequestSize::Small(7));
        assert_eq!(RequestSize::of_read(MAX_LITTLE + 1, 7), RequestSize::Large);
    }

    #[test]
    fn the_only_thread_never_steps_aside() {
        let mount = Mount::new(1);
        mount.row();
        mount.end();
    }
}
