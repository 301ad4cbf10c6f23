//! Images made by mksquashfs read back as their trees.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use forerun_io::{FileSource, Limits};
use forerun_squashfs::Squashfs;
use forerun_testkit::conformance::{check_filesystem, check_names};
use forerun_testkit::everything::image_xattrs;
use forerun_testkit::{Keeps, TempDir, TreeModel, memory_dir, require};
use forerun_vfs::{FileSystem, OpenWith};

use crate::writer_common::{everything, run, xattrs_of};

pub struct Sample {
    dir: TempDir,
    model: TreeModel,
}

impl Sample {
    /// Creates a sample. Returns `None` if mksquashfs or root is missing.
    pub fn new(populate: impl FnOnce(&Path)) -> Option<Self> {
        if !require::root() || require::program("mksquashfs").is_none() {
            return None;
        }
        let dir = memory_dir("squashfs-reading", 1 << 30);
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        populate(&tree);
        let model = TreeModel::of_host(&tree).unwrap();
        Some(Self { dir, model })
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    pub fn make(&self, options: &[&str]) -> PathBuf {
        let image = self.dir.path().join("image");
        let mut command = Command::new("mksquashfs");
        command.arg(self.tree()).arg(&image);
        run(command
            .args(["-noappend", "-no-progress", "-quiet"])
            .args(options));
        image
    }

    /// Makes an image with these options, and reads all of it.
    fn check(&self, options: &[&str]) {
        // Shown if the test fails.
        eprintln!("{options:?}");
        let (fs, source) = open(&self.make(options));
        let actual = TreeModel::of_image(&fs, &*source).unwrap();
        self.model.assert_same(&actual, &Keeps::EVERYTHING);
        let mut expected = BTreeMap::new();
        if !options.contains(&"-no-xattrs") {
            expected = xattrs_of(&self.tree(), &self.model);
            assert!(expected.len() > 40, "the host keeps xattrs");
        }
        assert_eq!(image_xattrs(&fs), expected, "{options:?}");
    }
}

/// Creates every file type, except hard-linked symbolic links: mksquashfs stores those as separate
/// links.
pub fn all(tree: &Path) {
    everything(tree);
    fs::remove_file(tree.join("a/link too")).unwrap();
}

fn open(image: &Path) -> (Squashfs, Arc<FileSource>) {
    let source = Arc::new(FileSource::open(image).unwrap());
    let with = OpenWith::new(Arc::<FileSource>::clone(&source));
    (Squashfs::open(with).unwrap(), source)
}

/// Returns the compressors of this mksquashfs. A missing one fails in CI.
fn compressors() -> Vec<&'static str> {
    let Ok(help) = Command::new("mksquashfs").arg("-help").output() else {
        return Vec::new();
    };
    let text = [help.stdout, help.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, list) = text.split_once("Compressors available").unwrap();
    let has = |name: &&str| {
        let found = list
            .lines()
            .any(|line| line.split_whitespace().next() == Some(name));
        require::that(found, &format!("mksquashfs -comp {name}"))
    };
    ["gzip", "lzma", "lzo", "lz4", "xz", "zstd"]
        .into_iter()
        .filter(has)
        .collect()
}

#[test]
fn every_compressor() {
    let Some(sample) = Sample::new(all) else {
        return;
    };
    for compressor in compressors() {
        for more in [&["-b", "4K"][..], &[]] {
            sample.check(&[&["-comp", compressor][..], more].concat());
        }
    }
}

#[test]
fn every_block_size_and_way_of_fragments() {
    let Some(sample) = Sample::new(all) else {
        return;
    };
    for block in ["4K", "128K", "1M"] {
        // mksquashfs 4.5.1 compares duplicates with fragments that it is still compressing: with
        // -always-use-fragments alone, one image in five had a fragment that neither unsquashfs nor
        // Linux decodes; with -no-duplicates, none of 66 had.
        let always = &["-always-use-fragments", "-no-duplicates"][..];
        for fragments in [&[][..], &["-no-fragments"], always] {
            let quick = &["-comp", "gzip", "-Xcompression-level", "1", "-b", block][..];
            sample.check(&[quick, fragments].concat());
        }
    }
}

#[test]
fn every_option_of_the_layout() {
    let Some(sample) = Sample::new(all) else {
        return;
    };
    for options in [
        &["-noI"][..],
        &["-noD"],
        &["-noF"],
        &["-noX"],
        &["-noId"],
        &["-noI", "-noD", "-noF", "-noX", "-noId"],
        &["-no-exports"],
        &["-no-duplicates"],
        &["-no-sparse"],
        &["-no-xattrs"],
        &["-nopad"],
        &["-no-tailends"],
        &["-Xhc"],
    ] {
        sample.check(&[&["-comp", "lz4"][..], options].concat());
    }
    sample.check(&["-comp", "xz", "-Xbcj", "x86,arm", "-Xdict-size", "50%"]);
    sample.check(&[
        "-comp",
        "gzip",
        "-Xcompression-level",
        "1",
        "-Xwindow-size",
        "9",
    ]);
}

#[test]
fn the_contract_of_drivers() {
    let Some(sample) = Sample::new(all) else {
        return;
    };
    for options in [&["-b", "4K"][..], &["-comp", "zstd", "-no-exports", "-noI"]] {
        let (fs, _) = open(&sample.make(options));
        check_filesystem(&fs, &Limits::default());
    }
}

#[test]
fn an_empty_tree() {
    let Some(sample) = Sample::new(|_| {}) else {
        return;
    };
    let (fs, source) = open(&sample.make(&[]));
    check_filesystem(&fs, &Limits::default());
    let actual = TreeModel::of_image(&fs, &*source).unwrap();
    sample.model.assert_same(&actual, &Keeps::EVERYTHING);
    assert_eq!(fs.lookup(fs.root(), b"missing").unwrap(), None);
}

/// Checks a directory `many` of `count` files with names of different lengths. Another listing
/// comes before it, so that it starts in the middle of a metadata block.
fn long_directory(count: usize) {
    let names = |n: usize| format!("{n:x}-{}", "y".repeat(n % 90));
    let populate = |tree: &Path| {
        fs::create_dir(tree.join("before")).unwrap();
        fs::create_dir(tree.join("many")).unwrap();
        for n in 0..77 {
            fs::write(tree.join("before").join(names(n)), "").unwrap();
        }
        for n in 0..count {
            fs::write(tree.join("many").join(names(n)), "").unwrap();
        }
    };
    let Some(sample) = Sample::new(populate) else {
        return;
    };
    for options in [&["-comp", "lz4"][..], &["-comp", "lz4", "-noI"]] {
        let image = sample.make(options);
        let (fs, _) = open(&image);
        let dir = fs.lookup(fs.root(), b"many").unwrap().unwrap();
        fs.check(Some(dir), &mut |problem| panic!("{problem:?}"))
            .unwrap();
        // The first image remembers positions; the newly opened one has none.
        for fs in [&fs, &open(&image).0] {
            check_names(fs, dir, (0..count).map(names).collect());
        }
    }
}

#[test]
fn three_hundred_entries() {
    long_directory(300);
}

#[test]
fn twenty_thousand_entries() {
    long_directory(20_000);
}

#[test]
fn images_of_squashfs_tools_ng_keep_their_privileged_xattrs() {
    if !require::root() || require::program("tar2sqfs").is_none() {
        return;
    }
    let dir = memory_dir("squashfs-tools-ng", 1 << 26);
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("f"), "hi").unwrap();
    let names = ["security.selinux", "trusted.overlay.opaque", "user.a"];
    for name in names {
        let file = tree.join("f");
        run(Command::new("setfattr")
            .args(["-n", name, "-v", "value"])
            .arg(file));
    }
    let (archive, image) = (dir.path().join("tar"), dir.path().join("image"));
    let mut tar = Command::new("tar");
    tar.args(["--xattrs", "--xattrs-include=*", "-C"])
        .arg(&tree);
    run(tar.arg("-cf").arg(&archive).arg("."));
    let mut shell = Command::new("sh");
    shell.args(["-c", "tar2sqfs -q \"$0\" <\"$1\""]);
    run(shell.arg(&image).arg(&archive));
    let (fs, _) = open(&image);
    let node = fs.lookup(fs.root(), b"f").unwrap().unwrap();
    let mut found = Vec::new();
    fs.xattrs(node, &mut |name, value| {
        assert_eq!(value, b"value");
        found.push(String::from_utf8(name.to_vec()).unwrap());
    })
    .unwrap();
    found.sort();
    assert_eq!(found, names);
}
