//! Directories: chains of headers, walked once and then looked up in an index.
//!
//! A chain is a list that an image can tie into a loop, so it is never followed for longer than it
//! is new: the index is made from one walk that notices the first header met twice. Directories too
//! large for the budget are walked each time instead, counting against the number of headers that
//! the image has room for.

use std::collections::HashSet;
use std::sync::Arc;

use forerun_io::u64_from;
use forerun_vfs::{Error, FileType, NodeId, Result};
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::error::Check;
use crate::header::{Header, Kind};
use crate::image::Image;
use crate::ondisk::HEADER_LEN;

/// An entry and the node it names, hard links followed.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Box<[u8]>,
    /// Offset of the header that bears the name.
    pub header: u64,
    pub node: NodeId,
    pub kind: FileType,
}

/// A directory that was walked to its end, or to the first damage.
#[derive(Debug)]
pub struct Index {
    pub entries: Vec<Entry>,
    /// Positions in `entries`, by name.
    by_name: Vec<u32>,
    /// What ended the walk early.
    pub damage: Option<Error>,
}

impl Index {
    /// The entry of that name.
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        let at = self
            .by_name
            .binary_search_by(|&at| self.name(at).cmp(name))
            .ok()?;
        self.entry(*self.by_name.get(at)?)
    }

    fn entry(&self, at: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(at).ok()?)
    }

    fn name(&self, at: u32) -> &[u8] {
        self.entry(at).map_or(b"", |entry| &entry.name)
    }

    /// Puts the names in order. Of several entries with one name only the first is kept, and the
    /// second is damage.
    fn sort(&mut self) {
        let mut by_name: Vec<u32> = (0..).take(self.entries.len()).collect();
        by_name.sort_by(|&a, &b| self.name(a).cmp(self.name(b)).then(a.cmp(&b)));
        let mut second = None;
        by_name.dedup_by(|&mut later, &mut first| {
            let same = self.name(later) == self.name(first);
            if same && second.is_none_or(|(at, _)| later < at) {
                second = Some((later, first));
            }
            same
        });
        let pair = second.and_then(|(later, first)| self.entry(later).zip(self.entry(first)));
        if let Some((later, first)) = pair {
            let name = String::from_utf8_lossy(&later.name).into_owned();
            let check = Check::DuplicateName {
                name,
                first: first.header,
            };
            self.damage = Some(check.at(Some(later.node), later.header));
            let mut kept = by_name.clone();
            kept.sort_unstable();
            self.entries = kept
                .iter()
                .filter_map(|&at| self.entry(at).cloned())
                .collect();
            return self.sort();
        }
        self.by_name = by_name;
    }
}

/// Rough bytes of an entry in memory.
fn entry_bytes(name: &[u8]) -> usize {
    name.len() + size_of::<Entry>() + size_of::<u32>()
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<u64, Arc<Index>> for ByBytes {
    fn weight(&self, _dir: &u64, index: &Arc<Index>) -> u64 {
        let bytes = index.entries.iter().map(|entry| entry_bytes(&entry.name));
        64 + u64_from(bytes.fold(0, usize::saturating_add))
    }
}

/// Indexes of the directories used last, together within [`Limits::dir_index_bytes`](forerun_vfs::Limits).
pub struct Indexes {
    budget: usize,
    cache: Cache<u64, Arc<Index>, ByBytes>,
}

impl Indexes {
    pub fn new(budget: usize) -> Self {
        Self {
            budget,
            cache: Cache::with_weighter((budget / 4096).max(16), u64_from(budget), ByBytes),
        }
    }

    /// The index of the directory whose first header is at `first`; nothing where it is too large.
    pub fn get(&self, image: &Image, first: u64) -> Result<Option<Arc<Index>>> {
        if let Some(index) = self.cache.get(&first) {
            return Ok(Some(index));
        }
        // A quarter: one directory must not drive out all others.
        let Some(index) = build(image, first, self.budget / 4)? else {
            return Ok(None);
        };
        let index = Arc::new(index);
        self.cache.insert(first, Arc::clone(&index));
        Ok(Some(index))
    }
}

/// Walks a chain. Damage is kept in the index; a source that fails is an error now and may work the
/// next time.
fn build(image: &Image, first: u64, budget: usize) -> Result<Option<Index>> {
    let mut index = Index {
        entries: Vec::new(),
        by_name: Vec::new(),
        damage: None,
    };
    let mut seen = HashSet::new();
    let mut bytes = 0usize;
    let chain = Chain::new(image, first);
    for header in chain {
        let entry = header.and_then(|header| {
            if !seen.insert(header.offset) {
                return Err(Check::ChainLoop.at(Some(NodeId(header.offset)), header.offset));
            }
            entry(image, header)
        });
        match entry {
            Ok(None) => {}
            Ok(Some(entry)) => {
                bytes = bytes.saturating_add(entry_bytes(&entry.name));
                index.entries.push(entry);
            }
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => {
                index.damage = Some(error);
                break;
            }
        }
        if bytes > budget {
            return Ok(None);
        }
    }
    index.sort();
    Ok(Some(index))
}

/// What a header is as an entry; nothing for `.` and `..`.
pub fn entry(image: &Image, header: Header) -> Result<Option<Entry>> {
    if header.is_dot() {
        return Ok(None);
    }
    header.check_name(image.limits.name_len)?;
    let (name, at) = (header.name.clone().into_boxed_slice(), header.offset);
    let file = image.follow(header)?;
    let node = NodeId(file.offset);
    // `follow` ends at what is no hard link.
    Ok(file.file_type().map(|kind| Entry {
        name,
        header: at,
        node,
        kind,
    }))
}

/// The headers of a directory, in the image's order. Ends after an error, and after as many headers
/// as the image has room for.
pub struct Chain<'a> {
    image: &'a Image,
    next: Option<u64>,
    left: u64,
}

impl<'a> Chain<'a> {
    pub fn new(image: &'a Image, first: u64) -> Self {
        Self::resume(image, first, 0)
    }

    /// Goes on at the header at `next` after `done` others.
    pub fn resume(image: &'a Image, next: u64, done: u64) -> Self {
        // A header takes at least 16 bytes, its name 16 more.
        let most = (image.superblock.full_size / (2 * HEADER_LEN)).min(image.limits.dir_entries);
        Self {
            image,
            next: Some(next).filter(|&next| next != 0),
            left: most.saturating_sub(done),
        }
    }

    /// Offset of the header that comes next.
    pub const fn position(&self) -> Option<u64> {
        self.next
    }
}

impl Iterator for Chain<'_> {
    type Item = Result<Header>;

    fn next(&mut self) -> Option<Result<Header>> {
        let offset = self.next.take()?;
        if self.left == 0 {
            let limit = self.image.limits.dir_entries;
            return Some(Err(
                Check::TooManyEntries { limit }.at(Some(NodeId(offset)), offset)
            ));
        }
        self.left -= 1;
        let header = self.image.header(offset);
        if let Ok(header) = &header {
            self.next = header.next;
        }
        Some(header)
    }
}

/// Offset of a directory's first header.
pub fn first(header: &Header) -> Result<u64> {
    match header.kind {
        Kind::Directory { first } => Ok(first),
        _ => Err(Error::NotADirectory),
    }
}
