//! A record of reads that were taken from the group and are not answered yet, in memory that outlives
//! the process that took them.
//!
//! The kernel hands out each event once. A process that takes over from one that died learns here
//! which bytes the reads wait for, so that it can fetch them and let the reads go on. Each event has
//! a slot at the place of its number. A slot does not cross a page, and SIGKILL interrupts no write
//! within one, so a slot is whole or as it was.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

use super::event::Event;

/// Bytes of a slot: its kind, the two ends of a range, and a word that is not used.
const SLOT: u64 = 32;
const FREE: u64 = 0;
const WITH_RANGE: u64 = 1;
const WITHOUT_RANGE: u64 = 2;
/// Most slots that are read: the kernel's usual limit of open files for a process.
const MAX_SLOTS: u64 = 1 << 20;

/// The ledger.
#[derive(Debug)]
pub struct Ledger {
    file: File,
}

impl Ledger {
    /// Makes an empty ledger.
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("forerun-reads", MemfdFlags::CLOEXEC)?;
        Ok(Self::of(file))
    }

    /// Returns the ledger behind this descriptor.
    pub fn of(file: OwnedFd) -> Self {
        Self { file: file.into() }
    }

    /// Records an event that waits for its answer.
    pub fn put(&self, event: &Event) {
        let slot = match &event.range {
            Some(range) => [WITH_RANGE, range.start, range.end, 0],
            None => [WITHOUT_RANGE, 0, 0, 0],
        };
        self.write(event.fd, slot);
    }

    /// Records that an event was answered. Its number must not be free yet.
    pub fn take(&self, event: RawFd) {
        self.write(event, [FREE; 4]);
    }

    fn write(&self, event: RawFd, slot: [u64; 4]) {
        let Ok(at) = u64::try_from(event) else { return };
        let bytes = slot.map(u64::to_ne_bytes).concat();
        // A read that is not recorded fails if this process dies, as it would without the ledger.
        if let Err(error) = self.file.write_all_at(&bytes, at * SLOT) {
            tracing::warn!(%error, "a read that waits is not recorded");
        }
    }

    /// Returns the events that wait, and a number above those of all events ever recorded.
    ///
    /// # Errors
    /// Those of read(2).
    pub fn waiting(&self) -> io::Result<(Vec<Event>, RawFd)> {
        let slots = (self.file.metadata()?.len() / SLOT).min(MAX_SLOTS);
        let mut events = Vec::new();
        for number in 0..slots {
            let mut bytes = [0; 24];
            self.file.read_exact_at(&mut bytes, number * SLOT)?;
            let [kind, start, end] = words(&bytes);
            let range = (kind == WITH_RANGE).then_some(start..end);
            if kind != FREE {
                let fd = RawFd::try_from(number).map_err(io::Error::other)?;
                events.push(Event { fd, range });
            }
        }
        Ok((events, RawFd::try_from(slots).map_err(io::Error::other)?))
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Takes bytes as the ledger of another process, for the fuzz targets.
pub fn exercise(bytes: &[u8]) {
    let Ok(ledger) = Ledger::new() else { return };
    if ledger.file.write_all_at(bytes, 0).is_err() {
        return;
    }
    let waiting = ledger.waiting();
    assert!(waiting.is_ok(), "{waiting:?}");
    if let Ok((events, above)) = waiting {
        assert!(events.iter().all(|event| (0..above).contains(&event.fd)));
    }
}

fn words(bytes: &[u8; 24]) -> [u64; 3] {
    let mut words = [0; 3];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_known_to_the_next_process() {
        let ledger = Ledger::new().unwrap();
        assert_eq!(ledger.waiting().unwrap(), (vec![], 0));
        let event = |fd, range| Event { fd, range };
        for fd in [3, 9, 7] {
            let start = u64::try_from(fd).unwrap();
            ledger.put(&event(fd, Some(start..2 * start)));
        }
        ledger.put(&event(4, None));
        // The kernel could open no descriptor for this one, and has denied the read.
        ledger.put(&event(-1, None));
        ledger.take(9);
        let copy = Ledger::of(ledger.as_fd().try_clone_to_owned().unwrap());
        let expected = vec![event(3, Some(3..6)), event(4, None), event(7, Some(7..14))];
        assert_eq!(copy.waiting().unwrap(), (expected, 10));
    }
}
