//! Nodes that the kernel was told of, until it forgets them.
//!
//! Each answer that names a node counts; when the kernel has forgotten as often as it was told, it
//! no longer holds the id and the driver may drop what it keeps for it. A lookup that is in flight
//! when the last count goes must not be told an id that is dropped: lookups hold the turnstile
//! while they ask the driver and count, forgetting takes it alone.
//!
//! On volumes that fold case one node has many names. The kernel keeps each name of a file as an entry
//! of its own. [`Known`] remembers the first name that the kernel is told. Any other name is an alias:
//! it has no time to live, and the kernel is told to drop it once no program has the file open by it
//! ([`case_rename`](super::case_rename) says why). When the file goes or moves by an alias, the kernel is told
//! that the first name has gone too. Of a directory the kernel keeps one entry and moves it to the
//! name that it was told last; that name is remembered.
//!
//! Some of what stat(2) tells is kept by no driver: when an inode was changed last, and the attributes
//! of a node that has no name left and is open in a way that the driver is not told of (directories,
//! `O_PATH`). Both are kept here, as long as the kernel knows the node.
//!
//! What the next server needs of it is written to the [state table](crate::state_table) before an answer is sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use std::time::{Duration, UNIX_EPOCH};

use forerun_io::Unpoisoned;
use forerun_vfs::{NodeId, Timestamp};
use fuser::FileAttr;

use super::numbers::{Numbers, ROOT};
use super::orphans::Orphans;
use super::reports::Reports;
use crate::state_table::{KnownInode, VolumeState};

/// Aliases of one file that the kernel may keep. Beyond that it is told to drop them.
const MAX_ALIASES: usize = 16;
/// How long a request waits for the kernel to drop aliases. The kernel takes longer only while another
/// request, or the one that waits, holds the directory.
const DROP_WAIT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Known {
    /// Nodes as inode numbers.
    pub numbers: Numbers,
    /// Nothing where the mount ends with this process. Locked after `nodes`.
    state: Option<Mutex<VolumeState>>,
    turnstile: RwLock<()>,
    nodes: Mutex<HashMap<NodeId, Told>>,
    /// Number of aliases that the kernel is being told to drop, so that other requests take no lock.
    dropping: AtomicUsize,
    /// Signalled when an alias was dropped.
    dropped: Condvar,
    /// Files that have no name left.
    pub orphans: Orphans,
    /// What directories have to report.
    pub reports: Reports,
}

/// When a directory was created, in nanoseconds. A name that leads to another directory after a death has another time:
/// renames that were not written yet are undone then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created(pub u64);

impl Created {
    /// Returns that of a directory; nothing of a file.
    pub fn of(attr: &FileAttr) -> Option<Self> {
        let since = attr.crtime.duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_directory = attr.kind == fuser::FileType::Directory;
        // A number of this length lasts until the year 2554, and exFAT until 2107.
        is_directory.then(|| Self(u64::try_from(since.as_nanos()).unwrap_or_default()))
    }
}

#[derive(Debug, Default)]
struct Told {
    times: u64,
    is_directory: bool,
    /// When a directory was created.
    created: u64,
    /// Nothing where it has none any more.
    name: Option<Name>,
    /// Other names of a file that the kernel may keep.
    aliases: Vec<OtherSpelling>,
    /// How often it is open.
    opens: u64,
    /// Openings of an earlier server, apart from the one that the driver counts for all of them.
    uncounted: u64,
    changed: Option<Box<Changed>>,
    removed: Option<Box<FileAttr>>,
    /// Whether it is kept although the kernel has forgotten it.
    is_kept: bool,
}

impl Told {
    const fn is_nameless(&self) -> bool {
        self.removed.is_some() && self.opens > 0
    }

    const fn has_many_aliases(&self) -> bool {
        self.aliases.len() > MAX_ALIASES
    }
}

#[derive(Debug)]
struct OtherSpelling {
    name: Name,
    /// Whether the file may have been opened by it.
    is_opened: bool,
    /// Whether the kernel is being told to drop it.
    is_dropping: bool,
}

/// How the kernel keeps a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// It is the only name of the node that is remembered, or the node is not known at all.
    Kept,
    /// The kernel may keep it as an alias.
    Cached,
    /// As [`Cached`](Self::Cached), and a program has the file open by it.
    Open,
    /// As [`Cached`](Self::Cached), and the kernel is being told to drop it.
    Dropping,
    /// The kernel keeps another name of the node, and not this one.
    Other,
}

/// A change of an inode.
#[derive(Debug)]
struct Changed {
    at: Timestamp,
    /// The time of last change of the contents at that moment.
    modified: Timestamp,
}

/// A name that the kernel keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub dir: NodeId,
    pub name: Box<[u8]>,
}

impl Name {
    pub fn new(dir: NodeId, name: &[u8]) -> Self {
        let name = name.into();
        Self { dir, name }
    }
}

impl Known {
    /// Creates the table of a volume with this root.
    pub fn new(root: NodeId, state: Option<VolumeState>) -> Self {
        Self {
            numbers: Numbers::new(root, state.as_ref().map_or(0, VolumeState::server)),
            state: state.map(Mutex::new),
            turnstile: RwLock::default(),
            nodes: Mutex::default(),
            dropping: AtomicUsize::default(),
            dropped: Condvar::default(),
            orphans: Orphans::default(),
            reports: Reports::default(),
        }
    }

    /// Returns whether another server can take over.
    pub const fn is_kept(&self) -> bool {
        self.state.is_some()
    }

    /// Duplicates the descriptor of the state for another process.
    pub fn share(&self) -> Option<io::Result<OwnedFd>> {
        let state = self.state.as_ref()?;
        Some(state.lock().unpoisoned().share())
    }

    /// Writes all that the kernel knows for the next server, while no request is answered. Leaves out files to which
    /// their name does not lead, as `is_named` says.
    ///
    /// # Errors
    /// The errors of the state.
    pub fn leave(&self, is_named: impl Fn(NodeId, &Name) -> bool) -> io::Result<()> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let nodes = self.nodes();
        let found = nodes.iter().filter(|(node, told)| {
            told.is_directory || told.name.as_ref().is_some_and(|it| is_named(**node, it))
        });
        let inodes = found.filter_map(|(node, told)| self.inode(*node, told));
        let of_root = self.reports.is_unreported(self.numbers.node(ROOT));
        state.lock().unpoisoned().leave(inodes, of_root)
    }

    /// Records that a directory of an earlier server was not found.
    pub fn lost(&self, number: u64) {
        if let Some(state) = &self.state {
            state.lock().unpoisoned().remove(number);
        }
    }

    fn inode(&self, node: NodeId, told: &Told) -> Option<KnownInode> {
        let name = told.name.as_ref()?;
        Some(KnownInode {
            number: self.numbers.number(node)?,
            parent: self.numbers.number(name.dir)?,
            name: name.name.to_vec(),
            is_directory: told.is_directory,
            created: told.created,
            is_unreported: self.reports.is_unreported(node),
            times: told.times,
            opens: told.opens,
        })
    }

    /// Records for the next server what the kernel knows of a directory; nothing of a file.
    fn record(&self, node: NodeId, told: &Told) {
        if let Some(state) = self.state.as_ref().filter(|_| told.is_directory) {
            let mut state = state.lock().unpoisoned();
            if let Some(inode) = self.inode(node, told) {
                state.put(&inode);
            } else if let Some(number) = self.numbers.number(node) {
                state.remove(number);
            }
        }
    }

    /// Returns a guard to hold from before a node is asked for until the answer is counted.
    pub fn looking(&self) -> RwLockReadGuard<'_, ()> {
        self.turnstile.read().unpoisoned()
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeId, Told>> {
        self.nodes.lock().unpoisoned()
    }

    /// Counts an answer that names `node`. Returns whether `name` is an alias.
    pub fn told(&self, node: NodeId, name: Name, directory: Option<Created>) -> bool {
        let mut nodes = self.nodes();
        let told = nodes.entry(node).or_default();
        let is_directory = directory.is_some();
        self.no_longer_kept(told);
        told.times += 1;
        told.is_directory = is_directory;
        told.created = directory.map_or(0, |created| created.0);
        let is_alias = !is_directory && told.name.as_ref().is_some_and(|first| *first != name);
        if !is_alias {
            told.name = Some(name);
        } else if told.aliases.iter().all(|alias| alias.name != name) {
            told.aliases.push(OtherSpelling {
                name,
                is_opened: false,
                is_dropping: false,
            });
        }
        self.record(node, told);
        is_alias
    }

    /// Records what another server has told the kernel of `node`.
    pub fn inherit(&self, node: NodeId, name: Name, inode: &KnownInode) {
        self.numbers.inherit(inode.number, node);
        let is_kept = inode.times == 0;
        if is_kept {
            self.reports.keep_in(name.dir);
        }
        let told = Told {
            times: inode.times,
            is_directory: inode.is_directory,
            created: inode.created,
            name: Some(name),
            opens: inode.opens,
            uncounted: inode.opens.saturating_sub(1),
            is_kept,
            ..Told::default()
        };
        self.nodes().insert(node, told);
    }

    /// Returns the number of open files to which no name leads, as `is_named` says. The name that is remembered of a file may
    /// be in a directory that the kernel has forgotten, where the kernel keeps the file by another name.
    pub fn nameless(&self, is_named: impl Fn(NodeId, &Name) -> bool) -> usize {
        let nodes = self.nodes();
        let open = nodes.iter().filter(|(_, told)| told.opens > 0);
        let nameless = open.filter(|(node, told)| {
            let name = told.name.as_ref();
            !name.is_some_and(|name| is_named(**node, name))
        });
        nameless.count()
    }

    /// Returns whether [`told`](Self::told) would return `true` for a file by this name.
    pub fn is_alias(&self, node: NodeId, name: &Name) -> bool {
        self.spelling(node, name) != Spelling::Kept
    }

    /// Returns what the kernel keeps of `name`.
    pub fn spelling(&self, node: NodeId, name: &Name) -> Spelling {
        let nodes = self.nodes();
        let told = nodes.get(&node);
        match told.and_then(|told| told.name.as_ref().map(|first| (told, first))) {
            Some((told, first)) if first != name => {
                match told.aliases.iter().find(|alias| alias.name == *name) {
                    Some(alias) if alias.is_dropping => Spelling::Dropping,
                    Some(alias) if alias.is_opened => Spelling::Open,
                    Some(_) => Spelling::Cached,
                    None => Spelling::Other,
                }
            }
            _ => Spelling::Kept,
        }
    }

    /// Records that `node` was opened, by any of its names.
    pub fn opened(&self, node: NodeId) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.opens += 1;
            for alias in &mut told.aliases {
                alias.is_opened = true;
            }
        }
    }

    /// Returns whether the driver has not counted an opening that ends now.
    pub fn close_uncounted(&self, node: NodeId) -> bool {
        match self.nodes().get_mut(&node) {
            Some(told) if told.uncounted > 0 => {
                told.uncounted -= 1;
                true
            }
            _ => false,
        }
    }

    /// Records that an opening of `node` has ended.
    pub fn closed(&self, node: NodeId) {
        if let Some(told) = self.nodes().get_mut(&node) {
            let was_nameless = told.is_nameless();
            told.opens = told.opens.saturating_sub(1);
            if was_nameless && !told.is_nameless() {
                self.orphans.close(node);
            }
        }
    }

    /// Returns the aliases of `node` that the kernel is to drop now: those by which no file is open. A
    /// file whose alias the kernel has dropped would be shown as deleted in `/proc/PID/fd`.
    pub fn drop_aliases(&self, node: NodeId) -> Vec<Name> {
        let mut nodes = self.nodes();
        let Some(told) = nodes.get_mut(&node) else {
            return Vec::new();
        };
        let all = told.opens == 0 || told.has_many_aliases();
        let mut names = Vec::new();
        for alias in &mut told.aliases {
            if (all || !alias.is_opened) && !alias.is_dropping {
                alias.is_dropping = true;
                self.dropping.fetch_add(1, Ordering::Relaxed);
                names.push(alias.name.clone());
            }
        }
        names
    }

    /// Returns whether the kernel keeps more aliases of `node` than it should.
    pub fn has_many_aliases(&self, node: NodeId) -> bool {
        self.nodes().get(&node).is_some_and(Told::has_many_aliases)
    }

    /// Returns whether the kernel is being told to drop any alias.
    pub fn is_dropping(&self) -> bool {
        self.dropping.load(Ordering::Relaxed) > 0
    }

    /// Records that the kernel has dropped an alias that [`drop_aliases`](Self::drop_aliases) returned.
    pub fn alias_dropped(&self, node: NodeId, name: &Name) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.aliases.retain(|alias| alias.name != *name);
        }
        self.dropping.fetch_sub(1, Ordering::Relaxed);
        self.dropped.notify_all();
    }

    /// Waits until the kernel has dropped the aliases of `node` that it is told to drop, but not for
    /// long: another request may hold the directory.
    pub fn wait_until_dropped(&self, node: NodeId) {
        let waits = |nodes: &mut HashMap<NodeId, Told>| {
            let aliases = nodes.get(&node).map(|told| &told.aliases);
            aliases.is_some_and(|all| all.iter().any(|alias| alias.is_dropping))
        };
        let waited = self
            .dropped
            .wait_timeout_while(self.nodes(), DROP_WAIT, waits);
        drop(waited);
    }

    /// Records that the inode of `node`, whose contents changed last at `modified`, changed at `at`.
    pub fn changed(&self, node: NodeId, at: Timestamp, modified: Timestamp) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.changed = Some(Box::new(Changed { at, modified }));
        }
    }

    /// Returns when the inode of `node` changed last, given when its contents did. A change of the
    /// contents is one of the inode, so that the contents' time holds where nothing else is known.
    pub fn change_time(&self, node: NodeId, modified: Timestamp) -> Timestamp {
        let nodes = self.nodes();
        match nodes.get(&node).and_then(|told| told.changed.as_ref()) {
            Some(last) if last.modified == modified => last.at,
            Some(last) => last.at.max(modified),
            None => modified,
        }
    }

    /// Records what stat(2) tells of `node` from now on, unless the driver still knows it.
    pub fn removed(&self, node: NodeId, attr: FileAttr) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.removed = Some(Box::new(attr));
            if told.is_nameless() {
                self.orphans.await_close(node);
            }
        }
    }

    /// Returns what was recorded with [`removed`](Self::removed).
    pub fn remains(&self, node: NodeId) -> Option<FileAttr> {
        let nodes = self.nodes();
        nodes.get(&node)?.removed.as_deref().copied()
    }

    /// Subtracts `times` from the references of the kernel to `node`. After the last one, calls
    /// `forget` while no lookup can find the node. A directory that has something to report is kept, with those it is in.
    pub fn forgotten(&self, node: NodeId, times: u64, forget: impl Fn(NodeId)) {
        let mut next = self.count_down(node, times).then_some(node);
        while let Some(node) = next {
            next = self.drop_unless_kept(node, &forget);
        }
    }

    /// Drops a node that the kernel has forgotten. Returns the directory that was kept because this node was.
    fn drop_unless_kept(&self, node: NodeId, forget: impl Fn(NodeId)) -> Option<NodeId> {
        let _no_lookup = self.turnstile.write().unpoisoned();
        let mut nodes = self.nodes();
        let Entry::Occupied(mut entry) = nodes.entry(node) else {
            return None;
        };
        let told = entry.get_mut();
        // It may have been told again meanwhile.
        if told.times > 0 {
            return None;
        }
        if let Some(name) = &told.name
            && self.reports.is_kept(node)
        {
            if !told.is_kept {
                self.reports.keep_in(name.dir);
            }
            told.is_kept = true;
            self.record(node, told);
            return None;
        }
        let number = self.numbers.number(node);
        let mut told = entry.remove();
        self.reports.remove(node);
        let kept_in = self.no_longer_kept(&mut told);
        // Without a name it is recorded as gone.
        told.name = None;
        self.record(node, &told);
        drop(nodes);
        forget(node);
        if let Some(number) = number {
            self.numbers.forget(number);
        }
        kept_in
    }

    /// Ends that a directory is kept, if it is. Returns the directory that it is in.
    fn no_longer_kept(&self, told: &mut Told) -> Option<NodeId> {
        let was_kept = std::mem::take(&mut told.is_kept);
        let dir = told.name.as_ref().filter(|_| was_kept)?.dir;
        self.reports.leave(dir);
        Some(dir)
    }

    /// Subtracts `times` from the count of a node. Returns whether it is 0 then.
    fn count_down(&self, node: NodeId, times: u64) -> bool {
        let mut nodes = self.nodes();
        let Some(told) = nodes.get_mut(&node) else {
            return false;
        };
        told.times = told.times.saturating_sub(times);
        if told.times > 0 && times > 0 {
            self.record(node, told);
        }
        told.times == 0
    }

    /// Records that the name `used` of `node` became `new`, or was removed. Returns the name that the
    /// kernel keeps although it has gone.
    pub fn renamed(&self, node: NodeId, used: &Name, new: Option<Name>) -> Option<Name> {
        let mut nodes = self.nodes();
        let told = nodes.get_mut(&node)?;
        told.aliases
            .retain(|alias| alias.name != *used && Some(&alias.name) != new.as_ref());
        let first = std::mem::replace(&mut told.name, new);
        self.record(node, told);
        first.filter(|first| first != used && Some(first) != told.name.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name {
            dir: NodeId(1),
            name: text.as_bytes().into(),
        }
    }

    fn known() -> Known {
        Known::new(NodeId(1), None)
    }

    #[test]
    fn told_as_often_as_forgotten() {
        let known = known();
        for _ in 0..3 {
            known.told(NodeId(7), name("a"), None);
        }
        known.forgotten(NodeId(7), 2, |_| {});
        assert_eq!(known.nodes().len(), 1);
        known.forgotten(NodeId(7), 1, |_| {});
        assert!(known.nodes().is_empty());
        known.forgotten(NodeId(7), 1, |_| {});
    }

    #[test]
    fn an_inode_changes_with_its_contents_and_without() {
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        let known = known();
        known.changed(NodeId(7), at(5), at(1));
        assert_eq!(known.change_time(NodeId(7), at(1)), at(1), "not known");
        known.told(NodeId(7), name("a"), None);
        assert_eq!(known.change_time(NodeId(7), at(3)), at(3));
        for (modified, then, expected) in [(3, 3, 5), (9, 9, 5), (9, 7, 7), (3, 4, 5)] {
            known.changed(NodeId(7), at(5), at(modified));
            assert_eq!(known.change_time(NodeId(7), at(then)), at(expected));
        }
        known.forgotten(NodeId(7), 1, |_| {});
        known.told(NodeId(7), name("a"), None);
        assert_eq!(known.change_time(NodeId(7), at(3)), at(3));
    }

    #[test]
    fn other_names_are_aliases() {
        let known = known();
        assert!(!known.told(NodeId(7), name("a"), None));
        assert!(known.told(NodeId(7), name("A"), None));
        assert!(!known.told(NodeId(7), name("a"), None));
        let stale = known.renamed(NodeId(7), &name("A"), Some(name("b")));
        assert_eq!(stale, Some(name("a")));
        assert_eq!(known.renamed(NodeId(7), &name("b"), None), None);
        assert_eq!(known.renamed(NodeId(8), &name("b"), None), None);
    }

    #[test]
    fn aliases_are_kept_until_they_are_dropped() {
        let (known, node) = (known(), NodeId(7));
        let is = |text| known.spelling(node, &name(text));
        known.told(node, name("a"), None);
        assert_eq!((is("a"), is("A")), (Spelling::Kept, Spelling::Other));
        known.told(node, name("A"), None);
        assert_eq!(is("A"), Spelling::Cached);
        known.opened(node);
        assert_eq!(is("A"), Spelling::Open);
        assert!(known.drop_aliases(node).is_empty());
        known.closed(node);
        assert_eq!(known.drop_aliases(node), [name("A")]);
        assert!(known.drop_aliases(node).is_empty(), "once");
        assert!(known.is_dropping());
        assert_eq!(is("A"), Spelling::Dropping);
        known.alias_dropped(node, &name("A"));
        assert!(!known.is_dropping());
        assert_eq!(is("A"), Spelling::Other);
        known.opened(node);
        for n in 0..=MAX_ALIASES {
            known.told(node, name(&n.to_string()), None);
            known.opened(node);
        }
        assert_eq!(known.drop_aliases(node).len(), MAX_ALIASES + 1, "bounded");
    }

    #[test]
    fn of_a_directory_the_last_name_is_kept() {
        let (known, node) = (known(), NodeId(7));
        for text in ["Dir", "dir", "DIR"] {
            assert!(!known.told(node, name(text), Some(Created(0))));
            assert_eq!(known.spelling(node, &name(text)), Spelling::Kept);
        }
        assert_eq!(known.spelling(node, &name("Dir")), Spelling::Other);
    }
}
