//! Linux and unsquashfs read the writer's images.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use forerun_build::Tree;
use forerun_codec::{Codec, Encoding};
use forerun_squashfs::write::{Compress, Fragments, SquashfsOptions};
use forerun_testkit::trees::scanned;
use forerun_testkit::{Keeps, TempDir, TreeModel, memory_dir};

use crate::writer_common::{everything, image, mounted, oracles, run, xattrs_of};

struct Sample {
    dir: TempDir,
    tree: Tree,
    model: TreeModel,
}

impl Sample {
    fn new(populate: impl FnOnce(&Path)) -> Self {
        let dir = memory_dir("squashfs-writer", 1 << 30);
        let root = dir.path().join("tree");
        fs::create_dir(&root).unwrap();
        populate(&root);
        Self {
            tree: scanned(&root),
            model: TreeModel::of_host(&root).unwrap(),
            dir,
        }
    }

    /// Writes an image, and checks how Linux and unsquashfs read it.
    fn check(&self, options: &SquashfsOptions) {
        let path = self.dir.path().join("image");
        fs::write(&path, image(&self.tree, options).unwrap()).unwrap();
        // Linux does not support LZMA.
        if options.encoding != Encoding::Lzma {
            let mounted = mounted(&path, self.dir.path().join("mnt"));
            self.same(&mounted.path);
        }
        let extracted = self.dir.path().join("extracted");
        let mut unsquashfs = Command::new("unsquashfs");
        unsquashfs.args(["-no-progress", "-xattrs", "-d"]);
        let told = run(unsquashfs.arg(&extracted).arg(&path));
        assert!(!told.to_lowercase().contains("failed"), "{told}");
        self.same(&extracted);
        fs::remove_dir_all(&extracted).unwrap();
    }

    fn same(&self, root: &Path) {
        let model = TreeModel::of_host(root).unwrap();
        self.model.assert_same(&model, &Keeps::EVERYTHING);
        let expected = xattrs_of(&self.dir.path().join("tree"), &self.model);
        assert_eq!(xattrs_of(root, &model), expected);
    }
}

const CODECS: [Codec; 6] = [
    Codec::Zlib,
    Codec::Lzma,
    Codec::Lzo,
    Codec::Xz,
    Codec::Lz4,
    Codec::Zstd,
];

/// Checks files one byte shorter and longer than blocks, for several block sizes.
/// `writer_matrix.rs` covers every option.
#[test]
fn files_around_the_borders_of_blocks() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    for (block_size, fragments) in [
        (4 << 10, Fragments::Always),
        (128 << 10, Fragments::No),
        (1 << 20, Fragments::Yes),
    ] {
        sample.check(&SquashfsOptions {
            block_size,
            fragments,
            ..SquashfsOptions::default()
        });
    }
}

#[test]
fn long_directories() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(|dir| {
        for (name, count, padding) in [("short names", 20_000, 0), ("long names", 2000, 240)] {
            let sub = dir.join(name);
            fs::create_dir(&sub).unwrap();
            for n in 0..count {
                let name = format!("{n:06}{}", "-".repeat(padding));
                fs::write(sub.join(name), n.to_string()).unwrap();
            }
        }
    });
    // Also with uncompressed metadata, in which every crossed block has full length.
    for inodes in [true, false] {
        let compress = Compress {
            inodes,
            ..Compress::default()
        };
        let options = SquashfsOptions {
            compress,
            ..SquashfsOptions::default()
        };
        sample.check(&options);
    }
}

#[test]
fn an_empty_tree() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(|_| ());
    for codec in CODECS {
        sample.check(&SquashfsOptions {
            encoding: Encoding::default_of(codec).unwrap(),
            ..SquashfsOptions::default()
        });
    }
}

#[test]
fn a_file_longer_than_32_bits() {
    if !oracles() {
        return;
    }
    let dir = memory_dir("squashfs-writer", 1 << 30);
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    let len = (4 << 30) + 1_000_001;
    let file = File::create(root.join("long")).unwrap();
    file.set_len(len).unwrap();
    file.write_all_at(b"start", 0).unwrap();
    file.write_all_at(b"end", len - 3).unwrap();
    let options = SquashfsOptions {
        encoding: Encoding::Lz4 { high: false },
        block_size: 1 << 20,
        ..SquashfsOptions::default()
    };
    let path = dir.path().join("image");
    fs::write(&path, image(&scanned(&root), &options).unwrap()).unwrap();
    let mounted = mounted(&path, dir.path().join("mnt"));
    let file = File::open(mounted.path.join("long")).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!(metadata.len(), len);
    let stored: u64 = (1 << 20) + 1_000_001;
    assert_eq!(
        metadata.blocks(),
        stored.div_ceil(512),
        "the first block and the last"
    );
    let read = |at| {
        let mut bytes = [1; 5];
        file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    };
    assert_eq!(read(0), *b"start");
    assert_eq!(read(3 << 30), [0; 5]);
    assert_eq!(read(len - 5), *b"\0\0end");
}
