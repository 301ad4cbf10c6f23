//! Operations on a writable volume, independent of the kernel protocol.

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_engine::Volume;
use forerun_vfs::{DirCursor, Error, FileSystemMut, NodeId, Result, Timestamp, VolumeInfo};
use fuser::{Errno, FileAttr};

use super::caller::{self, Call};
use super::case_rename::{Alias, Answer, CaseRenames, LookedUp};
use super::flusher::Flusher;
use super::known::{Created, Known, Name, Spelling};
use super::numbers::LOST;
use super::stale::Stale;
use crate::MountOptions;
use crate::attr::{Ownership, system_time};
use crate::connection::Negotiated;
use crate::counts::{Counts, Operation};
use crate::errno::errno;
use crate::failures::Failures;
use crate::outside::Outside;
use crate::state_table::VolumeState;

/// How long the kernel may cache answers: only this mount changes the volume.
const ENDLESS: Duration = Duration::from_secs(1 << 31);
/// How long the kernel may cache names if no single message can invalidate all of them.
const NAME_TTL: Duration = Duration::from_secs(1);
/// First minor protocol version with a message that invalidates all cached names (Linux 6.16).
const WITH_EPOCHS: u32 = 44;

pub struct CoreMut {
    pub volume: Arc<Volume>,
    /// State at mount time.
    pub info: VolumeInfo,
    pub counts: Counts,
    pub known: Arc<Known>,
    pub flusher: Flusher,
    /// Makes the kernel drop names; set once the connection exists.
    pub stale: OnceLock<Stale>,
    /// Tests lookups for renames that change only the case of a name.
    pub case_renames: CaseRenames,
    /// The protocol version and capabilities; set by INIT.
    pub negotiated: OnceLock<Negotiated>,
    /// Held shared while a request is answered; held exclusively by a server that hands over to
    /// another process.
    pub gate: RwLock<()>,
    /// Whether changes of names, and of data, are durable at once (`dirsync`, `sync`).
    pub durable: (bool, bool),
    /// Whether the previous server died with unwritten changes.
    pub is_rolled_back: bool,
    owners: Ownership,
    failures: Failures,
    outside: Option<Outside>,
}

/// A node in an answer, and how long the kernel may cache its attributes and its name.
pub struct AnsweredEntry {
    pub attr: FileAttr,
    pub attr_ttl: Duration,
    pub name_ttl: Duration,
}

pub enum LookupAnswer {
    Entry(AnsweredEntry),
    Missing,
    /// ESTALE: the kernel restarts the system call.
    Again,
}

impl CoreMut {
    pub fn new(volume: Arc<Volume>, options: &MountOptions, state: Option<VolumeState>) -> Self {
        let info = volume.fs().volume().clone();
        let known = Arc::new(Known::new(volume.fs().root(), state));
        Self {
            owners: Ownership::new(options, &info),
            flusher: Flusher::new(Arc::clone(&volume), Arc::clone(&known)),
            known,
            negotiated: OnceLock::new(),
            gate: RwLock::default(),
            durable: (
                options.write.dirsync || options.write.sync,
                options.write.sync,
            ),
            is_rolled_back: false,
            counts: Counts::default(),
            stale: OnceLock::new(),
            case_renames: CaseRenames::default(),
            outside: options.outside.clone(),
            failures: Failures::default(),
            volume,
            info,
        }
    }

    pub fn fs(&self) -> &dyn FileSystemMut {
        self.volume.fs()
    }

    /// Returns the node of an inode number, [`LOST`] if an earlier server's node was lost.
    pub fn node(&self, number: u64) -> NodeId {
        self.known.numbers.node(number)
    }

    /// Returns the node of an open file. Fails with EIO if the node was lost with an earlier
    /// server.
    pub fn opened_node(&self, number: u64) -> Result<NodeId, Errno> {
        match self.node(number) {
            LOST => Err(Errno::EIO),
            node => Ok(node),
        }
    }

    pub fn number(&self, node: NodeId) -> Result<u64> {
        self.known
            .numbers
            .number(node)
            .ok_or(Error::StaleNode(node))
    }

    pub fn noted<T>(
        &self,
        operation: Operation,
        number: u64,
        result: Result<T>,
    ) -> Result<T, Errno> {
        result.map_err(|error| {
            if !matches!(error, Error::StaleNode(LOST)) {
                self.failures.report(operation, self.node(number), &error);
            }
            errno(&error)
        })
    }

    /// Does the same as [`noted`](Self::noted), and schedules a commit.
    pub fn changed<T>(
        &self,
        operation: Operation,
        number: u64,
        result: Result<T>,
    ) -> Result<T, Errno> {
        self.flusher.changed();
        self.noted(operation, number, result)
    }

    pub fn attr(&self, node: NodeId) -> Result<FileAttr> {
        let metadata = self.fs().metadata(node)?;
        let usage = self.fs().usage(node)?;
        let mut attr = self.owners.attr(self.number(node)?, &metadata);
        attr.ctime = system_time(self.known.change_time(node, metadata.mtime));
        attr.atime = system_time(usage.accessed);
        attr.crtime = system_time(usage.created);
        attr.blocks = usage.allocated.div_ceil(512);
        Ok(attr)
    }

    /// Does the same as [`attr`](Self::attr), also for a removed node that the kernel still
    /// references.
    pub fn attr_held(&self, node: NodeId) -> Result<FileAttr> {
        match self.attr(node) {
            Err(Error::StaleNode(stale)) => self.known.remains(node).ok_or(Error::StaleNode(stale)),
            attr => attr,
        }
    }

    /// Looks up a name for `thread`, and counts a reference to the node.
    pub fn lookup(&self, thread: u32, dir: NodeId, name: &[u8]) -> Result<LookupAnswer> {
        self.wait_for_alias(thread, dir, name);
        let _until_counted = self.known.looking();
        let node = match self.fs().lookup(dir, name) {
            // No such name can exist.
            Err(Error::InvalidName(_) | Error::NameTooLong { .. }) | Ok(None) => {
                return Ok(LookupAnswer::Missing);
            }
            Err(error) => return Err(error),
            Ok(Some(node)) => node,
        };
        let attr = self.attr(node)?;
        Ok(match self.respelled(thread, dir, name, &attr) {
            Answer::Again => LookupAnswer::Again,
            Answer::Missing => LookupAnswer::Missing,
            answer @ (Answer::Brief | Answer::Node) => {
                let mut entry = self.told(dir, name, node, attr);
                if answer == Answer::Brief {
                    entry.attr_ttl = Duration::ZERO;
                }
                LookupAnswer::Entry(entry)
            }
        })
    }

    fn call_of(&self, thread: u32) -> Call {
        match &self.outside {
            Some(outside) => Call::of(|| outside.call_of(thread)),
            None => Call::of(|| caller::read(thread)),
        }
    }

    /// Waits until the kernel has dropped this alias if a request to do so is in flight. Does not
    /// wait if the thread is being tested, because it may hold the directory.
    fn wait_for_alias(&self, thread: u32, dir: NodeId, name: &[u8]) {
        if !self.known.is_dropping() || self.case_renames.is_asking(thread) {
            return;
        }
        if let Some(node) = self.named(dir, name)
            && self.known.spelling(node, &Name::new(dir, name)) == Spelling::Dropping
            && self.call_of(thread) != Call::Other
        {
            self.known.wait_until_dropped(node);
        }
    }

    fn respelled(&self, thread: u32, dir: NodeId, name: &[u8], attr: &FileAttr) -> Answer {
        let name = Name::new(dir, name);
        let node = self.node(attr.ino.0);
        let is_directory = attr.kind == fuser::FileType::Directory;
        let spelling = self.known.spelling(node, &name);
        let mut alias = match spelling {
            Spelling::Kept | Spelling::Cached => Alias::No,
            Spelling::Open | Spelling::Dropping => Alias::Cached,
            Spelling::Other if is_directory && self.is_stored(node, &name) => Alias::No,
            Spelling::Other => Alias::Uncached,
        };
        if alias != Alias::No || self.case_renames.is_asking(thread) {
            match self.call_of(thread) {
                Call::Rename => {}
                Call::Other => {
                    self.case_renames.requested(thread);
                    return Answer::Node;
                }
                // mkdir(2) would return the ESTALE to its caller.
                Call::Unknown if is_directory || spelling == Spelling::Open => alias = Alias::No,
                Call::Unknown => {}
            }
        }
        self.case_renames.looked_up(
            thread,
            &LookedUp {
                name,
                node,
                is_directory,
                alias,
            },
        )
    }

    /// Returns whether the directory stores `node` under exactly this spelling. Reads the directory
    /// up to that entry.
    fn is_stored(&self, node: NodeId, name: &Name) -> bool {
        let mut is_stored = false;
        let listed = self.fs().read_dir(name.dir, DirCursor(0), &mut |entry| {
            if entry.node != node {
                return ControlFlow::Continue(());
            }
            is_stored = *entry.name == *name.name;
            ControlFlow::Break(())
        });
        // If the directory is damaged before the entry, treat the name like any other.
        listed.is_ok() && is_stored
    }

    /// Returns `node` for an answer under the name `name`, and counts a reference. The caller holds
    /// the turnstile.
    pub fn entry(&self, dir: NodeId, name: &[u8], node: NodeId) -> Result<AnsweredEntry> {
        Ok(self.told(dir, name, node, self.attr(node)?))
    }

    fn told(&self, dir: NodeId, name: &[u8], node: NodeId, attr: FileAttr) -> AnsweredEntry {
        self.volume.observer().name(node.0, dir.0, name);
        let directory = Created::of(&attr);
        let alias = self.known.told(node, Name::new(dir, name), directory);
        if alias && self.known.has_many_aliases(node) {
            self.drop_aliases(node);
        }
        let (attr_ttl, name_ttl) = if alias {
            (Duration::ZERO, Duration::ZERO)
        } else {
            (self.ttl(), self.name_ttl())
        };
        AnsweredEntry {
            attr,
            attr_ttl,
            name_ttl,
        }
    }

    /// Makes the kernel drop a file's aliases under which no file is open, so that a rename can use
    /// them.
    pub fn drop_aliases(&self, node: NodeId) {
        if let Some(stale) = self.stale.get() {
            for name in self.known.drop_aliases(node) {
                stale.drop_alias(node, name);
            }
        }
    }

    /// Returns properties of the volume that are the same whenever it is opened. A server that
    /// takes over a mount compares them.
    pub fn likeness(&self) -> Vec<u8> {
        let (format, len, block) = (self.info.format, self.info.image_len, self.info.block_size);
        format!("{format} {len} {block}").into_bytes()
    }

    pub const fn ttl(&self) -> Duration {
        ENDLESS
    }

    /// Returns how long the kernel may cache names. If the server can be replaced after a crash,
    /// the kernel must look names up again then.
    pub fn name_ttl(&self) -> Duration {
        let has_epochs = |negotiated: &Negotiated| negotiated.abi >= WITH_EPOCHS;
        if self.known.is_kept() && !self.negotiated.get().is_some_and(has_epochs) {
            NAME_TTL
        } else {
            ENDLESS
        }
    }

    /// Returns how long the kernel may cache a negative lookup: not at all if case is folded,
    /// because creating another spelling creates this name too.
    pub const fn missing_ttl(&self) -> Duration {
        if self.info.folds_case {
            Duration::ZERO
        } else {
            ENDLESS
        }
    }

    /// Makes a change. If the volume is full while removed files are being closed, waits for that
    /// and retries. close(2) returns before its RELEASE is answered, and the next system call
    /// should find the clusters of such a file free.
    pub fn with_room<T>(&self, change: impl Fn() -> Result<T>) -> Result<T> {
        let before = self.known.orphans.count();
        match change() {
            Err(Error::NoSpace) if self.known.orphans.more_than(before) => change(),
            outcome => outcome,
        }
    }

    /// Writes, and returns the number of bytes, fewer than given only if the volume is full
    /// afterwards.
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<usize> {
        match self.with_room(|| self.volume.write(node, offset, data, now())) {
            Ok(()) => Ok(data.len()),
            Err(Error::NoSpace) => {
                let space = self.fs().space()?;
                let block = u64::from(space.block_size.max(1));
                // The unused part of the file's last block, plus the free blocks.
                let end = (offset - offset % block).saturating_add(block);
                let end = end.saturating_add(space.free.saturating_mul(block));
                let after = end - block * u64::from(offset.is_multiple_of(block));
                let fits = usize::try_from(after.saturating_sub(offset)).unwrap_or(usize::MAX);
                match data.get(..fits).filter(|part| !part.is_empty()) {
                    Some(part) if part.len() < data.len() => {
                        self.volume.write(node, offset, part, now())?;
                        Ok(part.len())
                    }
                    _ => Err(Error::NoSpace),
                }
            }
            Err(error) => Err(error),
        }
    }
}

pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

pub fn timestamp(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            let whole = i64::try_from(before.as_secs()).map(|seconds| -seconds);
            match before.subsec_nanos() {
                0 => (whole, 0),
                nanoseconds => (
                    whole.map(|seconds| seconds - 1),
                    1_000_000_000 - nanoseconds,
                ),
            }
        }
    };
    Timestamp {
        seconds: seconds.unwrap_or(i64::MAX),
        nanoseconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_count_back_from_it() {
        let time = UNIX_EPOCH - Duration::from_millis(1750);
        let expected = Timestamp {
            seconds: -2,
            nanoseconds: 250_000_000,
        };
        assert_eq!(timestamp(time), expected);
        assert_eq!(system_time(expected), time);
    }
}
