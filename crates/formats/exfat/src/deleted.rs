//! Deleted files: entry sets that are marked unused, and the remains of their data.
//!
//! Systems delete a file by marking its entries unused and its clusters free. The data stays on the
//! volume until either is reused. The set locates the clusters of a contiguous file. Only the FAT
//! locates those of a fragmented file, and its words for free clusters may already belong to
//! another file.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use forerun_io::u64_from;
use forerun_vfs::{Bound, Error, FileType, NodeId, Result, Timestamp};

use crate::bits::{Bits, clusters};
use crate::chain::Chain;
use crate::clusters;
use crate::dir::{self, Slots};
use crate::entry_set::EntrySet;
use crate::error::Check;
use crate::moving;
use crate::nodes::ROOT;
use crate::ondisk::{ENTRY, kind};
use crate::place::Place;
use crate::session::Session;
use crate::steps::Step;
use crate::time::Stamp;
use crate::volume::Volume;

/// The condition of a deleted file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// The file was contiguous, and none of its clusters was reused.
    Whole,
    /// Some of its clusters were reused.
    Overwritten,
    /// The file was fragmented, and only the FAT locates its clusters.
    Fragmented,
}

/// A deleted file. Its node can be read like any other.
#[derive(Clone, Debug)]
pub struct DeletedFile {
    pub node: NodeId,
    /// Path from the root, without a leading slash.
    pub path: Vec<u8>,
    pub size: u64,
    pub modified: Timestamp,
    pub remains: Remains,
    /// Ranges of the file that are lost, in order.
    pub lost: Vec<Range<u64>>,
}

struct DeletedSet {
    id: NodeId,
    path: Rc<Step>,
    /// Time of creation and of the last change.
    age: (Timestamp, Timestamp),
}

/// Returns the deleted files of a volume that was opened for rescue, newest first. Fails if a part of
/// the allocation bitmap is missing: whether a file is whole would be a guess.
pub fn find(session: &Session<'_>) -> Result<Vec<DeletedFile>> {
    let volume = session.volume;
    let bitmap_len = u64::from(volume.boot.clusters).div_ceil(8);
    if u64::from(volume.bitmap.clusters()) < volume.boot.clusters_for(bitmap_len) {
        let what = "allocation bitmap";
        return Err(Check::Missing { what }.at(None, 0));
    }
    let mut taken = Bits::marked(volume)?;
    let mut files = Vec::new();
    let mut search = Search {
        volume,
        taken: &taken,
        seen: Bits::new(volume.boot.clusters)?,
        live: HashSet::new(),
        found: Vec::new(),
    };
    search.run()?;
    let Search {
        mut live, found, ..
    } = search;
    for found in found {
        let Some(place) = Place::of(found.id) else {
            continue;
        };
        let set = dir::read_set(volume, found.id, place)?;
        let data = set.data();
        // A rename across sectors leaves the old set of a file behind.
        if data.first != 0 && !live.insert((data.first, data.len)) {
            continue;
        }
        let size = data.len.min(volume.boot.heap_len());
        let chain = clusters::chain(volume, Some(found.id), place.offset, data)?;
        let valid = set.valid_len().min(size);
        let lost = take(volume, &chain, valid, &mut taken);
        let is_short = u64::from(chain.clusters()) < volume.boot.clusters_for(size);
        let remains = if !data.contiguous && (is_short || !chain.is_contiguous()) {
            Remains::Fragmented
        } else if lost.is_empty() {
            Remains::Whole
        } else {
            Remains::Overwritten
        };
        files.push(DeletedFile {
            node: found.id,
            path: found.path.path(),
            size,
            modified: found.age.1,
            remains,
            lost,
        });
    }
    Ok(files)
}

/// Claims the clusters of a deleted file, so that no older file gets them. Returns the ranges of
/// its first `valid` bytes that were claimed before, or have no cluster.
fn take(volume: &Volume, chain: &Chain, valid: u64, taken: &mut Bits) -> Vec<Range<u64>> {
    let size = volume.boot.cluster_size();
    let mut lost: Vec<Range<u64>> = Vec::new();
    let mut lose = |range: Range<u64>| match lost.last_mut() {
        _ if range.is_empty() => {}
        Some(last) if last.end == range.start => last.end = range.end,
        _ => lost.push(range),
    };
    let mut at = 0;
    for cluster in clusters(chain) {
        if at == valid {
            break;
        }
        let end = valid.min(at + size);
        if taken.has(cluster) {
            lose(at..end);
        }
        taken.set(cluster);
        at = end;
    }
    lose(at..valid);
    lost
}

/// A search for unused entry sets in all directories.
struct Search<'a> {
    volume: &'a Volume,
    taken: &'a Bits,
    /// Clusters of directories that were read.
    seen: Bits,
    /// First cluster and length of the files that are not deleted.
    live: HashSet<(u32, u64)>,
    found: Vec<DeletedSet>,
}

/// A directory that the search has yet to read.
struct Left {
    id: NodeId,
    chain: Chain,
    path: Option<Rc<Step>>,
    is_deleted: bool,
}

impl Search<'_> {
    fn run(&mut self) -> Result<()> {
        let mut left = vec![Left {
            id: ROOT,
            chain: clusters::root_chain(self.volume)?,
            path: None,
            is_deleted: false,
        }];
        while let Some(dir) = left.pop() {
            if clusters(&dir.chain).any(|cluster| self.seen.has(cluster)) {
                continue;
            }
            self.seen.set_all(&dir.chain);
            self.directory(&dir, &mut left)?;
        }
        self.found.sort_by_key(|set| Reverse(set.age));
        Ok(())
    }

    fn directory(&mut self, dir: &Left, left: &mut Vec<Left>) -> Result<()> {
        let mut slots = Slots::whole(self.volume, &dir.chain, Some(dir.id));
        let mut slot = 0;
        while let Some(first) = slots.entry(slot)? {
            let set = self.set(&mut slots, slot, &first)?;
            let place = set
                .as_ref()
                .and_then(|set| slots.place(slot, set.entries()));
            if let (Some(set), Some(place)) = (&set, place) {
                let is_deleted = dir.is_deleted || first[0] == kind::UNUSED;
                self.item(dir, left, (set, place.id(), is_deleted))?;
            }
            let entries = set.map_or(1, |set| set.entries());
            slot += u32::try_from(entries).unwrap_or(1);
        }
        Ok(())
    }

    /// Returns the set that begins at `slot`, marked unused or not.
    fn set(
        &self,
        slots: &mut Slots<'_>,
        slot: u32,
        first: &[u8; ENTRY],
    ) -> Result<Option<EntrySet>> {
        if !matches!(first[0], kind::FILE | kind::UNUSED) {
            return Ok(None);
        }
        let mut bytes = first.to_vec();
        for index in 1..=u32::from(first[1]) {
            bytes.extend(slots.entry(slot + index)?.unwrap_or_default());
        }
        let set = if first[0] == kind::FILE {
            EntrySet::parse(bytes).ok()
        } else {
            moving::restored(bytes)
        };
        Ok(set.filter(|set| set.visible_name().is_ok()))
    }

    fn item(
        &mut self,
        dir: &Left,
        left: &mut Vec<Left>,
        (set, id, is_deleted): (&EntrySet, NodeId, bool),
    ) -> Result<()> {
        let data = set.data();
        let is_directory = set.file_type() == FileType::Directory;
        if !is_deleted && !is_directory {
            self.live.insert((data.first, data.len));
            return Ok(());
        }
        let path = Step::below(dir.path.as_ref(), crate::name::to_bytes(&set.name()));
        if is_directory {
            let chain = clusters::chain(self.volume, Some(id), 0, data)?;
            let is_free = !clusters(&chain).any(|cluster| self.taken.has(cluster));
            if !is_deleted || is_free {
                left.push(Left {
                    id,
                    chain,
                    path: Some(path),
                    is_deleted,
                });
            }
            return Ok(());
        }
        let zone = &self.volume.ownership.zone;
        let time = |stamp: Stamp| stamp.to_timestamp(zone);
        self.found.push(DeletedSet {
            id,
            path,
            age: (time(set.created()), time(set.modified())),
        });
        let limit = self.volume.limits.tree_entries;
        if u64_from(self.found.len()) > limit {
            let what = "entries of all directories";
            return Err(Error::limit(Bound::Entries, what, limit));
        }
        Ok(())
    }
}
