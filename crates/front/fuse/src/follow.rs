//! Pins the threads that take requests to the CPU of the requesting thread.
//!
//! A thread that asks for metadata or a small file waits for the answer, so it and the thread that
//! answers never run at the same time. The scheduler does not know that: it wakes the answering
//! thread on an idle CPU. Waking a CPU costs more than the answer, most of all in a virtual machine.
//! (Measured with statfs(2): 70 us from one CPU to the other, 10 us on the same.) So while one thread
//! sends small requests, the threads that take requests wait for them on its CPU. That ends when
//! another thread asks, or when much data is moved, since moving data overlaps with its reader.
//!
//! A requesting thread that does nothing else sleeps most of the time. The scheduler may move it to
//! the other CPU with each answer, and the pinned threads would follow it to and fro. [`Follow`]
//! counts these moves and stops following for a while.
//!
//! Pinning is only an optimization: where the CPU of the requesting thread is not known (another PID
//! namespace, a hidden /proc), or this process may not use it, threads stay free.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Questions in a row by one thread before it is followed, and between looks at where it is.
const ROW: u32 = 64;
/// Requests that move data, between two looks, after which following stops.
const MOVES: u32 = ROW / 4;
/// Looks in a row that found it gone before it is left alone.
const ESCAPES: u32 = 16;
/// For so many questions.
const REST: u32 = 256 * ROW;

/// `cpu` of /proc/PID/stat, counted from the state behind the name: "processor" in proc_pid_stat(5).
const PROCESSOR: usize = 36;

/// Free to run anywhere.
const ANYWHERE: u32 = 0;

/// Where the threads that take requests of one mount are to run.
pub struct Follow {
    /// The CPUs this process may use; nothing where there is no choice.
    allowed: Option<CpuSet>,
    asker: AtomicU32,
    in_a_row: AtomicU32,
    /// The place in the row of the next look.
    next_look: AtomicU32,
    escapes: AtomicU32,
    /// Requests that moved data since the last look.
    moves: AtomicU32,
    /// The number of a CPU and one, or [`ANYWHERE`].
    place: AtomicU32,
}

thread_local! {
    /// Where this thread is kept.
    static PLACE: Cell<u32> = const { Cell::new(ANYWHERE) };
}

impl Follow {
    /// Makes one that follows no thread yet.
    pub fn new() -> Self {
        let allowed = sched_getaffinity(None).ok();
        Self {
            allowed: allowed.filter(|cpus| cpus.count() > 1),
            asker: AtomicU32::new(0),
            in_a_row: AtomicU32::new(0),
            next_look: AtomicU32::new(ROW),
            escapes: AtomicU32::new(0),
            moves: AtomicU32::new(0),
            place: AtomicU32::new(ANYWHERE),
        }
    }

    /// Returns whether a thread of a reader is followed.
    pub fn is_following(&self) -> bool {
        self.place.load(Ordering::Relaxed) != ANYWHERE
    }

    /// The thread `pid` asks, and waits for the answer.
    ///
    /// Several call at a time, which may cost a number of its place in the row and nothing else.
    pub fn asked(&self, pid: u32) {
        // Of some requests the kernel does not say whose they are.
        if pid == 0 || self.allowed.is_none() {
            return;
        }
        if self.asker.swap(pid, Ordering::Relaxed) != pid {
            self.escapes.store(0, Ordering::Relaxed);
            return self.let_go();
        }
        let row = self
            .in_a_row
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1);
        if row == self.next_look.load(Ordering::Relaxed) {
            self.look(row, self.place_of(pid));
        }
    }

    /// Data is moved. Now and then that is a larger file among others.
    pub fn moved(&self) {
        if self.moves.fetch_add(1, Ordering::Relaxed) >= MOVES {
            self.let_go();
        }
    }

    /// The asker was found at `place`, or nowhere.
    fn look(&self, row: u32, place: Option<u32>) {
        let before = self.place.load(Ordering::Relaxed);
        let place = place.unwrap_or(ANYWHERE);
        let escapes = match before {
            ANYWHERE => self.escapes.load(Ordering::Relaxed),
            _ if before == place => 0,
            _ => self.escapes.load(Ordering::Relaxed) + 1,
        };
        let (place, escapes, pause) = if escapes < ESCAPES {
            (place, escapes, ROW)
        } else {
            // It is tried once more then.
            (ANYWHERE, ESCAPES - 1, REST)
        };
        self.escapes.store(escapes, Ordering::Relaxed);
        self.place.store(place, Ordering::Relaxed);
        self.moves.store(0, Ordering::Relaxed);
        let next = row.wrapping_add(pause);
        self.next_look.store(next, Ordering::Relaxed);
    }

    /// Stops following.
    pub fn let_go(&self) {
        self.in_a_row.store(0, Ordering::Relaxed);
        self.moves.store(0, Ordering::Relaxed);
        self.next_look.store(ROW, Ordering::Relaxed);
        self.place.store(ANYWHERE, Ordering::Relaxed);
    }

    /// Where `pid` runs, if we may too.
    fn place_of(&self, pid: u32) -> Option<u32> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let cpu = processor(&stat)?;
        let may = self.allowed.as_ref()?.is_set(usize::try_from(cpu).ok()?);
        may.then_some(cpu.checked_add(1)?)
    }

    /// Has this thread wait for requests where it is to be.
    pub fn settle(&self) {
        let place = self.place.load(Ordering::Relaxed);
        let cpu = place.checked_sub(1);
        if let Some(cpu) = cpu.and_then(|cpu| usize::try_from(cpu).ok()) {
            let mut only = CpuSet::new();
            only.set(cpu);
            PLACE.set(place);
            keep_to(&only);
        }
    }

    /// Has this thread run anywhere again: threads that it starts while it answers begin as it is.
    pub fn roam(&self) {
        if PLACE.replace(ANYWHERE) != ANYWHERE
            && let Some(allowed) = &self.allowed
        {
            keep_to(allowed);
        }
    }
}

fn keep_to(cpus: &CpuSet) {
    if let Err(error) = sched_setaffinity(None, cpus) {
        tracing::debug!("a thread stays where it is: {error}");
    }
}

/// The CPU in a line of /proc/PID/stat. A name may have anything in it, but ends with the last `)`.
fn processor(stat: &[u8]) -> Option<u32> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    fields.split_ascii_whitespace().nth(PROCESSOR)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The CPUs of this thread.
    fn here() -> Vec<usize> {
        let cpus = sched_getaffinity(None).unwrap();
        (0..CpuSet::MAX_CPU)
            .filter(|&cpu| cpus.is_set(cpu))
            .collect()
    }

    fn on_a_thread(test: impl FnOnce() + Send + 'static) {
        // What one leaves behind must not be another's start.
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

    fn ask(follow: &Follow, pid: u32, times: u32) {
        for _ in 0..times {
            follow.roam();
            assert!(here().len() > 1 || follow.allowed.is_none());
            follow.asked(pid);
            follow.settle();
        }
    }

    #[test]
    fn one_who_asks_again_and_again_is_followed_until_another_does() {
        on_a_thread(|| {
            let (follow, all, own) = (Follow::new(), here(), std::process::id());
            ask(&follow, own, ROW);
            assert_eq!(here(), all, "the first is not one in a row");
            ask(&follow, own, 1);
            let is_choice = all.len() > 1;
            assert_eq!(follow.is_following(), is_choice);
            assert_eq!(here().len(), if is_choice { 1 } else { all.len() });
            // A request without a known sender does not end it.
            ask(&follow, 0, 1);
            assert_eq!(follow.is_following(), is_choice);
            ask(&follow, own + 1, 1);
            assert_eq!(here(), all);
        });
    }

    #[test]
    fn who_is_let_go_begins_anew() {
        on_a_thread(|| {
            let (follow, all, own) = (Follow::new(), here(), std::process::id());
            ask(&follow, own, ROW + 1);
            follow.let_go();
            follow.roam();
            assert_eq!(here(), all);
            ask(&follow, own, ROW - 1);
            assert_eq!(here(), all);
            ask(&follow, own, 1);
            assert_eq!(follow.is_following(), all.len() > 1);
        });
    }

    #[test]
    fn much_data_ends_it_and_a_larger_file_now_and_then_does_not() {
        let follow = Follow::new();
        follow.look(ROW, Some(1));
        for row in 2..5 {
            (0..MOVES).for_each(|_| follow.moved());
            assert!(follow.is_following());
            follow.look(row * ROW, Some(1));
        }
        (0..=MOVES).for_each(|_| follow.moved());
        assert!(!follow.is_following());
    }

    #[test]
    fn who_escapes_is_left_alone_for_a_while() {
        let follow = Follow::new();
        let mut row = 0;
        // Whether it is followed after a look that finds it elsewhere.
        let mut escape = |times: u32| {
            (0..times).all(|_| {
                row += ROW;
                let place = follow.place.load(Ordering::Relaxed);
                follow.look(row, Some(if place == 1 { 2 } else { 1 }));
                follow.is_following()
            })
        };
        // The first look finds it, and is no escape.
        assert!(escape(ESCAPES));
        let stays = follow.place.load(Ordering::Relaxed);
        follow.look(0, Some(stays));
        assert!(escape(ESCAPES - 1), "counted anew");
        assert!(!escape(1));
        let next_look = follow.next_look.load(Ordering::Relaxed);
        assert_eq!(next_look, 2 * ESCAPES * ROW + REST);
        // Tried once more.
        assert!(escape(1));
        assert!(!escape(1));
        follow.look(0, None);
        assert!(!follow.is_following());
    }

    #[test]
    fn who_cannot_be_found_is_not_followed() {
        on_a_thread(|| {
            let (follow, all) = (Follow::new(), here());
            // More than there may be.
            ask(&follow, u32::MAX, 2 * ROW);
            assert_eq!(here(), all);
        });
    }
}
