//! The files of the host that the kernel reads by itself for a mount (FUSE passthrough).
//!
//! The kernel numbers these files, and keeps them until the number is given back. All handles of an inode
//! must be opened with the same number, so the next server needs the numbers of the old one, and which handles use
//! them. Each handle has a slot in a file in memory that the keeper holds too. A server writes the slot before it answers
//! the OPEN, and clears it when the handle is released, before it gives the number back. So a number in a slot is always
//! valid; a server that is killed in between leaves at most a slot of a handle that the kernel does not know, and its number
//! is kept until the mount ends.
//!
//! A slot has a checksum: one that was cut short when the server was killed counts as empty, and the
//! OPEN that it was for was not answered. The first slot says whether files may be registered at all.
//!
//! Nothing here knows FUSE or a driver.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{LedgerFile, record};

/// Bytes of a slot: no slot crosses a page, so none is written in two steps.
const SLOT: usize = 64;
/// Slots, the first included: 16 MiB at the most.
const MAX: u64 = 1 << 18;
/// The numbers in a slot, without the checksum.
const NUMBERS: usize = 5;
const WORD: usize = 8;

/// A file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFile {
    pub device: u64,
    pub inode: u64,
}

/// A handle of an inode whose file is registered with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The inode number.
    pub number: u64,
    pub file: HostFile,
    /// The kernel's number of the registration.
    pub id: u32,
    /// The number of the handle.
    pub handle: u64,
}

/// Where a registration is written.
#[derive(Debug, PartialEq, Eq)]
pub struct RegistrationSlot(u64);

/// A table of registrations that is written to.
#[derive(Debug)]
pub struct Registered {
    file: Arc<OwnedFd>,
    /// Slots below `end` that are empty.
    free: Vec<u64>,
    end: u64,
}

/// The state that earlier servers have left.
#[derive(Debug)]
pub struct Earlier {
    pub registrations: Vec<(Registration, RegistrationSlot)>,
    /// No more files are to be registered.
    pub has_stopped: bool,
}

impl Registered {
    /// Begins an empty table.
    pub fn new(file: &LedgerFile) -> Self {
        Self {
            file: Arc::clone(&file.0),
            free: Vec::new(),
            end: 1,
        }
    }

    /// Reads the table of earlier servers, and goes on with it. Their registrations keep their slots.
    ///
    /// # Errors
    /// Those of the file.
    pub fn inherit(file: OwnedFd) -> io::Result<(Self, Earlier)> {
        let mut bytes = vec![0; length(&file)?];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = u64::try_from(filled).map_err(io::Error::other)?;
            match rustix::io::pread(&file, rest, at)? {
                0 => break,
                count => filled += count,
            }
        }
        let mut slots = bytes.chunks(SLOT);
        let has_stopped = slots.next().is_some_and(|head| head.first() == Some(&1));
        let (mut registrations, mut free, mut end) = (Vec::new(), Vec::new(), 1);
        for slot in slots {
            match decode(slot) {
                Some(registration) => registrations.push((registration, RegistrationSlot(end))),
                None => free.push(end),
            }
            end += 1;
        }
        let this = Self {
            file: Arc::new(file),
            free,
            end,
        };
        let earlier = Earlier {
            registrations,
            has_stopped,
        };
        Ok((this, earlier))
    }

    /// Makes another descriptor of the file, for the keeper.
    ///
    /// # Errors
    /// Those of dup(2).
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Writes a registration. It is in the file when this returns.
    ///
    /// # Errors
    /// Those of the file; `StorageFull` where there are too many.
    pub fn add(&mut self, registration: &Registration) -> io::Result<RegistrationSlot> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.end < MAX => {
                self.end += 1;
                self.end - 1
            }
            None => return Err(io::ErrorKind::StorageFull.into()),
        };
        let written = self.write(slot, &encode(registration));
        written.inspect_err(|_| self.free.push(slot))?;
        Ok(RegistrationSlot(slot))
    }

    /// Clears a slot.
    ///
    /// # Errors
    /// Those of the file. The registration may still be there.
    pub fn remove(&mut self, slot: RegistrationSlot) -> io::Result<()> {
        self.write(slot.0, &[0; SLOT])?;
        self.free.push(slot.0);
        Ok(())
    }

    /// Writes that no more files are to be registered, by any server.
    ///
    /// # Errors
    /// Those of the file.
    pub fn stop(&self) -> io::Result<()> {
        self.write(0, &[1])
    }

    fn write(&self, slot: u64, bytes: &[u8]) -> io::Result<()> {
        let slot_len = u64::try_from(SLOT).map_err(io::Error::other)?;
        match rustix::io::pwrite(&self.file, bytes, slot * slot_len)? {
            count if count == bytes.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

fn length(file: &OwnedFd) -> io::Result<usize> {
    let len = rustix::fs::fstat(file)?.st_size;
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let max = usize::try_from(MAX).map_err(io::Error::other)?;
    Ok(len.min(max * SLOT))
}

fn encode(registration: &Registration) -> [u8; SLOT] {
    let Registration {
        number,
        file,
        id,
        handle,
    } = registration;
    let numbers = [*number, file.device, file.inode, u64::from(*id), *handle];
    let numbers = numbers.map(u64::to_ne_bytes);
    let sum = record::checksum(numbers.as_flattened()).to_ne_bytes();
    let mut slot = [0; SLOT];
    let words = slot.chunks_exact_mut(WORD);
    for (word, value) in words.zip(numbers.iter().chain([&sum])) {
        word.copy_from_slice(value);
    }
    slot
}

fn decode(slot: &[u8]) -> Option<Registration> {
    let (numbers, rest) = slot.split_at_checked(NUMBERS * WORD)?;
    let sum = rest.first_chunk::<WORD>()?;
    if record::checksum(numbers).to_ne_bytes() != *sum {
        return None;
    }
    let (words, _) = numbers.as_chunks::<WORD>();
    let [number, device, inode, id, handle] = *words.first_chunk::<NUMBERS>()?;
    Some(Registration {
        number: u64::from_ne_bytes(number),
        file: HostFile {
            device: u64::from_ne_bytes(device),
            inode: u64::from_ne_bytes(inode),
        },
        id: u64::from_ne_bytes(id).try_into().ok()?,
        handle: u64::from_ne_bytes(handle),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registration(number: u64) -> Registration {
        let file = HostFile {
            device: 7,
            inode: number * 3,
        };
        let id = u32::try_from(number).unwrap() + 1;
        Registration {
            number,
            file,
            id,
            handle: number * 7,
        }
    }

    fn inherited(table: &Registered) -> (Registered, Vec<Registration>, bool) {
        let (next, earlier) = Registered::inherit(table.share().unwrap()).unwrap();
        let registrations = earlier.registrations.into_iter();
        let registrations = registrations.map(|(registration, _)| registration);
        (next, registrations.collect(), earlier.has_stopped)
    }

    #[test]
    fn the_next_server_reads_what_was_added_and_not_removed() {
        let mut table = Registered::new(&LedgerFile::new().unwrap());
        assert_eq!(inherited(&table).1, []);
        let mut slots = (0..5).map(|n| table.add(&registration(n)).unwrap());
        let (first, third) = (slots.next().unwrap(), slots.nth(1).unwrap());
        assert_eq!(slots.count(), 2);
        table.remove(first).unwrap();
        table.remove(third).unwrap();
        let (mut next, registrations, has_stopped) = inherited(&table);
        assert_eq!(registrations, [1, 3, 4].map(registration));
        assert!(!has_stopped);
        // Empty slots are used again, those of earlier servers stay.
        for number in 5..8 {
            next.add(&registration(number)).unwrap();
        }
        next.stop().unwrap();
        let (last, mut registrations, has_stopped) = inherited(&next);
        registrations.sort_by_key(|registration| registration.number);
        assert_eq!(registrations, [1, 3, 4, 5, 6, 7].map(registration));
        assert!(has_stopped);
        assert_eq!(last.end, 7);
    }

    #[test]
    fn a_slot_cut_short_is_empty() {
        let mut table = Registered::new(&LedgerFile::new().unwrap());
        let slot = table.add(&registration(9)).unwrap();
        let whole = encode(&registration(9));
        for len in 0..(NUMBERS + 1) * WORD {
            let mut cut = [0; SLOT];
            cut[..len].copy_from_slice(&whole[..len]);
            table.write(slot.0, &cut).unwrap();
            assert_eq!(inherited(&table).1, [], "{len}");
        }
        // So is one that is cut short while it is cleared.
        for len in 1..NUMBERS * WORD {
            let mut cut = whole;
            cut[..len].fill(0);
            table.write(slot.0, &cut).unwrap();
            let left = inherited(&table).1;
            assert!(left.is_empty() || cut == whole, "{len}: {left:?}");
        }
    }

    #[test]
    fn a_full_table_refuses_and_takes_again() {
        let mut table = Registered::new(&LedgerFile::new().unwrap());
        table.end = MAX - 1;
        let last = table.add(&registration(1)).unwrap();
        let refused = table.add(&registration(2)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        table.remove(last).unwrap();
        assert_eq!(
            table.add(&registration(3)).unwrap(),
            RegistrationSlot(MAX - 1)
        );
        assert_eq!(inherited(&table).1, [registration(3)]);
    }
}
