//! A thread that tells the kernel to drop names, and holds no other file of the process.
//!
//! The kernel takes such a message when no request of the directory is in flight, and a thread that
//! waits for that cannot be killed. When the process is killed, a request may be in flight that only
//! the next server answers. That server waits until this process has released its files: the volume
//! with its lock, and its sockets. A process's files stay open as long as one of its threads exists. So
//! this thread gets a descriptor table of its own, with nothing in it but the connection to the kernel. It receives and drops
//! nothing but bytes.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use forerun_io::{Unpoisoned, threads};
use nix::sys::signal::SigSet;

/// Number of the message.
const NOTIFY_INVAL_ENTRY: u32 = 3;

/// The channel to the thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Apart {
    messages: Sender<Vec<u8>>,
    taken: Mutex<Receiver<()>>,
}

impl Apart {
    /// Starts the thread for this connection to the kernel.
    ///
    /// # Errors
    /// Those of threads and sockets.
    pub fn start(connection: BorrowedFd<'_>) -> io::Result<Self> {
        let (messages, asked) = channel::<Vec<u8>>();
        let (tell, taken) = channel();
        // Dropped last, and so closed, by this thread: the other one has its number in another table.
        let ours = Arc::new(connection.try_clone_to_owned()?);
        let inherited = Arc::clone(&ours);
        threads::spawn_with_stack("forerun-names", 128 << 10, move || {
            let connection = go_apart(&inherited);
            drop(inherited);
            let Ok(connection) = connection else {
                return;
            };
            let _is_waited_for = tell.send(());
            for message in asked {
                // An error says that the kernel had dropped the name already.
                let _it_has_gone = rustix::io::write(&connection, &message);
                let _is_waited_for = tell.send(());
            }
        })?;
        let began = taken.recv();
        drop(ours);
        began.map_err(|_| io::Error::other("a thread has no files of its own"))?;
        Ok(Self {
            messages,
            taken: Mutex::new(taken),
        })
    }

    /// Has the kernel drop a name, and returns when it has.
    pub fn drop_name(&self, dir: u64, name: &[u8]) {
        let taken = self.taken.lock().unpoisoned();
        if let Some(message) = message(dir, name)
            && self.messages.send(message).is_ok()
        {
            let _it_ends = taken.recv();
        }
    }
}

/// Gives the calling thread a table of descriptors with nothing but the connection in it. This thread handles no signals:
/// handlers write to descriptors.
fn go_apart(connection: &OwnedFd) -> io::Result<OwnedFd> {
    SigSet::all().thread_block()?;
    forerun_sys::table::leave(connection)
}

/// Builds the message that has the kernel drop a name of a directory.
fn message(dir: u64, name: &[u8]) -> Option<Vec<u8>> {
    let name_len = u32::try_from(name.len()).ok()?;
    let len = name_len.checked_add(16 + 16 + 1)?;
    let mut message = [len, NOTIFY_INVAL_ENTRY].map(u32::to_ne_bytes).concat();
    // No request has this number: the message is a notification.
    message.extend_from_slice(&0_u64.to_ne_bytes());
    message.extend_from_slice(&dir.to_ne_bytes());
    message.extend_from_slice(&name_len.to_ne_bytes());
    message.extend_from_slice(&0_u32.to_ne_bytes());
    message.extend_from_slice(name);
    message.push(0);
    Some(message)
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
