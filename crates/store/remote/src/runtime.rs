//! The one asynchronous runtime of the process.
//!
//! It has few threads, which only move bytes between sockets and the scheduler; its blocking threads
//! hash and write chunks. It is made when first needed and lives as long as the process.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::{RemoteError, Result};

/// Threads that run tasks.
const WORKERS: usize = 2;
/// Threads that may block at the same time, to write chunks or to wait for hash blocks from a server.
/// Many, since an image whose server stalls must not delay the others.
const BLOCKING: usize = 64;

static RUNTIME: OnceLock<std::result::Result<Runtime, String>> = OnceLock::new();

/// Returns the runtime, made now if there is none yet.
///
/// # Errors
/// [`RemoteError::Refused`] if the system gives no threads.
pub fn handle() -> Result<&'static Handle> {
    let made = RUNTIME.get_or_init(|| {
        Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .max_blocking_threads(BLOCKING)
            .thread_name("forerun-remote")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| error.to_string())
    });
    match made {
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
/// Those of the future, and that of [`handle`].
pub fn wait_for<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    handle()?.block_on(future)
}
