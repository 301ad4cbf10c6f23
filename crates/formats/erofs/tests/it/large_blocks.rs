//! Images with blocks above 4 KiB, read by the driver only. Linux mounts them, and fsck.erofs reads
//! them, only on machines with larger pages.

use std::fs;
use std::sync::Arc;

use forerun_build::Tree;
use forerun_codec::FillEncoding;
use forerun_erofs::write::{Compression, ErofsOptions, Fragments, write};
use forerun_io::{Limits, Observer};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::trees::{file, tree_of};
use forerun_testkit::{generate, temp_dir};

use crate::common;

/// Creates contents with lengths around the boundaries of blocks and clusters, compressible and
/// not.
fn contents() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for size in [1, 8192, 16_384, 65_536, 131_072, 300_000, 1_100_000_usize] {
        for len in [size.saturating_sub(1), size, size + 1] {
            let text = format!("line {len} of a text\n").repeat(len / 10 + 1);
            files.push((format!("text {len}"), text.as_bytes()[..len].to_vec()));
            files.push((format!("bytes {len}"), generate::bytes(len as u64, len)));
        }
    }
    files.push(("zeros".to_string(), vec![0; 500_000]));
    files
}

fn options() -> Vec<(&'static str, ErofsOptions)> {
    let with = |encoding, change: fn(&mut Compression)| {
        let mut compression = Compression::new(encoding);
        compression.cluster_size = 0;
        change(&mut compression);
        ErofsOptions {
            compression: Some(compression),
            ..ErofsOptions::default()
        }
    };
    let zstd = FillEncoding::Zstd {
        level: 1,
        window_log: 20,
    };
    let lzma = FillEncoding::MicroLzma {
        level: 0,
        dictionary: 1 << 16,
    };
    let deflate = FillEncoding::Deflate { level: 1 };
    let chunks = ErofsOptions {
        chunk_size: Some(64 << 10),
        ..ErofsOptions::default()
    };
    vec![
        ("plain", ErofsOptions::default()),
        ("chunks", chunks),
        ("lz4", with(FillEncoding::Lz4, |_| {})),
        (
            "large clusters",
            with(FillEncoding::Lz4, |with| with.cluster_size = 256 << 10),
        ),
        (
            "inline",
            with(zstd.clone(), |with| with.inline_tails = true),
        ),
        (
            "shared",
            with(deflate.clone(), |with| with.share_extents = true),
        ),
        ("full", with(lzma, |with| with.full_indexes = true)),
        (
            "tails",
            with(zstd, |with| with.fragments = Fragments::Tails),
        ),
        ("all", with(deflate, |with| with.fragments = Fragments::All)),
    ]
}

#[test]
fn blocks_of_every_size_are_read_back() {
    let dir = temp_dir("erofs-blocks");
    let files = contents();
    let named: Vec<_> = files
        .iter()
        .map(|(name, bytes)| (&name[..], &bytes[..]))
        .collect();
    let mut tree = tree_of(&named);
    let mut with_xattrs = file(b"some bytes");
    with_xattrs
        .xattrs
        .insert(b"user.long".to_vec(), vec![7; 5000]);
    tree.add(Tree::ROOT, b"xattrs", with_xattrs).unwrap();
    for block_size in [8 << 10, 16 << 10, 32 << 10, 64 << 10] {
        for (name, mut options) in options() {
            options.block_size = block_size;
            if let Some(with) = &mut options.compression {
                with.cluster_size = with.cluster_size.max(block_size);
            }
            let mut image = Vec::new();
            write(&tree, &options, &mut image, &Arc::new(Observer::default())).unwrap();
            let path = dir.path().join("image");
            fs::write(&path, &image).unwrap();
            let reader = common::reader(&path, &[]);
            let fs = reader.fs();
            for (file, bytes) in &files {
                let node = fs.lookup(fs.root(), file.as_bytes()).unwrap().unwrap();
                let data = reader.read(node, 0, bytes.len() + 1).unwrap();
                assert!(data[..] == bytes[..], "{block_size} {name}: {file}");
                // i_mode and the low half of i_size are at the same offsets in both inode forms.
                let layout = fs.capabilities().layout.unwrap();
                let at = layout.inode_offset(node).unwrap() as usize;
                let mode = u16::from_le_bytes(image[at + 4..at + 6].try_into().unwrap());
                let size = u32::from_le_bytes(image[at + 8..at + 12].try_into().unwrap());
                assert_eq!((mode & 0o170_000, size as usize), (0o100_000, bytes.len()));
            }
            let mut problems = Vec::new();
            fs.check(None, &mut |problem| problems.push(problem.error))
                .unwrap();
            assert!(problems.is_empty(), "{block_size} {name}: {problems:?}");
            check_filesystem(fs, &Limits::default());
        }
    }
}
