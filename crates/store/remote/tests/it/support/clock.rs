//! Time as this process has it: none passes here while the machine runs others for minutes.
//!
//! Limits of the tests are about the library's work, not about how long it is kept from running. The
//! library's own time limits go by the wall clock, as they must. If the process did not run for longer
//! than such a limit, the result says nothing and the attempt is repeated.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(10);
/// The most that a tick counts: if it took longer, the process did not run.
const LONGEST: Duration = Duration::from_millis(100);
/// Time without running that may have let a time limit pass.
const STARVED: Duration = Duration::from_millis(400);
/// How often something is tried that is kept from running each time.
const ATTEMPTS: u32 = 10;

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

/// Runs `attempt`, and tries again if it failed while the process was kept from running.
pub fn while_running<T>(mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    for _ in 1..ATTEMPTS {
        let (wall, before) = (Instant::now(), worked());
        let error = match attempt() {
            Err(error) => error,
            done => return done,
        };
        let starved = wall.elapsed().saturating_sub(worked() - before);
        if starved < STARVED {
            return Err(error);
        }
        println!("kept from running for {starved:?}; tried again after {error}");
    }
    attempt()
}
