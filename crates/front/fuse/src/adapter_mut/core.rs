//! Requests as operations on the volume: no kernel, no replies.

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
/// How long the kernel may cache names where it cannot be told to drop all of them.
const NAME_TTL: Duration = Duration::from_secs(1);
/// Minor version of the protocol with that message (Linux 6.16).
const WITH_EPOCHS: u32 = 44;

/// A volume as the kernel sees it.
pub struct CoreMut {
    pub volume: Arc<Volume>,
    /// As it was when the volume was mounted.
    pub info: VolumeInfo,
    pub counts: Counts,
    /// The nodes that the kernel knows.
    pub known: Arc<Known>,
    /// Makes things durable by and by.
    pub flusher: Flusher,
    /// Tells the kernel to drop names, once it can be told.
    pub stale: OnceLock<Stale>,
    /// Threads that may be renaming a name to another case of it.
    pub case_renames: CaseRenames,
    /// The version and capabilities agreed with the kernel, once that has happened.
    pub negotiated: OnceLock<Negotiated>,
    /// Held shared while a request is answered; taken exclusively by a server that makes way for
    /// another.
    pub gate: RwLock<()>,
    /// Names, and data as well, are durable when they are changed.
    pub durable: (bool, bool),
    /// Whether the server before has died, with changes that it had not written.
    pub is_rolled_back: bool,
    owners: Ownership,
    failures: Failures,
    outside: Option<Outside>,
}

/// A node for the kernel, and for how long its attributes and name may be cached.
pub struct AnsweredEntry {
    pub attr: FileAttr,
    pub attr_ttl: Duration,
    pub name_ttl: Duration,
}

/// The answer to a LOOKUP.
pub enum LookupAnswer {
    Entry(AnsweredEntry),
    Missing,
    /// The kernel is to restart the system call.
    Again,
}

impl CoreMut {
    /// Creates the core for `volume`.
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

    /// Returns the node of an inode number.
    pub fn node(&self, number: u64) -> NodeId {
        self.known.numbers.node(number)
    }

    /// Returns the node of an inode that came with an opening.
    ///
    /// # Errors
    /// EIO where a server before this one had it open and has died.
    pub fn opened_node(&self, number: u64) -> Result<NodeId, Errno> {
        match self.node(number) {
            LOST => Err(Errno::EIO),
            node => Ok(node),
        }
    }

    /// Returns the inode number of a node.
    pub fn number(&self, node: NodeId) -> Result<u64> {
        self.known
            .numbers
            .number(node)
            .ok_or(Error::StaleNode(node))
    }

    /// Converts an error to errno for the kernel, and logs it.
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

    /// Logs a failure as [`noted`](Self::noted) does, and has the flusher commit the change to the
    /// volume.
    pub fn changed<T>(
        &self,
        operation: Operation,
        number: u64,
        result: Result<T>,
    ) -> Result<T, Errno> {
        self.flusher.changed();
        self.noted(operation, number, result)
    }

    /// Returns the attributes of a node, as stat(2) reports them.
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

    /// Returns what [`attr`](Self::attr) does, also for a node that has no name left and that the kernel
    /// still holds.
    pub fn attr_held(&self, node: NodeId) -> Result<FileAttr> {
        match self.attr(node) {
            Err(Error::StaleNode(stale)) => self.known.remains(node).ok_or(Error::StaleNode(stale)),
            attr => attr,
        }
    }

    /// Returns the child of that name for `thread`, counted as told to the kernel.
    pub fn lookup(&self, thread: u32, dir: NodeId, name: &[u8]) -> Result<LookupAnswer> {
        self.wait_for_alias(thread, dir, name);
        let _until_counted = self.known.looking();
        let node = match self.fs().lookup(dir, name) {
            // No such name can be there.
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

    /// Returns the system call that a thread is in.
    fn call_of(&self, thread: u32) -> Call {
        match &self.outside {
            Some(outside) => Call::of(|| outside.call_of(thread)),
            None => Call::of(|| caller::read(thread)),
        }
    }

    /// Waits until the kernel has dropped this alias, if it is being told to and is not waiting for the
    /// answer to an earlier LOOKUP.
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

    /// Returns how to answer a LOOKUP that found the node of `attr`.
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

    /// Returns whether the volume has `node` by exactly this name. Reads the directory up to there.
    fn is_stored(&self, node: NodeId, name: &Name) -> bool {
        let mut is_stored = false;
        let listed = self.fs().read_dir(name.dir, DirCursor(0), &mut |entry| {
            if entry.node != node {
                return ControlFlow::Continue(());
            }
            is_stored = *entry.name == *name.name;
            ControlFlow::Break(())
        });
        // Damage before the entry: the name is treated like any other.
        listed.is_ok() && is_stored
    }

    /// Returns `node` as told to the kernel by the name `name`. The caller holds the turnstile.
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

    /// Has the kernel drop the aliases of a file by which no file is open, so that one of them can
    /// become its name.
    pub fn drop_aliases(&self, node: NodeId) {
        if let Some(stale) = self.stale.get() {
            for name in self.known.drop_aliases(node) {
                stale.drop_alias(node, name);
            }
        }
    }

    /// Returns properties of the volume that are the same at each opening. A server that takes a mount
    /// over compares them.
    pub fn likeness(&self) -> Vec<u8> {
        let (format, len, block) = (self.info.format, self.info.image_len, self.info.block_size);
        format!("{format} {len} {block}").into_bytes()
    }

    /// Returns how long the kernel may cache attributes.
    pub const fn ttl(&self) -> Duration {
        ENDLESS
    }

    /// Returns how long the kernel may cache names. After the death of a server it must look them up again.
    pub fn name_ttl(&self) -> Duration {
        let has_epochs = |negotiated: &Negotiated| negotiated.abi >= WITH_EPOCHS;
        if self.known.is_kept() && !self.negotiated.get().is_some_and(has_epochs) {
            NAME_TTL
        } else {
            ENDLESS
        }
    }

    /// Returns how long the kernel may cache a negative lookup. Where case is folded it may not: creating
    /// any other spelling of the name creates this one.
    pub const fn missing_ttl(&self) -> Duration {
        if self.info.folds_case {
            Duration::ZERO
        } else {
            ENDLESS
        }
    }

    /// Makes a change. If it finds the volume full while files without a name are being closed, makes it
    /// again once they are: close(2) returns before its RELEASE is answered, and removing a file that was
    /// just closed is to free its clusters for the next system call.
    pub fn with_room<T>(&self, change: impl Fn() -> Result<T>) -> Result<T> {
        let before = self.known.orphans.count();
        match change() {
            Err(Error::NoSpace) if self.known.orphans.more_than(before) => change(),
            outcome => outcome,
        }
    }

    /// Writes, and returns how many bytes: fewer than given only where the volume is full then.
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<usize> {
        match self.with_room(|| self.volume.write(node, offset, data, now())) {
            Ok(()) => Ok(data.len()),
            Err(Error::NoSpace) => {
                let space = self.fs().space()?;
                let block = u64::from(space.block_size.max(1));
                // The rest of the last block that the file has, and the free ones.
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

/// Returns the current time in the form that drivers take.
pub fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

/// Converts a time of the kernel into the form that drivers take.
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
