//! The host files that the kernel reads directly for a mount (FUSE passthrough).
//!
//! The kernel gives each registered file a number and keeps the file until the number is released.
//! All handles of an inode must use the same number, so the next server needs the numbers and the
//! handles that use them. Each handle has a slot. A server writes the slot before it answers OPEN,
//! and clears it on RELEASE before it releases the number. So a number in a slot is always valid. A
//! server that is killed in between leaves at most the slot of a handle unknown to the kernel,
//! whose number is kept until the mount ends. The head says whether files may be registered at all.

use std::io;
use std::os::fd::OwnedFd;

use super::{Slots, StateFile, head, numbers};

const SLOT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFile {
    pub device: u64,
    pub inode: u64,
}

/// A handle of an inode whose file is registered with the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub number: u64,
    pub file: HostFile,
    pub id: u32,
    pub handle: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub struct RegistrationSlot(u64);

#[derive(Debug)]
pub struct Registered(Slots<SLOT>);

/// The state left by earlier servers.
#[derive(Debug)]
pub struct Earlier {
    pub registrations: Vec<(Registration, RegistrationSlot)>,
    pub has_stopped: bool,
}

impl Registered {
    pub fn new(file: &StateFile) -> Self {
        Self(Slots::new(file))
    }

    /// Reads the table of earlier servers and continues it. Their registrations keep their slots.
    pub fn inherit(file: OwnedFd) -> io::Result<(Self, Earlier)> {
        let has_stopped = head(&file)?.is_some();
        let mut registrations = Vec::new();
        let slots = Slots::inherit(file, u64::MAX, |slot, contents| {
            registrations.extend(decode(contents).map(|found| (found, RegistrationSlot(slot))));
        })?;
        let earlier = Earlier {
            registrations,
            has_stopped,
        };
        Ok((Self(slots), earlier))
    }

    /// Duplicates the file's descriptor for the supervisor.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.share()
    }

    /// Writes a registration. When this returns, it is in the file. Fails with `StorageFull` if the
    /// table is full.
    pub fn add(&mut self, registration: &Registration) -> io::Result<RegistrationSlot> {
        self.0.add(&encode(registration)).map(RegistrationSlot)
    }

    /// Clears a slot. After an error the registration may still be there.
    pub fn remove(&mut self, slot: RegistrationSlot) -> io::Result<()> {
        self.0.remove(slot.0)
    }

    /// Records that no server may register more files.
    pub fn stop(&self) -> io::Result<()> {
        self.0.write(0, b"stopped")
    }
}

fn encode(registration: &Registration) -> Vec<u8> {
    let Registration {
        number,
        file,
        id,
        handle,
    } = registration;
    let numbers = [*number, file.device, file.inode, u64::from(*id), *handle];
    numbers.map(u64::to_ne_bytes).concat()
}

fn decode(contents: &[u8]) -> Option<Registration> {
    let ([number, device, inode, id, handle], _) = numbers(contents)?;
    Some(Registration {
        number,
        file: HostFile { device, inode },
        id: id.try_into().ok()?,
        handle,
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
        let mut table = Registered::new(&StateFile::new().unwrap());
        assert_eq!(inherited(&table).1, []);
        let mut slots = (0..5).map(|n| table.add(&registration(n)).unwrap());
        let (first, third) = (slots.next().unwrap(), slots.nth(1).unwrap());
        assert_eq!(slots.count(), 2);
        table.remove(first).unwrap();
        table.remove(third).unwrap();
        let (mut next, registrations, has_stopped) = inherited(&table);
        assert_eq!(registrations, [1, 3, 4].map(registration));
        assert!(!has_stopped);
        // Empty slots are reused; those of earlier servers stay.
        for number in 5..8 {
            next.add(&registration(number)).unwrap();
        }
        next.stop().unwrap();
        let (last, mut registrations, has_stopped) = inherited(&next);
        registrations.sort_by_key(|registration| registration.number);
        assert_eq!(registrations, [1, 3, 4, 5, 6, 7].map(registration));
        assert!(has_stopped);
        assert_eq!(last.0.end, 7);
    }
}
