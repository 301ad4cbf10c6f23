//! Volumes for tests: made by mkfs.exfat, kept in memory, checked by fsck.exfat.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use forerun_exfat::Exfat;
use forerun_io::{BlockDevice, ReadAt};
pub use forerun_testkit::{Request, TestDevice};
use forerun_testkit::{exfat_tools, temp_dir};
use forerun_vfs::{
    DirCursor, Error, FileSystem, FileSystemMut, FileType, NewNode, NodeId, OpenMutWith, OpenWith,
    Place, Timestamp,
};

/// The time stamp of all test files.
pub const TIME: Timestamp = Timestamp {
    seconds: 1_700_000_000,
    nanoseconds: 120_000_000,
};

/// Creates a volume of `len` bytes with `mkfs.exfat`. Returns `None` if the program is missing.
pub fn mkfs(len: u64, args: &[&str]) -> Option<Vec<u8>> {
    let dir = temp_dir("exfat");
    let path = dir.path().join("image");
    exfat_tools::mkfs(&path, len, args).then(|| std::fs::read(&path).unwrap())
}

/// Returns the report of `fsck.exfat` on an image, or `None` if it finds no error.
pub fn fsck(image: &[u8]) -> Option<String> {
    let dir = temp_dir("exfat");
    let path = dir.path().join("image");
    std::fs::write(&path, image).unwrap();
    fsck_path(&path)
}

pub fn fsck_path(path: &Path) -> Option<String> {
    let (is_sound, text) = exfat_tools::fsck(path)?;
    (!is_sound).then_some(text)
}

/// Returns the findings of forerun's own check, including warnings.
pub fn problems(fs: &dyn FileSystem) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![None, Some(fs.root())];
    while let Some(node) = left.pop() {
        let mut report = |problem: forerun_vfs::Problem| found.push(problem.error.to_string());
        fs.check(node, &mut report).unwrap();
        if let Some(dir) = node
            && fs.metadata(dir).unwrap().kind == FileType::Directory
        {
            left.extend(list(fs, dir).into_iter().map(|(_, node, _)| Some(node)));
        }
    }
    found
}

/// Asserts that `fsck.exfat` and forerun's own check find nothing.
pub fn assert_sound(image: &[u8]) {
    assert_eq!(fsck(image), None);
    let found = problems(&open(image));
    assert!(found.is_empty(), "{found:?}");
}

pub fn open(image: &[u8]) -> Exfat {
    let source = Arc::new(forerun_io::MemorySource::new(image));
    Exfat::open(OpenWith::new(source)).unwrap()
}

pub fn list(fs: &dyn FileSystem, dir: NodeId) -> Vec<(String, NodeId, FileType)> {
    let mut entries = Vec::new();
    fs.read_dir(dir, DirCursor::START, &mut |entry| {
        let name = String::from_utf8_lossy(entry.name).into_owned();
        entries.push((name, entry.node, entry.kind));
        ControlFlow::Continue(())
    })
    .unwrap();
    entries
}

pub fn read(fs: &dyn FileSystem, source: &dyn ReadAt, node: NodeId) -> Vec<u8> {
    let size = fs.metadata(node).unwrap().size;
    let mut bytes = vec![0xEE; size as usize];
    let mut at = 0;
    fs.map(node, 0..u64::MAX, &mut |extent| {
        assert_eq!(extent.logical.start, at);
        let range = extent.logical.start as usize..extent.logical.end as usize;
        match extent.place {
            Place::Zero => bytes[range].fill(0),
            Place::Stored { offset, .. } => {
                source.read_exact_at(offset, &mut bytes[range]).unwrap()
            }
            other => panic!("{other:?}"),
        }
        at = extent.logical.end;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(at, size);
    bytes
}

/// Writes like the engine: to the extents that the driver maps, with zeros up to the start of the
/// write.
pub fn write(
    fs: &dyn FileSystemMut,
    device: &dyn BlockDevice,
    node: NodeId,
    offset: u64,
    data: &[u8],
) -> Result<(), Error> {
    let range = offset..offset + data.len() as u64;
    let mut extents = Vec::new();
    fs.map_write(node, range.clone(), &mut |extent| {
        extents.push(extent);
        ControlFlow::Continue(())
    })?;
    let mut at = extents.first().map_or(range.start, |e| e.logical.start);
    for extent in extents {
        assert_eq!(extent.logical.start, at);
        let Place::Stored { offset: place, .. } = extent.place else {
            panic!("{extent:?}");
        };
        let bytes: Vec<u8> = extent
            .logical
            .clone()
            .map(|at| match at.checked_sub(offset) {
                Some(index) => data[index as usize],
                None => 0,
            })
            .collect();
        device.write_all_at(place, &bytes).unwrap();
        at = extent.logical.end;
    }
    assert_eq!(at, range.end);
    fs.written(node, range, TIME)
}

pub fn new(kind: FileType) -> NewNode {
    NewNode {
        kind,
        permissions: 0o644,
        owner: (0, 0),
        time: TIME,
    }
}

pub fn create(fs: &dyn FileSystemMut, dir: NodeId, name: &str) -> Result<NodeId, Error> {
    fs.create(dir, name.as_bytes(), &new(FileType::Regular))
}

pub fn mkdir(fs: &dyn FileSystemMut, dir: NodeId, name: &str) -> Result<NodeId, Error> {
    fs.create(dir, name.as_bytes(), &new(FileType::Directory))
}

pub fn open_mut(device: &Arc<TestDevice>, change: impl FnOnce(&mut OpenMutWith)) -> Exfat {
    let mut with = OpenMutWith::new(Arc::clone(device) as Arc<dyn BlockDevice>);
    change(&mut with);
    Exfat::open_mut(with).unwrap()
}
