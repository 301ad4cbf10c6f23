//! Directories: listings and lookups agree, and a listing can be resumed anywhere.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use forerun_io::u64_from;
use forerun_vfs::{DirCursor, FileSystem, FileType, Limits, NodeId, Result, check_name};

/// Most cursors of one directory to resume from. The others behave alike.
const RESUMED: usize = 24;
/// Entries of one directory for which similar names are looked up.
const MISSPELLED: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    name: Vec<u8>,
    node: NodeId,
    kind: FileType,
    next: DirCursor,
}

pub fn list(fs: &dyn FileSystem, dir: NodeId, from: DirCursor) -> Result<Vec<Listed>> {
    list_up_to(fs, dir, from, usize::MAX)
}

pub fn first(fs: &dyn FileSystem, dir: NodeId) -> Result<Vec<Listed>> {
    list_up_to(fs, dir, DirCursor::START, 1)
}

fn list_up_to(
    fs: &dyn FileSystem,
    dir: NodeId,
    from: DirCursor,
    count: usize,
) -> Result<Vec<Listed>> {
    let mut entries = Vec::new();
    fs.read_dir(dir, from, &mut |entry| {
        assert!(
            entries.len() < count,
            "directory {dir}: visited on after the visitor broke"
        );
        entries.push(Listed {
            name: entry.name.to_vec(),
            node: entry.node,
            kind: entry.kind,
            next: entry.next,
        });
        if entries.len() < count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    Ok(entries)
}

pub fn check_directory(fs: &dyn FileSystem, dir: NodeId, limits: &Limits) {
    let entries = list(fs, dir, DirCursor::START).expect("entries of a directory");
    let mut names = BTreeSet::new();
    let mut cursors = BTreeSet::new();
    for entry in &entries {
        let name = String::from_utf8_lossy(&entry.name);
        if let Err(error) = check_name(&entry.name, limits.name_len) {
            panic!("directory {dir}: name {name:?}: {error}");
        }
        assert!(
            u64_from(entry.name.len()) <= u64::from(fs.volume().name_max),
            "directory {dir}: {name:?} is longer than the format's longest name"
        );
        assert!(names.insert(&entry.name), "directory {dir}: {name:?} twice");
        assert_ne!(
            entry.next,
            DirCursor::START,
            "directory {dir}: cursor after {name:?}"
        );
        assert!(
            cursors.insert(entry.next),
            "directory {dir}: the cursor after {name:?} is another entry's too"
        );
        let found = fs
            .lookup(dir, &entry.name)
            .expect("lookup of a listed name");
        assert_eq!(
            found,
            Some(entry.node),
            "directory {dir}: lookup of {name:?}"
        );
        let metadata = fs.metadata(entry.node).expect("metadata of a listed node");
        assert_eq!(
            metadata.kind, entry.kind,
            "directory {dir}: kind of {name:?}"
        );
    }
    resumes_everywhere(fs, dir, &entries);
    stops_on_break(fs, dir, &entries);
    misses_what_is_not_there(fs, dir, &names, limits);
}

/// Checks that a directory contains exactly these names in their order, and that a listing resumes
/// after each of them.
pub fn check_names(fs: &dyn FileSystem, dir: NodeId, mut names: Vec<String>) {
    // Lookups come before any listing, so that they must use indexes.
    for name in &names {
        assert!(fs.lookup(dir, name.as_bytes()).unwrap().is_some(), "{name}");
        let longer = format!("{name}z");
        assert_eq!(fs.lookup(dir, longer.as_bytes()).unwrap(), None);
    }
    for missing in [&b"!"[..], b"\xff"] {
        assert_eq!(fs.lookup(dir, missing).unwrap(), None);
    }
    names.sort();
    let listed = list(fs, dir, DirCursor::START).unwrap();
    let found = listed.iter().map(|entry| &entry.name[..]);
    assert!(found.eq(names.iter().map(String::as_bytes)));
    for (n, entry) in listed.iter().enumerate() {
        let next = list_up_to(fs, dir, entry.next, 1).unwrap();
        assert_eq!(next.first(), listed.get(n + 1), "from {n}");
        assert_eq!(fs.lookup(dir, &entry.name).unwrap(), Some(entry.node));
    }
}

fn resumes_everywhere(fs: &dyn FileSystem, dir: NodeId, entries: &[Listed]) {
    let step = entries.len().div_ceil(RESUMED).max(1);
    let last = entries.len().saturating_sub(1);
    for (index, entry) in entries.iter().enumerate() {
        if index % step != 0 && index != last {
            continue;
        }
        let rest = list(fs, dir, entry.next).expect("entries after a cursor");
        assert!(
            rest == entries[index + 1..],
            "directory {dir}: resuming after entry {index} of {} gives other entries",
            entries.len()
        );
    }
}

fn stops_on_break(fs: &dyn FileSystem, dir: NodeId, entries: &[Listed]) {
    for count in [1, 2, entries.len() / 2] {
        if count == 0 || count > entries.len() {
            continue;
        }
        let got = list_up_to(fs, dir, DirCursor::START, count).expect("some entries");
        assert!(
            got == entries[..count],
            "directory {dir}: the first {count} entries"
        );
    }
}

/// Looks up names that are similar to existing ones, which a sloppy comparison would find.
fn misses_what_is_not_there(
    fs: &dyn FileSystem,
    dir: NodeId,
    names: &BTreeSet<&Vec<u8>>,
    limits: &Limits,
) {
    let mut absent: BTreeSet<Vec<u8>> = BTreeSet::new();
    absent.insert(b"no such name \x01".to_vec());
    for name in names.iter().take(MISSPELLED) {
        absent.insert(name[..name.len() - 1].to_vec());
        absent.insert([name.as_slice(), b"\x01"].concat());
        absent.insert([b"\x01", name.as_slice()].concat());
    }
    for name in absent {
        if names.contains(&name) || check_name(&name, limits.name_len).is_err() {
            continue;
        }
        let found = fs.lookup(dir, &name).expect("lookup of a missing name");
        let name = String::from_utf8_lossy(&name);
        assert_eq!(found, None, "directory {dir}: {name:?} is not listed");
    }
    // No entry can have these names. A driver may return any result, but must not panic.
    let long = vec![b'x'; 5000];
    for name in [&b""[..], b".", b"..", b"/", b"a/b", b"\0", &long] {
        let outcome = fs.lookup(dir, name);
        let found = name != b"." && name != b".." && matches!(outcome, Ok(Some(_)));
        assert!(!found, "directory {dir}: an entry that no name can have");
    }
}
