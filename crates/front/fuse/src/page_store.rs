//! Stores pages in the kernel's page cache (FUSE_NOTIFY_STORE), but only pages that no READ has
//! locked.
//!
//! A READ in the kernel's queue counts too, because its file is unknown. So before each store the
//! queue must be empty, and no READ in progress may touch the pages. If that does not happen within
//! a short time, the data is dropped and the reader requests it.
//!
//! A READ that a thread has just taken becomes known only a moment later, and another one may begin
//! during the store. The store then waits for that READ's answer, which never depends on the
//! storing thread. If the process is killed meanwhile, nothing answers. So the storing thread holds
//! none of the process's files and writes to its own file of the connection: the kernel then closes
//! the other file and fails the requests taken from it.

use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;

use rustix::io::{Errno, writev};

use crate::apart::Apart;
use crate::connection::{has_requests, notification};
use crate::tuning::{PATIENT_ATTEMPTS, STORE_LEN, STORE_PAUSE};
use crate::under_way::UnderWay;

const NOTIFY_STORE: u32 = 4;

pub struct PageStore {
    under_way: Arc<UnderWay>,
    kernel: Apart,
}

impl PageStore {
    pub const fn new(under_way: Arc<UnderWay>, kernel: Apart) -> Self {
        Self { under_way, kernel }
    }

    /// Stores `data` of `file` at offset `at`, up to the first pages being read. Ignores a file
    /// that the kernel does not know. Returns whether anything was stored.
    pub fn store(&self, file: u64, at: u64, data: Vec<u8>) -> io::Result<bool> {
        let under_way = Arc::clone(&self.under_way);
        let stored = self
            .kernel
            .run(move |connection| store(connection, &under_way, (file, at), &data));
        stored.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))
    }
}

fn store(
    connection: &OwnedFd,
    under_way: &UnderWay,
    (file, mut at): (u64, u64),
    data: &[u8],
) -> io::Result<bool> {
    let mut is_stored = false;
    for piece in data.chunks(STORE_LEN) {
        let end = at + forerun_io::u64_from(piece.len());
        let read = (file, at..end);
        if !is_free(
            PATIENT_ATTEMPTS,
            || has_requests(connection),
            under_way,
            &read,
        ) {
            break;
        }
        let header = header(file, at, piece)?;
        match writev(connection, &[IoSlice::new(&header), IoSlice::new(piece)]) {
            Err(Errno::NOENT) => break,
            written => written?,
        };
        is_stored = true;
        at = end;
    }
    Ok(is_stored)
}

/// Returns the header of the notification, which is sent before `data`.
fn header(file: u64, at: u64, data: &[u8]) -> io::Result<Vec<u8>> {
    let too_long = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let size = u32::try_from(data.len()).map_err(too_long)?;
    let mut body = [file, at].map(u64::to_ne_bytes).concat();
    body.extend([size, 0].map(u32::to_ne_bytes).as_flattened());
    notification(NOTIFY_STORE, &body, data)
}

/// Waits briefly until no known or queued READ can have locked the pages. Returns whether that
/// happened.
pub fn is_free(
    attempts: u32,
    has_requests: impl Fn() -> bool,
    under_way: &UnderWay,
    (file, range): &(u64, Range<u64>),
) -> bool {
    (0..attempts).any(|attempt| {
        match attempt {
            0 => {}
            1..4 => thread::yield_now(),
            _ => thread::sleep(STORE_PAUSE),
        }
        // In this order, because a READ moves from the queue to `under_way`.
        !has_requests() && !under_way.touches(*file, range)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn pages_that_are_being_read_are_not_stored() {
        let (mut kernel, connection) = UnixStream::pair().unwrap();
        let under_way = Arc::new(UnderWay::default());
        let apart = Apart::start(connection.as_fd()).unwrap();
        let store = PageStore::new(Arc::clone(&under_way), apart);
        drop(connection);
        let len = u64::try_from(STORE_LEN).unwrap();
        let reading = under_way.begin(7, len..2 * len);
        assert!(!store.store(7, len, vec![1; STORE_LEN]).unwrap());
        assert!(store.store(8, len, vec![1; STORE_LEN]).unwrap());
        let mut said = vec![0; 40 + STORE_LEN];
        kernel.read_exact(&mut said).unwrap();
        let total = u32::try_from(said.len()).unwrap();
        assert_eq!(
            said[..8],
            [total, NOTIFY_STORE].map(u32::to_ne_bytes).concat()
        );
        assert_eq!(said[8..32], [0, 8, len].map(u64::to_ne_bytes).concat());
        assert_eq!(said[40..], vec![1; STORE_LEN]);
        // Stored only up to the pages being read.
        assert!(store.store(7, 0, vec![2; 2 * STORE_LEN]).unwrap());
        kernel.read_exact(&mut said).unwrap();
        assert_eq!(said[40..], vec![2; STORE_LEN]);
        drop(reading);
        assert!(store.store(7, len, vec![3; STORE_LEN]).unwrap());
        kernel.read_exact(&mut said).unwrap();
        assert_eq!(said[40..], vec![3; STORE_LEN]);
    }

    #[test]
    fn nothing_is_stored_while_requests_are_queued() {
        use std::io::Write;
        let (mut kernel, connection) = UnixStream::pair().unwrap();
        let under_way = Arc::new(UnderWay::default());
        let store = PageStore::new(under_way, Apart::start(connection.as_fd()).unwrap());
        kernel.write_all(b"a request").unwrap();
        assert!(!store.store(7, 0, vec![1; STORE_LEN]).unwrap());
        (&connection).read_exact(&mut [0; 9]).unwrap();
        assert!(store.store(7, 0, vec![1; STORE_LEN]).unwrap());
    }
}
