//! Files of one block, which one thread takes together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use forerun_engine::{Asked, Bulk, EngineOptions};
use forerun_io::Counter;
use forerun_testkit::{FaultSource, MemFsBuilder, MemImage, Piece};
use forerun_vfs::{NodeId, Place};

use crate::common::{KIB, Opened, open, open_on, pattern};

const FILE: usize = 4 * KIB;
const BLOCK: usize = 128 * KIB;
const BLOCKS: usize = 40;

/// Creates blocks of 32 files each. Returns every fifth file.
fn few_of_each_block(builder: &mut MemFsBuilder) -> Vec<NodeId> {
    few_of_blocks(builder, BLOCKS)
}

fn few_of_blocks(builder: &mut MemFsBuilder, blocks: usize) -> Vec<NodeId> {
    let mut wanted = Vec::new();
    for block in 0..blocks {
        let bytes = pattern(BLOCK, block as u64);
        let encoded = builder.encode(&bytes);
        for (n, part) in bytes.chunks(FILE).enumerate() {
            let piece = Piece::Fragment {
                block: encoded,
                skip: (n * FILE) as u32,
                bytes: part.to_vec(),
            };
            let node = builder.file(&format!("{block}/{n}"), [piece]);
            if n % 5 == 0 {
                wanted.push(node);
            }
        }
    }
    wanted
}

fn bulk_of(opened: &Opened, files: &[NodeId], asked: Asked) -> Bulk {
    let place = |&node| (opened.reader.place(node, FILE as u64), node);
    // The caller's list is not in physical order.
    let places = files.iter().rev().map(place).collect();
    opened.reader.bulk_at(places, asked)
}

/// Reads the list on three threads. Returns the number of files that could not be read.
fn read_groups(opened: &Opened, image: &MemImage, bulk: &Bulk) -> usize {
    let failed = AtomicUsize::new(0);
    let read_group = || {
        let group = bulk.take_group();
        let block = bulk.read_block(&group).ok().flatten();
        for taken in &group {
            let range = 100..FILE as u64;
            let part = block.as_ref().map(|block| block.part(taken, range.clone()));
            let read = match part {
                Some(part) => Ok(part.unwrap()),
                None => bulk.read(taken, range.clone(), None),
            };
            match read {
                Ok(data) => assert!(data[..] == image.fs.content(taken.node, range)),
                Err(_) => drop(failed.fetch_add(1, Ordering::Relaxed)),
            }
        }
        !group.is_empty()
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| while read_group() {});
        }
    });
    let read = opened.count(Counter::ServedBytes) / (FILE as u64 - 100);
    assert_eq!(read, (bulk.len() - failed.load(Ordering::Relaxed)) as u64);
    failed.into_inner()
}

#[test]
fn a_block_is_decoded_once_for_few_of_its_files_though_the_cache_holds_few_blocks() {
    let mut builder = MemFsBuilder::new();
    let files = few_of_each_block(&mut builder);
    let image = builder.build();
    for (threads, asked) in [(1, Asked::Part), (2, Asked::Part), (2, Asked::All)] {
        let options = EngineOptions {
            threads,
            cache: 8 * BLOCK as u64,
            ..EngineOptions::default()
        };
        let opened = open(&image, options);
        let bulk = bulk_of(&opened, &files, asked);
        assert_eq!(read_groups(&opened, &image, &bulk), 0);
        assert_eq!(opened.count(Counter::Decodes), BLOCKS as u64);
    }
}

#[test]
fn a_long_list_that_is_all_keeps_blocks_that_it_wants_a_second_time() {
    let blocks = 100;
    let mut builder = MemFsBuilder::new();
    let files = few_of_blocks(&mut builder, blocks);
    let image = builder.build();
    let options = EngineOptions {
        cache: 256 * BLOCK as u64,
        ..EngineOptions::default()
    };
    // The cache holds 192 blocks. A list may fill a quarter of it at once, so 52 blocks are decoded
    // again.
    for (asked, expected) in [(Asked::Part, [100, 100]), (Asked::All, [152, 152])] {
        let opened = open(&image, options.clone());
        let read = || {
            let bulk = bulk_of(&opened, &files, asked);
            loop {
                let group = bulk.take_group();
                if group.is_empty() {
                    return opened.count(Counter::Decodes);
                }
                bulk.read_block(&group).unwrap().unwrap();
            }
        };
        assert_eq!(read(), blocks as u64);
        assert_eq!([read(), read()], expected, "{asked:?}");
    }
}

#[test]
fn a_group_has_all_files_of_its_block_and_no_others() {
    let mut builder = MemFsBuilder::new();
    let mut files = few_of_each_block(&mut builder);
    let alone = Piece::Encoded {
        bytes: pattern(FILE, 99),
        block_len: FILE,
    };
    files.push(builder.file("alone", [alone]));
    files.push(builder.file("stored", [Piece::Stored(pattern(FILE, 98))]));
    let image = builder.build();
    let opened = open(&image, EngineOptions::default());
    let bulk = bulk_of(&opened, &files, Asked::All);
    let mut lens = Vec::new();
    loop {
        let group = bulk.take_group();
        if group.is_empty() {
            break;
        }
        let is_one = group.len() == 1;
        assert_eq!(bulk.read_block(&group).unwrap().is_none(), is_one);
        lens.push(group.len());
    }
    lens.sort_unstable();
    let expected = [&[1, 1][..], &[7; BLOCKS][..]].concat();
    assert_eq!(lens, expected);
}

#[test]
fn a_bad_block_fails_its_own_files() {
    let mut builder = MemFsBuilder::new();
    builder.align(4096);
    let files = few_of_each_block(&mut builder);
    let image = builder.build();
    let opened = open(&image, EngineOptions::default());
    let mut bad = None;
    let fs = opened.reader.fs();
    fs.map(files[10], 0..1, &mut |extent| {
        if let Place::Encoded { block, .. } = extent.place {
            bad = Some(block.stored());
        }
        std::ops::ControlFlow::Break(())
    })
    .unwrap();
    let source = FaultSource::bad_range(image.source.clone(), bad.unwrap());
    let opened = open_on(&image, Arc::new(source), EngineOptions::default());
    let bulk = bulk_of(&opened, &files, Asked::All);
    assert_eq!(read_groups(&opened, &image, &bulk), 7);
}
