//! Commits changes to the device, in an order that keeps the volume consistent whenever the power
//! fails.

use forerun_io::{CommitError, CommitOrder, usize_from};
use forerun_vfs::{Error, Result};

use crate::alloc::Allocator;
use crate::boot::{FLAGS_AT, PERCENT_AT, PERCENT_UNKNOWN};
use crate::change::Stopped;
use crate::entry_set::EntrySet;
use crate::ondisk::{END_OF_CHAIN, volume_flag};
use crate::session::Session;
use crate::store::{Store, group};

/// Dirty bytes in memory above which a change commits.
const MOST_DIRTY: u64 = 16 << 20;
/// Clusters that are marked free between two checks of the number of dirty bytes (8 MiB of bitmap).
const FREED_AT_ONCE: u32 = 1 << 26;

impl<'a> Session<'a> {
    /// Returns the device; fails with `ReadOnly` if the volume cannot be changed.
    pub fn writable(&self) -> Result<&'a Store> {
        match (self.state.pending.stopped, self.store) {
            (Some(stopped), _) => Err(stopped.error()),
            (None, Some(store)) => Ok(store),
            (None, None) => Err(Error::ReadOnly("it was opened for reading only".into())),
        }
    }

    /// Runs a change, and commits it if the volume is `durable`. After a device failure or damage,
    /// all further changes are refused.
    pub fn change<T>(
        &mut self,
        durable: bool,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let store = self.writable()?;
        if store.back.dirty_bytes() > MOST_DIRTY {
            // The last commit found no space on the filesystem below. Commit now, so that dirty
            // data does not fill the memory.
            self.commit_before()?;
        }
        let outcome = run(self);
        match &outcome {
            Ok(_) => {}
            Err(error @ (Error::Io { .. } | Error::Write { .. })) => {
                self.stop(Stopped::Failed);
                self.mark_failure(error);
            }
            Err(Error::Corrupt(_)) => {
                if !store.continue_on_error {
                    self.stop(Stopped::Damaged);
                }
                // The driver does not repair damage, so it marks the volume dirty (3.1.13.2).
                self.mark(volume_flag::VOLUME_DIRTY);
            }
            Err(_) => {}
        }
        if outcome.is_ok() && (durable || store.back.dirty_bytes() > MOST_DIRTY) {
            self.commit(false)?;
        }
        outcome
    }

    /// Refuses further changes. A reason that also stops writes is not replaced by a weaker one.
    pub fn stop(&mut self, why: Stopped) {
        let stopped = &mut self.state.pending.stopped;
        match (*stopped, why) {
            (Some(Stopped::Panicked), _) | (Some(Stopped::Failed), Stopped::Damaged) => {}
            (Some(Stopped::Failed | Stopped::Damaged) | None, why) => *stopped = Some(why),
        }
    }

    pub fn allocator(&mut self) -> Result<Allocator<'_>> {
        let store = self.store.ok_or_else(|| Stopped::Failed.error())?;
        Ok(Allocator {
            volume: self.volume,
            store,
            bitmap: &mut self.state.pending.bitmap,
        })
    }

    /// Makes all changes durable, except those that only free space: the next commit writes these,
    /// so that a removal costs one flush. With `clear`, this commit writes them too, and clears
    /// `VolumeDirty`, unless it was set when the volume was opened or a cluster in use belongs to
    /// no entry.
    ///
    /// After an error, no more changes are accepted, and `VolumeDirty` stays set. A full filesystem
    /// below the volume ([`Error::is_full`]) is an exception: changes continue, and the next commit
    /// tries again.
    pub fn commit(&mut self, clear: bool) -> Result<()> {
        let Some(store) = self.store else {
            return Ok(());
        };
        if let Some(stopped @ (Stopped::Failed | Stopped::Panicked)) = self.state.pending.stopped {
            return Err(stopped.error());
        }
        let outcome = self.commit_changes(store);
        let outcome = outcome.and_then(|()| {
            if clear {
                self.commit_rest(store)
            } else {
                Ok(())
            }
        });
        outcome.inspect_err(|error| match error.is_full() {
            // Entries of these changes may already be on the device. Their clusters stay in use
            // until the next commit.
            true => self.state.pending.fresh = crate::alloc::Runs::default(),
            false => {
                self.stop(Stopped::Failed);
                self.mark_failure(error);
            }
        })
    }

    /// Commits on behalf of a change that has changed nothing yet. If the filesystem below the
    /// volume is full, only this change is refused, with `NoSpace`.
    pub fn commit_before(&mut self) -> Result<()> {
        self.commit(false).map_err(|error| {
            if error.is_full() {
                Error::NoSpace
            } else {
                error
            }
        })
    }

    /// Sets `MediaFailure` (3.1.13.3) and `VolumeDirty` on the device if `error` comes from the
    /// device and the device still accepts the write. `VolumeDirty` then stays set.
    pub fn mark_failure(&mut self, error: &Error) {
        if is_of_device(error) {
            self.mark(volume_flag::MEDIA_FAILURE | volume_flag::VOLUME_DIRTY);
        }
    }

    /// Sets volume flags on the device at once, and leaves the volume dirty.
    fn mark(&mut self, flags: u16) {
        let Some(store) = self.store else {
            return;
        };
        let pending = &mut self.state.pending;
        if pending.stopped == Some(Stopped::Panicked) {
            return;
        }
        pending.was_dirty = true;
        let before = pending.flags;
        pending.flags |= flags;
        pending.flags &= !volume_flag::CLEAR_TO_ZERO;
        if pending.flags == before {
            return;
        }
        let flags = pending.flags.to_le_bytes();
        let order = CommitOrder {
            before_data: &[group::MARK],
            after_data: &[],
            along: None,
        };
        if store.back.write(group::MARK, len(FLAGS_AT), &flags).is_ok() {
            // Ignored: the caller already reports an error.
            let _tried = store.back.commit_ordered(&order);
        }
    }

    /// Writes the changed metadata, then the changes that wait for it. Can be called again if the
    /// filesystem below the volume was full.
    fn commit_changes(&mut self, store: &Store) -> Result<()> {
        if self.state.pending.touched && !is_dirty(self.state.pending.flags) {
            let flags = self.state.pending.flags | volume_flag::VOLUME_DIRTY;
            let flags = flags & !volume_flag::CLEAR_TO_ZERO;
            self.write(group::MARK, len(FLAGS_AT), &flags.to_le_bytes())?;
            self.state.pending.flags = flags;
        }
        let order = CommitOrder {
            before_data: &[group::MARK, group::ALLOCATE, group::LINK, group::BEHIND],
            after_data: &[group::ENTRIES, group::ARRIVE, group::LATE, group::LAST],
            along: Some(group::FREE),
        };
        store.back.commit_ordered(&order).map_err(failed)?;
        self.arrived(store)?;
        self.free_clusters(store)?;
        self.settle(store)
    }

    /// Writes the group of frees, and clears `VolumeDirty` if no change is pending.
    fn commit_rest(&mut self, store: &Store) -> Result<()> {
        store.back.commit(&[group::FREE]).map_err(failed)?;
        let pending = &self.state.pending;
        let may_clear = !pending.was_dirty && pending.is_settled() && pending.stopped.is_none();
        if may_clear && is_dirty(pending.flags) {
            let flags = pending.flags & !volume_flag::VOLUME_DIRTY;
            let percent = self.percent_in_use()?;
            self.write(group::CLEAR, len(FLAGS_AT), &flags.to_le_bytes())?;
            self.write(group::CLEAR, len(PERCENT_AT), &[percent])?;
            store.back.commit(&[group::CLEAR]).map_err(failed)?;
            self.state.pending.flags = flags;
            self.state.pending.touched = false;
        }
        Ok(())
    }

    /// Truncates chains and marks clusters free that no entry on the device refers to any more.
    fn free_clusters(&mut self, store: &Store) -> Result<()> {
        for cluster in std::mem::take(&mut self.state.pending.cuts) {
            let at = self.volume.boot.active_fat() + u64::from(cluster) * 4;
            self.write(group::FREE, at, &END_OF_CHAIN.to_le_bytes())?;
        }
        let runs: Vec<_> = self.state.pending.frees.iter().collect();
        for (first, count) in runs {
            let mut at = 0;
            while at < count {
                let now = (count - at).min(FREED_AT_ONCE);
                match self.allocator()?.release(first + at, now) {
                    Ok(()) => {}
                    Err(Error::Corrupt(_)) if store.continue_on_error => {}
                    Err(Error::Corrupt(_)) => self.stop(Stopped::Damaged),
                    Err(error) => return Err(error),
                }
                if store.back.dirty_bytes() > MOST_DIRTY {
                    let freed = store.back.commit(&[group::FREE]).map_err(failed);
                    // Each run must be marked free only once, so a full filesystem is no error
                    // here: the bits wait in memory.
                    freed.or_else(|error| error.is_full().then_some(()).ok_or(error))?;
                }
                at += now;
            }
        }
        Ok(())
    }

    /// Applies the effects of a commit: slots can be reused, ids are forgotten, freed clusters are
    /// discarded.
    fn settle(&mut self, store: &Store) -> Result<()> {
        let pending = &mut self.state.pending;
        let frees = std::mem::take(&mut pending.frees);
        pending.fresh = crate::alloc::Runs::default();
        pending.cut_nodes.clear();
        pending.touched = false;
        for (dir, slot, count) in std::mem::take(&mut pending.late_slots) {
            if let Some(index) = self.known_index(dir) {
                index.release(slot, count);
            }
        }
        self.forget_ids();
        if store.discard {
            for (cluster, count) in frees.iter() {
                let start = self.volume.boot.cluster_at(cluster);
                let end = start + (u64::from(count) << self.volume.boot.cluster_bits);
                // Discards are optional: a failure does no harm.
                let _advice = store.back.device().discard(start..end);
            }
        }
        Ok(())
    }

    fn percent_in_use(&mut self) -> Result<u8> {
        let clusters = u64::from(self.volume.boot.clusters);
        let free = self.allocator()?.known_free();
        let Some(free) = free else {
            return Ok(PERCENT_UNKNOWN);
        };
        let used = clusters - free;
        Ok(u8::try_from(used * 100 / clusters.max(1)).unwrap_or(PERCENT_UNKNOWN))
    }

    pub fn write(&mut self, group: forerun_io::Group, offset: u64, bytes: &[u8]) -> Result<()> {
        let store = self.store.ok_or_else(|| Stopped::Failed.error())?;
        self.state.pending.touched = true;
        let written = store.back.write(group, offset, bytes);
        written.map_err(|error| Error::io(offset, bytes.len(), error))
    }

    /// Frees clusters. Clusters that nothing on the device refers to become free at once, except
    /// those of a directory, whose metadata may still be written.
    pub fn free(&mut self, runs: &[(u32, u32)], was_directory: bool) -> Result<()> {
        self.state.pending.touched = true;
        for &(cluster, count) in runs {
            let pending = &mut self.state.pending;
            let (fresh, known) = if was_directory {
                (Vec::new(), vec![(cluster, count)])
            } else {
                pending.fresh.split(cluster, count)
            };
            for (cluster, count) in known {
                pending.frees.add(cluster, count);
            }
            for (cluster, count) in fresh {
                self.allocator()?.set(cluster, count, false)?;
            }
        }
        Ok(())
    }

    /// Keeps the clusters of `set` marked used until the next commit completes. Needed if a later
    /// step than the set's own replaces the set: between the two steps the set is on the device,
    /// and after a power cut it refers to these clusters.
    pub fn keep_until_commit(&mut self, set: &EntrySet) {
        let data = set.data();
        // The clusters of a chain are not fresh: links on the device refer to them.
        if data.contiguous {
            let count = self.volume.boot.clusters_for(data.len);
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            let count = count.min(u32::MAX - data.first);
            self.state.pending.fresh.split(data.first, count);
        }
    }

    /// Allocates clusters. If there are too few, commits first, so that freed clusters become
    /// available.
    pub fn take(&mut self, count: u32, goal: Option<u32>) -> Result<Vec<(u32, u32)>> {
        let mut taken = self.allocator()?.allocate(count, goal);
        if matches!(taken, Err(Error::NoSpace)) && !self.state.pending.frees.is_empty() {
            self.commit_before()?;
            taken = self.allocator()?.allocate(count, goal);
        }
        let taken = taken?;
        self.state.pending.touched = true;
        for &(cluster, count) in &taken {
            self.state.pending.fresh.add(cluster, count);
        }
        Ok(taken)
    }

    pub fn clear_cluster(&mut self, cluster: u32) -> Result<()> {
        let (start, size) = (
            self.volume.boot.cluster_at(cluster),
            self.volume.boot.cluster_size(),
        );
        // A cluster has at most 32 MiB; each write has at most 1 MiB.
        let zeros = vec![0; usize_from(size.min(1 << 20))];
        let mut at = 0;
        while at < size {
            self.write(group::ALLOCATE, start + at, &zeros)?;
            at += forerun_io::u64_from(zeros.len());
        }
        Ok(())
    }
}

const fn is_dirty(flags: u16) -> bool {
    flags & volume_flag::VOLUME_DIRTY != 0
}

/// Returns whether the device itself failed. A full filesystem below, or a lack of permission, is
/// not a device failure.
fn is_of_device(error: &Error) -> bool {
    use std::io::ErrorKind as Kind;
    let (Error::Io { source, .. } | Error::Write { source, .. }) = error else {
        return false;
    };
    !matches!(
        source.kind(),
        Kind::StorageFull
            | Kind::QuotaExceeded
            | Kind::FileTooLarge
            | Kind::PermissionDenied
            | Kind::ReadOnlyFilesystem
            | Kind::OutOfMemory
            | Kind::Interrupted
    )
}

const fn len(offset: usize) -> u64 {
    forerun_io::u64_from(offset)
}

fn failed(error: CommitError) -> Error {
    Error::write(error.offset, error.len, error.source)
}
