//! A thread that sends messages to the kernel and holds no other file of the process.
//!
//! The kernel drops a name only when no request on the directory is in flight, and stores a page
//! only when no READ of it is. A thread that waits for this cannot be killed. If the process is
//! killed, only the next server can answer a request in flight, and that server waits until this
//! process has closed its files: the volume with its lock, and its sockets. Files stay open as long
//! as any thread of the process exists. So this thread gets its own descriptor table with only a
//! connection to the kernel. If possible that is a second file (see
//! [`second`](crate::connection::second)). Then the kernel closes the first one, and fails the
//! requests read from it if no other server holds it.
//!
//! Descriptor numbers of this thread and of other threads mean different files. So this thread
//! receives and drops only bytes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use forerun_sys::threads;
use nix::sys::signal::SigSet;

use crate::connection::{invalidate, notification};

/// The notification that makes the kernel drop a name.
const NOTIFY_INVAL_ENTRY: u32 = 3;

type Job = Box<dyn FnOnce(&OwnedFd) + Send>;

/// The channel to the thread, which ends when this value is dropped.
#[derive(Debug)]
pub struct Apart {
    jobs: Sender<Job>,
}

impl Apart {
    pub fn start(connection: BorrowedFd<'_>) -> io::Result<Self> {
        let (jobs, asked) = channel::<Job>();
        hold(connection, "forerun-apart", move |connection| {
            for job in asked {
                job(connection);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs `job` on the thread and waits for it. Returns `None` if the thread has ended. The job
    /// must not open or close descriptors.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&OwnedFd) -> T + Send + 'static,
    ) -> Option<T> {
        let (tell, told) = channel();
        let job = Box::new(move |connection: &OwnedFd| {
            let _is_waited_for = tell.send(job(connection));
        });
        self.jobs.send(job).ok()?;
        told.recv().ok()
    }

    /// Makes the kernel ask for the attributes of an inode again.
    pub fn drop_attributes(&self, number: u64) {
        self.run(move |connection| {
            let _it_has_gone = invalidate(connection, number, -1);
        });
    }

    /// Makes the kernel drop a name, and waits until it has.
    pub fn drop_name(&self, dir: u64, name: &[u8]) {
        if let Some(message) = message(dir, name) {
            self.run(move |connection| {
                let _it_has_gone = rustix::io::write(connection, &message);
            });
        }
    }
}

/// Starts a thread that runs `body` with a copy of `held` as its only descriptor. Returns once the
/// thread has left this process's descriptor table.
pub fn hold(
    held: BorrowedFd<'_>,
    name: &str,
    body: impl FnOnce(&OwnedFd) + Send + 'static,
) -> io::Result<()> {
    let (tell, told) = channel();
    // Closed last by this thread, because the new thread's number is in a different table.
    let ours = Arc::new(held.try_clone_to_owned()?);
    let inherited = Arc::clone(&ours);
    threads::spawn_with_stack(name, 128 << 10, move || {
        let held = go_apart(&inherited);
        drop(inherited);
        if let Ok(held) = held {
            let _is_waited_for = tell.send(());
            body(&held);
        }
    })?;
    let began = told.recv();
    drop(ours);
    began.map_err(|_| io::Error::other("a thread has no files of its own"))
}

/// Gives this thread a descriptor table that contains only `held`. Blocks all signals, because
/// handlers write to descriptors.
fn go_apart(held: &OwnedFd) -> io::Result<OwnedFd> {
    SigSet::all().thread_block()?;
    forerun_sys::table::leave(held)
}

/// Builds the notification that makes the kernel drop a name.
fn message(dir: u64, name: &[u8]) -> Option<Vec<u8>> {
    let len = u32::try_from(name.len()).ok()?;
    let mut body = dir.to_ne_bytes().to_vec();
    body.extend([len, 0].map(u32::to_ne_bytes).as_flattened());
    body.extend_from_slice(name);
    body.push(0);
    notification(NOTIFY_INVAL_ENTRY, &body, &[]).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_thread_holds_no_file_but_the_connection() {
        let (mut kernel, connection) = UnixStream::pair().unwrap();
        let (mut other, held) = UnixStream::pair().unwrap();
        let apart = Apart::start(connection.as_fd()).unwrap();
        drop((connection, held));
        // Only the thread could still hold the descriptor.
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        apart.drop_name(7, b"name");
        let mut said = [0; 37];
        kernel.read_exact(&mut said).unwrap();
        assert_eq!(said[..8], [37_u32, 3].map(u32::to_ne_bytes).concat());
        assert_eq!(said[16..24], 7_u64.to_ne_bytes());
        assert_eq!(said[32..], *b"name\0");
        // When the thread ends, it closes the connection.
        drop(apart);
        assert_eq!(kernel.read(&mut [0]).unwrap(), 0);
    }
}
