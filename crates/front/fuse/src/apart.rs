//! A thread that sends messages to the kernel, and holds no other file of the process.
//!
//! The kernel drops a name when no request of the directory is in flight, and stores a page when no READ of it is. A thread that
//! waits for that cannot be killed. When the process is killed, a request may be in flight that only
//! the next server answers. That server waits until this process has released its files: the volume
//! with its lock, and its sockets. A process's files stay open as long as one of its threads exists. So
//! this thread gets a descriptor table of its own, with nothing in it but a connection to the kernel: a file of its own
//! where that can be had (see [`second`](crate::connection::second)), so that the kernel closes the other one, and fails the requests
//! that were read from it, where no next server holds it.
//!
//! A descriptor that another thread opened later has no meaning in this thread, and one that this
//! thread opened has none in others. So it receives and drops nothing but bytes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use forerun_sys::threads;
use nix::sys::signal::SigSet;

use crate::connection::notification;

/// Number of the message.
const NOTIFY_INVAL_ENTRY: u32 = 3;

type Job = Box<dyn FnOnce(&OwnedFd) + Send>;

/// The channel to the thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Apart {
    jobs: Sender<Job>,
}

impl Apart {
    /// Starts the thread for this connection to the kernel.
    ///
    /// # Errors
    /// The errors of threads and sockets.
    pub fn start(connection: BorrowedFd<'_>) -> io::Result<Self> {
        let (jobs, asked) = channel::<Job>();
        hold(connection, "forerun-apart", move |connection| {
            for job in asked {
                job(connection);
            }
        })?;
        Ok(Self { jobs })
    }

    /// Runs `job` on the thread, and returns when that has ended; nothing where the thread has. The job opens and drops no
    /// descriptor.
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

    /// Has the kernel drop a name, and returns when it has.
    pub fn drop_name(&self, dir: u64, name: &[u8]) {
        if let Some(message) = message(dir, name) {
            self.run(move |connection| {
                let _it_has_gone = rustix::io::write(connection, &message);
            });
        }
    }
}

/// Starts a thread that runs `body` with a copy of `held`, and has no other descriptor. Returns once it has left the descriptors
/// of this process.
pub fn hold(
    held: BorrowedFd<'_>,
    name: &str,
    body: impl FnOnce(&OwnedFd) + Send + 'static,
) -> io::Result<()> {
    let (tell, told) = channel();
    // Dropped last, and so closed, by this thread: the other one has its number in another table.
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

/// Gives the calling thread a table of descriptors with nothing but `held` in it. This thread handles no signals:
/// handlers write to descriptors.
fn go_apart(held: &OwnedFd) -> io::Result<OwnedFd> {
    SigSet::all().thread_block()?;
    forerun_sys::table::leave(held)
}

/// Builds the message that has the kernel drop a name of a directory.
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
        // The thread would hold it otherwise.
        assert_eq!(other.read(&mut [0]).unwrap(), 0);
        apart.drop_name(7, b"name");
        let mut said = [0; 37];
        kernel.read_exact(&mut said).unwrap();
        assert_eq!(said[..8], [37_u32, 3].map(u32::to_ne_bytes).concat());
        assert_eq!(said[16..24], 7_u64.to_ne_bytes());
        assert_eq!(said[32..], *b"name\0");
        // Its end closes the connection.
        drop(apart);
        assert_eq!(kernel.read(&mut [0]).unwrap(), 0);
    }
}
