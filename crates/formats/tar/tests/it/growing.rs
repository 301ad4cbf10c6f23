//! Archives that are used while they are read: the source stands still at a place, until it may go on.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};

use forerun_io::{Limits, MemorySource, ReadAt, u64_from, wait};
use forerun_tar::GrowingTar;
use forerun_vfs::{DirCursor, Error, FileSystem, FileType, NodeId, OpenWith};

use crate::common::{archive, member, open};

/// A source of which the first bytes are here.
struct Coming {
    bytes: MemorySource,
    here: Mutex<u64>,
    moved: Condvar,
}

impl Coming {
    fn new(bytes: &[u8], here: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes: MemorySource::new(bytes.to_vec()),
            here: Mutex::new(here),
            moved: Condvar::new(),
        })
    }

    fn go_on(&self, to: u64) {
        *self.here.lock().unwrap() = to;
        self.moved.notify_all();
    }
}

impl ReadAt for Coming {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset + u64_from(out.len());
        let here = self.here.lock().unwrap();
        drop(self.moved.wait_while(here, |here| *here < end).unwrap());
        self.bytes.read_exact_at(offset, out)
    }
}

fn members() -> Vec<Vec<u8>> {
    vec![
        member(b'5', b"d", b"", b""),
        member(b'0', b"d/first", b"", b"first"),
        member(b'0', b"twice", b"", b"old"),
        member(b'1', b"linked", b"d/first", b""),
        member(b'1', b"below", b"of/another/layer", b""),
        member(b'0', b"implied/file", b"", b"x"),
        member(b'0', b"twice", b"", b"newer"),
        member(b'0', b"last", b"", b"last"),
    ]
}

/// Asks without a wait.
fn now<T>(question: impl FnOnce() -> Result<T, Error>) -> Option<T> {
    wait::attempt(question).map(|answer| answer.unwrap())
}

#[test]
fn names_are_answered_when_they_have_come_and_missing_ones_at_the_end() {
    let bytes = archive(&members());
    // Up to the second member of a name that was there.
    let until: usize = members()[..6].iter().map(Vec::len).sum();
    let source = Coming::new(&bytes, u64_from(until));
    let tar = Arc::new(GrowingTar::new(
        &bytes[..512],
        source.len(),
        &Limits::default(),
    ));
    let (pass, of_pass) = (Arc::clone(&tar), Arc::clone(&source));
    let pass = std::thread::spawn(move || {
        let mut with = OpenWith::new(of_pass);
        with.is_layer = true;
        pass.read(&with)
    });
    let root = tar.root();
    // This one waits until it has come.
    let implied = tar.lookup(root, b"implied").unwrap().unwrap();
    let dir = now(|| tar.lookup(root, b"d")).flatten().unwrap();
    let first = now(|| tar.lookup(dir, b"first")).flatten().unwrap();
    assert_eq!(now(|| tar.metadata(first)).unwrap().size, 5);
    assert_eq!(now(|| tar.lookup(root, b"linked")).flatten(), Some(first));
    let below = now(|| tar.lookup(root, b"below")).flatten().unwrap();
    assert_eq!(now(|| tar.is_link_below(below)), Some(true));
    assert_eq!(now(|| tar.is_link_below(first)), Some(false));
    let old = now(|| tar.lookup(root, b"twice")).flatten().unwrap();
    let mut extents = Vec::new();
    let mapped = now(|| {
        tar.map(first, 0..5, &mut |extent| {
            extents.push(extent.logical.clone());
            ControlFlow::Continue(())
        })
    });
    assert_eq!(mapped, Some(()));
    assert_eq!((extents.len(), extents.first()), (1, Some(&(0..5))));
    // What is not known yet: a missing name, a listing, the owner of a directory that only paths name.
    assert_eq!(now(|| tar.lookup(root, b"last")), None);
    let list =
        |dir: NodeId| tar.read_dir(dir, DirCursor::START, &mut |_| ControlFlow::Continue(()));
    assert_eq!(now(|| list(root)), None);
    assert_eq!(now(|| tar.metadata(implied).map(drop)), None);
    assert_eq!(
        now(|| tar.metadata(root)).unwrap().kind,
        FileType::Directory
    );
    assert!(matches!(tar.lookup(first, b"x"), Err(Error::NotADirectory)));
    wait::ahead(|| assert!(tar.lookup(root, b"last").is_err()));
    assert!(!tar.is_settled());

    source.go_on(source.len());
    let read = pass.join().unwrap().unwrap();
    // Not before it was verified.
    assert_eq!(now(|| tar.lookup(root, b"absent")), None);
    tar.complete(read);
    assert!(tar.is_settled());
    assert_eq!(tar.lookup(root, b"absent").unwrap(), None);
    assert_eq!(tar.metadata(implied).unwrap().mode, 0o755);
    assert!(matches!(tar.metadata(old), Err(Error::StaleNode(_))));
    let new = tar.lookup(root, b"twice").unwrap().unwrap();
    assert_eq!(tar.metadata(new).unwrap().size, 5);
    let alone = open(&archive(&members()[..3]));
    assert_eq!(alone.lookup(root, b"d").unwrap(), Some(dir));
    list(root).unwrap();
}

#[test]
fn a_failure_ends_waits_and_a_pause_of_the_server_does_not_end_the_image() {
    let bytes = archive(&members());
    let tar = Arc::new(GrowingTar::new(
        &bytes[..512],
        u64_from(bytes.len()),
        &Limits::default(),
    ));
    let root = tar.root();
    let late = || Error::io(0, 0, io::ErrorKind::TimedOut.into());
    tar.stall(Some(late()));
    assert!(tar.is_stalled() && tar.lookup(root, b"d").is_err());
    tar.stall(None);
    let of_waiting = Arc::clone(&tar);
    let waiting = std::thread::spawn(move || of_waiting.lookup(root, b"d").is_err());
    assert_eq!(now(|| tar.lookup(root, b"d")), None);
    tar.fail(late());
    assert!(waiting.join().unwrap());
    assert!(tar.lookup(root, b"d").is_err() && tar.settle().is_err());
    // Cut in the middle of a member.
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes[..1000].to_vec())));
    with.is_layer = true;
    let cut = GrowingTar::new(&bytes[..512], 1000, &Limits::default());
    assert!(matches!(cut.read(&with), Err(Error::Corrupt(_))));
}
