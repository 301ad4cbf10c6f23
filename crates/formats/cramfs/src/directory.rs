//! Reads all entries of a directory, and sorts them by name.
//!
//! A directory is a sequence of inodes, each followed by its name. Entries can only be found one
//! after the other, so a lookup in the bytes would pass over half of them. The image may claim that
//! entries are sorted, but the claim may be wrong; so the driver sorts them itself.

use std::ops::ControlFlow;

use forerun_io::{Weighed, u64_from, usize_from};
use forerun_vfs::{Bound, ByteOrder, Error, FileType, NodeId, Result, check_name};

use crate::error::Check;
use crate::image::Image;
use crate::inode::Inode;
use crate::ondisk::INODE_LEN;

/// Number of bytes read at once, so that the entries before an unreadable part can be shown.
const PIECE: u64 = 64 << 10;
/// Most damaged entries; the rest of such a directory is not read. Directories of a hostile image
/// may overlap, and each of a million could hold a million damaged entries.
const DAMAGED_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub name: &'a [u8],
    pub node: NodeId,
    pub kind: FileType,
}

/// The usable entries of a directory.
#[derive(Debug)]
pub struct Directory {
    start: u64,
    order: ByteOrder,
    bytes: Vec<u8>,
    /// Positions in `bytes`, in the image's order.
    entries: Vec<u32>,
    /// Positions in `bytes`, in the order of names.
    by_name: Vec<u32>,
    /// The first defect. Usable entries after it are in `entries`, as far as they can be found.
    pub damage: Option<Error>,
    /// The last entry, if it reaches past the end of the directory. Linux reads all of it.
    pub cut: Option<Error>,
}

impl Directory {
    /// Reads the entries of the directory `dir`. Records damaged entries and unreadable parts in
    /// [`damage`](Self::damage). Fails with `Corrupt` only if no entry can lie in the image.
    pub fn load(image: &Image, dir: NodeId, inode: &Inode) -> Result<Self> {
        let (start, size) = (inode.offset, u64::from(inode.size));
        let mut directory = Self {
            start,
            order: image.superblock.order,
            bytes: Vec::new(),
            entries: Vec::new(),
            by_name: Vec::new(),
            damage: None,
            cut: None,
        };
        if size == 0 {
            return Ok(directory);
        }
        let image_len = image.superblock.image_len;
        if !image.contains(start, size) || start < image.superblock.end() {
            let check = Check::EntriesOutside {
                start,
                size,
                image_len,
            };
            let error = check.at(Some(dir), dir.0);
            if start < image.superblock.end() || start >= image_len {
                return Err(error);
            }
            directory.damage = Some(error);
        }
        directory.read(&mut Scan::new(image, dir), size.min(image_len - start));
        directory.sort(dir);
        Ok(directory)
    }

    /// Reads and finds entries up to the end, or to the first defect after which no entry can be
    /// used.
    fn read(&mut self, scan: &mut Scan<'_>, size: u64) {
        let mut done = 0;
        while done < size {
            let len = PIECE.min(size - done);
            match scan.image.read(self.start + done, len) {
                Ok(piece) => self.bytes.extend_from_slice(&piece),
                // A read error replaces earlier damage, because it means that the directory may be
                // read again.
                Err(error) => {
                    self.damage = Some(error);
                    return;
                }
            }
            done += len;
            if scan.entries(self, done == size).is_break() {
                return;
            }
        }
    }

    fn entry_at(&self, at: usize, name_limit: usize) -> Result<Entry<'_>, Check> {
        let name = self.name(at);
        if name.is_empty() {
            return Err(Check::NoName);
        }
        check_name(name, name_limit).map_err(|source| Check::Name {
            name: lossy(name),
            source,
        })?;
        Ok(Entry {
            name,
            node: NodeId(self.start + u64_from(at)),
            kind: Inode::parse(&self.bytes[at..], self.order)?.kind,
        })
    }

    /// Returns the name of the entry at `at`, without its padding.
    fn name(&self, at: usize) -> &[u8] {
        let rest = &self.bytes[at..];
        let end = INODE_LEN + Inode::name_len_of(rest, self.order);
        let mut name = &rest[INODE_LEN..end];
        while let [shorter @ .., 0] = name {
            name = shorter;
        }
        name
    }

    fn name_of(&self, position: u32) -> &[u8] {
        self.name(usize_from(u64::from(position)))
    }

    /// Sorts the entries by name. Of several entries with one name only the first is kept, and the
    /// second is reported as damage.
    fn sort(&mut self, dir: NodeId) {
        let mut by_name = self.entries.clone();
        let order = |a: &u32, b: &u32| self.name_of(*a).cmp(self.name_of(*b)).then(a.cmp(b));
        if !by_name.is_sorted_by(|a, b| order(a, b).is_lt()) {
            by_name.sort_unstable_by(order);
        }
        let mut dropped: Vec<(u32, u32)> = Vec::new();
        by_name.dedup_by(|later, first| {
            let same = self.name_of(*later) == self.name_of(*first);
            if same {
                dropped.push((*later, *first));
            }
            same
        });
        dropped.sort_unstable();
        if let Some(&(later, first)) = dropped.first() {
            let duplicate = Check::DuplicateName {
                name: lossy(self.name_of(later)),
                first: self.start + u64::from(first),
            };
            let error = duplicate.at(Some(dir), self.start + u64::from(later));
            self.damage.get_or_insert(error);
            self.entries
                .retain(|at| dropped.binary_search_by_key(at, |&(at, _)| at).is_err());
        }
        self.by_name = by_name;
    }

    pub fn find(&self, name: &[u8]) -> Option<Entry<'_>> {
        let found = self
            .by_name
            .binary_search_by(|&at| self.name_of(at).cmp(name));
        self.entry(*self.by_name.get(found.ok()?)?)
    }

    /// Returns the entries after the first `skip`, in the image's order.
    pub fn entries(&self, skip: u64) -> impl Iterator<Item = Entry<'_>> {
        let rest = self.entries.iter().skip(usize_from(skip));
        rest.filter_map(|&at| self.entry(at))
    }

    /// Returns the entry at a position that was found to be sound.
    fn entry(&self, position: u32) -> Option<Entry<'_>> {
        self.entry_at(usize_from(u64::from(position)), usize::MAX)
            .ok()
    }
}

impl Weighed for Directory {
    fn weight(&self) -> u64 {
        let positions = self.entries.capacity() + self.by_name.capacity();
        u64_from(64 + size_of::<Self>() + self.bytes.capacity() + positions * size_of::<u32>())
    }
}

struct Scan<'a> {
    image: &'a Image,
    dir: NodeId,
    at: usize,
    damaged: usize,
}

impl<'a> Scan<'a> {
    const fn new(image: &'a Image, dir: NodeId) -> Self {
        Self {
            image,
            dir,
            at: 0,
            damaged: 0,
        }
    }

    /// Finds the entries in the bytes that were read. Breaks when no further entry can be used.
    /// Leaves out unusable entries; the length of their names still gives the start of the next
    /// entry.
    fn entries(&mut self, directory: &mut Directory, is_all: bool) -> ControlFlow<()> {
        let limits = &self.image.limits;
        while self.at < directory.bytes.len() {
            let rest = &directory.bytes[self.at..];
            let name_len = match rest.len() {
                0..INODE_LEN => 0,
                _ => Inode::name_len_of(rest, directory.order),
            };
            let len = INODE_LEN + name_len;
            let at = directory.start + u64_from(self.at);
            let fail = |check: Check| check.at(Some(self.dir), at);
            if len > rest.len() {
                if !is_all {
                    return ControlFlow::Continue(());
                }
                let end = at + u64_from(rest.len());
                let check = match rest.len() {
                    len @ 0..INODE_LEN => Check::InodeCut { len },
                    _ => Check::NameCut { len: name_len, end },
                };
                let missing = u64_from(len - rest.len());
                let cut = fail(check);
                if !self.image.contains(end, missing) {
                    directory.damage.get_or_insert(cut);
                    return ControlFlow::Break(());
                }
                match self.image.read(end, missing) {
                    Ok(bytes) => directory.bytes.extend_from_slice(&bytes),
                    Err(error) => {
                        directory.damage = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                directory.cut.get_or_insert(cut);
                continue;
            }
            if u64_from(directory.entries.len()) >= limits.dir_entries {
                let what = format!("number of entries of directory {}", self.dir);
                let error = Error::limit(Bound::Entries, what, limits.dir_entries);
                directory.damage.get_or_insert(error);
                return ControlFlow::Break(());
            }
            match directory.entry_at(self.at, limits.name_len).map(|_| ()) {
                // A directory has less than 2^24 bytes.
                Ok(()) => directory.entries.extend(u32::try_from(self.at)),
                Err(check) => {
                    directory.damage.get_or_insert(fail(check));
                    self.damaged += 1;
                    if self.damaged == DAMAGED_MAX {
                        return ControlFlow::Break(());
                    }
                }
            }
            self.at += len;
        }
        ControlFlow::Continue(())
    }
}

pub fn lossy(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
