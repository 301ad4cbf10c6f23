//! Successive servers of an exFAT volume, without kernel and requests.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::Arc;

use forerun::OpenOptions;
use forerun::unstable::VolumeMut;
use forerun_io::MemoryDevice;
use forerun_testkit::{exfat_tools, temp_dir};
use forerun_vfs::{Error, FileType, NewNode, NodeId, Result, Timestamp};
use fuser::Errno;

use super::core::{CoreMut, LookupAnswer};
use super::files::{fsyncdir, release};
use super::flusher::commit;
use super::known::Name;
use super::numbers::{LOST, MOST_SERVERS, ROOT};
use super::setattr::{Wanted, setattr};
use crate::MountOptions;
use crate::errno::errno;
use crate::state_table::{KnownInode, StateFile, VolumeState};

struct Server {
    core: CoreMut,
    device: Arc<MemoryDevice>,
    options: MountOptions,
}

impl Server {
    /// Returns the first server of a new volume, `None` without mkfs.exfat.
    fn first(options: &str) -> Option<Self> {
        let dir = temp_dir("servers");
        let image = dir.path().join("image");
        if !exfat_tools::mkfs(&image, 4 << 20, &[]) {
            return None;
        }
        let device = Arc::new(MemoryDevice::new(fs::read(&image).unwrap()));
        let options = MountOptions::parse(options).unwrap();
        let opened = VolumeMut::from_device(
            Arc::<MemoryDevice>::clone(&device),
            &OpenOptions::default(),
            &options.write,
        );
        let volume = Arc::clone(opened.unwrap().volume());
        let state = VolumeState::new(&StateFile::new().unwrap()).unwrap();
        Some(Self {
            core: CoreMut::new(volume, &options, Some(state)),
            device,
            options,
        })
    }

    /// Kills this server and returns its successor.
    fn after_a_kill(self) -> Self {
        let next = self.next();
        assert_eq!(next.core.is_rolled_back, !next.options.write.dirsync);
        next
    }

    fn after_a_restart(self) -> Self {
        self.core.leave().unwrap();
        let next = self.next();
        assert!(!next.core.is_rolled_back);
        next
    }

    fn next(self) -> Self {
        let device = Arc::new(MemoryDevice::new(self.device.to_vec()));
        let recovered = VolumeMut::recover(
            Arc::<MemoryDevice>::clone(&device),
            &OpenOptions::default(),
            &self.options.write,
            true,
        );
        let volume = Arc::clone(recovered.unwrap().0.volume());
        let state = self.core.known.share().unwrap().unwrap();
        let (core, _outdated) = CoreMut::recover(volume, &self.options, state).unwrap();
        Self {
            core,
            device,
            options: self.options,
        }
    }

    /// Returns the directory numbers that the next server would inherit if this server died now.
    fn known(&self) -> Vec<u64> {
        let state = self.core.known.share().unwrap().unwrap();
        let (_, inherited) = VolumeState::inherit(state).unwrap();
        let mut numbers: Vec<_> = inherited.inodes.iter().map(|it| it.number).collect();
        numbers.sort_unstable();
        numbers
    }

    fn node(&self, number: u64) -> NodeId {
        self.core.node(number)
    }

    /// Creates a node with creation time `at`. Returns its number.
    fn make(
        &self,
        dir: u64,
        name: &str,
        (kind, at): (FileType, i64),
        (open, resent): (bool, bool),
    ) -> Result<u64> {
        let new = NewNode {
            kind,
            permissions: 0o755,
            owner: (0, 0),
            time: Timestamp {
                seconds: 1_700_000_000 + at,
                nanoseconds: 0,
            },
        };
        let dir = self.node(dir);
        let made = self
            .core
            .create(dir, name.as_bytes(), &new, (open, resent))?;
        Ok(made.attr.ino.0)
    }

    fn directory(&self, dir: u64, name: &str, at: i64) -> u64 {
        let kind = (FileType::Directory, at);
        self.make(dir, name, kind, (false, false)).unwrap()
    }

    /// Creates a file whose contents are its name, and leaves it open.
    fn file(&self, dir: u64, name: &str) -> u64 {
        let kind = (FileType::Regular, 0);
        let number = self.make(dir, name, kind, (true, false)).unwrap();
        let written = self.core.write(self.node(number), 0, name.as_bytes());
        assert_eq!(written.unwrap(), name.len());
        number
    }

    fn create_again(&self, name: &str, kind: FileType) -> Result<u64> {
        self.make(ROOT, name, (kind, 0), (false, true))
    }

    fn rename(&self, from: (u64, &str), to: (u64, &str), resent: bool) -> Result<()> {
        let from = (self.node(from.0), from.1.as_bytes());
        let to = (self.node(to.0), to.1.as_bytes());
        self.core.rename(from, to, (true, resent))
    }

    fn remove(&self, name: &str, resent: bool) -> Result<()> {
        let root = self.node(ROOT);
        self.core.remove(root, name.as_bytes(), false, resent)
    }

    fn lookup(&self, dir: u64, name: &str) -> Option<u64> {
        match self
            .core
            .lookup(0, self.node(dir), name.as_bytes())
            .unwrap()
        {
            LookupAnswer::Entry(entry) => Some(entry.attr.ino.0),
            LookupAnswer::Missing => None,
            LookupAnswer::Again => panic!("{name} is to be looked up again"),
        }
    }

    fn contents(&self, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let len = self.core.volume.read(self.node(number), 0, &mut bytes);
        bytes.truncate(len.unwrap());
        bytes
    }

    fn sync(&self) {
        commit(&self.core.volume, &self.core.known).unwrap();
    }

    /// Asserts that fsync(2) of a directory fails exactly once.
    #[track_caller]
    fn reports_once(&self, number: u64) {
        assert_eq!(fsyncdir(&self.core, number), Err(Errno::EIO));
        assert_eq!(fsyncdir(&self.core, number), Ok(()));
    }
}

#[track_caller]
fn assert_fails<T>(result: Result<T>, expected: Errno) {
    assert_eq!(result.map_err(|error| errno(&error)).err(), Some(expected));
}

#[test]
fn a_file_that_was_synced_outlives_a_create_that_is_sent_again() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    for name in ["removed", "renamed"] {
        server.file(ROOT, name);
    }
    server.sync();
    server.remove("removed", false).unwrap();
    let to = (ROOT, "elsewhere");
    server.rename((ROOT, "renamed"), to, false).unwrap();
    let server = server.after_a_kill();
    for name in ["removed", "renamed"] {
        assert_fails(server.create_again(name, FileType::Regular), Errno::ESTALE);
        assert_fails(
            server.create_again(name, FileType::Directory),
            Errno::EEXIST,
        );
        let number = server.lookup(ROOT, name).unwrap();
        assert_eq!(server.contents(number), name.as_bytes());
    }
}

#[test]
fn a_node_that_the_same_request_has_created_is_found_when_it_is_sent_again() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    for kind in [FileType::Regular, FileType::Directory] {
        let name = format!("{kind:?}");
        let made = server.make(ROOT, &name, (kind, 0), (false, false)).unwrap();
        assert_eq!(server.create_again(&name, kind).unwrap(), made);
    }
    server.file(server.lookup(ROOT, "Directory").unwrap(), "inside");
    let again = server.create_again("Directory", FileType::Directory);
    assert_fails(again, Errno::EEXIST);
}

#[test]
fn a_directory_that_took_the_name_and_place_of_another_is_not_taken_for_it() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let [first, second] = [("one", 10), ("two", 20)].map(|(name, at)| {
        let number = server.directory(ROOT, name, at);
        server.file(number, name);
        number
    });
    server.sync();
    server.rename((ROOT, "one"), (ROOT, "gone"), false).unwrap();
    server.rename((ROOT, "two"), (ROOT, "one"), false).unwrap();
    let server = server.after_a_kill();
    // The renames are undone, so "one" is the first directory again, although the kernel last got
    // that name for the second one.
    assert_eq!([first, second].map(|number| server.node(number)), [LOST; 2]);
    for name in ["one", "two"] {
        let found = server.lookup(ROOT, name).unwrap();
        assert!(server.lookup(found, name).is_some(), "{name}");
    }
}

#[test]
fn a_directory_is_found_again_by_its_name_and_creation_time() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let dir = server.directory(ROOT, "dir", 10);
    let inner = server.directory(dir, "inner", 20);
    let file = server.file(inner, "file");
    server.sync();
    let server = server.after_a_kill();
    assert_eq!(server.lookup(ROOT, "dir"), Some(dir));
    assert_eq!(server.lookup(dir, "inner"), Some(inner));
    assert_eq!(server.node(file), LOST);
    // Without a handle, fchmod(2) looks like chmod(2); ESTALE makes the kernel repeat a path
    // lookup.
    let wanted = Wanted {
        mode: Some(0o700),
        ..Wanted::default()
    };
    assert_eq!(setattr(&server.core, file, &wanted), Err(Errno::ESTALE));
}

#[test]
fn removals_and_renames_sent_again_fail_on_a_volume_that_was_rolled_back() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    server.file(ROOT, "old");
    server.sync();
    let to = (ROOT, "new");
    server.rename((ROOT, "old"), to, false).unwrap();
    server.file(ROOT, "old");
    let server = server.after_a_kill();
    assert_fails(server.remove("old", true), Errno::EIO);
    assert_fails(server.rename((ROOT, "old"), to, true), Errno::EIO);
    assert_fails(server.remove("new", true), Errno::EIO);
    let old = server.lookup(ROOT, "old").unwrap();
    assert_eq!(server.contents(old), b"old");
    server.rename((ROOT, "old"), to, false).unwrap();
    server.remove("new", false).unwrap();
}

#[test]
fn removals_and_renames_that_are_durable_succeed_when_they_are_sent_again() {
    let Some(server) = Server::first("rw,dirsync") else {
        return;
    };
    for name in ["removed", "renamed"] {
        server.file(ROOT, name);
    }
    server.remove("removed", false).unwrap();
    let (from, to) = ((ROOT, "renamed"), (ROOT, "new"));
    server.rename(from, to, false).unwrap();
    let server = server.after_a_kill();
    server.remove("removed", true).unwrap();
    server.rename(from, to, true).unwrap();
    assert!(server.lookup(ROOT, "new").is_some());
}

#[test]
fn a_restart_after_a_death_reports_only_what_was_not_reported() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let [told, untold] = ["told", "untold"].map(|name| server.directory(ROOT, name, 0));
    server.sync();
    let server = server.after_a_kill();
    server.reports_once(told);
    let server = server.after_a_restart();
    assert_eq!(fsyncdir(&server.core, told), Ok(()));
    server.reports_once(untold);
    server.reports_once(ROOT);
    let server = server.after_a_restart();
    for number in [told, untold, ROOT] {
        assert_eq!(fsyncdir(&server.core, number), Ok(()));
    }
    let server = server.after_a_kill();
    for number in [told, untold, ROOT] {
        server.reports_once(number);
    }
}

#[test]
fn a_directory_that_the_kernel_has_forgotten_reports_that_its_changes_were_lost() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let outer = server.directory(ROOT, "outer", 0);
    let [changed, synced] = ["changed", "synced"].map(|name| {
        let number = server.directory(outer, name, 0);
        server.file(number, "synced");
        number
    });
    server.sync();
    server.file(changed, "lost");
    for number in [changed, synced, outer] {
        server.core.forget(number, 1);
    }
    let server = server.after_a_kill();
    let find = |name: &str| {
        let outer = server.lookup(ROOT, "outer").unwrap();
        let found = server.lookup(outer, name).unwrap();
        (outer, found)
    };
    let (outer, found) = find("changed");
    assert_eq!(server.lookup(found, "lost"), None);
    // The kernel may also forget the directory between the death and the report.
    server.core.forget(found, 1);
    server.core.forget(outer, 1);
    let (_, found) = find("changed");
    server.reports_once(found);
    // Everything in the other directory was durable when the kernel forgot it.
    let (_, other) = find("synced");
    assert_eq!(fsyncdir(&server.core, other), Ok(()));
}

#[test]
fn a_directory_is_kept_for_a_report_only_until_its_names_are_durable() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let outer = server.directory(ROOT, "outer", 0);
    server.sync();
    let dir = server.directory(outer, "dir", 0);
    server.sync();
    let inner = server.directory(dir, "inner", 0);
    for number in [inner, dir, outer] {
        server.core.forget(number, 1);
    }
    let mut kept = [outer, dir];
    kept.sort_unstable();
    assert_eq!(server.known(), kept);
    server.sync();
    assert_eq!(server.known(), [0; 0]);
    // A removed directory is not kept.
    let gone = server.directory(ROOT, "gone", 0);
    server.directory(gone, "inner", 0);
    let node = server.node(gone);
    let inner = server.core.remove(node, b"inner", true, false);
    inner.unwrap();
    let removed = server.core.remove(server.node(ROOT), b"gone", true, false);
    removed.unwrap();
    server.core.forget(gone, 1);
    assert!(!server.core.known.reports.is_kept(node));
    // A handover also makes everything durable.
    let last = server.directory(ROOT, "last", 0);
    server.directory(last, "inner", 0);
    server.core.forget(last, 1);
    let is_kept =
        [server.node(last), server.node(ROOT)].map(|dir| server.core.known.reports.is_kept(dir));
    assert_eq!(is_kept, [true; 2]);
    let server = server.after_a_restart();
    assert!(!server.known().contains(&last));
}

/// A program has the file open by a name whose other spelling was renamed away. So the kernel may
/// forget the directory that contains the file now, and another directory may get its ID.
#[test]
fn a_file_in_a_directory_that_the_kernel_has_forgotten_is_not_taken_for_another_one() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let [from, to] = ["from", "to"].map(|name| server.directory(ROOT, name, 0));
    let file = server.file(from, "f");
    let node = server.node(file);
    let told = server.core.entry(server.node(from), b"F", node).unwrap();
    assert_eq!(told.attr.ino.0, file);
    server.rename((from, "F"), (to, "name"), false).unwrap();
    let place = server.node(to);
    server.sync();
    server.core.forget(to, 1);
    let again = server.lookup(ROOT, "to").unwrap();
    let long = "a name that needs more entries than its place has";
    server.rename((ROOT, "to"), (ROOT, long), false).unwrap();
    server.sync();
    server.core.forget(again, 1);
    let other = server.directory(ROOT, "xy", 0);
    assert_eq!(server.node(other), place, "the id is not used again");
    let wrong = server.file(other, "name");
    assert_eq!(server.contents(wrong), b"name");
    assert_eq!(server.contents(file), b"f");

    // A handover waits for such files, as for files without a name.
    let is_named = |node: NodeId, name: &Name| server.core.is_named(node, name);
    assert_eq!(server.core.known.nameless(is_named), 1);
    let server = server.after_a_restart();
    assert_eq!(server.node(file), LOST);
    assert_eq!(server.contents(wrong), b"name");
}

#[test]
fn openings_that_an_earlier_server_has_counted_end_one_by_one() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let file = server.file(ROOT, "file");
    let opened = || {
        server.core.fs().open(server.node(file)).unwrap();
        server.core.known.opened(server.node(file));
    };
    opened();
    opened();
    let server = server.after_a_restart();
    let opens = server.core.known.nameless(|_, _| false);
    assert_eq!(opens, 1, "it is open");
    server.remove("file", false).unwrap();
    for _ in 0..3 {
        assert_eq!(server.contents(file), b"file");
        release(&server.core, file).unwrap();
    }
    let read = server.core.volume.read(server.node(file), 0, &mut [0; 4]);
    assert!(matches!(read, Err(Error::StaleNode(_))), "{read:?}");
}

#[test]
fn a_state_with_absurd_counts_is_taken_over() {
    let Some(server) = Server::first("rw") else {
        return;
    };
    let file = server.file(ROOT, "file");
    server.sync();
    let table = server.core.known.share().unwrap().unwrap();
    let (table, _) = VolumeState::inherit(table).unwrap();
    let inode = KnownInode {
        number: file,
        parent: ROOT,
        name: b"file".to_vec(),
        times: u64::MAX,
        opens: u64::MAX,
        ..KnownInode::default()
    };
    table.leave(std::iter::once(inode), false).unwrap();
    let server = server.next();
    assert_eq!(server.contents(file), b"file");
    release(&server.core, file).unwrap();
    server.core.forget(file, u64::MAX);
    assert_eq!(
        server.contents(server.lookup(ROOT, "file").unwrap()),
        b"file"
    );
}

#[test]
fn no_server_gets_the_numbers_of_an_earlier_one() {
    let Some(mut server) = Server::first("rw") else {
        return;
    };
    let file = server.file(ROOT, "file");
    server.sync();
    let mut state = server.core.known.share().unwrap().unwrap();
    for _ in 1..MOST_SERVERS {
        state = VolumeState::inherit(state).unwrap().0.share().unwrap();
    }
    assert!(!server.core.known.numbers.are_used_up());
    let volume = Arc::clone(&server.core.volume);
    let (last, _outdated) = CoreMut::recover(volume, &server.options, state).unwrap();
    server.core = last;
    assert!(server.core.known.numbers.are_used_up());
    assert_eq!(server.node(file), LOST);
    let state = server.core.known.share().unwrap().unwrap();
    let volume = Arc::clone(&server.core.volume);
    let refused = CoreMut::recover(volume, &server.options, state)
        .err()
        .unwrap();
    assert!(refused.to_string().contains("have no room"), "{refused}");
}
