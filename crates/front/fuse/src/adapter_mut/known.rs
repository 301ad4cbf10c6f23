//! The nodes that the kernel references.
//!
//! Each answer that names a node adds a reference. After the last FORGET the kernel no longer uses
//! the ID, and the driver may drop the node. A concurrent lookup must not return an ID that is
//! being dropped: lookups hold the turnstile shared while they ask the driver and count the
//! reference; dropping holds it exclusively.
//!
//! On volumes that fold case a node has many names, and the kernel caches each name of a file
//! separately. [`Known`] remembers the first name in an answer. All other names are aliases: the
//! kernel may not cache them, and is told to drop them once no file is open under them
//! ([`case_rename`](super::case_rename) explains why). When a file is removed or renamed by an
//! alias, the kernel is told that the first name is gone too. The kernel caches only one name of a
//! directory, the one in the last answer, and this module remembers that one.
//!
//! No driver stores some results of stat(2): the last change time of an inode, and the attributes
//! of a removed node that is open without the driver's knowledge (directories, `O_PATH`). They are
//! kept here as long as the kernel references the node.
//!
//! Everything that a successor process needs is written to the [state table](crate::state_table)
//! before an answer is sent.

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

/// Maximum number of aliases per file that the kernel may keep; beyond that it is told to drop them
/// even while the file is open.
const MAX_ALIASES: usize = 16;
/// How long a request waits for the kernel to drop aliases. It takes longer only while another
/// request, or the waiting one, holds the directory.
const DROP_WAIT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Known {
    pub numbers: Numbers,
    /// `None` if the mount ends with this process. Locked after `nodes`.
    state: Option<Mutex<VolumeState>>,
    turnstile: RwLock<()>,
    nodes: Mutex<HashMap<NodeId, Told>>,
    /// Number of aliases being dropped, so that other requests need no lock.
    dropping: AtomicUsize,
    dropped: Condvar,
    /// Open files without a name.
    pub orphans: Orphans,
    /// Directories whose next fsync(2) must fail.
    pub reports: Reports,
}

/// Creation time of a directory in nanoseconds. It identifies the directory after a crash, which
/// undoes unwritten renames: another directory may have the name then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created(pub u64);

impl Created {
    /// Returns the creation time of a directory, `None` for a file.
    pub fn of(attr: &FileAttr) -> Option<Self> {
        let since = attr.crtime.duration_since(UNIX_EPOCH).unwrap_or_default();
        let is_directory = attr.kind == fuser::FileType::Directory;
        // 64 bits reach the year 2554; exFAT ends in 2107.
        is_directory.then(|| Self(u64::try_from(since.as_nanos()).unwrap_or_default()))
    }
}

#[derive(Debug, Default)]
struct Told {
    times: u64,
    is_directory: bool,
    created: u64,
    /// `None` after the name was removed.
    name: Option<Name>,
    /// Other names of a file that the kernel may keep.
    aliases: Vec<OtherSpelling>,
    opens: u64,
    /// Handles opened by an earlier server, except the one that stands for all of them in the
    /// driver.
    uncounted: u64,
    changed: Option<Box<Changed>>,
    removed: Option<Box<FileAttr>>,
    /// Whether a directory is kept after the kernel's last FORGET.
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
    /// Whether the file may be open under this name.
    is_opened: bool,
    is_dropping: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// The remembered name, or a name of an unknown node.
    Kept,
    /// The kernel may keep it as an alias.
    Cached,
    /// Like [`Cached`](Self::Cached), and a program has the file open under it.
    Open,
    /// Like [`Cached`](Self::Cached), and the kernel is being told to drop it.
    Dropping,
    /// The kernel keeps another name of the node, and not this one.
    Other,
}

#[derive(Debug)]
struct Changed {
    at: Timestamp,
    modified: Timestamp,
}

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

    pub const fn is_kept(&self) -> bool {
        self.state.is_some()
    }

    /// Duplicates the state table's descriptor for another process.
    pub fn share(&self) -> Option<io::Result<OwnedFd>> {
        let state = self.state.as_ref()?;
        Some(state.lock().unpoisoned().share())
    }

    /// Writes the kernel's references to the state table for the next server. The caller ensures
    /// that no request is being answered. Omits files whose name no longer leads to them, according
    /// to `is_named`.
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

    /// Writes the state of a directory to the state table; does nothing for a file.
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

    /// Returns a guard that a lookup holds until it has counted the reference.
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

    /// Records a reference from an earlier server's answer.
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

    /// Returns the number of open files that no name leads to, according to `is_named`. A file's
    /// remembered name may be in a directory that the kernel has forgotten, while the kernel keeps
    /// the file under another name.
    pub fn nameless(&self, is_named: impl Fn(NodeId, &Name) -> bool) -> usize {
        let nodes = self.nodes();
        let open = nodes.iter().filter(|(_, told)| told.opens > 0);
        let nameless = open.filter(|(node, told)| {
            let name = told.name.as_ref();
            !name.is_some_and(|name| is_named(**node, name))
        });
        nameless.count()
    }

    pub fn is_alias(&self, node: NodeId, name: &Name) -> bool {
        self.spelling(node, name) != Spelling::Kept
    }

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

    pub fn opened(&self, node: NodeId) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.opens += 1;
            for alias in &mut told.aliases {
                alias.is_opened = true;
            }
        }
    }

    /// Counts the end of a handle that the driver has not counted. Returns false if there is none.
    pub fn close_uncounted(&self, node: NodeId) -> bool {
        match self.nodes().get_mut(&node) {
            Some(told) if told.uncounted > 0 => {
                told.uncounted -= 1;
                true
            }
            _ => false,
        }
    }

    pub fn closed(&self, node: NodeId) {
        if let Some(told) = self.nodes().get_mut(&node) {
            let was_nameless = told.is_nameless();
            told.opens = told.opens.saturating_sub(1);
            if was_nameless && !told.is_nameless() {
                self.orphans.close(node);
            }
        }
    }

    /// Returns the aliases of `node` to drop now: those under which no file is open. If the kernel
    /// dropped an open one, `/proc/PID/fd` would show the file as deleted.
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

    pub fn has_many_aliases(&self, node: NodeId) -> bool {
        self.nodes().get(&node).is_some_and(Told::has_many_aliases)
    }

    pub fn is_dropping(&self) -> bool {
        self.dropping.load(Ordering::Relaxed) > 0
    }

    /// Records that the kernel has dropped an alias returned by
    /// [`drop_aliases`](Self::drop_aliases).
    pub fn alias_dropped(&self, node: NodeId, name: &Name) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.aliases.retain(|alias| alias.name != *name);
        }
        self.dropping.fetch_sub(1, Ordering::Relaxed);
        self.dropped.notify_all();
    }

    /// Waits up to `DROP_WAIT` until the kernel has dropped the aliases of `node`: another
    /// request may hold the directory.
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

    /// Records that the inode of `node` changed at `at`; `modified` is the modification time of its
    /// contents then.
    pub fn changed(&self, node: NodeId, at: Timestamp, modified: Timestamp) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.changed = Some(Box::new(Changed { at, modified }));
        }
    }

    /// Returns the last change time of the inode of `node`. Changing the contents changes the inode
    /// too, so `modified`, the modification time of the contents, is the answer if nothing later is
    /// known.
    pub fn change_time(&self, node: NodeId, modified: Timestamp) -> Timestamp {
        let nodes = self.nodes();
        match nodes.get(&node).and_then(|told| told.changed.as_ref()) {
            Some(last) if last.modified == modified => last.at,
            Some(last) => last.at.max(modified),
            None => modified,
        }
    }

    /// Records attributes that stat(2) returns for a removed node.
    pub fn removed(&self, node: NodeId, attr: FileAttr) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.removed = Some(Box::new(attr));
            if told.is_nameless() {
                self.orphans.await_close(node);
            }
        }
    }

    /// Returns the attributes recorded by [`removed`](Self::removed).
    pub fn remains(&self, node: NodeId) -> Option<FileAttr> {
        let nodes = self.nodes();
        nodes.get(&node)?.removed.as_deref().copied()
    }

    /// Subtracts `times` references to `node`. After the last one, calls `forget` while no lookup
    /// can find the node. A directory that must still report an error is kept, with its parents.
    pub fn forgotten(&self, node: NodeId, times: u64, forget: impl Fn(NodeId)) {
        let mut next = self.count_down(node, times).then_some(node);
        while let Some(node) = next {
            next = self.drop_unless_kept(node, &forget);
        }
    }

    /// Drops a node without references. Returns the parent directory that was kept because of it.
    fn drop_unless_kept(&self, node: NodeId, forget: impl Fn(NodeId)) -> Option<NodeId> {
        let _no_lookup = self.turnstile.write().unpoisoned();
        let mut nodes = self.nodes();
        let Entry::Occupied(mut entry) = nodes.entry(node) else {
            return None;
        };
        let told = entry.get_mut();
        // A lookup may have added a reference in the meantime.
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
        // Without a name, `record` removes it from the state table.
        told.name = None;
        self.record(node, &told);
        drop(nodes);
        forget(node);
        if let Some(number) = number {
            self.numbers.forget(number);
        }
        kept_in
    }

    /// Ends keeping a directory. Returns its parent if it was kept.
    fn no_longer_kept(&self, told: &mut Told) -> Option<NodeId> {
        let was_kept = std::mem::take(&mut told.is_kept);
        let dir = told.name.as_ref().filter(|_| was_kept)?.dir;
        self.reports.leave(dir);
        Some(dir)
    }

    /// Subtracts `times` references. Returns whether none are left.
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

    /// Records that the name `used` of `node` became `new` or was removed. Returns another name
    /// that the kernel still caches.
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
