//! Checks the volume as a whole: boot regions and FAT, and the bitmap against all allocations.
//!
//! The check keeps one bit per cluster. It can therefore report the second owner of a cluster, but
//! not name the first.

use std::collections::HashMap;
use std::rc::Rc;

use forerun_io::usize_from;
use forerun_vfs::{Bound, Error, FileType, NodeId, Problem, Result};

use super::Report;
use crate::bits::{self, Bits};
use crate::boot::PERCENT_UNKNOWN;
use crate::chain::Chain;
use crate::clusters;
use crate::dir::{Found, Slots};
use crate::entry_set::{Allocation, EntrySet};
use crate::error::Check;
use crate::fat::Fat;
use crate::nodes::ROOT;
use crate::ondisk::{BAD_CLUSTER, END_OF_CHAIN, FIRST_CLUSTER, kind, volume_flag};
use crate::place::Place;
use crate::session::Session;
use crate::steps::Step;
use crate::volume::Volume;

/// Maximum number of runs of clusters that are reported per kind.
const TOLD: usize = 1000;
/// The first two words of a sound FAT: media type and end of chain.
const FAT_HEAD: u64 = 0xFFFF_FFFF_FFFF_FFF8;

/// Checks the state in the boot sector, the backup boot region, the first words of the FAT, and the
/// bitmap against all allocations.
pub fn volume(session: &mut Session<'_>, problems: &mut Vec<Problem>) -> Result<()> {
    let volume = session.volume;
    let mut report = Report {
        node: None,
        problems,
    };
    let flags = session.state.pending.flags;
    if flags & volume_flag::VOLUME_DIRTY != 0 {
        report.add(false, Check::Dirty.at(None, 0));
    }
    if flags & volume_flag::MEDIA_FAILURE != 0 {
        report.add(false, Check::MediaFailure.at(None, 0));
    }
    for error in &volume.passed_over {
        report.add(true, error.clone());
    }
    let boot = &volume.boot;
    if let Some(check) = boot.length_check(volume.source.len()) {
        report.add(false, check.at(None, 0));
    }
    if let Some(revision) = boot.unknown_revision() {
        report.add(true, Error::Unsupported(revision));
    }
    backup(volume, &mut report)?;
    fat_head(volume, &mut report)?;
    let mut used = Used::new(volume)?;
    used.system(&mut report)?;
    used.tree(&mut report)?;
    if session.store.is_none() {
        session.state.behind_ends = std::mem::take(&mut used.behind_ends);
    }
    for (id, data) in session.state.pending.known_orphans() {
        let chain = clusters::chain(volume, Some(id), 0, data);
        used.take(chain, (Some(id), 0), &|| Vec::new(), &mut report)?;
    }
    used.compare(&mut report)
}

/// Checks the first two words of the FAT, which belong to no cluster.
fn fat_head(volume: &Volume, report: &mut Report<'_>) -> Result<()> {
    let at = volume.boot.active_fat();
    let mut words = [0; 8];
    volume.read(at, &mut words)?;
    let found = u64::from_le_bytes(words);
    if found != FAT_HEAD {
        report.add(false, Check::FatHead { found }.at(None, at));
    }
    Ok(())
}

fn backup(volume: &Volume, report: &mut Report<'_>) -> Result<()> {
    if volume.from_backup {
        report.add(true, Check::MainBoot.at(None, 0));
        return Ok(());
    }
    let len = usize_from(volume.boot.region_len());
    // Twelve sectors of at most 4 KiB.
    let (mut main, mut backup) = (vec![0; len], vec![0; len]);
    volume.read(0, &mut main)?;
    volume.read(volume.boot.region_len(), &mut backup)?;
    for changing in [
        crate::boot::FLAGS_AT,
        crate::boot::FLAGS_AT + 1,
        crate::boot::PERCENT_AT,
    ] {
        if let (Some(main), Some(backup)) = (main.get_mut(changing), backup.get(changing)) {
            *main = *backup;
        }
    }
    if main != backup {
        let at = volume.boot.region_len();
        report.add(false, Check::BackupDiffers.at(None, at));
    }
    Ok(())
}

/// The clusters that are in use.
struct Used<'a> {
    volume: &'a Volume,
    bits: Bits,
    behind_ends: HashMap<NodeId, Option<Error>>,
}

impl<'a> Used<'a> {
    fn new(volume: &'a Volume) -> Result<Self> {
        Ok(Self {
            volume,
            bits: Bits::new(volume.boot.clusters)?,
            behind_ends: HashMap::new(),
        })
    }

    /// Claims the clusters of the item at `path`, and returns whether no other item has them.
    fn take(
        &mut self,
        chain: Result<Chain>,
        (node, at): (Option<NodeId>, u64),
        path: &dyn Fn() -> Vec<u8>,
        report: &mut Report<'_>,
    ) -> Result<bool> {
        report.node = node;
        let chain = match chain {
            Ok(chain) => chain,
            Err(error) => return report.damage(error).map(|()| false),
        };
        let mut double = None;
        for cluster in bits::clusters(&chain) {
            if self.bits.has(cluster) {
                double.get_or_insert(cluster);
            }
            self.bits.set(cluster);
        }
        if let Some(cluster) = double {
            let path = String::from_utf8_lossy(&path()).into_owned();
            report.add(true, Check::CrossLinkOf { cluster, path }.at(node, at));
        }
        Ok(double.is_none())
    }

    /// Claims the clusters of the root directory, and of its structures that are not files.
    fn system(&mut self, report: &mut Report<'_>) -> Result<()> {
        let volume = self.volume;
        let chain = clusters::root_chain(volume)?;
        let mut slots = Slots::new(volume, &chain, None);
        let mut slot = 0;
        while let Some((found, next)) = slots.next_item(slot)? {
            if let Found::Other { entry } = found
                && matches!(entry[0], kind::BITMAP | kind::UPCASE)
            {
                let at = slots.position(slot).unwrap_or(0);
                if entry[0] == kind::BITMAP && entry[1] & 1 != 0 && volume.boot.fats < 2 {
                    // A second bitmap would belong to a second FAT.
                    let what = "allocation bitmap";
                    report.add(true, Check::Double { what }.at(None, at));
                }
                let data = crate::entry_set::secondary_allocation(&system_entry(entry));
                if let Some(data) = data {
                    let what = match entry[0] {
                        kind::BITMAP => "allocation bitmap",
                        _ => "up-case table",
                    };
                    let chain = clusters::chain(volume, None, at, data);
                    if let Ok(chain) = &chain {
                        self.ends(chain, what, report)?;
                    }
                    self.take(chain, (None, at), &|| what.into(), report)?;
                }
            }
            slot = next;
        }
        Ok(())
    }

    /// Checks that the chain of a system structure ends with its last cluster.
    fn ends(&self, chain: &Chain, what: &'static str, report: &mut Report<'_>) -> Result<()> {
        let Some(last) = chain.last() else {
            return Ok(());
        };
        if Fat::new(self.volume).next(last)? != END_OF_CHAIN {
            let need = chain.clusters().into();
            let at = self.volume.boot.active_fat() + u64::from(last) * 4;
            report.add(false, Check::SystemLong { what, need }.at(None, at));
        }
        Ok(())
    }

    /// Claims the clusters of everything in the directory tree, without recursion.
    fn tree(&mut self, report: &mut Report<'_>) -> Result<()> {
        let root = clusters::root_chain(self.volume);
        let mut left = vec![(ROOT, root.clone()?, None)];
        self.take(root, (Some(ROOT), 0), &|| b"/".to_vec(), report)?;
        let mut names = 0_u64;
        while let Some((id, chain, step)) = left.pop() {
            let mut slots = Slots::whole(self.volume, &chain, Some(id));
            let mut slot = 0;
            while let Some((found, next)) = slots.next_item(slot)? {
                let at = slots.position(slot).unwrap_or(0);
                match found {
                    Found::Set(set) | Found::Stranded(set) => {
                        let place = slots.place(slot, set.entries());
                        let child = place.map_or(id, Place::id);
                        let name = crate::name::to_bytes(&set.name());
                        let step = Step::below(step.as_ref(), name);
                        if let Some(chain) = self.set(child, &set, (at, &step), report)? {
                            left.push((child, chain, Some(step)));
                        }
                        names += 1;
                    }
                    Found::Benign { allocations, .. } => {
                        let path = || {
                            step.as_ref()
                                .map_or_else(Vec::new, |step: &Rc<Step>| step.path())
                        };
                        for data in allocations {
                            self.other((id, at), data, &path, report)?;
                        }
                    }
                    Found::Other { .. } | Found::Free | Found::Departed | Found::Damaged(_) => {}
                }
                slot = next;
            }
            let behind = super::behind(&mut slots, slot)?;
            self.behind_ends.insert(id, behind);
            if names > self.volume.limits.tree_entries {
                let limit = self.volume.limits.tree_entries;
                return Err(Error::limit(
                    Bound::Entries,
                    "entries of all directories",
                    limit,
                ));
            }
        }
        report.node = None;
        Ok(())
    }

    /// Claims the clusters of a set. Returns those of a directory that is visited for the first
    /// time.
    fn set(
        &mut self,
        id: NodeId,
        set: &EntrySet,
        (at, step): (u64, &Step),
        report: &mut Report<'_>,
    ) -> Result<Option<Chain>> {
        let path = || step.path();
        let chain = clusters::chain(self.volume, Some(id), at, set.data());
        let entered = chain.as_ref().ok().cloned();
        let is_first = match chain {
            // The check of the node itself reports this error with the path.
            Err(Error::Corrupt(_)) => false,
            chain => self.take(chain, (Some(id), at), &path, report)?,
        };
        for data in set.other_allocations() {
            self.other((id, at), data, &path, report)?;
        }
        let enter = is_first && set.file_type() == FileType::Directory;
        Ok(entered.filter(|_| enter))
    }

    fn other(
        &mut self,
        (id, at): (NodeId, u64),
        data: Allocation,
        path: &dyn Fn() -> Vec<u8>,
        report: &mut Report<'_>,
    ) -> Result<()> {
        let chain = clusters::chain(self.volume, Some(id), at, data);
        self.take(chain, (Some(id), at), path, report)?;
        Ok(())
    }

    /// Compares the bitmap with the claimed clusters.
    fn compare(&self, report: &mut Report<'_>) -> Result<()> {
        report.node = None;
        let volume = self.volume;
        let bitmap = Bits::marked(volume)?;
        let mut fat = Fat::new(volume);
        let (mut leaks, mut unmarked, mut in_use) = (Vec::new(), Vec::new(), 0_u64);
        for cluster in self.bits.all() {
            let marked = bitmap.has(cluster);
            let met = self.bits.has(cluster);
            in_use += u64::from(marked);
            if met && !marked {
                extend(&mut unmarked, cluster);
            }
            if marked && !met && fat.next(cluster)? != BAD_CLUSTER {
                extend(&mut leaks, cluster);
            }
        }
        for (first, count) in unmarked {
            let at = self.position(first - FIRST_CLUSTER);
            report.add(true, Check::used_free(first, count).at(None, at));
        }
        for (first, count) in leaks {
            let at = self.position(first - FIRST_CLUSTER);
            report.add(false, Check::Leaked { first, count }.at(None, at));
        }
        self.percent(in_use, report);
        Ok(())
    }

    fn percent(&self, in_use: u64, report: &mut Report<'_>) {
        let boot = &self.volume.boot;
        let actual = in_use * 100 / u64::from(boot.clusters).max(1);
        let actual = u8::try_from(actual).unwrap_or(100);
        let found = boot.percent;
        if found > 100 && found != PERCENT_UNKNOWN {
            report.add(false, Check::Percent { found, actual }.at(None, 0));
        }
    }

    fn position(&self, index: u32) -> u64 {
        let pieces = self
            .volume
            .pieces(&self.volume.bitmap, u64::from(index / 8), 1);
        pieces.first().map_or(0, |&(offset, _)| offset)
    }
}

/// Adds a cluster to the runs, up to the number of reported runs.
fn extend(runs: &mut Vec<(u32, u32)>, cluster: u32) {
    let told = runs.len();
    match runs.last_mut() {
        Some((first, count)) if *first + *count == cluster => *count += 1,
        _ if told < TOLD => runs.push((cluster, 1)),
        _ => {}
    }
}

/// Returns the entry of the bitmap or table with the byte of flags that other entries have.
const fn system_entry(mut entry: [u8; 32]) -> [u8; 32] {
    entry[1] = crate::ondisk::flag::ALLOCATION_POSSIBLE;
    entry
}
