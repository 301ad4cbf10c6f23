//! containerd's snapshots API: gRPC on a Unix socket.

mod convert;
mod messages;
mod service;
mod turns;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::{Error, Result, Snapshotter};
use service::Service;
use turns::Turns;

/// Threads of the async runtime. The work itself blocks on disks and processes, so it runs on other
/// threads.
const THREADS: usize = 2;

/// Stops the service when called or dropped.
#[derive(Debug)]
pub struct Stopper(oneshot::Sender<()>);

/// The receiving end of a [`Stopper`].
#[derive(Debug)]
pub struct Stopped(oneshot::Receiver<()>);

impl Stopper {
    #[must_use]
    pub fn new() -> (Self, Stopped) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), Stopped(receiver))
    }

    /// Stops the service: it accepts no more requests and finishes those in progress.
    pub fn stop(self) {
        // The service may have ended already.
        let _ended = self.0.send(());
    }
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(Turns::THREADS)
        .thread_name("snapshots")
        .enable_all()
        .build()
}

/// Serves until stopped. First deletes what a killed process left in the trash.
///
/// # Errors
/// [`Error::Serve`] if no threads can be started or the socket fails.
pub fn serve(
    snapshotter: Arc<Snapshotter>,
    listener: UnixListener,
    stopped: Stopped,
) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
    let runtime = runtime().map_err(|error| failed(&error))?;
    let unblocked = listener.set_nonblocking(true);
    unblocked.map_err(|error| failed(&error))?;
    let left = Arc::clone(&snapshotter);
    drop(runtime.spawn_blocking(move || service::delete_removed(&left)));
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
