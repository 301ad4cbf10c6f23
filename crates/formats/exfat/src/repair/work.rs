//! A round of a repair: the current volume, the owners of its clusters, and the order of writes.
//!
//! **Order.** Changes are kept in memory and committed in groups, each durable before the next
//! begins. So a power cut never makes the damage worse, and another run finishes the work:
//!
//! | group | what |
//! |---|---|
//! | BOOT | boot regions |
//! | MARK | `VolumeDirty` |
//! | TAKE | bits of clusters in use, and of new ones; contents and chains of the new ones |
//! | LINK | the cluster by which the root directory grows |
//! | ENTRIES | sets and other entries |
//! | CUTS | ends of chains |
//! | FREE | bits of lost clusters |
//! | CLEAR | `VolumeDirty` and `PercentInUse` |
//!
//! Chains are truncated late because other chains may share their clusters: by then each owner has
//! its own copy, or an entry with another length.

use std::rc::Rc;
use std::sync::Arc;

use forerun_io::{CommitError, Group, WriteBack, u64_from, usize_from};
use forerun_vfs::repair::RepairOptions;
use forerun_vfs::{Bound, Error, Result, Timestamp};

use super::report::{Desk, Finding, Kind};
use super::room::Reach;
use crate::bits::{Bits, clusters};
use crate::boot::FLAGS_AT;
use crate::chain::Chain;
use crate::error::Check;
use crate::ondisk::{END_OF_CHAIN, FIRST_CLUSTER, volume_flag};
use crate::volume::Volume;

pub const BOOT: Group = Group(0);
pub const MARK: Group = Group(1);
pub const TAKE: Group = Group(2);
pub const LINK: Group = Group(3);
pub const ENTRIES: Group = Group(4);
pub const CUTS: Group = Group(5);
pub const FREE: Group = Group(6);
pub const CLEAR: Group = Group(7);

/// Dirty bytes in memory above which changes are committed.
const MOST_DIRTY: u64 = 16 << 20;

/// Maximum number of changes that may wait for copies.
const MOST_LATER: usize = 1 << 16;

pub struct Work<'w, 'd> {
    pub volume: Rc<Volume>,
    pub back: Arc<WriteBack>,
    pub desk: &'w mut Desk<'d>,
    /// A dry run, which writes nothing.
    pub dry: bool,
    /// Lost clusters are kept as files.
    pub keeps_lost: bool,
    /// Time of the directories that the repair creates.
    pub now: Timestamp,
    /// Clusters that have an owner.
    pub claimed: Bits,
    /// Clusters of directories.
    pub directories: Bits,
    /// Clusters that entries refer to. Collected before the first allocation.
    pub reach: Option<Reach>,
    /// Changes of entries in clusters that files also refer to. They are written after each file
    /// has a copy.
    later: Vec<(u64, Vec<u8>)>,
    /// Allocated clusters that are not marked yet, because the bitmap itself lies in allocated
    /// clusters.
    unmarked: Vec<Chain>,
    /// Clusters that become the last of their chain.
    pub cuts: Vec<u32>,
    /// A requested repair was impossible because of unrepaired findings. Another round would find
    /// the same.
    pub is_stuck: bool,
    /// Another round is needed, whatever this one found.
    pub again: bool,
}

impl<'w, 'd> Work<'w, 'd> {
    /// Returns the state of a new round. Fails with `Limit` if memory is short.
    pub fn new(
        volume: Volume,
        back: Arc<WriteBack>,
        desk: &'w mut Desk<'d>,
        options: &RepairOptions,
    ) -> Result<Self> {
        let clusters = volume.boot.clusters;
        Ok(Self {
            volume: Rc::new(volume),
            back,
            desk,
            dry: options.dry_run,
            keeps_lost: options.keep_lost,
            now: options.now.unwrap_or_else(crate::time::now),
            claimed: Bits::new(clusters)?,
            directories: Bits::new(clusters)?,
            reach: None,
            later: Vec::new(),
            unmarked: Vec::new(),
            cuts: Vec::new(),
            again: false,
            is_stuck: false,
        })
    }

    /// Reports a finding with its remedy, and returns whether to repair it.
    pub fn ask(
        &mut self,
        kind: Kind,
        path: Option<&[u8]>,
        (check, offset): (Check, u64),
        remedy: impl Into<String>,
    ) -> bool {
        self.desk.ask(Finding {
            kind,
            path: path.map(<[u8]>::to_vec),
            error: check.at(None, offset),
            remedy: Some(remedy.into()),
        })
    }

    /// Reports a finding that cannot be repaired.
    pub fn leave(&mut self, kind: Kind, path: Option<&[u8]>, check: Check, offset: u64) {
        let error = check.at(None, offset);
        self.desk.leave(kind, path.map(<[u8]>::to_vec), error);
    }

    /// Changes metadata, except in a dry run.
    pub fn write(&mut self, group: Group, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.dry {
            return Ok(());
        }
        self.mark()?;
        put(&self.back, group, offset, bytes)
    }

    /// Changes entries of a directory. In a cluster that a file also refers to, the change waits
    /// until the file has a copy.
    pub fn edit(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.dry {
            return Ok(());
        }
        self.look_around()?;
        let cluster = self.volume.boot.cluster_of(offset);
        if cluster.is_some_and(|cluster| self.is_of_file(cluster)) {
            self.later.push((offset, bytes.to_vec()))
        } else {
            self.write(ENTRIES, offset, bytes)?
        }
        if self.later.len() > MOST_LATER {
            Err(Error::limit(
                Bound::Other,
                "changes in shared clusters",
                u64_from(MOST_LATER),
            ))
        } else {
            Ok(())
        }
    }

    /// Marks allocated clusters as used.
    pub fn mark_taken(&mut self, chain: &Chain) -> Result<()> {
        if clusters(&self.volume.bitmap).any(|cluster| self.is_of_file(cluster)) {
            self.unmarked.push(chain.clone());
            return Ok(());
        }
        clusters(chain).try_for_each(|cluster| self.mark_cluster(cluster, true))
    }

    /// Writes the changes that waited until each owner has its own clusters.
    pub fn catch_up(&mut self) -> Result<()> {
        if !self.later.is_empty() && !self.desk.is_certain() {
            // These clusters may still hold another file's data.
            self.later.clear();
            self.is_stuck = true;
        }
        for (offset, bytes) in std::mem::take(&mut self.later) {
            self.write(ENTRIES, offset, &bytes)?;
        }
        for chain in std::mem::take(&mut self.unmarked) {
            clusters(&chain).try_for_each(|cluster| self.mark_cluster(cluster, true))?;
        }
        Ok(())
    }

    fn mark(&self) -> Result<()> {
        let at = u64_from(FLAGS_AT);
        let mut flags = [0; 2];
        self.volume.read(at, &mut flags)?;
        let found = u16::from_le_bytes(flags);
        let flags = (found | volume_flag::VOLUME_DIRTY) & !volume_flag::CLEAR_TO_ZERO;
        if flags == found {
            Ok(())
        } else {
            put(&self.back, MARK, at, &flags.to_le_bytes())
        }
    }

    /// Returns the offset of a cluster's FAT word.
    pub fn fat_at(&self, cluster: u32) -> u64 {
        self.volume.boot.active_fat() + u64::from(cluster) * 4
    }

    /// Writes the FAT words of a chain that nothing refers to yet.
    pub fn write_chain(&mut self, chain: &Chain) -> Result<()> {
        let mut runs = chain.runs().iter().peekable();
        while let Some(run) = runs.next() {
            let last = run.cluster + (run.count - 1);
            let next = runs.peek().map_or(END_OF_CHAIN, |next| next.cluster);
            for cluster in run.cluster..last {
                self.write(TAKE, self.fat_at(cluster), &(cluster + 1).to_le_bytes())?;
            }
            self.write(TAKE, self.fat_at(last), &next.to_le_bytes())?;
        }
        Ok(())
    }

    /// Writes bytes to new clusters, from the first on.
    pub fn write_to(&mut self, chain: &Chain, bytes: &[u8]) -> Result<()> {
        let volume = Rc::clone(&self.volume);
        let mut rest = bytes;
        for (offset, len) in volume.pieces(chain, 0, u64_from(bytes.len())) {
            let (now, after) = rest.split_at(usize_from(len));
            self.write(TAKE, offset, now)?;
            rest = after;
            self.breathe()?;
        }
        Ok(())
    }

    /// Marks a cluster used or free in the bitmap.
    pub fn mark_cluster(&mut self, cluster: u32, used: bool) -> Result<()> {
        let Some((offset, mask)) = self.bit_at(cluster) else {
            return Ok(());
        };
        let mut byte = [0];
        self.volume.read(offset, &mut byte)?;
        let (byte, group) = if used {
            (byte.map(|bits| bits | mask), TAKE)
        } else {
            (byte.map(|bits| bits & !mask), FREE)
        };
        self.write(group, offset, &byte)
    }

    /// Returns the offset of the bitmap byte of a cluster, and the mask of its bit.
    pub fn bit_at(&self, cluster: u32) -> Option<(u64, u8)> {
        let index = cluster.checked_sub(FIRST_CLUSTER)?;
        let bitmap = &self.volume.bitmap;
        let pieces = self.volume.pieces(bitmap, u64::from(index / 8), 1);
        let &(offset, _) = pieces.first()?;
        Some((offset, 1 << (index % 8)))
    }

    /// Commits if many changes are pending. Call it only between sets.
    pub fn breathe(&mut self) -> Result<()> {
        if self.back.dirty_bytes() > MOST_DIRTY {
            commit(&self.back, &[BOOT, MARK, TAKE, LINK, ENTRIES])
        } else {
            Ok(())
        }
    }

    /// Truncates the recorded chains, and commits everything except frees.
    pub fn settle(&mut self) -> Result<()> {
        let cuts = std::mem::take(&mut self.cuts);
        // Chains stay unchanged while another entry may have the same clusters.
        if self.desk.is_certain() {
            for cluster in cuts {
                self.write(CUTS, self.fat_at(cluster), &END_OF_CHAIN.to_le_bytes())?;
            }
        }
        commit(&self.back, &[BOOT, MARK, TAKE, LINK, ENTRIES, CUTS])
    }
}

pub fn put(back: &WriteBack, group: Group, offset: u64, bytes: &[u8]) -> Result<()> {
    let written = back.write(group, offset, bytes);
    written.map_err(|error| Error::io(offset, bytes.len(), error))
}

pub fn commit(back: &WriteBack, order: &[Group]) -> Result<()> {
    let failed = |error: CommitError| Error::write(error.offset, error.len, error.source);
    back.commit(order).map_err(failed)
}
