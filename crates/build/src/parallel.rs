//! An ordered parallel map with bounded memory: writers use all cores, and produce the same bytes
//! with any number of threads.
//!
//! One thread produces jobs, several workers turn them into results, and the caller's thread
//! consumes the results in the order of the jobs. The total weight in flight is bounded, whichever
//! of the three is slow. A job that alone exceeds the bound runs by itself. The first thread that
//! fails or panics stops the others, so no thread waits for a result that will not come.
//!
//! Each call has its own threads. If calls shared workers, a call whose producer is another call
//! could deadlock.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread::{self, Scope, ScopedJoinHandle};

use forerun_io::Unpoisoned;
use forerun_sys::memory_limit::MemoryLimit;
use forerun_sys::threads;

use super::tree::BuildError;

/// Added to the weight of every job, so that weightless jobs cannot pile up.
const JOB_WEIGHT: usize = 256;

/// Memory of a thread in addition to its jobs, if the caller does not count it.
const THREAD: u64 = 1 << 20;

/// Threads and memory of one [`parallel_map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParallelBounds {
    /// Number of workers. 0 means one per CPU, or fewer if memory is scarce.
    pub threads: usize,
    /// Weight of the jobs and results in flight, in bytes.
    pub memory: usize,
}

impl ParallelBounds {
    fn threads(&self) -> usize {
        match NonZeroUsize::new(self.threads) {
            Some(threads) => threads.get(),
            None => MemoryLimit::of_process().threads(THREAD),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParallelError<E> {
    #[error(transparent)]
    Failed(E),
    /// Another thread failed, and reports the cause. Producers return this error on; a map returns
    /// it only if its producer or consumer created it.
    #[error("stopped because of another failure")]
    Stopped,
    #[error("a thread panicked")]
    Panicked,
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

impl<E> From<E> for ParallelError<E> {
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}

impl From<ParallelError<Self>> for BuildError {
    fn from(error: ParallelError<Self>) -> Self {
        let source = match error {
            ParallelError::Failed(error) => return error,
            ParallelError::Thread(source) => source,
            other @ (ParallelError::Stopped | ParallelError::Panicked) => {
                io::Error::other(other.to_string())
            }
        };
        Self::Thread { source }
    }
}

/// The producer's end of the queue.
pub struct Jobs<'q, J> {
    queue: &'q dyn Submit<J>,
}

impl<J> Jobs<'_, J> {
    /// Sends a job to the workers. Blocks while too much is in flight. `weight` is the memory of
    /// the job and its result together. Fails with [`ParallelError::Stopped`] if the workers have
    /// stopped.
    pub fn send<E>(&self, job: J, weight: usize) -> Result<(), ParallelError<E>> {
        if self.queue.submit(job, weight + JOB_WEIGHT) {
            Ok(())
        } else {
            Err(ParallelError::Stopped)
        }
    }
}

impl<J> std::fmt::Debug for Jobs<'_, J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

trait Submit<J>: Sync {
    fn submit(&self, job: J, weight: usize) -> bool;
}

/// Runs `produce` on a thread of its own, a worker from `worker` on each of several threads, and
/// `consume` on this thread for each result, in the order of the jobs. Returns the value of
/// `produce`, or the first failure; the errors of the threads that it stopped are dropped.
pub fn parallel_map<J, O, T, E, F>(
    bounds: ParallelBounds,
    worker: impl Fn() -> Result<F, E> + Sync,
    produce: impl FnOnce(Jobs<'_, J>) -> Result<T, ParallelError<E>> + Send,
    mut consume: impl FnMut(O) -> Result<(), ParallelError<E>>,
) -> Result<T, ParallelError<E>>
where
    J: Send,
    O: Send,
    T: Send,
    E: Send,
    F: FnMut(J) -> Result<O, E>,
{
    let queue = Queue::new(bounds.memory);
    let (queue, worker) = (&queue, &worker);
    thread::scope(|scope| {
        // Dropped even if the consumer panics, so that the scope can end.
        let end = EndGuard(queue);
        let workers = spawn_workers(scope, bounds.threads(), queue, worker)?;
        let producer = spawn(scope, "forerun-produce", move || {
            let end = EndGuard(queue);
            let produced = produce(Jobs { queue });
            if produced.is_ok() {
                queue.close();
                std::mem::forget(end);
            }
            produced
        })?;
        let consumed = queue.consume_all(&mut consume);
        if consumed.is_err() {
            queue.stop();
        }
        let worked = workers.into_iter().map(join).collect::<Vec<_>>();
        let produced = join(producer);
        drop(end);
        first_failure(consumed, worked, produced)
    })
}

fn spawn_workers<'scope, J, O, E, F>(
    scope: &'scope Scope<'scope, '_>,
    threads: usize,
    queue: &'scope Queue<J, O>,
    worker: &'scope (impl Fn() -> Result<F, E> + Sync),
) -> Result<Vec<Handle<'scope, (), E>>, ParallelError<E>>
where
    J: Send,
    O: Send,
    E: Send + 'scope,
    F: FnMut(J) -> Result<O, E>,
{
    let mut workers = Vec::new();
    for _ in 0..threads {
        let spawned = spawn(scope, "forerun-encode", move || {
            let end = EndGuard(queue);
            queue.work(worker()?)?;
            std::mem::forget(end);
            Ok(())
        });
        match spawned {
            Ok(handle) => workers.push(handle),
            // Fewer threads can do the same work.
            Err(_) if !workers.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(workers)
}

type Handle<'scope, T, E> = ScopedJoinHandle<'scope, Result<T, ParallelError<E>>>;

fn spawn<'scope, T, E>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> Result<T, ParallelError<E>> + Send + 'scope,
) -> Result<Handle<'scope, T, E>, ParallelError<E>>
where
    T: Send + 'scope,
    E: Send + 'scope,
{
    threads::spawn_scoped(scope, name, body).map_err(ParallelError::Thread)
}

fn join<T, E>(handle: Handle<'_, T, E>) -> Result<T, ParallelError<E>> {
    handle.join().unwrap_or(Err(ParallelError::Panicked))
}

/// Returns the producer's value, or the failure that stopped the threads. If two threads failed at
/// the same time, returns either failure.
fn first_failure<T, E>(
    consumed: Result<(), ParallelError<E>>,
    worked: Vec<Result<(), ParallelError<E>>>,
    produced: Result<T, ParallelError<E>>,
) -> Result<T, ParallelError<E>> {
    let told = |error: &ParallelError<E>| !matches!(error, ParallelError::Stopped);
    let ends = std::iter::once(consumed).chain(worked);
    if let Some(error) = ends.filter_map(Result::err).find(told) {
        return Err(error);
    }
    produced
}

struct Queue<J, O> {
    memory: usize,
    state: Mutex<QueueState<J, O>>,
    /// Signalled when more jobs may be sent.
    room: Condvar,
    /// Signalled when a job arrives, or no more will.
    job: Condvar,
    /// Signalled when the next result is ready, or never will be.
    result: Condvar,
}

struct QueueState<J, O> {
    jobs: VecDeque<(u64, J)>,
    /// The jobs in flight in order: weight, and result when it is ready.
    under_way: VecDeque<(usize, Option<O>)>,
    /// Number of the job at the front of `under_way`.
    first: u64,
    weight: usize,
    closed: bool,
    stopped: bool,
}

impl<J, O> Queue<J, O> {
    const fn new(memory: usize) -> Self {
        let state = QueueState {
            jobs: VecDeque::new(),
            under_way: VecDeque::new(),
            first: 0,
            weight: 0,
            closed: false,
            stopped: false,
        };
        Self {
            memory,
            state: Mutex::new(state),
            room: Condvar::new(),
            job: Condvar::new(),
            result: Condvar::new(),
        }
    }

    /// Locks the state. No thread panics while it holds the lock, so a poisoned state is
    /// consistent.
    fn lock(&self) -> MutexGuard<'_, QueueState<J, O>> {
        self.state.lock().unpoisoned()
    }

    fn close(&self) {
        self.lock().closed = true;
        self.wake_all();
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        let dropped = std::mem::take(&mut state.jobs);
        drop(state);
        self.wake_all();
        drop(dropped);
    }

    fn wake_all(&self) {
        self.room.notify_all();
        self.job.notify_all();
        self.result.notify_all();
    }

    fn work<E>(&self, mut run: impl FnMut(J) -> Result<O, E>) -> Result<(), ParallelError<E>> {
        loop {
            let mut state = self.lock();
            let (number, job) = loop {
                if state.stopped {
                    return Err(ParallelError::Stopped);
                }
                if let Some(next) = state.jobs.pop_front() {
                    break next;
                }
                if state.closed {
                    return Ok(());
                }
                state = wait(&self.job, state);
            };
            drop(state);
            let result = run(job)?;
            let mut state = self.lock();
            let at = forerun_io::usize_from(number - state.first);
            if let Some((_, slot)) = state.under_way.get_mut(at) {
                *slot = Some(result);
            }
            if at == 0 {
                self.result.notify_one();
            }
        }
    }

    fn consume_all<E>(
        &self,
        consume: &mut dyn FnMut(O) -> Result<(), ParallelError<E>>,
    ) -> Result<(), ParallelError<E>> {
        while let Some((weight, result)) = self.next_result()? {
            consume(result)?;
            self.lock().weight -= weight;
            self.room.notify_one();
        }
        Ok(())
    }

    /// Waits for the next result, and returns it with its weight. Returns `None` after the last
    /// result.
    fn next_result<E>(&self) -> Result<Option<(usize, O)>, ParallelError<E>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return Err(ParallelError::Stopped);
            }
            match state.under_way.pop_front() {
                Some((weight, Some(result))) => {
                    state.first += 1;
                    return Ok(Some((weight, result)));
                }
                Some(waiting) => state.under_way.push_front(waiting),
                None if state.closed => return Ok(None),
                None => {}
            }
            state = wait(&self.result, state);
        }
    }
}

impl<J: Send, O: Send> Submit<J> for Queue<J, O> {
    fn submit(&self, job: J, weight: usize) -> bool {
        let mut state = self.lock();
        while !state.stopped && state.weight > 0 && state.weight + weight > self.memory {
            state = wait(&self.room, state);
        }
        if state.stopped {
            return false;
        }
        let at = forerun_io::u64_from(state.under_way.len());
        let number = state.first + at;
        state.weight += weight;
        state.under_way.push_back((weight, None));
        state.jobs.push_back((number, job));
        drop(state);
        self.job.notify_one();
        true
    }
}

/// Stops all threads when it is dropped after an error or a panic. On success it is forgotten.
struct EndGuard<'q, J, O>(&'q Queue<J, O>);

impl<J, O> Drop for EndGuard<'_, J, O> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn wait<'g, T>(condvar: &Condvar, guard: MutexGuard<'g, T>) -> MutexGuard<'g, T> {
    condvar.wait(guard).unpoisoned()
}
