//! The inodes of a volume that the kernel knows.
//!
//! Each directory has a slot with its number and name, so that the next server can find it. Files
//! have none: after a crash their numbers are invalid, and the kernel looks up their names again. A
//! server that hands over writes all inodes after the slots, including files and their open counts,
//! when nothing changes any more.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use forerun_io::{u64_from, usize_from};

use super::{Slots, StateFile, allocated, head, len, numbers, read, write_all};

/// Bytes of a slot; a name of 255 characters takes up to 765.
const SLOT: usize = 1024;

/// An inode that the kernel knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownInode {
    pub number: u64,
    pub parent: u64,
    pub name: Vec<u8>,
    pub is_directory: bool,
    /// Creation time of a directory in nanoseconds.
    pub created: u64,
    /// Whether the next fsync(2) of this directory must report that an earlier server died. Known
    /// only after [`VolumeState::leave`].
    pub is_unreported: bool,
    /// Number of the kernel's references. Never too low.
    pub times: u64,
    /// Number of open handles. Known only after [`VolumeState::leave`].
    pub opens: u64,
}

/// A writable table. If writing fails, the file is emptied, so that no process relies on it.
#[derive(Debug)]
pub struct VolumeState {
    slots: Slots<SLOT>,
    places: HashMap<u64, u64>,
    server: u64,
    has_failed: bool,
}

#[derive(Debug)]
pub struct InheritedInodes {
    /// All inodes that the kernel knows if the last server handed over; only directories if it
    /// died.
    pub inodes: Vec<KnownInode>,
    pub has_died: bool,
    /// Whether the root must still report that a server died.
    pub is_unreported: bool,
}

struct Head {
    server: u64,
    /// Start and length of the inodes that a server left; start 0 means none.
    left: (u64, u64),
    is_unreported: bool,
}

impl VolumeState {
    pub fn new(file: &StateFile) -> io::Result<Self> {
        Self::begin(Slots::new(file), HashMap::new(), 0)
    }

    fn begin(slots: Slots<SLOT>, places: HashMap<u64, u64>, server: u64) -> io::Result<Self> {
        let this = Self {
            slots,
            places,
            server,
            has_failed: false,
        };
        this.write_head((0, 0), false)?;
        Ok(this)
    }

    /// Reads the table of earlier servers and continues it. Fails with `InvalidData` if the file is
    /// not a valid table.
    pub fn inherit(file: OwnedFd) -> io::Result<(Self, InheritedInodes)> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let head = head(&file)?;
        let head = head.as_deref().and_then(Head::decode).ok_or_else(invalid)?;
        let (start, left) = head.left;
        let has_died = start == 0;
        let end = if has_died { u64::MAX } else { start };
        let mut inodes = Vec::new();
        if !has_died {
            // The file may be sparse and claim to be longer than the machine's memory.
            if start.checked_add(left) != Some(len(&file)?) || left > allocated(&file)? {
                return Err(invalid());
            }
            let mut bytes = vec![0; usize_from(left)];
            read(&file, &mut bytes, start)?;
            inodes = parse_left(&bytes).ok_or_else(invalid)?;
        }
        let mut places = HashMap::new();
        let slots = Slots::inherit(file, end, |slot, contents| {
            if let Some(inode) = KnownInode::decode(contents) {
                places.insert(inode.number, slot);
                if has_died {
                    inodes.push(inode);
                }
            }
        })?;
        let server = head.server.checked_add(1).ok_or_else(invalid)?;
        let this = Self::begin(slots, places, server)?;
        let inherited = InheritedInodes {
            inodes,
            has_died,
            is_unreported: has_died || head.is_unreported,
        };
        Ok((this, inherited))
    }

    pub const fn server(&self) -> u64 {
        self.server
    }

    /// Duplicates the file's descriptor for the supervisor.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.slots.share()
    }

    /// Records the kernel's references to a directory.
    pub fn put(&mut self, inode: &KnownInode) {
        if self.has_failed {
            return;
        }
        let contents = inode.encode();
        let written = match self.places.get(&inode.number) {
            Some(slot) => self.slots.write(*slot, &contents),
            None => self.slots.add(&contents).map(|slot| {
                self.places.insert(inode.number, slot);
            }),
        };
        match written {
            // A directory without a record is lost only to programs that use it when the server
            // dies.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => self.fail(&error),
            Ok(()) => {}
        }
    }

    pub fn remove(&mut self, number: u64) {
        if let Some(slot) = self.places.remove(&number)
            && !self.has_failed
            && let Err(error) = self.slots.remove(slot)
        {
            self.fail(&error);
        }
    }

    /// Writes all inodes that the kernel knows, for a server that takes over while nothing changes.
    /// After an error the table is unchanged.
    pub fn leave(
        &self,
        inodes: impl Iterator<Item = KnownInode>,
        is_unreported: bool,
    ) -> io::Result<()> {
        if self.has_failed {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut bytes = Vec::new();
        for inode in inodes {
            let contents = inode.encode();
            bytes.extend_from_slice(&u64_from(contents.len()).to_ne_bytes());
            bytes.extend_from_slice(&contents);
        }
        let start = self.slots.end * u64_from(SLOT);
        // Data of an earlier server may be longer.
        rustix::fs::ftruncate(&self.slots.file, start)?;
        write_all(&self.slots.file, &bytes, start)?;
        self.write_head((start, u64_from(bytes.len())), is_unreported)
    }

    fn write_head(&self, left: (u64, u64), is_unreported: bool) -> io::Result<()> {
        let numbers = [self.server, left.0, left.1, is_unreported.into()];
        self.slots
            .write(0, numbers.map(u64::to_ne_bytes).as_flattened())
    }

    fn fail(&mut self, error: &io::Error) {
        self.has_failed = true;
        let emptied = rustix::fs::ftruncate(&self.slots.file, 0);
        tracing::error!(
            ?emptied,
            "no other process can take the mount over: {error}"
        );
    }
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let ([server, start, len, is_unreported], _) = numbers(bytes)?;
        Some(Self {
            server,
            left: (start, len),
            is_unreported: is_unreported != 0,
        })
    }
}

impl KnownInode {
    fn encode(&self) -> Vec<u8> {
        let is_directory = u64::from(self.is_directory);
        let numbers = [
            self.number,
            self.parent,
            is_directory,
            self.created,
            self.is_unreported.into(),
            self.times,
            self.opens,
        ];
        let mut bytes = numbers.map(u64::to_ne_bytes).concat();
        bytes.extend_from_slice(&self.name);
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (
            [
                number,
                parent,
                is_directory,
                created,
                is_unreported,
                times,
                opens,
            ],
            name,
        ) = numbers(bytes)?;
        Some(Self {
            number,
            parent,
            name: name.to_vec(),
            is_directory: is_directory != 0,
            created,
            is_unreported: is_unreported != 0,
            times,
            opens,
        })
    }
}

fn parse_left(mut bytes: &[u8]) -> Option<Vec<KnownInode>> {
    let mut inodes = Vec::new();
    while !bytes.is_empty() {
        let ([len], rest) = numbers(bytes)?;
        let (contents, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        inodes.push(KnownInode::decode(contents)?);
        bytes = rest;
    }
    Some(inodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(number: u64, is_directory: bool) -> KnownInode {
        KnownInode {
            number,
            parent: 1,
            name: format!("inode {number}").into(),
            is_directory,
            created: number * 7,
            is_unreported: false,
            times: 3,
            opens: 0,
        }
    }

    fn inherited(state: &VolumeState) -> (VolumeState, InheritedInodes) {
        VolumeState::inherit(state.share().unwrap()).unwrap()
    }

    #[test]
    fn a_server_that_dies_leaves_its_directories() {
        let mut state = VolumeState::new(&StateFile::new().unwrap()).unwrap();
        for number in 2..6 {
            state.put(&inode(number, true));
        }
        state.remove(3);
        state.remove(9);
        let renamed = KnownInode {
            name: vec![0xff; 765],
            ..inode(4, true)
        };
        state.put(&renamed);
        let (mut next, left) = inherited(&state);
        assert!(left.has_died && left.is_unreported);
        assert_eq!(
            left.inodes,
            [inode(2, true), renamed.clone(), inode(5, true)]
        );
        assert_eq!(next.server(), 1);
        // The slot of a removed directory is reused.
        next.remove(2);
        next.put(&inode(7, true));
        let (last, mut left) = inherited(&next);
        left.inodes.sort_by_key(|inode| inode.number);
        assert_eq!(left.inodes, [renamed, inode(5, true), inode(7, true)]);
        assert_eq!((last.server(), last.slots.end), (2, next.slots.end));
    }

    #[test]
    fn a_server_that_makes_way_leaves_all_inodes_once() {
        let mut state = VolumeState::new(&StateFile::new().unwrap()).unwrap();
        state.put(&inode(2, true));
        let mut all = [inode(2, true), inode(3, false), inode(4, false)];
        all[0].is_unreported = true;
        state.leave(all.iter().cloned(), true).unwrap();
        let (mut next, left) = inherited(&state);
        assert!(!left.has_died && left.is_unreported);
        assert_eq!(left.inodes, all);
        next.put(&inode(8, true));
        let (last, left) = inherited(&next);
        assert!(left.has_died);
        assert_eq!(left.inodes, [inode(2, true), inode(8, true)]);
        last.leave(all.iter().take(1).cloned(), false).unwrap();
        let (_, left) = inherited(&last);
        assert!(!left.has_died && !left.is_unreported);
        assert_eq!(left.inodes, all[..1]);
    }

    #[test]
    fn a_list_that_says_it_is_longer_than_its_memory_is_refused() {
        let state = VolumeState::new(&StateFile::new().unwrap()).unwrap();
        let left = std::iter::once(inode(2, false));
        state.leave(left, false).unwrap();
        let file = state.share().unwrap();
        let start = state.slots.end * u64_from(SLOT);
        let absurd = 1 << 60;
        rustix::fs::ftruncate(&file, start + absurd).unwrap();
        state.write_head((start, absurd), false).unwrap();
        let refused = VolumeState::inherit(file).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_file_that_is_no_table_is_refused() {
        let state = VolumeState::new(&StateFile::new().unwrap()).unwrap();
        state
            .leave(std::iter::once(inode(2, false)), false)
            .unwrap();
        let file = state.share().unwrap();
        let whole = len(&file).unwrap();
        for short in [whole - 1, 47, 0] {
            rustix::fs::ftruncate(&file, short).unwrap();
            assert!(
                VolumeState::inherit(state.share().unwrap()).is_err(),
                "{short}"
            );
        }
    }
}
