//! Implements the filesystem traits for exFAT.

#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
#[cfg(not(test))]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_io::{Structure, Unpoisoned, WriteBack};
use forerun_vfs::{
    Capabilities, Changes, DirCursor, DirEntry, Error, Extent, FatAttributes, FileSystem,
    FileSystemMut, FileType, Layout, Metadata, NewNode, NodeId, OpenMutWith, OpenWith, Problem,
    Region, Result, Space, Timestamp, Usage, VolumeInfo,
};
// Unit tests run the driver under a scheduler that chooses the order of threads.
#[cfg(test)]
use shuttle::sync::Mutex;

use crate::change::Stopped;
use crate::error::Check;
use crate::name;
use crate::nodes::ROOT;
use crate::ondisk::{attribute, volume_flag};
use crate::session::{Session, State};
use crate::store::Store;
use crate::time::Stamp;
use crate::volume::Volume;
use crate::{DeletedFile, check, deleted, describe};

/// Bytes of the smallest set of a file, which bounds the number of names.
const SMALLEST_SET: u64 = 96;

/// An open exFAT volume. The id of a node is the location of its entry set when it was first seen.
/// A rename does not change the id.
pub struct Exfat {
    volume: Volume,
    info: VolumeInfo,
    store: Option<Store>,
    state: Mutex<State>,
    /// A thread panicked while it held the session.
    abandoned: AtomicBool,
}

/// Guards the thread that holds the session. Sets `abandoned` if that thread starts to panic.
struct UnwindMark<'a> {
    abandoned: &'a AtomicBool,
    /// The thread was already unwinding, and uses the volume for cleanup.
    was_panicking: bool,
}

impl Drop for UnwindMark<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.abandoned.store(true, Ordering::Release);
        }
    }
}

impl Exfat {
    /// Opens a volume for reading. Unknown revisions and critical entries are
    /// [`Error::Unsupported`].
    pub fn open(with: OpenWith) -> Result<Self> {
        let volume = Volume::open(with.metadata, with.limits, with.ownership, with.rescue)?;
        Ok(Self::with(volume, None))
    }

    /// Opens a volume for reading and writing. Fails with [`Error::ReadOnly`] for a volume with two
    /// FATs, or with only a sound backup boot region.
    pub fn open_mut(with: OpenMutWith) -> Result<Self> {
        let back = WriteBack::new(
            Arc::clone(&with.device),
            Arc::clone(&with.observer),
            with.cache,
        );
        let back = Arc::new(back);
        let source = Arc::clone(&back);
        let volume = Volume::open(source, with.limits.clone(), with.ownership.clone(), false)?;
        if volume.boot.fats > 1 {
            return Err(Error::ReadOnly("it has two FATs (TexFAT)".into()));
        }
        if let Some(revision) = volume.boot.unknown_revision() {
            return Err(Error::ReadOnly(format!("it is of {revision}")));
        }
        if let Some(found) = volume.unknown_entry {
            let why = format!("its root has a critical entry of unknown type {found:#04x}");
            return Err(Error::ReadOnly(why));
        }
        if volume.from_backup {
            return Err(Error::ReadOnly("its main boot region is damaged".into()));
        }
        back.name_regions(regions(&volume));
        let store = Store::new(back, &with);
        Ok(Self::with(volume, Some(store)))
    }

    #[must_use]
    pub const fn serial(&self) -> u32 {
        self.volume.boot.serial
    }

    /// Returns the deleted files of a volume that was opened for rescue, newest first.
    /// [`Error::Unsupported`] for other volumes.
    pub fn deleted_files(&self) -> Result<Vec<DeletedFile>> {
        if !self.volume.rescue {
            return Err(Error::Unsupported("deleted files outside a rescue".into()));
        }
        self.session(|session| deleted::find(session))
    }

    fn with(volume: Volume, store: Option<Store>) -> Self {
        let mut state = State::default();
        state.pending.flags = volume.boot.flags;
        state.pending.was_dirty = volume.boot.flags & volume_flag::VOLUME_DIRTY != 0;
        let mut session = Session {
            volume: &volume,
            state: &mut state,
            store: store.as_ref(),
        };
        // An error shows when the root directory is read.
        let label = session.label().ok().flatten();
        let label = label.map_or(Vec::new(), |(_, units)| name::to_bytes(&units));
        Self {
            info: info(&volume, label),
            volume,
            store,
            state: Mutex::new(state),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Runs `run` with exclusive access to the volume. After a panic of any thread, `run` can read
    /// but not change the volume.
    fn session<T>(&self, run: impl FnOnce(&mut Session<'_>) -> T) -> T {
        let mut state = self.state.lock().unpoisoned();
        // Dropped before the lock, so that the next thread sees the flag.
        let _marks_a_panic = UnwindMark {
            abandoned: &self.abandoned,
            was_panicking: std::thread::panicking(),
        };
        let mut session = Session {
            volume: &self.volume,
            state: &mut state,
            store: self.store.as_ref(),
        };
        if self.is_abandoned() {
            session.stop(Stopped::Panicked);
        }
        run(&mut session)
    }

    fn change_names<T>(&self, run: impl FnOnce(&mut Session<'_>) -> Result<T>) -> Result<T> {
        let durable = self.store.as_ref().is_some_and(|s| s.dirsync || s.sync);
        self.session(|session| session.change(durable, run))
    }

    fn change_data<T>(&self, run: impl FnOnce(&mut Session<'_>) -> Result<T>) -> Result<T> {
        let durable = self.store.as_ref().is_some_and(|s| s.sync);
        self.session(|session| session.change(durable, run))
    }

    fn mode(&self, kind: FileType, attributes: u16) -> u16 {
        let ownership = &self.volume.ownership;
        match kind {
            FileType::Directory => 0o777 & !ownership.directory_mask,
            _ if attributes & attribute::READ_ONLY != 0 => 0o555 & !ownership.file_mask,
            _ => 0o777 & !ownership.file_mask,
        }
    }

    fn timestamp(&self, stamp: Stamp) -> Timestamp {
        stamp.to_timestamp(&self.volume.ownership.zone)
    }
}

fn info(volume: &Volume, label: Vec<u8>) -> VolumeInfo {
    let block_size = 1_u32 << volume.boot.cluster_bits;
    let mut info = VolumeInfo::new("exfat", volume.boot.volume_len, block_size);
    info.label = label;
    info.name_max = u32::try_from(name::MAX_BYTES).unwrap_or(u32::MAX);
    info.has_owners = false;
    info.folds_case = true;
    info.details = describe::details(volume);
    info.warnings = describe::warnings(volume);
    info
}

/// Returns the structures of the volume and their ranges, for traces. Writes outside of the other
/// structures count as writes to directories.
fn regions(volume: &Volume) -> Vec<(Range<u64>, Structure)> {
    let boot = &volume.boot;
    let fats = boot.fat_len * u64::from(boot.fats);
    let mut regions = vec![
        (0..2 * boot.region_len(), Structure::named("boot")),
        (
            boot.fat_offset..boot.fat_offset + fats,
            Structure::named("fat"),
        ),
    ];
    let len = u64::from(boot.clusters).div_ceil(8);
    for (offset, len) in volume.pieces(&volume.bitmap, 0, len) {
        regions.push((offset..offset + len, Structure::named("bitmap")));
    }
    regions.push((boot.heap_offset..boot.volume_len, Structure::Directory));
    regions
}

impl FileSystem for Exfat {
    fn volume(&self) -> &VolumeInfo {
        &self.info
    }

    fn root(&self) -> NodeId {
        ROOT
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let (kind, attributes, size, nlink, mtime) = self.session(|session| {
            if node == ROOT {
                let clusters = session.chain(ROOT)?.clusters();
                let size = u64::from(clusters) << self.volume.boot.cluster_bits;
                return Ok((FileType::Directory, 0, size, 1, Timestamp::default()));
            }
            let set = session.load(node)?.set;
            let (mut len, most) = (set.data().len, self.volume.boot.heap_len());
            let is_directory = set.file_type() == FileType::Directory;
            if len > most && (self.volume.rescue || is_directory && self.store.is_none()) {
                len = most;
            }
            if len > most {
                let at = session.load(node)?.at();
                return Err(Check::DataLen { len, most }.at(Some(node), at));
            }
            let attributes = set.file().file_attributes.get();
            let mtime = self.timestamp(set.modified());
            let nlink = u32::from(session.state.pending.orphan(node).is_none());
            Ok((set.file_type(), attributes, len, nlink, mtime))
        })?;
        Ok(Metadata {
            kind,
            mode: self.mode(kind, attributes),
            uid: self.volume.ownership.uid,
            gid: self.volume.ownership.gid,
            size,
            nlink,
            mtime,
            device: forerun_vfs::Device::default(),
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let found = self.session(|session| {
            let found = session.find(dir, name);
            found.inspect_err(|error| session.mark_failure(error))
        })?;
        Ok(found.map(|entry| entry.node.id))
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (mut from, mut damaged) = (from.0, None);
        loop {
            let mut listed = Vec::new();
            // The visitor may call this driver, so it is called without the lock.
            let damage = self.session(|session| {
                let damage = session.list(dir, from, &mut listed);
                damage.inspect_err(|error| session.mark_failure(error))
            })?;
            damaged = damaged.or(damage);
            for entry in &listed {
                from = entry.next;
                let flow = visit(DirEntry {
                    name: &entry.name,
                    node: entry.node,
                    kind: entry.kind,
                    next: DirCursor(entry.next),
                });
                if flow.is_break() {
                    return Ok(());
                }
            }
            if Session::is_whole_step(listed.len()) {
                return damaged.map_or(Ok(()), Err);
            }
        }
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        if node != ROOT {
            self.session(|session| session.load(node))?;
        }
        Err(Error::NotASymlink)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut range = range;
        loop {
            let extents = self.session(|session| session.extents(node, range.clone()))?;
            let Some(last) = extents.last() else {
                return Ok(());
            };
            range.start = last.logical.end;
            if visit_all(extents, visit).is_break() {
                return Ok(());
            }
        }
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        match node {
            None | Some(ROOT) => Ok(describe::volume(&self.volume)),
            Some(node) => self.session(|session| describe::node(session, node)),
        }
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let mut problems = Vec::new();
        let outcome = self.session(|session| match node {
            Some(node) => check::node(session, node, &mut problems),
            None => check::volume(session, &mut problems),
        });
        problems.into_iter().for_each(report);
        outcome
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            fat_attributes: Some(self),
            driver: Some(self),
            ..Capabilities::default()
        }
    }
}

impl FatAttributes for Exfat {
    fn fat_attributes(&self, node: NodeId) -> Result<u32> {
        if node == ROOT {
            // The root has no entry.
            return Ok(attribute::DIRECTORY.into());
        }
        let set = self.session(|session| session.load(node))?.set;
        let known = set.file().file_attributes.get() & attribute::KNOWN;
        Ok(known.into())
    }
}

impl Layout for Exfat {
    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        crate::regions::visit(&self.volume, visit)
    }

    fn names_max(&self) -> Option<u64> {
        Some(self.volume.boot.heap_len() / SMALLEST_SET)
    }
}

fn visit_all(
    extents: Vec<Extent>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> ControlFlow<()> {
    extents.into_iter().try_for_each(visit)
}

impl FileSystemMut for Exfat {
    fn usage(&self, node: NodeId) -> Result<Usage> {
        self.session(|session| {
            let boot = &self.volume.boot;
            let size = boot.cluster_size();
            if node == ROOT {
                let clusters = u64::from(session.chain(ROOT)?.clusters());
                return Ok(Usage {
                    accessed: Timestamp::default(),
                    created: Timestamp::default(),
                    allocated: clusters * size,
                });
            }
            let set = session.load(node)?.set;
            // Computed from the set without reading the FAT, because a file must be removable even
            // if the FAT is damaged.
            let clusters = match session.is_ahead(node) {
                true => session.chain(node)?.clusters().into(),
                // A longer file fails the check of its metadata.
                false => boot.clusters_for(set.data().len.min(boot.heap_len())),
            };
            Ok(Usage {
                accessed: self.timestamp(set.accessed()),
                created: self.timestamp(set.created()),
                allocated: clusters * size,
            })
        })
    }

    fn create(&self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId> {
        self.change_names(|session| session.create(dir, name, new))
    }

    fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.change_names(|session| session.unlink(dir, name))
    }

    fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<()> {
        self.change_names(|session| session.rmdir(dir, name))
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), replace: bool) -> Result<()> {
        self.change_names(|session| session.rename(from, to, replace))
    }

    fn change(&self, node: NodeId, changes: &Changes) -> Result<Metadata> {
        self.change_names(|session| session.set_attributes(node, changes))?;
        self.metadata(node)
    }

    fn map_write(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        // Nothing must be durable before the data is written.
        let extents = self
            .session(|session| session.change(false, |session| session.map_write(node, range)))?;
        let _stopped = visit_all(extents, visit);
        Ok(())
    }

    fn written(&self, node: NodeId, range: Range<u64>, time: Timestamp) -> Result<()> {
        self.change_data(|session| session.written(node, range, time))
    }

    fn allocate(&self, node: NodeId, range: Range<u64>, keep_size: bool) -> Result<()> {
        self.change_names(|session| session.allocate(node, range, keep_size))
    }

    fn open(&self, node: NodeId) -> Result<()> {
        self.session(|session| {
            if node != ROOT {
                session.load(node)?;
            }
            session.state.pending.open(node);
            Ok(())
        })
    }

    fn release(&self, node: NodeId) -> Result<()> {
        let durable = self.store.as_ref().is_some_and(|s| s.dirsync || s.sync);
        // Both steps in one session: if a name were removed between the decision and the release,
        // no later call would free the node.
        self.session(|session| {
            if session.frees_at_release(node) {
                session.change(durable, |session| session.release(node))
            } else {
                session.state.pending.release(node);
                Ok(())
            }
        })
    }

    fn forget(&self, node: NodeId) {
        self.session(|session| session.forget_id(node));
    }

    fn device_failed(&self, error: &Error) {
        self.session(|session| session.mark_failure(error));
    }

    fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn sync(&self, node: NodeId) -> Result<()> {
        let _ = node;
        self.session(|session| session.commit(false))
    }

    fn sync_all(&self) -> Result<()> {
        self.session(|session| session.commit(true))
    }

    fn finish(&self) -> Result<()> {
        self.session(|session| session.finish())
    }

    fn fold_name(&self, name: &[u8]) -> Vec<u8> {
        self.volume.fold(name)
    }

    fn space(&self) -> Result<Space> {
        let boot = &self.volume.boot;
        let free = self.session(|session| {
            let pending = session.state.pending.frees.total();
            match session.store {
                Some(_) => session.allocator()?.free().map(|free| free + pending),
                None => session.volume.count_free(),
            }
        })?;
        Ok(Space {
            block_size: 1 << boot.cluster_bits,
            blocks: boot.clusters.into(),
            free,
        })
    }

    fn trim(&self, range: Range<u64>, min_len: u64) -> Result<u64> {
        self.session(|session| {
            session.writable()?;
            session.commit(false)?;
            session.trim(range, min_len)
        })
    }

    fn set_fat_attributes(&self, node: NodeId, attributes: u32) -> Result<()> {
        self.change_names(|session| session.set_fat_attributes(node, attributes))
    }

    fn label(&self) -> Result<Vec<u8>> {
        let label = self.session(|session| session.label())?;
        Ok(label.map_or(Vec::new(), |(_, units)| name::to_bytes(&units)))
    }

    fn set_label(&self, label: &[u8]) -> Result<()> {
        self.change_names(|session| session.set_label(label))
    }
}
