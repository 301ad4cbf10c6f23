//! Pins the request threads to the CPU of the requesting thread.
//!
//! A thread that asks for metadata or a small file waits for the answer, so it never runs at the
//! same time as the thread that answers. The scheduler does not know this and wakes the answering
//! thread on an idle CPU. Waking a CPU costs more than the answer, especially in a virtual machine.
//! (Measured with statfs(2): 70 us between CPUs, 10 us on the same.) So while a single thread sends
//! small requests, the request threads wait on its CPU. This ends when another thread sends a
//! request, or when much data is moved, because moving data overlaps with its reader.
//!
//! A requesting thread that does nothing else sleeps most of the time. The scheduler may move it to
//! another CPU with each answer, and the pinned threads would follow it back and forth.
//! [`CpuFollower`] counts these moves and stops following for a while.
//!
//! Pinning is only an optimization: if the requesting thread's CPU is unknown (another PID
//! namespace, a hidden /proc) or this process may not use it, threads are not pinned.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use forerun_sys::threads;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::tuning::{LARGE_REQUESTS, MIGRATIONS, PAUSE, REQUESTS_IN_A_ROW};

/// Index of the field "processor" of proc_pid_stat(5), counted from the state, the first field
/// after the name.
const PROCESSOR: usize = 36;

const ANYWHERE: u32 = 0;

/// Decides on which CPU the request threads of a mount run.
pub struct CpuFollower {
    /// The CPUs that this process may use; `None` if threads are never pinned.
    allowed: Option<CpuSet>,
    asker: AtomicU32,
    in_a_row: AtomicU32,
    /// The value of `in_a_row` at which the CPU is looked up next.
    next_look: AtomicU32,
    migrations: AtomicU32,
    /// Requests that moved data since the last lookup of the CPU.
    large_requests: AtomicU32,
    /// CPU number plus 1, or [`ANYWHERE`].
    place: AtomicU32,
}

impl CpuFollower {
    pub fn new() -> Self {
        let allowed = sched_getaffinity(None).ok();
        Self {
            // With one CPU there is nothing to choose.
            allowed: allowed.filter(|cpus| cpus.count() > 1),
            asker: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            next_look: AtomicU32::new(REQUESTS_IN_A_ROW),
            migrations: AtomicU32::new(0),
            large_requests: AtomicU32::new(0),
            place: AtomicU32::new(ANYWHERE),
        }
    }

    pub fn is_following(&self) -> bool {
        self.place.load(Ordering::Relaxed) != ANYWHERE
    }

    /// Records a small request of thread `pid`, which waits for the answer.
    ///
    /// Concurrent calls may skip a value of `in_a_row`, which only delays the next lookup.
    pub fn small_request(&self, pid: u32) {
        // The kernel does not name the sender of some requests.
        if pid == 0 || self.allowed.is_none() {
            return;
        }
        if self.asker.swap(pid, Ordering::Relaxed) != pid {
            self.migrations.store(0, Ordering::Relaxed);
            return self.stop();
        }
        let row = self
            .in_a_row
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        if row == self.next_look.load(Ordering::Relaxed) {
            self.look(row, self.place_of(pid));
        }
    }

    /// Records a request that moves data. A few among small requests are allowed: they are larger
    /// files of a tree.
    pub fn large_request(&self) {
        if self.large_requests.fetch_add(1, Ordering::Relaxed) >= LARGE_REQUESTS {
            self.stop();
        }
    }

    /// Decides where threads wait, given the CPU of the requesting thread, or `None` if it is
    /// unknown.
    fn look(&self, row: u32, place: Option<u32>) {
        let before = self.place.load(Ordering::Relaxed);
        let place = place.unwrap_or(ANYWHERE);
        let migrations = match before {
            ANYWHERE => self.migrations.load(Ordering::Relaxed),
            _ if before == place => 0,
            _ => self.migrations.load(Ordering::Relaxed) + 1,
        };
        let (place, migrations, pause) = if migrations < MIGRATIONS {
            (place, migrations, REQUESTS_IN_A_ROW)
        } else {
            // Try once more after the pause.
            (ANYWHERE, MIGRATIONS - 1, PAUSE)
        };
        self.migrations.store(migrations, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.large_requests.store(0, Ordering::Relaxed);
        let next = row.wrapping_add(pause);
        self.next_look.store(next, Ordering::Relaxed);
    }

    pub fn stop(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
        self.large_requests.store(0, Ordering::Relaxed);
        self.next_look.store(REQUESTS_IN_A_ROW, Ordering::Relaxed);
        self.place.store(ANYWHERE, Ordering::Relaxed);
    }

    /// Returns the CPU of `pid` plus 1, if this process may use that CPU.
    fn place_of(&self, pid: u32) -> Option<u32> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let cpu = processor(&stat)?;
        let may = self.allowed.as_ref()?.is_set(usize::try_from(cpu).ok()?);
        may.then_some(cpu.checked_add(1)?)
    }

    /// Pins this thread to the followed CPU, or unpins it if no thread is followed. Does nothing if
    /// it is already there.
    pub fn place_thread(&self) {
        let place = self.place.load(Ordering::Relaxed);
        let cpu = place.checked_sub(1);
        let placed = match cpu.and_then(|cpu| usize::try_from(cpu).ok()) {
            Some(cpu) => threads::pin(cpu),
            None => threads::unpin(),
        };
        if let Err(error) = placed {
            tracing::debug!("a thread stays where it is: {error}");
        }
    }
}

pub fn unpin_thread() {
    if let Err(error) = threads::unpin() {
        tracing::debug!("a thread stays on one CPU: {error}");
    }
}

/// Parses the CPU from /proc/PID/stat. The name may contain any character and ends at the last `)`.
fn processor(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here() -> Vec<usize> {
        let cpus = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU)
            .filter(|&cpu| cpus.is_set(cpu))
            .collect()
    }

    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        // A new thread, because the previous test may have pinned this one.
        std::thread::spawn(test).join().unwrap();
    }

    #[test]
    fn the_cpu_of_a_process_is_found_behind_any_name() {
        let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
        let line = format!("7 (a) b (c)) {}\n", fields.join(" "));
        assert_eq!(processor(line.as_bytes()), Some(39));
        assert_eq!(processor(b"7 (a) S 1 2"), None);
        assert_eq!(processor(b"7 a S 1 2"), None);
        assert_eq!(processor(b""), None);
        let own = fs::read("/proc/self/stat").unwrap();
        assert!(here().contains(&usize::try_from(processor(&own).unwrap()).unwrap()));
    }

    fn ask(follow: &CpuFollower, pid: u32, times: u32) {
        for _ in 0..times {
            unpin_thread();
            assert!(here().len() > 1 || follow.allowed.is_none());
            follow.small_request(pid);
            follow.place_thread();
        }
    }

    #[test]
    fn a_thread_that_asks_again_and_again_is_followed_until_another_does() {
        on_a_thread(|| {
            let (follow, all, own) = (CpuFollower::new(), here(), std::process::id());
            ask(&follow, own, REQUESTS_IN_A_ROW);
            assert_eq!(here(), all, "the first is not one in a row");
            ask(&follow, own, 1);
            let is_choice = all.len() > 1;
            assert_eq!(follow.is_following(), is_choice);
            assert_eq!(here().len(), if is_choice { 1 } else { all.len() });
            // A request without a known sender does not end the pinning.
            ask(&follow, 0, 1);
            assert_eq!(follow.is_following(), is_choice);
            ask(&follow, own + 1, 1);
            assert_eq!(here(), all);
        });
    }

    #[test]
    fn following_begins_anew_after_a_stop() {
        on_a_thread(|| {
            let (follow, all, own) = (CpuFollower::new(), here(), std::process::id());
            ask(&follow, own, REQUESTS_IN_A_ROW + 1);
            follow.stop();
            follow.place_thread();
            assert_eq!(here(), all);
            ask(&follow, own, REQUESTS_IN_A_ROW - 1);
            assert_eq!(here(), all);
            ask(&follow, own, 1);
            assert_eq!(follow.is_following(), all.len() > 1);
        });
    }

    #[test]
    fn much_data_ends_it_and_a_larger_file_now_and_then_does_not() {
        let follow = CpuFollower::new();
        follow.look(REQUESTS_IN_A_ROW, Some(1));
        for row in 2..5 {
            (0..LARGE_REQUESTS).for_each(|_| follow.large_request());
            assert!(follow.is_following());
            follow.look(row * REQUESTS_IN_A_ROW, Some(1));
        }
        (0..=LARGE_REQUESTS).for_each(|_| follow.large_request());
        assert!(!follow.is_following());
    }

    #[test]
    fn a_thread_that_migrates_is_left_alone_for_a_while() {
        let follow = CpuFollower::new();
        let mut row = 0;
        // Simulates lookups that find the thread on a different CPU. Returns whether it is still
        // followed.
        let mut escape = |times: u32| {
            (0..times).all(|_| {
                row += REQUESTS_IN_A_ROW;
                let place = follow.place.load(Ordering::Relaxed);
                follow.look(row, Some(if place == 1 { 2 } else { 1 }));
                follow.is_following()
            })
        };
        // The first lookup only finds the thread.
        assert!(escape(MIGRATIONS));
        let stays = follow.place.load(Ordering::Relaxed);
        follow.look(0, Some(stays));
        assert!(escape(MIGRATIONS - 1), "counted anew");
        assert!(!escape(1));
        let next_look = follow.next_look.load(Ordering::Relaxed);
        assert_eq!(next_look, 2 * MIGRATIONS * REQUESTS_IN_A_ROW + PAUSE);
        // Tried once more after the pause.
        assert!(escape(1));
        assert!(!escape(1));
        follow.look(0, None);
        assert!(!follow.is_following());
    }

    #[test]
    fn a_thread_that_cannot_be_found_is_not_followed() {
        on_a_thread(|| {
            let (follow, all) = (CpuFollower::new(), here());
            // Beyond the largest possible thread ID.
            ask(&follow, u32::MAX, 2 * REQUESTS_IN_A_ROW);
            assert_eq!(here(), all);
        });
    }
}
