//! The asynchronous runtime of the process.
//!
//! Its few task threads only move bytes between sockets and the scheduler; its blocking threads
//! hash and write chunks. It is created on first use and lives as long as the process. A forked
//! process has none of its parent's threads, so it creates a runtime of its own.

use std::future::Future;
use std::sync::OnceLock;

use forerun_sys::threads;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::{RemoteError, Result};

const WORKERS: usize = 2;
/// Threads that may block at the same time, to write chunks or to wait for hash blocks from a
/// server. There are many, because an image whose server stalls must not delay the others.
const BLOCKING: usize = 64;

/// A runtime, the process that created it, and the next runtime, which a forked process has
/// created.
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

/// Returns the runtime of this process, and creates it if needed.
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

/// Runs `future` on the runtime while this thread waits. Must not be called from a task of the
/// runtime.
pub fn wait_for<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    handle()?.block_on(future)
}
