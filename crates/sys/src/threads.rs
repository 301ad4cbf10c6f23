//! Starts threads, and pins a thread to a CPU for a while.
//!
//! A thread that answers a reader may be pinned to the reader's CPU. A new thread inherits the CPUs
//! of the thread that starts it. So a thread that is started during an answer would stay on the
//! reader's CPU for its life, and move data there while other CPUs are idle. Unpinning the
//! answering thread first would take two system calls per request, and hardly any request starts a
//! thread. Therefore a thread that [`spawn`] starts unpins itself: it begins with the CPUs that its
//! starter had before [`pin`].
//!
//! Code that may run during an answer must start its threads here (checked by `cargo xtask tidy`).
//! A library that starts its own threads must call the hook of [`on_start`] in them.

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle, available_parallelism};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

static IS_ANY_PINNED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static PIN: Cell<Option<Pin>> = const { Cell::new(None) };
}

#[cfg(test)]
thread_local! {
    /// Number of system calls that changed the CPUs of this thread.
    static CHANGES: Cell<u32> = const { Cell::new(0) };
}

#[derive(Clone, Copy)]
struct Pin {
    cpu: usize,
    /// The CPUs of the thread before it was pinned.
    otherwise: CpuSet,
}

/// Pins this thread to `cpu`, until it is pinned to another CPU or [unpinned](unpin). Makes no
/// system call if it is pinned there already.
///
/// # Errors
/// If this thread may not use the CPU. Its CPUs do not change then.
pub fn pin(cpu: usize) -> io::Result<()> {
    let before = PIN.get();
    if before.is_some_and(|pin| pin.cpu == cpu) {
        return Ok(());
    }
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let otherwise = match before {
        Some(pin) => pin.otherwise,
        None => sched_getaffinity(None)?,
    };
    let mut only = CpuSet::new();
    only.set(cpu);
    change(&only)?;
    PIN.set(Some(Pin { cpu, otherwise }));
    IS_ANY_PINNED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Lets this thread run on the CPUs that it had before [`pin`]. Makes no system call if it is not
/// pinned.
///
/// # Errors
/// If those CPUs were taken from the process meanwhile. The thread then counts as unpinned.
pub fn unpin() -> io::Result<()> {
    match PIN.take() {
        Some(pin) => change(&pin.otherwise),
        None => Ok(()),
    }
}

/// Returns the number of CPUs that threads started by this one may use. A pin does not count, nor
/// do changes of the process's control groups after the first call.
#[must_use]
pub fn parallelism() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    match PIN.get() {
        Some(pin) => usize::try_from(pin.otherwise.count()).unwrap_or(1),
        None => *COUNT.get_or_init(|| available_parallelism().map_or(1, usize::from)),
    }
}

/// Starts a thread, which is not pinned.
///
/// # Errors
/// If the system refuses to create a thread.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    named(name).spawn(free(body))
}

/// Starts a thread as [`spawn`] does, with a stack of `stack` bytes.
///
/// # Errors
/// The errors of [`spawn`].
pub fn spawn_with_stack<T: Send + 'static>(
    name: impl Into<String>,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    named(name).stack_size(stack).spawn(free(body))
}

/// Starts a thread as [`spawn`] does, which ends before `scope` does.
///
/// # Errors
/// The errors of [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    named(name).spawn_scoped(scope, free(body))
}

/// Returns a function that each thread of a runtime must call first, for a runtime that starts
/// threads on demand. The threads get the CPUs that this thread has without a pin.
pub fn on_start() -> impl Fn() + Send + Sync + 'static {
    let own = match PIN.get() {
        Some(pin) => Some(pin.otherwise),
        None => sched_getaffinity(None).ok(),
    };
    move || {
        if IS_ANY_PINNED.load(Ordering::Relaxed) {
            begin(own.as_ref());
        }
    }
}

fn named(name: impl Into<String>) -> Builder {
    Builder::new().name(name.into())
}

/// Returns `body`, preceded by undoing the pin that the new thread inherits.
fn free<T>(body: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let otherwise = PIN.get().map(|pin| pin.otherwise);
    move || {
        begin(otherwise.as_ref());
        body()
    }
}

fn begin(cpus: Option<&CpuSet>) {
    if let Some(cpus) = cpus {
        // If the system refuses, the thread still works, on one CPU.
        let _stays = change(cpus);
    }
}

fn change(cpus: &CpuSet) -> io::Result<()> {
    #[cfg(test)]
    CHANGES.set(CHANGES.get() + 1);
    Ok(sched_setaffinity(None, cpus)?)
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

    /// Runs `test` on a new pinned thread. Passes it the CPUs that the thread had before.
    fn pinned(test: impl FnOnce(Vec<usize>) + Send + 'static) {
        let body = || {
            let all = here();
            pin(all[0]).unwrap();
            assert_eq!(here(), [all[0]]);
            test(all);
        };
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn a_thread_started_by_a_pinned_one_may_run_anywhere() {
        pinned(|all| {
            let inherited = std::thread::spawn(here).join().unwrap();
            assert_eq!(inherited, [all[0]], "what the system does by itself");
            assert_eq!(spawn("free", here).unwrap().join().unwrap(), all);
            let small = spawn_with_stack("small", 128 << 10, here);
            assert_eq!(small.unwrap().join().unwrap(), all);
            let scoped = std::thread::scope(|scope| {
                let thread = spawn_scoped(scope, "scoped", here).unwrap();
                thread.join().unwrap()
            });
            assert_eq!(scoped, all);
            assert_eq!(parallelism(), all.len());
            assert_eq!(here(), [all[0]], "the starter stays");
            // The pin of the starter does not count for a thread that the new thread starts.
            let second = spawn("second", || spawn("third", here).unwrap().join().unwrap());
            assert_eq!(second.unwrap().join().unwrap(), all);
        });
    }

    #[test]
    fn a_thread_of_a_runtime_that_a_pinned_one_starts_may_run_anywhere() {
        let before = on_start();
        pinned(move |all| {
            let started = |hook: &(dyn Fn() + Sync)| {
                std::thread::scope(|scope| {
                    let thread = scope.spawn(|| {
                        hook();
                        here()
                    });
                    thread.join().unwrap()
                })
            };
            assert_eq!(started(&before), all);
            assert_eq!(started(&on_start()), all, "made by a pinned thread");
        });
    }

    #[test]
    fn a_thread_is_as_it_was_after_two_pins_and_an_unpin() {
        pinned(|all| {
            let other = *all.last().unwrap();
            pin(other).unwrap();
            assert_eq!(here(), [other]);
            unpin().unwrap();
            assert_eq!(here(), all);
            unpin().unwrap();
            assert_eq!(here(), all);
            assert_eq!(parallelism(), all.len());
        });
    }

    #[test]
    fn a_thread_that_is_where_it_is_to_be_makes_no_system_call() {
        let start = || spawn("unpinned", || CHANGES.get()).unwrap();
        assert_eq!(start().join().unwrap(), 0);
        pinned(|all| {
            let before = CHANGES.get();
            (0..3).for_each(|_| pin(all[0]).unwrap());
            spawn("free", || ()).unwrap().join().unwrap();
            assert_eq!(CHANGES.get(), before);
            (0..3).for_each(|_| unpin().unwrap());
            assert_eq!(CHANGES.get(), before + 1);
        });
    }

    #[test]
    fn a_cpu_that_does_not_exist_changes_nothing() {
        pinned(|all| {
            for cpu in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
                assert!(pin(cpu).is_err() || all.contains(&cpu), "{cpu}");
            }
            unpin().unwrap();
            assert_eq!(here(), all);
            assert!(pin(usize::MAX).is_err());
            assert_eq!(spawn("free", here).unwrap().join().unwrap(), all);
        });
    }
}
