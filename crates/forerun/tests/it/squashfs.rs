//! Each block of a SquashFS image is decoded once, for any number of readers in any order.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use forerun::vfs::{Extent, FileType, NodeId, Place};
use forerun::{Image, Reader};
use forerun_io::Counter;
use forerun_testkit::require;

/// Creates lines that compress about as well as source code, and differ between seeds.
fn text(len: usize, seed: usize) -> Vec<u8> {
    let line = |n: usize| format!("{:x} line {n} of {seed}\n", (n * 7919 + seed) % 65_521);
    let mut text: Vec<u8> = (0..).flat_map(|n| line(n).into_bytes()).take(len).collect();
    text.shrink_to_fit();
    text
}

fn make(dir: &Path, options: &[&str]) -> Option<std::path::PathBuf> {
    let mksquashfs = require::program("mksquashfs")?;
    let image = dir.join("image");
    let mut command = Command::new(mksquashfs);
    command.arg(dir.join("tree")).arg(&image).args(options);
    let output = command
        .args(["-noappend", "-no-progress"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(image)
}

fn blocks(reader: &Reader, node: NodeId, into: &mut std::collections::BTreeSet<u64>) {
    let visit = &mut |extent: Extent| {
        if let Place::Encoded { block, .. } = extent.place {
            into.insert(block.offset);
        }
        ControlFlow::Continue(())
    };
    reader.fs().map(node, 0..u64::MAX, visit).unwrap();
}

fn data_decodes(reader: &Reader) -> u64 {
    let stats = reader.observer().stats();
    stats.get(Counter::Decodes) - stats.get(Counter::MetadataDecodes)
}

#[test]
fn a_file_read_from_end_to_end_decodes_each_block_once() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    // Full blocks, a hole in the middle, and an end that goes to a fragment or a block.
    let mut contents = text(9 << 20, 1);
    contents[3 << 20..5 << 20].fill(0);
    contents.extend(text(77_777, 2));
    fs::write(dir.path().join("tree/file"), &contents).unwrap();
    for options in [
        &["-comp", "gzip"][..],
        &["-comp", "zstd", "-no-fragments"],
        &["-comp", "lz4", "-always-use-fragments"],
    ] {
        let Some(image) = make(dir.path(), options) else {
            return;
        };
        for step in [4096, 128 << 10, 1_000_000] {
            let image = Image::open(&image).unwrap();
            let reader = image.reader();
            let node = reader.fs().lookup(reader.fs().root(), b"file").unwrap();
            let node = node.unwrap();
            let mut all = Vec::new();
            while all.len() < contents.len() {
                let data = reader.read(node, all.len() as u64, step).unwrap();
                assert!(!data.is_empty());
                all.extend_from_slice(&data);
            }
            assert!(all == contents, "{options:?} in steps of {step}");
            let mut distinct = std::collections::BTreeSet::new();
            blocks(reader, node, &mut distinct);
            let stats = reader.observer().stats();
            assert!(distinct.len() > 50);
            assert_eq!(
                data_decodes(reader),
                distinct.len() as u64,
                "{options:?} {step}"
            );
            assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
        }
    }
}

#[test]
fn a_tree_read_in_the_order_of_its_listings_decodes_each_block_once() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    for sub in 0..20 {
        let sub_dir = tree.join(format!("dir-{sub:02}"));
        fs::create_dir_all(&sub_dir).unwrap();
        for file in 0..50 {
            let len = (sub * 7919 + file * 104_729) % 40_000;
            let len = if file == 13 { len + 300_000 } else { len };
            fs::write(
                sub_dir.join(format!("file-{file:02}")),
                text(len, sub * 50 + file),
            )
            .unwrap();
        }
    }
    let Some(image) = make(dir.path(), &[]) else {
        return;
    };
    let image = Image::open(&image).unwrap();
    let reader = image.reader();
    let mut distinct = std::collections::BTreeSet::new();
    let mut served = 0;
    let entries: Vec<_> = reader
        .walk(reader.fs().root())
        .map(Result::unwrap)
        .collect();
    for entry in entries {
        let metadata = entry.metadata.clone().unwrap();
        if metadata.kind == FileType::Regular {
            let data = reader.read(entry.node, 0, 1 << 20).unwrap();
            assert_eq!(data.len() as u64, metadata.size);
            served += metadata.size;
            blocks(reader, entry.node, &mut distinct);
        }
    }
    let stats = reader.observer().stats();
    assert!(served > 20 << 20 && distinct.len() > 150);
    assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
    assert_eq!(data_decodes(reader), distinct.len() as u64);
    // How far readahead gets depends on the speed of reader and workers, but some must happen.
    assert!(stats.get(Counter::ReadaheadRequests) > 3);
}

#[test]
fn random_reads_keep_the_rest_of_a_block() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("tree")).unwrap();
    let contents = text(8 << 20, 3);
    fs::write(dir.path().join("tree/file"), &contents).unwrap();
    let Some(image) = make(dir.path(), &["-no-fragments"]) else {
        return;
    };
    let image = Image::open(&image).unwrap();
    let reader = image.reader();
    let node = reader
        .fs()
        .lookup(reader.fs().root(), b"file")
        .unwrap()
        .unwrap();
    let mut at = 12_345;
    for _ in 0..2000 {
        at = at * 6_364_136_223 % (contents.len() - 4096);
        let data = reader.read(node, at as u64, 4096).unwrap();
        assert!(*data == contents[at..at + 4096]);
    }
    let stats = reader.observer().stats();
    assert!(data_decodes(reader) <= 64);
    assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
}
