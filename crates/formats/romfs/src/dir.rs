//! Directories, which are read once and then looked up in an index.

use std::collections::HashSet;

use forerun_vfs::{Error, FileType, NodeId, Result};

use crate::chain::Chain;
use crate::error::Check;
use crate::header::Header;
use crate::image::Image;

/// An entry and its node, with hard links followed.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: Box<[u8]>,
    pub header: u64,
    pub node: NodeId,
    pub kind: FileType,
}

/// Converts a header to an entry. Returns `None` for `.` and `..`.
pub fn entry(image: &Image, dir: NodeId, header: Header) -> Result<Option<Entry>> {
    if header.is_dot() {
        return Ok(None);
    }
    header
        .check_name(image.limits.name_len)
        .map_err(|check| check.at(Some(dir), header.offset))?;
    let (name, at) = (header.name.clone().into_boxed_slice(), header.offset);
    let file = image.follow(header)?;
    let node = NodeId(file.offset);
    // `follow` never returns a hard link.
    Ok(file.file_type().map(|kind| Entry {
        name,
        header: at,
        node,
        kind,
    }))
}

/// A directory that was read to its end, or to the break in its chain.
#[derive(Debug, Default)]
pub struct Index {
    pub entries: Vec<Entry>,
    /// Positions in `entries`, sorted by name.
    by_name: Vec<u32>,
    /// The first defect of the directory. Entries after it are included as far as the chain leads
    /// to them; unusable entries are left out.
    pub damage: Option<Error>,
    /// Approximate memory in bytes.
    pub bytes: usize,
}

impl Index {
    /// Builds the index of the directory whose first header is at `first`. Returns `None` if it
    /// takes more than `budget` bytes. Records damage in the index. Fails only with `Io`, which may
    /// not recur.
    pub fn build(image: &Image, dir: NodeId, first: u64, budget: usize) -> Result<Option<Self>> {
        let mut index = Self::default();
        let mut seen = HashSet::new();
        for header in Chain::new(image, dir, first) {
            let again = header
                .as_ref()
                .is_ok_and(|header| !seen.insert(header.offset));
            let added = match header {
                Ok(header) if again => Err(Check::ChainLoop.at(Some(dir), header.offset)),
                Ok(header) => entry(image, dir, header),
                Err(error) => Err(error),
            };
            index.bytes += SEEN_BYTES;
            match added {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    index.bytes += entry_bytes(&entry.name);
                    index.entries.push(entry);
                }
                Err(error @ Error::Io { .. }) => return Err(error),
                Err(error) => {
                    index.damage.get_or_insert(error);
                }
            }
            if again {
                break;
            }
            if index.bytes > budget {
                return Ok(None);
            }
        }
        index.sort(dir);
        Ok(Some(index))
    }

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

    /// Sorts the names. Of several entries with one name only the first is kept, and the second is
    /// reported as damage.
    fn sort(&mut self, dir: NodeId) {
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
            let check = Check::DuplicateName {
                name: String::from_utf8_lossy(&later.name).into_owned(),
                first: first.header,
            };
            let duplicate = check.at(Some(dir), later.header);
            self.damage.get_or_insert(duplicate);
            let mut kept = by_name;
            kept.sort_unstable();
            self.entries = kept
                .iter()
                .filter_map(|&at| self.entry(at).cloned())
                .collect();
            // All names differ now, so this call is the last.
            return self.sort(dir);
        }
        self.by_name = by_name;
    }
}

/// Memory per header that the loop detection remembers.
const SEEN_BYTES: usize = 24;

/// Estimates the memory of an entry, including the allocator's overhead for the name.
fn entry_bytes(name: &[u8]) -> usize {
    name.len() + 16 + size_of::<Entry>() + size_of::<u32>()
}
