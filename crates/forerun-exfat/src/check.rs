//! What can be checked beyond reading everything: entries against what they say of each other, and
//! the bitmap against what the directories lead to.

use std::collections::HashSet;

use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::{Error, FileType, NodeId, Problem, Result};

use crate::boot::PERCENT_UNKNOWN;
use crate::chain::Chain;
use crate::dir::{Found, Slots};
use crate::entry_set::{Allocation, EntrySet, primary_allocation};
use crate::error::Check;
use crate::fat::{self, Fat};
use crate::name::is_allowed;
use crate::nodes::ROOT;
use crate::ondisk::{BAD_CLUSTER, END_OF_CHAIN, FIRST_CLUSTER, attribute, kind, volume_flag};
use crate::session::Session;
use crate::volume::Volume;

/// Runs of leaked clusters that are told one by one.
const TOLD: usize = 1000;

/// Who collects what is found.
struct Report<'a> {
    node: Option<NodeId>,
    problems: &'a mut Vec<Problem>,
}

impl Report<'_> {
    fn add(&mut self, fatal: bool, error: Error) {
        let node = self.node;
        self.problems.push(Problem { node, fatal, error });
    }

    /// Keeps damage, gives what ends the check.
    fn damage(&mut self, error: Error) -> Result<()> {
        match error {
            error @ Error::Io { .. } => Err(error),
            error => {
                self.add(true, error);
                Ok(())
            }
        }
    }
}

/// One node: its set, its data, and for directories what stands in it.
pub fn node(session: &mut Session<'_>, id: NodeId, problems: &mut Vec<Problem>) -> Result<()> {
    let mut report = Report {
        node: Some(id),
        problems,
    };
    let mut is_directory = true;
    if id != ROOT {
        let node = match session.load(id) {
            Ok(node) => node,
            // Reading the node says the same.
            Err(error) => return left_to_the_reader(error),
        };
        is_directory = node.set.file_type() == FileType::Directory;
        set(session.volume, &node.set, node.at(), &mut report);
        if let Err(error) = session.chain(id) {
            report.damage(error)?;
            return Ok(());
        }
        let chain = session.chain(id)?;
        if !node.set.data().contiguous {
            end_of_chain(session.volume, &chain, node.at(), &mut report)?;
        }
    }
    if is_directory {
        entries(session, id, &mut report)?;
    }
    Ok(())
}

fn set(volume: &Volume, set: &EntrySet, at: u64, report: &mut Report<'_>) {
    let (file, stream, name) = (set.file(), set.stream(), set.name());
    let id = report.node;
    let mut add = |fatal: bool, check: Check| report.add(fatal, check.at(id, at));
    let (found, actual) = (stream.name_hash.get(), volume.upcase.hash(&name));
    if found != actual {
        add(true, Check::NameHash { found, actual });
    }
    if let Some(&unit) = name.iter().find(|&&unit| !is_allowed(unit)) {
        let name = String::from_utf16_lossy(&name);
        add(true, Check::NameCharacter { name, unit });
    }
    let (valid, len) = (stream.valid_data_length.get(), stream.data_length.get());
    let is_directory = set.has(attribute::DIRECTORY);
    if valid > len || (is_directory && valid != len) {
        add(true, Check::ValidLen { valid, len });
    }
    let cluster = volume.boot.cluster_size();
    if is_directory && len % cluster != 0 {
        add(true, Check::DirectoryUneven { len, cluster });
    }
    let attributes = file.file_attributes.get() & !attribute::KNOWN;
    let reserved = [
        ("FileAttributes", u64::from(attributes)),
        ("Reserved1", file.reserved1.get().into()),
        ("Reserved2 of the stream", stream.reserved2.get().into()),
        ("Reserved3 of the stream", stream.reserved3.get().into()),
    ];
    for (field, value) in reserved {
        if value != 0 {
            add(false, Check::Reserved { field, value });
        }
    }
    for stamp in [set.created(), set.modified(), set.accessed()] {
        if !stamp.is_sound() {
            let (value, hundredths) = (stamp.word, stamp.hundredths);
            add(false, Check::Time { value, hundredths });
        }
    }
}

fn end_of_chain(volume: &Volume, chain: &Chain, at: u64, report: &mut Report<'_>) -> Result<()> {
    let Some(last) = chain.last() else {
        return Ok(());
    };
    let id = report.node;
    match Fat::new(volume).next(last)? {
        END_OF_CHAIN => {}
        _ => {
            let need = chain.clusters().into();
            report.add(true, Check::ChainLong { need }.at(id, at));
        }
    }
    Ok(())
}

fn entries(session: &mut Session<'_>, id: NodeId, report: &mut Report<'_>) -> Result<()> {
    let chain = match session.chain(id) {
        Ok(chain) => chain,
        Err(error) => return report.damage(error),
    };
    let volume = session.volume;
    let mut slots = Slots::new(volume, &chain, Some(id));
    let mut names = HashSet::new();
    let (mut slot, limit) = (0, volume.limits.dir_entries);
    while let Some((found, next)) = slots.next_item(slot)? {
        match found {
            Found::Set(set) | Found::Stranded(set) => {
                if let Err(check) = set.visible_name() {
                    report.add(true, slots.error(check, slot));
                }
                if !names.insert(volume.upcase.name(&set.name())) {
                    let name = String::from_utf16_lossy(&set.name());
                    report.add(true, slots.error(Check::NameTwice { name }, slot));
                }
            }
            Found::Damaged(check) => {
                let fatal = !matches!(check, Check::Stray { .. });
                report.add(fatal, slots.error(check, slot));
            }
            Found::Other { entry } if id != ROOT && entry[0] & kind::BENIGN == 0 => {
                let found = entry[0];
                report.add(true, slots.error(Check::Misplaced { found }, slot));
            }
            Found::Other { .. } | Found::Free | Found::Departed => {}
        }
        if u64_from(names.len()) > limit {
            report.add(true, Error::limit("entries of a directory", limit));
            return Ok(());
        }
        slot = next;
    }
    Ok(())
}

/// The volume as a whole: what the boot sector says of its state, the backup boot region, and the
/// bitmap against everything that has clusters.
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
    backup(volume, &mut report)?;
    let mut used = Used::new(volume)?;
    used.system(&mut report)?;
    used.tree(&mut report)?;
    for (id, data) in session.state.pending.known_orphans() {
        let chain = fat::chain(volume, Some(id), 0, data);
        used.take(chain, Some(id), 0, &mut report)?;
    }
    used.compare(&mut report)
}

fn backup(volume: &Volume, report: &mut Report<'_>) -> Result<()> {
    let len = saturating_usize(volume.boot.region_len());
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

/// Which clusters something leads to.
struct Used<'a> {
    volume: &'a Volume,
    bits: Vec<u8>,
}

impl<'a> Used<'a> {
    fn new(volume: &'a Volume) -> Result<Self> {
        let len = volume.boot.clusters.div_ceil(8);
        let mut bits = Vec::new();
        // As long as the volume's own bitmap, which is on it; memory may still be shorter.
        if bits
            .try_reserve_exact(saturating_usize(len.into()))
            .is_err()
        {
            return Err(Error::limit("bytes of the allocation bitmap", len.into()));
        }
        bits.resize(saturating_usize(len.into()), 0);
        Ok(Self { volume, bits })
    }

    /// Takes clusters; whether the first of them was there already.
    fn take(
        &mut self,
        chain: Result<Chain>,
        node: Option<NodeId>,
        at: u64,
        report: &mut Report<'_>,
    ) -> Result<bool> {
        report.node = node;
        let chain = match chain {
            Ok(chain) => chain,
            Err(error) => return report.damage(error).map(|()| false),
        };
        let mut double = None;
        for run in chain.runs() {
            for cluster in run.cluster..run.cluster + run.count {
                let index = cluster.saturating_sub(FIRST_CLUSTER);
                let mask = 1_u8 << (index % 8);
                if let Some(byte) = self.bits.get_mut(saturating_usize((index / 8).into())) {
                    if *byte & mask != 0 {
                        double.get_or_insert(cluster);
                    }
                    *byte |= mask;
                }
            }
        }
        if let Some(cluster) = double {
            report.add(true, Check::CrossLink { cluster }.at(node, at));
        }
        Ok(double.is_none())
    }

    /// What the root directory leads to that is no file.
    fn system(&mut self, report: &mut Report<'_>) -> Result<()> {
        let volume = self.volume;
        let chain = fat::root_chain(volume)?;
        let mut slots = Slots::new(volume, &chain, None);
        let mut slot = 0;
        while let Some((found, next)) = slots.next_item(slot)? {
            if let Found::Other { entry } = found
                && matches!(entry[0], kind::BITMAP | kind::UPCASE)
            {
                let at = slots.position(slot).unwrap_or(0);
                let data = crate::entry_set::secondary_allocation(&system_entry(entry));
                if let Some(data) = data {
                    let chain = fat::chain(volume, None, at, data);
                    self.take(chain, None, at, report)?;
                }
            }
            slot = next;
        }
        Ok(())
    }

    /// Everything that directories lead to, without recursion.
    fn tree(&mut self, report: &mut Report<'_>) -> Result<()> {
        let root = fat::root_chain(self.volume);
        let mut left = vec![(ROOT, root.clone()?)];
        self.take(root, Some(ROOT), 0, report)?;
        let mut names = 0_u64;
        while let Some((id, chain)) = left.pop() {
            let mut slots = Slots::new(self.volume, &chain, Some(id));
            let mut slot = 0;
            while let Some((found, next)) = slots.next_item(slot)? {
                let at = slots.position(slot).unwrap_or(0);
                match found {
                    Found::Set(set) | Found::Stranded(set) => {
                        let place = slots.place(slot, set.entries());
                        let child = place.map_or(id, crate::dir::Place::id);
                        if let Some(chain) = self.set(child, &set, at, report)? {
                            left.push((child, chain));
                        }
                        names += 1;
                    }
                    Found::Other { entry } if entry[0] & kind::BENIGN != 0 => {
                        self.other(id, primary_allocation(&entry), at, report)?;
                    }
                    Found::Other { .. } | Found::Free | Found::Departed | Found::Damaged(_) => {}
                }
                slot = next;
            }
            if names > self.volume.limits.tree_entries {
                let limit = self.volume.limits.tree_entries;
                return Err(Error::limit("entries of all directories", limit));
            }
        }
        report.node = None;
        Ok(())
    }

    /// The clusters of a set; given back where they are those of a directory met the first time.
    fn set(
        &mut self,
        id: NodeId,
        set: &EntrySet,
        at: u64,
        report: &mut Report<'_>,
    ) -> Result<Option<Chain>> {
        let chain = fat::chain(self.volume, Some(id), at, set.data());
        let entered = chain.as_ref().ok().cloned();
        let is_first = self.take(chain, Some(id), at, report)?;
        for data in set.other_allocations() {
            self.other(id, Some(data), at, report)?;
        }
        let enter = is_first && set.file_type() == FileType::Directory;
        Ok(entered.filter(|_| enter))
    }

    fn other(
        &mut self,
        id: NodeId,
        data: Option<Allocation>,
        at: u64,
        report: &mut Report<'_>,
    ) -> Result<()> {
        if let Some(data) = data {
            let chain = fat::chain(self.volume, Some(id), at, data);
            self.take(chain, Some(id), at, report)?;
        }
        Ok(())
    }

    /// Holds the bitmap against what was met.
    fn compare(&self, report: &mut Report<'_>) -> Result<()> {
        report.node = None;
        let volume = self.volume;
        let mut bitmap = vec![0; self.bits.len()];
        volume.read_chain(&volume.bitmap, 0, &mut bitmap)?;
        let mut fat = Fat::new(volume);
        let (mut leak, mut leaks, mut in_use): (Option<(u32, u32)>, _, _) =
            (None, Vec::new(), 0_u64);
        for index in 0..volume.boot.clusters {
            let (byte, mask) = (saturating_usize((index / 8).into()), 1_u8 << (index % 8));
            let is = |bits: &[u8]| bits.get(byte).is_some_and(|bits| bits & mask != 0);
            let (marked, met) = (is(&bitmap), is(&self.bits));
            in_use += u64::from(marked);
            let cluster = index + FIRST_CLUSTER;
            if met && !marked {
                report.add(
                    true,
                    Check::UsedFree { cluster }.at(None, self.position(index)),
                );
            }
            if marked && !met && fat.next(cluster)? != BAD_CLUSTER {
                leak = match leak {
                    Some((first, count)) if first + count == cluster => Some((first, count + 1)),
                    other => {
                        leaks.extend(other);
                        Some((cluster, 1))
                    }
                };
            }
        }
        leaks.extend(leak);
        for (first, count) in leaks.into_iter().take(TOLD) {
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

/// A bitmap's or table's entry as if it had the byte of flags that others have.
const fn system_entry(mut entry: [u8; 32]) -> [u8; 32] {
    entry[1] = crate::ondisk::flag::ALLOCATION_POSSIBLE;
    entry
}

/// Free clusters by the bitmap.
pub fn count_free(volume: &Volume) -> Result<u64> {
    let (mut at, mut used) = (0_u64, 0_u64);
    let len = u64::from(volume.boot.clusters).div_ceil(8);
    let mut bytes = vec![0; saturating_usize(len.min(1 << 20))];
    while at < len {
        let now = saturating_usize((len - at).min(1 << 20));
        let now = bytes.get_mut(..now).unwrap_or_default();
        volume.read_chain(&volume.bitmap, at, now)?;
        used += now
            .iter()
            .map(|byte| u64::from(byte.count_ones()))
            .sum::<u64>();
        at += u64_from(now.len()).max(1);
    }
    Ok(u64::from(volume.boot.clusters).saturating_sub(used))
}

fn left_to_the_reader(error: Error) -> Result<()> {
    match error {
        Error::Io { .. } => Err(error),
        _ => Ok(()),
    }
}
