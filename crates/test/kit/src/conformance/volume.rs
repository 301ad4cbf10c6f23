//! The conformance suite of drivers with writable volumes.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_engine::Volume;
use forerun_io::{BlockDevice, Observer, u64_from};
use forerun_vfs::{
    Changes, DirCursor, Error, FileSystemMut, FileType, NewNode, NodeId, Result, Timestamp,
};

/// A time that every format can store: even seconds, long after 1980.
pub(super) const THEN: Timestamp = Timestamp {
    seconds: 1_600_000_000,
    nanoseconds: 0,
};

/// Checks a driver against the contract of [`FileSystemMut`]. The volume must be empty, with 2 to
/// 64 MiB and clusters of at most 64 KiB. Leaves the volume empty.
pub fn check_filesystem_mut(fs: &Arc<dyn FileSystemMut>, device: &Arc<dyn BlockDevice>) {
    let volume = Volume::new(
        Arc::clone(fs),
        Arc::clone(device),
        Arc::<Observer>::default(),
    );
    let test = Test {
        fs: &**fs,
        volume: &volume,
    };
    // A directory keeps the space of removed entries.
    for n in 0..64 {
        test.file(&format!("a file of the first, number {n}"));
    }
    for n in 0..64 {
        test.gone(&format!("a file of the first, number {n}"));
    }
    let before = test.free();
    test.files_and_directories();
    test.names();
    test.listing_goes_on_while_entries_go();
    test.renames();
    test.contents();
    test.gaps_read_as_zeros();
    test.lengths();
    test.preallocation();
    test.removed_while_open();
    test.full();
    test.many_files();
    assert!(test.list(test.fs.root()).is_empty(), "something was left");
    assert_eq!(test.free(), before, "space was lost");
    fs.sync_all().expect("sync_all");
    test.the_end_frees_nodes_without_names();
}

pub(super) struct Test<'a> {
    pub fs: &'a dyn FileSystemMut,
    pub volume: &'a Volume,
}

/// Asserts that the result is exactly this kind of error.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T>, kind: &str) {
    match result {
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
        Ok(value) => panic!("{value:?} instead of {kind}"),
    }
}

impl Test<'_> {
    pub fn free(&self) -> u64 {
        self.fs.space().expect("space").free
    }

    #[track_caller]
    pub fn make(&self, dir: NodeId, name: &str, kind: FileType) -> NodeId {
        let new = NewNode {
            kind,
            permissions: 0o755,
            owner: (0, 0),
            time: THEN,
        };
        match self.fs.create(dir, name.as_bytes(), &new) {
            Ok(node) => node,
            Err(error) => panic!("create of {name:?}: {error}"),
        }
    }

    #[track_caller]
    pub fn file(&self, name: &str) -> NodeId {
        self.make(self.fs.root(), name, FileType::Regular)
    }

    #[track_caller]
    pub fn directory(&self, name: &str) -> NodeId {
        self.make(self.fs.root(), name, FileType::Directory)
    }

    #[track_caller]
    pub fn gone(&self, name: &str) {
        let removed = self.fs.unlink(self.fs.root(), name.as_bytes());
        assert!(removed.is_ok(), "unlink of {name:?}: {removed:?}");
    }

    pub fn list(&self, dir: NodeId) -> Vec<String> {
        let mut names = Vec::new();
        self.fs
            .read_dir(dir, DirCursor::START, &mut |entry| {
                names.push(String::from_utf8(entry.name.to_vec()).expect("a name in UTF-8"));
                ControlFlow::Continue(())
            })
            .expect("read_dir");
        names.sort();
        names
    }

    #[track_caller]
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8]) {
        let written = self.volume.write(node, offset, data, THEN);
        assert!(written.is_ok(), "write: {written:?}");
    }

    #[track_caller]
    pub fn read(&self, node: NodeId) -> Vec<u8> {
        let size = self.fs.metadata(node).expect("metadata").size;
        let mut out = vec![0xAA; usize::try_from(size).expect("a small file") + 10];
        let len = self.volume.read(node, 0, &mut out).expect("read");
        assert_eq!(u64_from(len), size, "bytes read of a file of this length");
        out.truncate(len);
        out
    }

    #[track_caller]
    pub fn resize(&self, node: NodeId, size: u64) {
        let changes = Changes {
            size: Some(size),
            ..Changes::default()
        };
        let metadata = self.volume.change(node, &changes).expect("change of size");
        assert_eq!(metadata.size, size);
    }

    fn files_and_directories(&self) {
        let (fs, root) = (self.fs, self.fs.root());
        let dir = self.directory("dir");
        let file = self.make(dir, "file", FileType::Regular);
        assert_eq!(fs.lookup(root, b"dir").unwrap(), Some(dir));
        assert_eq!(fs.lookup(dir, b"file").unwrap(), Some(file));
        assert_eq!(fs.lookup(dir, b"other").unwrap(), None);
        let metadata = fs.metadata(file).unwrap();
        assert_eq!((metadata.kind, metadata.size), (FileType::Regular, 0));
        assert_eq!(metadata.mtime, THEN);
        assert_eq!(fs.metadata(dir).unwrap().kind, FileType::Directory);
        assert_eq!(self.list(root), ["dir"]);
        let again = NewNode {
            kind: FileType::Regular,
            permissions: 0o644,
            owner: (0, 0),
            time: THEN,
        };
        refused(fs.create(root, b"dir", &again), "exists");
        refused(fs.create(dir, b"file", &again), "exists");
        refused(fs.create(file, b"x", &again), "not_a_directory");
        let pipe = NewNode {
            kind: FileType::Fifo,
            ..again
        };
        if fs.create(dir, b"pipe", &pipe).is_ok() {
            fs.unlink(dir, b"pipe").unwrap();
        }
        refused(fs.unlink(root, b"dir"), "is_a_directory");
        refused(fs.rmdir(dir, b"file"), "not_a_directory");
        refused(fs.rmdir(root, b"dir"), "not_empty");
        refused(fs.unlink(dir, b"other"), "not_found");
        refused(fs.rmdir(dir, b"other"), "not_found");
        fs.unlink(dir, b"file").unwrap();
        fs.rmdir(root, b"dir").unwrap();
        assert_eq!(fs.lookup(root, b"dir").unwrap(), None);
    }

    fn names(&self) {
        let root = self.fs.root();
        let long = "x".repeat(usize::try_from(self.fs.volume().name_max.min(255)).unwrap());
        for name in ["a b", "\u{e4}\u{20ac}\u{1f600}", ".hidden", "a.b.c", &long] {
            let node = self.file(name);
            let found = self.fs.lookup(root, name.as_bytes()).unwrap();
            assert_eq!(found, Some(node), "{name:?}");
            assert_eq!(self.list(root), [name]);
            self.gone(name);
        }
        let new = NewNode {
            kind: FileType::Regular,
            permissions: 0o644,
            owner: (0, 0),
            time: THEN,
        };
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            refused(self.fs.create(root, name, &new), "invalid_name");
        }
        let fold = self.fs.volume().folds_case;
        let node = self.file("Name");
        let other = self.fs.lookup(root, b"nAME").unwrap();
        assert_eq!(other, fold.then_some(node), "a name in another case");
        assert_eq!(self.list(root), ["Name"], "names keep their case");
        self.gone(if fold { "NAME" } else { "Name" });
    }

    fn listing_goes_on_while_entries_go(&self) {
        let dir = self.directory("list");
        for n in 0..200 {
            self.make(dir, &format!("entry {n}"), FileType::Regular);
        }
        let (mut seen, mut cursor) = (0, DirCursor::START);
        loop {
            let mut batch = Vec::new();
            self.fs
                .read_dir(dir, cursor, &mut |entry| {
                    batch.push(entry.name.to_vec());
                    cursor = entry.next;
                    if batch.len() < 7 {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                })
                .unwrap();
            if batch.is_empty() {
                break;
            }
            seen += batch.len();
            for name in batch {
                self.fs.unlink(dir, &name).unwrap();
            }
        }
        assert_eq!(seen, 200, "entries seen by a listing that removes them");
        self.fs.rmdir(self.fs.root(), b"list").unwrap();
    }

    fn removed_while_open(&self) {
        let before = self.free();
        let node = self.file("open");
        self.fs.open(node).unwrap();
        self.fs.open(node).unwrap();
        self.write(node, 0, &[7; 100_000]);
        assert_eq!(self.fs.metadata(node).unwrap().nlink, 1);
        self.gone("open");
        assert_eq!(self.fs.metadata(node).unwrap().nlink, 0, "no name left");
        assert_eq!(self.fs.lookup(self.fs.root(), b"open").unwrap(), None);
        self.write(node, 100_000, &[8; 50_000]);
        // Its name is free, but its contents are still in use.
        let other = self.file("open");
        assert_ne!(other, node);
        self.write(other, 0, &[9; 10_000]);
        let bytes = self.read(node);
        assert!(bytes[..100_000].iter().all(|byte| *byte == 7));
        assert!(bytes[100_000..].iter().all(|byte| *byte == 8));
        self.fs.release(node).unwrap();
        self.write(node, 0, &[1]);
        self.fs.sync(node).unwrap();
        self.fs.release(node).unwrap();
        refused(self.fs.metadata(node), "stale_node");
        self.gone("open");
        assert_eq!(self.free(), before, "space of a file removed while open");
    }

    fn the_end_frees_nodes_without_names(&self) {
        let before = self.free();
        let (gone, kept) = (self.file("gone"), self.file("kept"));
        for node in [gone, kept] {
            self.fs.open(node).unwrap();
            self.write(node, 0, &[7; 100_000]);
        }
        self.gone("gone");
        self.fs.finish().expect("finish");
        let free = self.free();
        assert!(free < before, "the file with a name keeps its space");
        self.gone("kept");
        assert!(
            self.free() > free,
            "the file with a name was no longer in use"
        );
        self.fs.sync_all().expect("sync_all");
        assert_eq!(self.free(), before, "space of files in use at the end");
    }

    fn full(&self) {
        let before = self.free();
        let block = u64::from(self.fs.space().unwrap().block_size);
        let (node, chunk) = (self.file("full"), vec![5; 128 << 10]);
        let mut len = 0;
        let error = loop {
            match self.volume.write(node, len, &chunk, THEN) {
                Ok(()) => len += u64_from(chunk.len()),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, Error::NoSpace), "{error}");
        assert_eq!(self.fs.metadata(node).unwrap().size, len);
        assert!(self.free() * block <= u64_from(chunk.len()));
        let more = Changes {
            size: Some(len + (before + 1) * block),
            ..Changes::default()
        };
        refused(self.volume.change(node, &more), "no_space");
        let all = 0..(before + 1) * block;
        refused(self.volume.allocate(node, all, false), "no_space");
        let behind = self.volume.write(node, 1 << 32, &chunk, THEN);
        refused(behind, "no_space");
        assert_eq!(self.fs.metadata(node).unwrap().size, len);
        // Existing bytes can still be read and overwritten, and freed space can be used again.
        self.write(node, 10, b"overwritten");
        assert_eq!(self.read(node)[10..21], *b"overwritten");
        self.resize(node, len / 2);
        self.write(node, len / 2, &chunk);
        self.gone("full");
        assert_eq!(
            self.free(),
            before,
            "space of a file that filled the volume"
        );
    }

    fn many_files(&self) {
        let dir = self.directory("many");
        for n in 0..1500 {
            self.make(dir, &format!("a file with number {n}"), FileType::Regular);
        }
        assert_eq!(self.list(dir).len(), 1500);
        for n in (0..1500).rev() {
            let name = format!("a file with number {n}");
            self.fs.unlink(dir, name.as_bytes()).unwrap();
        }
        self.fs.rmdir(self.fs.root(), b"many").unwrap();
    }
}
