//! Threads that find files, and read them window by window.
//!
//! A window holds at most half of the memory, or one file, so that one window is read while the
//! consumer takes the previous one. Its files are read in physical order. All of its contents fit
//! into memory, so the consumer may take them in any order.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use forerun_engine::Asked;
use forerun_io::Unpoisoned;

use super::Request;
use super::gathered::Gathered;
use super::window::{Found, Window};
use crate::contents::Bytes;
use crate::errors::Result;
use crate::handle::Held;

/// Number of files that a thread looks up at a time.
const CHUNK: usize = 64;

/// The consumer's handle on the threads. `stop` ends them.
pub struct Crew(Arc<Shared>);

/// The result of waiting for a read.
pub enum Waited {
    /// The number of the request, and its contents.
    Read(usize, Result<Bytes>),
    /// Nothing was read yet.
    Nothing,
    /// No thread is left that could read.
    Ended,
}

struct Shared {
    held: Held,
    memory: u64,
    state: Mutex<Jobs>,
    /// Signalled when contents were read.
    is_read: Condvar,
    /// Signalled when there is a job, or when the threads must end.
    is_work: Condvar,
}

#[derive(Default)]
struct Jobs {
    batch: Option<Batch>,
    /// Windows in the order of their ids, except for those read completely.
    windows: VecDeque<Listed>,
    /// Memory and number of parts left to take, for each window that is being read or was read.
    held: BTreeMap<usize, (u64, usize)>,
    /// Contents that were read, by request number, with the id of their window.
    read: BTreeMap<usize, (Option<usize>, Result<Bytes>)>,
    /// The number that the consumer last waited for; `None` if it takes any.
    awaited: Option<usize>,
    window_count: usize,
    thread_count: usize,
    is_stopped: bool,
}

/// Paths requested together, while threads look them up.
struct Batch {
    wanted: VecDeque<(usize, Request)>,
    found: BTreeMap<usize, Found>,
    /// Number of parts that threads are looking up.
    in_flight: usize,
    asked: Asked,
}

struct Listed {
    id: usize,
    window: Arc<Window>,
    is_begun: bool,
}

enum Job {
    Find(Vec<(usize, Request)>),
    Read(usize, Arc<Window>),
}

impl Crew {
    pub fn start(held: &Held, count: usize, memory: u64) -> io::Result<Self> {
        let crew = Self(Arc::new(Shared {
            held: held.clone(),
            memory,
            state: Mutex::default(),
            is_read: Condvar::new(),
            is_work: Condvar::new(),
        }));
        for _ in 0..count {
            let shared = Arc::clone(&crew.0);
            crew.0.state.lock().unpoisoned().thread_count += 1;
            let builder = thread::Builder::new().name("forerun-many".to_string());
            let started = builder.spawn(move || {
                let _left = Left(&shared);
                shared.work();
            });
            if let Err(error) = started {
                crew.stop();
                return Err(error);
            }
        }
        Ok(crew)
    }

    /// Returns whether the threads have looked up everything requested so far.
    pub fn takes_more(&self) -> bool {
        self.0.state.lock().unpoisoned().batch.is_none()
    }

    /// Requests more files, numbered from `first` on. `asked` tells whether more requests will
    /// follow.
    pub fn ask(&self, first: usize, wanted: Vec<Request>, asked: Asked) {
        let batch = Batch {
            wanted: (first..).zip(wanted).collect(),
            found: BTreeMap::new(),
            in_flight: 0,
            asked,
        };
        self.0.state.lock().unpoisoned().batch = Some(batch);
        self.0.is_work.notify_all();
    }

    /// Takes the contents for `number`, or any contents for `None`, without waiting.
    pub fn poll(&self, number: Option<usize>) -> Waited {
        let mut state = self.0.state.lock().unpoisoned();
        self.0.take(&mut state, number)
    }

    /// Waits for the contents for `number`, or any contents for `None`, for at most `most`.
    pub fn wait(&self, number: Option<usize>, most: Duration) -> Waited {
        let state = self.0.state.lock().unpoisoned();
        match self.0.take_or_keep(state, number) {
            Ok(waited) => waited,
            Err(mut state) => {
                state.awaited = number;
                let waited = self.0.is_read.wait_timeout(state, most);
                let (mut state, _) = waited.unpoisoned();
                self.0.take(&mut state, number)
            }
        }
    }

    /// Ends the threads, each after the file that it is reading.
    pub fn stop(&self) {
        let mut state = self.0.state.lock().unpoisoned();
        state.is_stopped = true;
        state.read.clear();
        drop(state);
        self.0.is_work.notify_all();
        self.0.is_read.notify_all();
    }
}

/// Counts a thread as ended when it is dropped, even by a panic.
struct Left<'s>(&'s Shared);

impl Drop for Left<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unpoisoned().thread_count -= 1;
        self.0.is_read.notify_all();
    }
}

impl Shared {
    fn take_or_keep<'s>(
        &self,
        mut state: std::sync::MutexGuard<'s, Jobs>,
        number: Option<usize>,
    ) -> std::result::Result<Waited, std::sync::MutexGuard<'s, Jobs>> {
        match self.take(&mut state, number) {
            Waited::Nothing => Err(state),
            waited => Ok(waited),
        }
    }

    fn take(&self, state: &mut Jobs, number: Option<usize>) -> Waited {
        let number = number.or_else(|| state.read.keys().next().copied());
        let read = number.and_then(|number| Some((number, state.read.remove(&number)?)));
        let Some((number, (window, read))) = read else {
            return if state.thread_count == 0 || state.is_stopped {
                Waited::Ended
            } else {
                Waited::Nothing
            };
        };
        if let Some(window) = window
            && let Some((_, left)) = state.held.get_mut(&window)
        {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.held.remove(&window);
                self.is_work.notify_all();
            }
        }
        Waited::Read(number, read)
    }

    fn work(&self) {
        let mut state = self.state.lock().unpoisoned();
        while !state.is_stopped {
            let Some(job) = state.job(self.memory) else {
                state = self.is_work.wait(state).unpoisoned();
                continue;
            };
            drop(state);
            match job {
                Job::Find(wanted) => self.find(wanted),
                Job::Read(id, window) => self.read(id, &window),
            }
            state = self.state.lock().unpoisoned();
        }
    }

    fn find(&self, wanted: Vec<(usize, Request)>) {
        let count = wanted.len();
        let image = &*self.held;
        let found: Vec<_> = wanted
            .into_iter()
            .map(|(number, wanted)| (number, Found::of(image, wanted)))
            .collect();
        let mut state = self.state.lock().unpoisoned();
        let Jobs { batch, read, .. } = &mut *state;
        let Some(of) = batch.as_mut() else {
            return;
        };
        of.in_flight = of.in_flight.saturating_sub(count);
        for (number, found) in found {
            match found {
                Ok(found) => {
                    of.found.insert(number, found);
                }
                Err(failed) => {
                    read.insert(number, (None, Err(failed)));
                }
            }
        }
        let is_last = of.in_flight == 0 && of.wanted.is_empty();
        let all = is_last.then(|| (std::mem::take(&mut of.found), of.asked));
        drop(state);
        if let Some((all, asked)) = all {
            // Release the lock first: this may read the image, and the consumer must not wait for
            // that.
            let windows = cut(image, all, self.memory / 2, asked);
            let mut state = self.state.lock().unpoisoned();
            state.list(windows);
            state.batch = None;
        }
        self.is_work.notify_all();
        self.is_read.notify_all();
    }

    fn read(&self, id: usize, window: &Window) {
        let mut gathered = Gathered::new();
        loop {
            let is_more = window.read_next(&mut gathered);
            if is_more && !gathered.is_ready() {
                continue;
            }
            let parts = gathered.take();
            let mut state = self.state.lock().unpoisoned();
            if state.is_stopped {
                return;
            }
            for (number, read) in parts {
                state.read.insert(number, (Some(id), read));
            }
            // Do not wake the consumer in vain: that takes CPU time from the reading threads.
            let awaited = state.awaited;
            let is_awaited = awaited.is_none_or(|number| state.read.contains_key(&number));
            drop(state);
            if is_awaited {
                self.is_read.notify_one();
            }
            if !is_more {
                break;
            }
        }
        let mut state = self.state.lock().unpoisoned();
        state.windows.retain(|listed| listed.id != id);
    }
}

impl Jobs {
    /// Returns the next job: reading if memory allows, otherwise looking up files.
    fn job(&mut self, memory: u64) -> Option<Job> {
        let held: u64 = self.held.values().map(|(bytes, _)| bytes).sum();
        let listed = self.windows.front_mut().filter(|listed| {
            let with = held.saturating_add(listed.window.bytes);
            listed.is_begun || held == 0 || with <= memory
        });
        if let Some(listed) = listed {
            let window = Arc::clone(&listed.window);
            if !listed.is_begun {
                listed.is_begun = true;
                self.held.insert(listed.id, (window.bytes, window.len));
            }
            return Some(Job::Read(listed.id, window));
        }
        let batch = self.batch.as_mut()?;
        let count = batch.wanted.len().min(CHUNK);
        let chunk: Vec<_> = batch.wanted.drain(..count).collect();
        batch.in_flight += chunk.len();
        (!chunk.is_empty()).then_some(Job::Find(chunk))
    }

    fn list(&mut self, windows: Vec<Window>) {
        for window in windows {
            self.windows.push_back(Listed {
                id: self.window_count,
                window: Arc::new(window),
                is_begun: false,
            });
            self.window_count += 1;
        }
    }
}

/// Groups files that were found into windows. `asked` tells whether more will follow the last
/// window.
fn cut(
    image: &forerun::Image,
    found: BTreeMap<usize, Found>,
    most: u64,
    asked: Asked,
) -> Vec<Window> {
    let (mut windows, mut parts, mut cost) = (Vec::new(), Vec::new(), 0_u64);
    for (number, part) in found {
        if cost.saturating_add(part.cost()) > most && !parts.is_empty() {
            let full = std::mem::take(&mut parts);
            windows.push(Window::new(image, full, Asked::Part));
            cost = 0;
        }
        cost = cost.saturating_add(part.cost());
        parts.push((number, part));
    }
    if !parts.is_empty() {
        windows.push(Window::new(image, parts, asked));
    }
    windows
}
