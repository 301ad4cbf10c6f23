//! Directory listings like those of `ls`.

use std::ops::ControlFlow;

use forerun_engine::Reader;
use forerun_io::u64_from;
use forerun_vfs::{Bound, DirCursor, Error, FileType, Held, Metadata, NodeId};

#[derive(Clone, Debug)]
pub struct ListEntry {
    pub name: Vec<u8>,
    /// The entry's node; the same for hard links.
    pub node: NodeId,
    /// Metadata, or the error reading it.
    pub metadata: Result<Metadata, Error>,
    pub target: Option<Result<Vec<u8>, Error>>,
}

impl ListEntry {
    #[must_use]
    pub fn of(reader: &Reader, name: &[u8], node: NodeId) -> Self {
        let metadata = reader.fs().metadata(node);
        let is_link = metadata
            .as_ref()
            .is_ok_and(|metadata| metadata.kind == FileType::Symlink);
        let target = is_link.then(|| reader.fs().read_link(node));
        Self {
            name: name.to_vec(),
            node,
            metadata,
            target,
        }
    }
}

/// The names of a directory in byte order. Metadata is read on request, so that a long directory
/// needs little memory.
#[derive(Debug, Default)]
pub struct Listing {
    names: Vec<u8>,
    entries: Vec<Named>,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    start: usize,
    end: usize,
    node: NodeId,
}

impl Listing {
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = (&[u8], NodeId)> {
        self.entries
            .iter()
            .map(|entry| (self.name(entry), entry.node))
    }

    /// Returns the bytes of memory that [`list`] has counted.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.names.len() + self.entries.len() * size_of::<Named>()
    }

    fn name(&self, entry: &Named) -> &[u8] {
        &self.names[entry.start..entry.end]
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|one, other| {
            let names = self.name(one).cmp(self.name(other));
            names.then(one.node.cmp(&other.node))
        });
        self.entries = entries;
    }
}

/// Reads the names of a directory. Also returns the error that ended the listing early: damage,
/// more entries than [`Limits::dir_entries`](forerun_vfs::Limits::dir_entries), or exhausted memory
/// in `held`.
#[must_use]
pub fn list(reader: &Reader, dir: NodeId, held: &mut Held) -> (Listing, Option<Error>) {
    let (mut listing, limit) = (Listing::default(), reader.limits().dir_entries);
    let mut over = None;
    let result = reader.fs().read_dir(dir, DirCursor::START, &mut |entry| {
        if u64_from(listing.len()) >= limit {
            let what = format!("number of entries of directory {dir}");
            over = Some(Error::limit(Bound::Entries, what, limit));
        } else {
            over = held.add(entry.name.len() + size_of::<Named>()).err();
        }
        if over.is_some() {
            return ControlFlow::Break(());
        }
        let start = listing.names.len();
        listing.names.extend_from_slice(entry.name);
        listing.entries.push(Named {
            start,
            end: listing.names.len(),
            node: entry.node,
        });
        ControlFlow::Continue(())
    });
    listing.sort();
    (listing, result.err().or(over))
}
