//! Random reads of compressed data: the surroundings are hinted to the kernel.

use std::sync::Arc;

use forerun_engine::EngineOptions;
use forerun_io::Counter;
use forerun_testkit::generate::bytes;
use forerun_testkit::{MemFsBuilder, MemImage, Piece};
use forerun_vfs::NodeId;

use crate::common::{Hinted, KIB, Opened, open_on};

const BLOCK: usize = 64 * KIB;
const BLOCKS: usize = 512;
/// Upper bound on the bytes of a stored block.
const STORED: usize = BLOCK / 8 * 5;

/// Creates an image with one file, whose blocks take about half their length in the image.
fn image() -> (MemImage, NodeId) {
    let mut builder = MemFsBuilder::new();
    let piece = Piece::Encoded {
        bytes: bytes(7, BLOCK * BLOCKS),
        block_len: BLOCK,
    };
    let node = builder.file("file", [piece]);
    (builder.build(), node)
}

fn read(blocks: impl Iterator<Item = usize>, is_slow: bool, options: EngineOptions) -> Opened {
    let (image, node) = image();
    let source = Hinted {
        is_slow,
        ..Hinted::new(image.source.clone())
    };
    let opened = open_on(&image, Arc::new(source), options);
    for block in blocks {
        let at = (block * BLOCK + 20 * KIB) as u64;
        let data = opened.reader.read(node, at, 4 * KIB).unwrap();
        assert!(data[..] == image.fs.content(node, at..at + 4096), "{block}");
    }
    opened
}

/// Returns every block number once, in an order in which no two consecutive blocks are neighbours.
fn scattered() -> impl Iterator<Item = usize> {
    (0..BLOCKS).map(|n| n * 101 % BLOCKS)
}

fn hinted(opened: &Opened) -> usize {
    usize::try_from(opened.count(Counter::HintedBytes)).unwrap()
}

#[test]
fn where_much_is_wanted_the_kernel_reads_the_rest_ahead() {
    let opened = read(scattered(), false, EngineOptions::default());
    assert_eq!(opened.count(Counter::Decodes), BLOCKS as u64);
    let all = BLOCKS * STORED;
    assert!(
        (all / 2..=all).contains(&hinted(&opened)),
        "{}",
        hinted(&opened)
    );
}

#[test]
fn a_few_reads_at_random_ask_for_nothing() {
    let opened = read(
        scattered().take(BLOCKS / 5),
        false,
        EngineOptions::default(),
    );
    assert_eq!(hinted(&opened), 0);
}

#[test]
fn nothing_is_asked_of_a_server_or_without_readahead_for_a_guess() {
    let opened = read(scattered(), true, EngineOptions::default());
    assert_eq!(hinted(&opened), 0);
    let without = EngineOptions {
        readahead: 0,
        ..EngineOptions::default()
    };
    assert_eq!(hinted(&read(scattered(), false, without)), 0);
}

#[test]
fn a_reader_from_front_to_back_needs_no_hints() {
    let (image, node) = image();
    let source = Hinted::new(image.source.clone());
    let opened = open_on(&image, Arc::new(source), EngineOptions::default());
    opened.read_all(&image, node, 128 * KIB);
    assert_eq!(hinted(&opened), 0);
}
