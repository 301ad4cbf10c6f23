//! The one asynchronous runtime of the process.
//!
//! It has few threads, which only move bytes between sockets and the scheduler; its blocking threads
//! hash and write chunks. It is made when first needed and lives as long as the process. A process that was
//! forked from another one has none of its threads, so it makes a runtime of its own.

use std::future::Future;
use std::sync::OnceLock;

use forerun_sys::threads;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{RemoteError, Result};

/// Threads that run tasks.
const WORKERS: usize = 2;
/// Threads that may block at the same time, to write chunks or to wait for hash blocks from a server.
/// Many, since an image whose server stalls must not delay the others.
const BLOCKING: usize = 64;

/// A runtime, the process that made it, and the one that a process forked from that one has made.
struct Made {
    process: u32,
    runtime: std::result::Result<Runtime, String>,
    forked: OnceLock<Box<Made>>,
}

static FIRST: OnceLock<Made> = OnceLock::new();

impl Made {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING)
            .thread_name("forerun-remote")
            .on_thread_start(threads::on_start())
            .enable_io()
            .enable_time()
            .build();
        Self {
            process: std::process::id(),
            runtime: runtime.map_err(|error| error.to_string()),
            forked: OnceLock::new(),
        }
    }
}

/// Returns the runtime of this process, made now if there is none yet.
///
/// # Errors
/// [`RemoteError::Refused`] if the system gives no threads.
pub fn handle() -> Result<&'static Handle> {
    let mut made = FIRST.get_or_init(Made::new);
    let process = std::process::id();
    while made.process != process {
        made = made.forked.get_or_init(|| Box::new(Made::new()));
    }
    match &made.runtime {
        Ok(runtime) => Ok(runtime.handle()),
        Err(reason) => Err(RemoteError::Refused {
            place: "runtime".to_owned(),
            reason: reason.clone(),
        }),
    }
}

/// Runs `future` to its end on the runtime while this thread waits. Not to be called from one of the
/// runtime's own tasks.
///
/// # Errors
/// Errors of the future, and that of [`handle`].
pub fn wait_for<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    handle()?.block_on(future)
}
