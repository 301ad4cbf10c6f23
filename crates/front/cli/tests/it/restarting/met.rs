//! The progress and the errors of working threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;

use super::eventually;

pub struct Met<const THREADS: usize> {
    pub stop: AtomicBool,
    pub rounds: [AtomicU64; THREADS],
    /// The longest round of any thread.
    pub longest: Mutex<Duration>,
    wrong: Mutex<Vec<String>>,
}

impl<const THREADS: usize> Met<THREADS> {
    pub fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            rounds: std::array::from_fn(|_| AtomicU64::new(0)),
            longest: Mutex::default(),
            wrong: Mutex::default(),
        }
    }

    /// Repeats `work` until told to stop or until it fails.
    pub fn repeat(&self, which: usize, mut work: impl FnMut() -> Result<(), String>) {
        while !self.stop.load(Ordering::Relaxed) {
            let begin = Instant::now();
            let done = work();
            let mut longest = self.longest.lock().unpoisoned();
            *longest = begin.elapsed().max(*longest);
            drop(longest);
            if let Err(what) = done {
                let mut wrong = self.wrong.lock().unpoisoned();
                wrong.push(format!("thread {which}: {what}"));
                return;
            }
            self.rounds[which].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until every thread has completed two more rounds. Fails with the error of a thread.
    pub fn all_go_on(&self) {
        let before = self.rounds.each_ref().map(|n| n.load(Ordering::Relaxed));
        eventually("all threads go on", || {
            assert_eq!(*self.wrong.lock().unwrap(), Vec::<String>::new());
            let now = self.rounds.each_ref().map(|n| n.load(Ordering::Relaxed));
            now.iter()
                .zip(before)
                .all(|(now, before)| *now > before + 1)
        });
    }
}
