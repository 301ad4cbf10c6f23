//! Volumes to damage, and three checkers of the result: forerun's own check, one that shares no
//! code with the driver, and `fsck.exfat`.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_exfat::Exfat;
use forerun_exfat::repair::{Answer, Finding, Kind, RepairOptions, Summary, repair};
use forerun_exfat::write::ExfatOptions;
use forerun_io::{
    BlockDevice, CountedDevice, MemoryDevice, MemorySource, Observer, ReadAt, UndoDevice, UndoFile,
    UndoLog,
};
use forerun_testkit::exfat_judge::judge;
use forerun_vfs::{
    DirCursor, FileSystem, FileSystemMut, FileType, NodeId, OpenWith, Place, Result, Timestamp,
    exercise,
};

pub use crate::common::{TestDevice, create, fsck, mkdir, mkfs, open, open_mut, write};

/// Repairs with one answer to all findings, except findings that lose data. Also returns the
/// findings.
pub fn mend_with(
    bytes: Vec<u8>,
    options: &RepairOptions,
    answer: Answer,
) -> (Vec<u8>, Result<Summary>, Vec<Finding>) {
    let mut findings = Vec::new();
    let (bytes, summary) = mend_how(bytes, options, &mut |finding| {
        findings.push(finding.clone());
        if finding.kind.loses_data() {
            Answer::No
        } else {
            answer
        }
    });
    (bytes, summary, findings)
}

pub fn mend_by(
    bytes: Vec<u8>,
    decide: &mut dyn FnMut(&Finding) -> Answer,
) -> (Vec<u8>, Result<Summary>) {
    mend_how(bytes, &RepairOptions::default(), decide)
}

fn mend_how(
    bytes: Vec<u8>,
    options: &RepairOptions,
    decide: &mut dyn FnMut(&Finding) -> Answer,
) -> (Vec<u8>, Result<Summary>) {
    let device = Arc::new(MemoryDevice::new(bytes));
    let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&device);
    let summary = repair(&shared, &Arc::<Observer>::default(), options, decide);
    drop(shared);
    (device.to_vec(), summary)
}

/// Returns repair options with a fixed time, so that repairs write the same bytes at any time.
fn dated() -> RepairOptions {
    let seconds = 1_700_000_000;
    RepairOptions {
        now: Some(Timestamp {
            seconds,
            nanoseconds: 0,
        }),
        ..RepairOptions::default()
    }
}

/// Repairs everything that can be repaired without loss.
pub fn mend(bytes: Vec<u8>) -> (Vec<u8>, Summary, Vec<Finding>) {
    let (bytes, summary, findings) = mend_with(bytes, &dated(), Answer::Yes);
    (bytes, summary.unwrap(), findings)
}

#[derive(Clone, Default)]
pub struct UndoBytes(Arc<Mutex<Vec<u8>>>);

impl UndoBytes {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl UndoLog for UndoBytes {
    fn write_all_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        let (start, end) = (offset as usize, offset as usize + data.len());
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[start..end].copy_from_slice(data);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Applies an undo file to a volume, and returns the restored bytes.
pub fn undone(file: Vec<u8>, volume: Vec<u8>) -> Vec<u8> {
    let file = UndoFile::open(Arc::new(MemorySource::new(file))).unwrap();
    let device = Arc::new(MemoryDevice::new(volume));
    let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&device);
    let counted = CountedDevice::new(shared, Arc::default());
    file.restore(&counted, false).unwrap();
    device.to_vec()
}

/// Repairs like [`mend`], with an undo file. Returns the repaired volume and the undo file.
pub fn mend_with_undo(bytes: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let undo = UndoBytes::default();
    let device = UndoDevice::new(MemoryDevice::new(bytes), Box::new(undo.clone()));
    let device = Arc::new(device);
    let shared: Arc<dyn BlockDevice> = Arc::<UndoDevice<_>>::clone(&device);
    let decide = &mut |finding: &Finding| {
        if finding.kind.loses_data() {
            Answer::No
        } else {
            Answer::Yes
        }
    };
    repair(&shared, &Arc::default(), &dated(), decide).unwrap();
    device.finish().unwrap();
    (device.inner().to_vec(), undo.bytes())
}

/// Returns the kinds of findings without duplicates, in the order of their first occurrence.
pub fn kinds(findings: &[Finding]) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for finding in findings {
        if !kinds.contains(&finding.kind) {
            kinds.push(finding.kind);
        }
    }
    kinds
}

/// Returns the findings of forerun's own check.
pub fn told(bytes: &[u8]) -> Vec<String> {
    let with = OpenWith::new(Arc::new(MemorySource::new(bytes.to_vec())));
    match Exfat::open(with) {
        Ok(fs) => exercise::all(&fs, &forerun_io::Limits::default())
            .iter()
            .map(ToString::to_string)
            .collect(),
        Err(error) => vec![error.to_string()],
    }
}

/// Asserts that all three checkers find nothing.
pub fn assert_clean(bytes: &[u8], what: &str) {
    assert_eq!(told(bytes), [""; 0], "{what}");
    let report = judge(&MemorySource::new(bytes.to_vec()));
    let report = report.unwrap_or_else(|finding| panic!("{what}: {finding}"));
    assert!(report.clean(), "{what}: {:?}", report.findings);
    if let Some(said) = fsck(bytes) {
        panic!("{what}: {said}");
    }
}

/// All reachable files and directories, with the contents of the files.
pub type Files = BTreeMap<String, Option<Vec<u8>>>;

pub fn files(bytes: &[u8]) -> Files {
    let fs = Exfat::open(OpenWith::new(Arc::new(MemorySource::new(bytes.to_vec())))).unwrap();
    files_of(&fs, bytes)
}

/// Opens the volume in rescue mode.
pub fn rescued(bytes: &[u8]) -> Result<Exfat> {
    let mut with = OpenWith::new(Arc::new(MemorySource::new(bytes.to_vec())));
    with.rescue = true;
    Exfat::open(with)
}

/// Like [`files`], for an open volume.
pub fn files_of(fs: &Exfat, bytes: &[u8]) -> Files {
    let source = Arc::new(MemorySource::new(bytes.to_vec()));
    let mut files = Files::new();
    let mut left = vec![(String::new(), fs.root())];
    let mut steps = 0;
    while let Some((path, node)) = left.pop() {
        steps += 1;
        assert!(steps < 100_000, "the tree has no end");
        let mut found = Vec::new();
        // The listing skips damaged entries.
        let _damage = fs.read_dir(node, DirCursor::START, &mut |entry| {
            let name = String::from_utf8_lossy(entry.name).into_owned();
            found.push((format!("{path}/{name}"), entry.node, entry.kind));
            ControlFlow::Continue(())
        });
        for (path, node, kind) in found {
            match kind {
                FileType::Directory if path.matches('/').count() < 20 => {
                    files.insert(path.clone(), None);
                    left.push((path, node));
                }
                FileType::Directory => {}
                _ => {
                    if let Ok(content) = content(fs, &*source, node) {
                        files.insert(path, Some(content));
                    }
                }
            }
        }
    }
    files
}

fn content(fs: &Exfat, source: &dyn ReadAt, node: NodeId) -> Result<Vec<u8>> {
    let size = fs.metadata(node)?.size;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    fs.map(node, 0..size, &mut |extent| {
        if let Place::Stored { offset, .. } = extent.place {
            let range = extent.logical.start as usize..extent.logical.end as usize;
            source.read_exact_at(offset, &mut bytes[range]).unwrap();
        }
        ControlFlow::Continue(())
    })?;
    Ok(bytes)
}

/// Creates a volume with `mkfs.exfat`, and fills it with forerun: contiguous and fragmented files,
/// names of every relevant length, directories of several clusters, some of them fragmented.
pub fn filled(cluster: &str) -> Option<Vec<u8>> {
    let image = mkfs(4 << 20, &["-b", "4K", "-c", cluster, "-L", "label"])?;
    let device = TestDevice::new(&image);
    let fs = open_mut(&device, |_| {});
    let root = fs.root();
    let put = |dir, name: &str, bytes: &[u8]| {
        let node = create(&fs, dir, name).unwrap();
        if !bytes.is_empty() {
            write(&fs, &*device, node, 0, bytes).unwrap();
        }
        node
    };
    let bytes = |seed: usize, len: usize| -> Vec<u8> {
        (0..len).map(|at| (at * seed % 251) as u8 + 1).collect()
    };
    put(root, "whole.bin", &bytes(7, 20_000));
    let dir = mkdir(&fs, root, "dir").unwrap();
    let below = mkdir(&fs, dir, "below").unwrap();
    let (a, b) = (put(dir, "pieces", b"a"), put(dir, "other pieces", b"b"));
    for round in 1..6_u64 {
        let part = bytes(round as usize + 10, 5000);
        write(&fs, &*device, a, round * 5000, &part).unwrap();
        write(&fs, &*device, b, round * 5000, &part).unwrap();
        for number in 0..10 {
            put(
                below,
                &format!("file {round} {number}"),
                &bytes(3, number * 100),
            );
        }
        // The root also grows in between.
        mkdir(&fs, root, &format!("directory {round} in the root")).unwrap();
    }
    put(below, &"n".repeat(255), b"long");
    put(below, &"\u{1F600}".repeat(20), b"pairs");
    put(root, "empty", b"");
    let late = put(root, "late", &bytes(5, 3000));
    let changes = forerun_vfs::Changes {
        size: Some(9000),
        ..Default::default()
    };
    fs.change(late, &changes).unwrap();
    fs.sync_all().unwrap();
    drop(fs);
    let image = device.to_vec();
    assert_clean(&image, "as it was made");
    Some(image)
}

/// Creates a volume with forerun's writer, with the paths that the table of damages names.
pub fn packed() -> Vec<u8> {
    let mut tree = Tree::default();
    let file = |len: usize| {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8 + 1).collect();
        let content = Content::Bytes(bytes.into());
        let len = len as u64;
        NewNode::new(NodeKind::File { len, content }, 0o644)
    };
    tree.add(Tree::ROOT, b"whole.bin", file(20_000)).unwrap();
    tree.add(Tree::ROOT, b"empty", file(0)).unwrap();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
    for number in 0..200 {
        let name = format!("file {number}");
        tree.add(dir, name.as_bytes(), file(number * 50)).unwrap();
    }
    let options = ExfatOptions {
        cluster_size: Some(512),
        size: Some(4 << 20),
        label: "packed".into(),
        ..ExfatOptions::default()
    };
    let mut image = Vec::new();
    forerun_exfat::write::write(&tree, &options, &mut image, &Arc::<Observer>::default()).unwrap();
    assert_clean(&image, "as it was packed");
    image
}

pub struct Map {
    pub fat: usize,
    pub heap: usize,
    pub cluster: usize,
    pub clusters: u32,
    pub root: u32,
}

impl Map {
    pub fn of(image: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(image[108], 9);
        Self {
            fat: word(80) as usize * 512,
            heap: word(88) as usize * 512,
            cluster: 512 << image[109],
            clusters: word(92),
            root: word(96),
        }
    }

    pub fn at(&self, cluster: u32) -> usize {
        self.heap + (cluster as usize - 2) * self.cluster
    }

    /// Returns the offset of the FAT word of a cluster.
    pub fn word(&self, cluster: u32) -> usize {
        self.fat + cluster as usize * 4
    }

    pub fn next(&self, image: &[u8], cluster: u32) -> u32 {
        u32_of(image, self.word(cluster))
    }
}

pub fn u32_of(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
}

pub fn u64_of(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().unwrap())
}

pub fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

pub fn set_of(image: &[u8], path: &str) -> usize {
    let fs = open(image);
    let mut node = fs.root();
    for name in path.split('/') {
        node = fs.lookup(node, name.as_bytes()).unwrap().unwrap();
    }
    (node.0 as usize & 0xFFFF_FFFF) * 32
}

pub fn seal_set(image: &mut [u8], at: usize) {
    let len = 32 * (usize::from(image[at + 1]) + 1);
    let sum = (0..len)
        .filter(|n| !matches!(n, 2 | 3))
        .fold(0_u16, |sum, n| {
            sum.rotate_right(1).wrapping_add(u16::from(image[at + n]))
        });
    put(image, at + 2, &sum.to_le_bytes());
}

pub fn seal_boot(image: &mut [u8]) {
    forerun_exfat::fuzzing::seal(image);
}
