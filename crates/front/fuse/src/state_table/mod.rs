//! The state that a server leaves to its successor, in a memory file that the supervisor holds too.
//!
//! A server writes to the file before it sends an answer that the kernel relies on. The file
//! consists of slots of fixed length. A slot lies in one page and has a checksum: one that was
//! truncated when the server was killed counts as empty. The first slot is the head.
//!
//! For an image, the state consists of the [host files](Registered) that the kernel reads directly;
//! for a volume, of the [inodes](VolumeState) that the kernel knows. This module knows neither FUSE
//! nor drivers.

mod registered;
mod volume;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forerun_io::{u64_from, usize_from};
use rustix::fs::{MemfdFlags, memfd_create};

pub use registered::{HostFile, Registered, Registration, RegistrationSlot};
pub use volume::{KnownInode, VolumeState};

/// Maximum number of slots, including the head.
const MAX: u64 = 1 << 18;
/// Bytes of a slot before its contents: checksum and length.
const FRAME: usize = 16;
const READ_TOGETHER: usize = 1024;

/// The file of a new table. A sandboxed process cannot create one.
#[derive(Clone, Debug)]
pub struct StateFile(Arc<OwnedFd>);

impl StateFile {
    pub fn new() -> io::Result<Self> {
        let file = memfd_create("forerun-state", MemfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(file)))
    }
}

impl PartialEq for StateFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for StateFile {}

#[derive(Debug)]
struct Slots<const LEN: usize> {
    file: Arc<OwnedFd>,
    /// Empty slots below `end`.
    free: Vec<u64>,
    end: u64,
}

impl<const LEN: usize> Slots<LEN> {
    fn new(file: &StateFile) -> Self {
        Self {
            file: Arc::clone(&file.0),
            free: Vec::new(),
            end: 1,
        }
    }

    /// Reads the slots of earlier servers and visits the contents of the nonempty ones. Ignores the
    /// file beyond `end` bytes.
    fn inherit(file: OwnedFd, end: u64, mut visit: impl FnMut(u64, &[u8])) -> io::Result<Self> {
        // The last slot may be shorter.
        let end = end.min(len(&file)?).div_ceil(u64_from(LEN));
        let mut this = Self {
            file: Arc::new(file),
            free: Vec::new(),
            end: end.clamp(1, MAX),
        };
        let mut bytes = vec![0; LEN * READ_TOGETHER];
        let mut slot = 1;
        while slot < this.end {
            let count = usize_from(this.end - slot).min(READ_TOGETHER);
            let together = bytes.get_mut(..count * LEN).unwrap_or_default();
            together.fill(0);
            read(&this.file, together, slot * u64_from(LEN))?;
            for bytes in together.chunks(LEN) {
                match unframed(bytes) {
                    Some(contents) => visit(slot, contents),
                    None => this.free.push(slot),
                }
                slot += 1;
            }
        }
        Ok(this)
    }

    fn share(&self) -> io::Result<OwnedFd> {
        self.file.try_clone()
    }

    /// Fills an empty slot. When this returns, the contents are in the file.
    fn add(&mut self, contents: &[u8]) -> io::Result<u64> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.end < MAX => {
                self.end += 1;
                self.end - 1
            }
            None => return Err(io::ErrorKind::StorageFull.into()),
        };
        let written = self.write(slot, contents);
        written.inspect_err(|_| self.free.push(slot))?;
        Ok(slot)
    }

    fn write(&self, slot: u64, contents: &[u8]) -> io::Result<()> {
        let mut bytes = [checksum(contents), u64_from(contents.len())]
            .map(u64::to_ne_bytes)
            .concat();
        bytes.extend_from_slice(contents);
        if bytes.len() > LEN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        write_all(&self.file, &bytes, slot * u64_from(LEN))
    }

    fn remove(&mut self, slot: u64) -> io::Result<()> {
        write_all(&self.file, &[0; FRAME], slot * u64_from(LEN))?;
        self.free.push(slot);
        Ok(())
    }
}

fn head(file: &OwnedFd) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = [0; 64];
    read(file, &mut bytes, 0)?;
    Ok(unframed(&bytes).map(<[u8]>::to_vec))
}

fn len(file: &OwnedFd) -> io::Result<u64> {
    u64::try_from(rustix::fs::fstat(file)?.st_size).map_err(io::Error::other)
}

fn allocated(file: &OwnedFd) -> io::Result<u64> {
    let blocks = u64::try_from(rustix::fs::fstat(file)?.st_blocks).map_err(io::Error::other)?;
    blocks
        .checked_mul(512)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn unframed(slot: &[u8]) -> Option<&[u8]> {
    let (sum, rest) = slot.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<8>()?;
    let contents = rest.get(..usize::try_from(u64::from_ne_bytes(*len)).ok()?)?;
    (u64::from_ne_bytes(*sum) == checksum(contents)).then_some(contents)
}

/// Reads into `bytes`, up to the end of the file. Returns the number of bytes read.
fn read(file: &OwnedFd, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, at + u64_from(filled))? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn write_all(file: &OwnedFd, bytes: &[u8], at: u64) -> io::Result<()> {
    match rustix::io::pwrite(file, bytes, at)? {
        count if count == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Computes FNV-1a over eight bytes at a time. The only expected damage is a truncated slot.
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        add(u64::from_ne_bytes(*word));
    }
    for byte in rest {
        add(u64::from(*byte));
    }
    sum
}

/// Splits integers off the front of bytes.
fn numbers<const COUNT: usize>(bytes: &[u8]) -> Option<([u64; COUNT], &[u8])> {
    let (words, rest) = bytes.split_at_checked(COUNT * 8)?;
    let words = words.as_chunks::<8>().0.first_chunk::<COUNT>()?;
    Some((words.map(u64::from_ne_bytes), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(slots: &Slots<64>) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let visit = |_, contents: &[u8]| all.push(contents.to_vec());
        Slots::<64>::inherit(slots.share().unwrap(), u64::MAX, visit).unwrap();
        all
    }

    #[test]
    fn a_slot_cut_short_is_empty() {
        let mut slots = Slots::<64>::new(&StateFile::new().unwrap());
        let slot = slots.add(b"some contents that are long").unwrap();
        let mut whole = [0; 64];
        read(&slots.file, &mut whole, slot * 64).unwrap();
        for len in 0..43 {
            let mut cut = [0; 64];
            cut[..len].copy_from_slice(&whole[..len]);
            write_all(&slots.file, &cut, slot * 64).unwrap();
            assert!(contents(&slots).is_empty(), "{len}");
        }
    }

    #[test]
    fn a_full_table_refuses_and_takes_again() {
        let mut slots = Slots::<64>::new(&StateFile::new().unwrap());
        slots.end = MAX - 1;
        let last = slots.add(b"1").unwrap();
        let refused = slots.add(b"2").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        slots.remove(last).unwrap();
        assert_eq!(slots.add(b"3").unwrap(), MAX - 1);
        assert_eq!(contents(&slots), [b"3".to_vec()]);
        assert!(slots.add(&[0; 64]).is_err(), "longer than a slot");
    }
}
