//! Time during which this process runs: pauses of the whole process do not count.
//!
//! The tests limit the library's work, not the time during which the machine runs other processes.
//! The library's own time limits use the wall clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(10);
/// The most that a tick counts. If it took longer, the process was not running.
const LONGEST: Duration = Duration::from_millis(100);

/// Measures how long this process has been running since the first call.
pub fn worked() -> Duration {
    static MICROS: AtomicU64 = AtomicU64::new(0);
    static TICKING: OnceLock<()> = OnceLock::new();
    TICKING.get_or_init(|| {
        std::thread::spawn(|| {
            loop {
                let start = Instant::now();
                std::thread::sleep(TICK);
                let took = start.elapsed().min(LONGEST).as_micros();
                MICROS.fetch_add(u64::try_from(took).unwrap(), Ordering::Relaxed);
            }
        });
    });
    Duration::from_micros(MICROS.load(Ordering::Relaxed))
}
