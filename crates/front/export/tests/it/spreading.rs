//! Where ext4 places the directories of an extraction.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_export::{ExtractOptions, Progress, Selection, extract};
use forerun_testkit::everything::run;
use forerun_testkit::{MemFsBuilder, MemImage, Mounted, Piece, TempDir, require, temp_dir};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

use crate::common::reader;
use crate::extracting::{all, failures};

const GROUPS: u64 = 8;

/// An ext4 filesystem of [`GROUPS`] block groups.
struct Ext4 {
    mounted: Mounted,
    _dir: TempDir,
}

impl Ext4 {
    fn new() -> Option<Self> {
        if !require::root()
            || !require::kernel_filesystem("ext4")
            || require::program("mkfs.ext4").is_none()
        {
            return None;
        }
        let dir = temp_dir("spreading");
        let [image, mount] = ["image", "mount"].map(|name| dir.path().join(name));
        let file = File::create(&image).unwrap();
        file.set_len(GROUPS * (128 << 20)).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        run(mkfs
            .args(["-q", "-b", "4096", "-O", "^flex_bg"])
            .arg(&image));
        Some(Self {
            mounted: Mounted::new("ext4", "loop", &image, mount),
            _dir: dir,
        })
    }

    fn target(&self) -> PathBuf {
        let target = self.mounted.path.join("out");
        fs::create_dir(&target).unwrap();
        target
    }

    /// Returns the block groups of the directories in `dir`.
    fn groups(&self, dir: &Path) -> HashSet<u64> {
        let per_group = rustix::fs::statvfs(&self.mounted.path).unwrap().f_files / GROUPS;
        let entries = fs::read_dir(dir).unwrap();
        let inode = |entry: fs::DirEntry| entry.metadata().unwrap().ino();
        entries
            .map(|entry| (inode(entry.unwrap()) - 1) / per_group)
            .collect()
    }
}

fn flags(dir: &Path) -> IFlags {
    ioctl_getflags(File::open(dir).unwrap()).unwrap()
}

/// Returns the directories at and below `dir` whose flag is set.
fn flagged(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            }
        }
        if flags(&dir).contains(IFlags::TOPDIR) {
            found.push(dir);
        }
    }
    found
}

/// Returns an image with eight large directories in `outer/large`, and eight small ones in
/// `outer/small`.
fn image() -> MemImage {
    let mut builder = MemFsBuilder::new();
    for dir in 0..8 {
        for file in 0..40 {
            let path = format!("outer/large/{dir}/{file}");
            builder.file(&path, [Piece::Inline(b"x".to_vec())]);
        }
        builder.dir(&format!("outer/small/{dir}"));
    }
    builder.build()
}

#[test]
fn large_directories_are_spread_and_small_ones_stay_together() {
    let Some(ext4) = Ext4::new() else { return };
    let target = ext4.target();
    let report = all(&reader(&image()), &target, &ExtractOptions::default());
    assert!(report.is_complete(), "{:?}", failures(&report));
    let large = ext4.groups(&target.join("outer/large"));
    assert!(large.len() >= 4, "{large:?}");
    let small = ext4.groups(&target.join("outer/small"));
    assert_eq!(small.len(), 1, "{small:?}");
    assert_eq!(flagged(&target), [] as [PathBuf; 0]);
}

/// Stops the extraction at its first directory, and notes whether the target is flagged then.
struct StopsEarly<'t> {
    target: &'t Path,
    stop: Arc<AtomicBool>,
    was_flagged: AtomicBool,
}

impl Progress for StopsEarly<'_> {
    fn begin(&self, _total_bytes: u64, _total_files: u64) {}

    fn advance(&self, _bytes: u64, _files: u64) {
        self.stop.store(true, Ordering::Relaxed);
        let is_flagged = flags(self.target).contains(IFlags::TOPDIR);
        self.was_flagged.fetch_or(is_flagged, Ordering::Relaxed);
    }
}

#[test]
fn an_interrupted_extraction_leaves_no_directory_flagged() {
    let Some(ext4) = Ext4::new() else { return };
    let target = ext4.target();
    let options = ExtractOptions::default();
    let progress = StopsEarly {
        target: &target,
        stop: Arc::clone(&options.stop),
        was_flagged: AtomicBool::new(false),
    };
    let selection = Selection::default();
    let report = extract(&reader(&image()), &selection, &target, &options, &progress);
    let report = report.unwrap();
    assert!(report.interrupted);
    assert_eq!((report.directories, report.files), (1, 0));
    assert!(progress.was_flagged.into_inner());
    assert_eq!(flagged(&target), [] as [PathBuf; 0]);
}

#[test]
fn a_failed_extraction_leaves_only_the_flags_that_were_set_before() {
    let Some(ext4) = Ext4::new() else { return };
    let target = ext4.target();
    let outer = target.join("outer");
    fs::create_dir(&outer).unwrap();
    fs::write(outer.join("large"), "a file").unwrap();
    let set = flags(&outer) | IFlags::TOPDIR;
    ioctl_setflags(File::open(&outer).unwrap(), set).unwrap();
    let report = all(&reader(&image()), &target, &ExtractOptions::default());
    assert!(!report.failures.is_empty());
    assert_eq!(flagged(&target), [outer]);
}
