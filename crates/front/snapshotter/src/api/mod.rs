//! containerd's snapshots API over gRPC, on a socket of the file system.

mod convert;
mod messages;
mod service;

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use tokio::sync::oneshot;
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::{Error, Result, Snapshotter};
use service::Service;

/// Threads that take requests. The work itself is done on others, which wait for disks and processes.
const THREADS: usize = 2;
/// Most requests that are worked on at once.
const REQUESTS: usize = 64;

/// Ends the service when it is told to, or dropped.
#[derive(Debug)]
pub struct Stopper(oneshot::Sender<()>);

/// Waits for a [`Stopper`].
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<()>);

impl Stopper {
    /// Creates one, and what waits for it.
    #[must_use]
    pub fn new() -> (Self, Stopped) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), Stopped(receiver))
    }

    /// Ends the service: no request is taken any more, and those that are worked on are finished.
    pub fn stop(self) {
        // The service may have ended.
        let _ended = self.0.send(());
    }
}

/// Serves until it is stopped.
///
/// # Errors
/// [`Error::Serve`] where the system gives no threads, or the socket fails.
pub fn serve(
    snapshotter: Arc<Snapshotter>,
    listener: UnixListener,
    stopped: Stopped,
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(REQUESTS)
        .thread_name("snapshots")
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| failed(&error))?;
    let unblocked = listener.set_nonblocking(true);
    unblocked.map_err(|error| failed(&error))?;
    runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener);
        let listener = listener.map_err(|error| failed(&error))?;
        let stop = async {
            let _either = stopped.0.await;
        };
        Server::builder()
            .serve_with_incoming_shutdown(
                Service::new(snapshotter),
                UnixListenerStream::new(listener),
                stop,
            )
            .await
            .map_err(|error| failed(&error))
    })
}
