//! Linux and fsck.erofs read the writer's images.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forerun_build::Tree;
use forerun_codec::FillEncoding;
use forerun_erofs::write::{Compression, ErofsOptions, Fragments};
use forerun_testkit::trees::scanned;
use forerun_testkit::{Keeps, TempDir, TreeModel, memory_dir, temp_dir, workspace_root};

use crate::writer_common::{
    Via, everything, image, mounted, mounted_with, oracles, run, xattrs_of,
};

struct Sample {
    /// In memory, because there are many trees and they are soon deleted.
    files: TempDir,
    /// On disk, because Linux cannot mount an image file that is in memory.
    dir: TempDir,
    tree: Tree,
    model: TreeModel,
}

static NEXT_IMAGE: AtomicUsize = AtomicUsize::new(0);

impl Sample {
    fn new(populate: impl FnOnce(&Path)) -> Self {
        let files = memory_dir("erofs-writer", 1 << 30);
        let root = files.path().join("tree");
        fs::create_dir(&root).unwrap();
        populate(&root);
        Self {
            tree: scanned(&root),
            model: TreeModel::of_host(&root).unwrap(),
            files,
            dir: temp_dir("erofs-writer"),
        }
    }

    /// Writes an image, and checks how Linux and fsck.erofs read it.
    fn check(&self, options: &ErofsOptions) {
        let path = self.write(options);
        for via in [Via::File, Via::Loop] {
            let mounted = mounted(&path, self.dir.path().join("mnt"), via);
            self.same(&mounted.path);
        }
        if fsck_knows(options) {
            self.fsck(&path);
        }
    }

    fn write(&self, options: &ErofsOptions) -> std::path::PathBuf {
        // Use a new name each time: mount(8) reuses a loop device that it finds on a file, with its
        // stale cache.
        let number = NEXT_IMAGE.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.path().join(format!("image-{number}"));
        fs::write(&path, image(&self.tree, options).unwrap()).unwrap();
        path
    }

    fn fsck(&self, path: &Path) {
        run(Command::new("fsck.erofs").arg("--extract").arg(path));
    }

    fn same(&self, root: &Path) {
        let model = TreeModel::of_host(root).unwrap();
        self.model.assert_same(&model, &Keeps::EVERYTHING);
        let expected = xattrs_of(&self.files.path().join("tree"), &self.model);
        assert_eq!(xattrs_of(root, &model), expected);
    }
}

/// Returns whether fsck.erofs supports images with these options. Version 1.5 of Debian 12 supports
/// only LZ4 and blocks of the page size, and no name prefixes, shared extents or fragments.
fn fsck_knows(options: &ErofsOptions) -> bool {
    let codec = options.compression.as_ref().is_none_or(|with| {
        matches!(
            with.encoding,
            FillEncoding::Lz4 | FillEncoding::Lz4Hc { .. }
        ) && !with.share_extents
            && with.fragments == Fragments::None
    });
    codec && options.block_size == 4096 && options.xattr_prefixes.is_empty()
}

fn compressed(encoding: FillEncoding, cluster_size: u32) -> ErofsOptions {
    ErofsOptions {
        compression: Some(Compression {
            cluster_size,
            ..Compression::new(encoding)
        }),
        ..ErofsOptions::default()
    }
}

const LZ4HC: FillEncoding = FillEncoding::Lz4Hc { level: 9 };

#[test]
fn uncompressed() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    sample.check(&ErofsOptions::default());
    sample.check(&ErofsOptions {
        inline_tails: false,
        duplicates: false,
        mkfs_time: Some(1_600_000_000),
        label: b"sixteen bytes ok".to_vec(),
        uuid: Some([7; 16]),
        ..ErofsOptions::default()
    });
    for block_size in [512, 1024, 2048] {
        sample.check(&ErofsOptions {
            block_size,
            ..ErofsOptions::default()
        });
    }
}

#[test]
fn an_empty_tree() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(|_| ());
    sample.check(&ErofsOptions::default());
    sample.check(&compressed(LZ4HC, 4096));
}

#[test]
fn lz4() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    for encoding in [FillEncoding::Lz4, LZ4HC, FillEncoding::Lz4Hc { level: 12 }] {
        sample.check(&compressed(encoding, 4096));
    }
    for cluster_size in [8 << 10, 64 << 10, 1 << 20] {
        sample.check(&compressed(LZ4HC, cluster_size));
    }
}

const MICRO_LZMA: FillEncoding = FillEncoding::MicroLzma {
    level: 6,
    dictionary: 1 << 20,
};
/// A fast encoding for tests that do not depend on the matches: searching long repeats for the best
/// match takes most of their time.
const FAST_MICRO_LZMA: FillEncoding = FillEncoding::MicroLzma {
    level: 1,
    dictionary: 1 << 20,
};
const DEFLATE: FillEncoding = FillEncoding::Deflate { level: 6 };
const ZSTD: FillEncoding = FillEncoding::Zstd {
    level: 3,
    window_log: 20,
};

#[test]
fn the_other_codecs() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    for encoding in [DEFLATE, ZSTD, MICRO_LZMA] {
        for cluster_size in [4 << 10, 64 << 10, 1 << 20] {
            sample.check(&compressed(encoding.clone(), cluster_size));
        }
    }
}

#[test]
fn ways_of_compressing() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    for encoding in [LZ4HC, DEFLATE, ZSTD, FAST_MICRO_LZMA] {
        for cluster_size in [4 << 10, 64 << 10] {
            let with = Compression {
                cluster_size,
                ..Compression::new(encoding.clone())
            };
            for compression in [
                Compression {
                    inline_tails: true,
                    ..with.clone()
                },
                Compression {
                    full_indexes: true,
                    ..with.clone()
                },
                Compression {
                    inline_tails: true,
                    share_extents: true,
                    ..with
                },
            ] {
                sample.check(&ErofsOptions {
                    compression: Some(compression),
                    ..ErofsOptions::default()
                });
            }
        }
    }
}

#[test]
fn fragments() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    let with = |encoding, cluster_size, fragments| {
        let mut options = compressed(encoding, cluster_size);
        let compression = options.compression.as_mut().unwrap();
        compression.fragments = fragments;
        options
    };
    let deflate = FillEncoding::Deflate { level: 1 };
    for fragments in [Fragments::Tails, Fragments::All] {
        sample.check(&with(FillEncoding::Lz4, 4096, fragments));
        sample.check(&with(LZ4HC, 64 << 10, fragments));
        sample.check(&with(deflate.clone(), 16 << 10, fragments));
        let mut shared = with(LZ4HC, 4096, fragments);
        shared.compression.as_mut().unwrap().share_extents = true;
        shared.inline_tails = false;
        shared.xattr_prefixes = vec![b"trusted.overlay.".to_vec()];
        sample.check(&shared);
        let mut full = with(FillEncoding::Lz4, 2048, fragments);
        full.compression.as_mut().unwrap().full_indexes = true;
        full.block_size = 1024;
        sample.check(&full);
    }
}

#[test]
fn chunks() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    for (chunk_size, inline_tails) in [(4096, true), (4096, false), (1 << 20, true)] {
        let options = ErofsOptions {
            chunk_size: Some(chunk_size),
            inline_tails,
            ..ErofsOptions::default()
        };
        sample.check(&options);
        let blob = sample.dir.path().join("blob");
        let path = sample.write(&ErofsOptions {
            blob: Some(Arc::new(File::create(&blob).unwrap())),
            ..options
        });
        let option = format!("device={}", blob.display());
        let mounted = mounted_with(&path, sample.dir.path().join("mnt"), &option);
        sample.same(&mounted.path);
    }
}

#[test]
fn attributes() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    let options = ErofsOptions {
        xattr_prefixes: vec![b"trusted.overlay.".to_vec(), b"user.o".to_vec()],
        ..ErofsOptions::default()
    };
    sample.check(&options);
    for share_xattrs_above in [0, 1000] {
        sample.check(&ErofsOptions {
            share_xattrs_above,
            ..options.clone()
        });
    }
}

/// Creates source code and machine code, in small files and one large file.
fn real(dir: &Path) {
    let sources = workspace_root().join("crates");
    run(Command::new("cp")
        .args(["-r", "--"])
        .arg(sources)
        .arg(dir.join("sources")));
    let mut code = fs::read(std::env::current_exe().unwrap()).unwrap();
    code.truncate(8_000_000);
    fs::write(dir.join("program"), code).unwrap();
}

#[test]
fn images_are_as_small_as_those_of_mkfs() {
    if !oracles() {
        return;
    }
    let sample = Sample::new(real);
    let root = sample.files.path().join("tree");
    let theirs = sample.dir.path().join("theirs");
    let size_of = |args: &[&str]| {
        run(Command::new("mkfs.erofs").args(args).args([&theirs, &root]));
        fs::metadata(&theirs).unwrap().len()
    };
    let inline = |cluster_size| Compression {
        inline_tails: true,
        cluster_size,
        ..Compression::new(LZ4HC)
    };
    let with = |compression| ErofsOptions {
        compression: Some(compression),
        ..ErofsOptions::default()
    };
    for (args, options) in [
        (&[][..], ErofsOptions::default()),
        (&["-zlz4hc"], compressed(LZ4HC, 4096)),
        (
            &["-zlz4hc,12"],
            compressed(FillEncoding::Lz4Hc { level: 12 }, 4096),
        ),
        (&["-zlz4hc", "-C65536"], compressed(LZ4HC, 64 << 10)),
        (&["-zlz4hc", "-Eztailpacking"], with(inline(4096))),
        (
            &["-zlz4hc", "-C65536", "-Eztailpacking"],
            with(inline(64 << 10)),
        ),
        (&["-zlz4"], compressed(FillEncoding::Lz4, 4096)),
    ] {
        let ours = fs::metadata(sample.write(&options)).unwrap().len();
        let theirs = size_of(args);
        println!("{args:?}: {ours} of ours, {theirs} of mkfs.erofs");
        assert!(ours * 100 <= theirs * 102, "{args:?}: {ours} > {theirs}");
    }
}

/// The inodes lie in the order in which `find` walks them.
#[test]
fn inodes_lie_in_the_order_of_a_walk() {
    use std::os::unix::fs::MetadataExt;
    if !oracles() {
        return;
    }
    let sample = Sample::new(everything);
    let options = ErofsOptions {
        inline_tails: false,
        ..compressed(LZ4HC, 4096)
    };
    let path = sample.write(&options);
    let mounted = mounted(&path, sample.dir.path().join("mnt"), Via::File);
    let mut pending = vec![mounted.path.clone()];
    let (mut last, mut back) = (0_u64, 0);
    while let Some(dir) = pending.pop() {
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        for path in &names {
            let metadata = fs::symlink_metadata(path).unwrap();
            if metadata.nlink() > 1 && !metadata.is_dir() {
                continue;
            }
            // Inode numbers count units of 32 bytes.
            let at = metadata.ino() * 32;
            back = last.saturating_sub(at).max(back);
            last = last.max(at);
        }
        names.retain(|path| fs::symlink_metadata(path).unwrap().is_dir());
        pending.extend(names.into_iter().rev());
    }
    assert!(back <= 128 << 10, "{back} bytes back");
}
