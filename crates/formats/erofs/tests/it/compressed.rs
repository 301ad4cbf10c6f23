//! Compressed images made by Debian's mkfs.erofs: they read back as their trees, and each cluster
//! is decoded once.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use forerun_io::{Counter, Limits};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, generate};
use forerun_vfs::Place;

use crate::common::{Sample, model_of, reader};

/// Creates lines that compress about as well as source code, and differ between seeds.
fn text(len: usize, seed: usize) -> Vec<u8> {
    let line = |n: usize| format!("{:x} line {n} of {seed}\n", (n * 7919 + seed) % 65_521);
    (0..).flat_map(|n| line(n).into_bytes()).take(len).collect()
}

/// Creates files with every kind of cluster: text, noise between text, zeros, tails of every
/// length.
fn populate(tree: &Path) {
    let file = |name: &str, bytes: Vec<u8>| fs::write(tree.join(name), bytes).unwrap();
    file("text", text(700_001, 1));
    file("zeros", vec![0; 3_000_000]);
    file("noise", generate::bytes(1, 20_001));
    let mixed = (0..24).flat_map(|n| {
        let noise = generate::bytes(n as u64, 1500 + n * 700);
        [text(7000 + n * 13, n), noise].concat()
    });
    file("mixed", mixed.collect());
    // These lengths move the start and end of the packs of sixteen clusters.
    for len in [1, 4095, 4096, 4097, 5000, 65_536, 69_632, 70_000, 131_073] {
        file(&format!("length-{len}"), text(len, len));
    }
    file("empty", Vec::new());
}

const MATRIX: [&[&str]; 15] = [
    &["-zlz4"],
    &["-zlz4hc"],
    &["-zlz4hc,12", "-C8192"],
    &["-zlz4hc", "-C65536"],
    &["-zlz4", "-C1048576"],
    &["-zlz4hc", "-Elegacy-compress"],
    &["-zlz4hc", "-C16384", "-Elegacy-compress"],
    &["-zlz4hc", "-Eztailpacking"],
    &["-zlz4hc", "-C65536", "-Eztailpacking"],
    &["-zlz4hc", "-Elegacy-compress,ztailpacking"],
    &["-zlz4hc", "-Efragments"],
    &["-zlz4hc", "-C32768", "-Efragments"],
    &["-zlz4hc", "-C4096", "-Efragments,ztailpacking"],
    &["-zlz4", "-Eforce-inode-extended", "-C4096"],
    &["-zlz4hc", "--max-extent-bytes=20000"],
];

#[test]
fn images_by_debians_mkfs_read_as_their_trees() {
    let Some(sample) = Sample::new(populate) else {
        return;
    };
    for options in MATRIX {
        let image = sample.make(options);
        let reader = reader(&image, &[]);
        println!("{options:?}");
        sample
            .model
            .assert_same(&model_of(&reader), &Keeps::CONTENTS);
        check_filesystem(reader.fs(), &Limits::default());
    }
}

#[test]
fn a_file_read_from_end_to_end_decodes_each_cluster_once() {
    let Some(sample) = Sample::new(populate) else {
        return;
    };
    for (options, file) in [
        (&["-zlz4hc"][..], "text"),
        (&["-zlz4hc", "-C65536"], "mixed"),
        (&["-zlz4hc", "-Elegacy-compress"], "mixed"),
        (&["-zlz4hc", "-Eztailpacking"], "text"),
        (&["-zlz4hc", "-C1048576"], "zeros"),
    ] {
        let image = sample.make(options);
        for step in [4096, 128 << 10, 1_000_000] {
            let reader = reader(&image, &[]);
            let root = reader.fs().root();
            let node = reader.fs().lookup(root, file.as_bytes()).unwrap().unwrap();
            let (mut at, mut all) = (0, Vec::new());
            loop {
                let data = reader.read(node, at, step).unwrap();
                if data.is_empty() {
                    break;
                }
                at += data.len() as u64;
                all.extend_from_slice(&data);
            }
            let expected = fs::read(sample.tree().join(file)).unwrap();
            assert!(all == expected, "{options:?} {file} in steps of {step}");
            let mut distinct = BTreeSet::new();
            let visit = &mut |extent: forerun_vfs::Extent| {
                if let Place::Encoded { block, .. } = extent.place {
                    distinct.insert(block.offset);
                }
                ControlFlow::Continue(())
            };
            reader.fs().map(node, 0..u64::MAX, visit).unwrap();
            let stats = reader.observer().stats();
            let decodes = stats.get(Counter::Decodes) - stats.get(Counter::MetadataDecodes);
            assert!(!distinct.is_empty());
            assert_eq!(decodes, distinct.len() as u64, "{options:?} {file} {step}");
            assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
        }
    }
}
