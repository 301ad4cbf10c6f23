//! The cost of an extraction: every stored block is read once and decoded once, for any number of
//! threads and of files that share the block.

use std::fs;
use std::sync::Arc;

use forerun_export::{
    ExtractOptions, NoProgress, Selection, TarWriteOptions, extract, write_contents, write_tar,
};
use forerun_io::{Counter, Limits};
use forerun_testkit::fault::CountingSource;
use forerun_testkit::{MemFsBuilder, Piece, temp_dir};

use crate::common::{self, reader, reader_on};

const BLOCK: usize = 128 << 10;

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at * 7 + seed * 131 + at / 251 * seed) % 241) as u8)
        .collect()
}

/// Builds large files in blocks and small files in shared fragments. Also returns the number of
/// blocks.
fn fragmented() -> (MemFsBuilder, u64) {
    let mut builder = MemFsBuilder::new();
    let mut blocks = 0;
    for n in 0..6 {
        let bytes = bytes(n, 5 * BLOCK + 777);
        blocks += 6;
        let piece = Piece::Encoded {
            bytes,
            block_len: BLOCK,
        };
        builder.file(&format!("large/{n}"), [piece]);
    }
    for n in 0..20 {
        let all = bytes(100 + n, 40 * 1000);
        let block = builder.encode(&all);
        blocks += 1;
        for part in 0..40 {
            let bytes = all[part * 1000..(part + 1) * 1000].to_vec();
            let piece = Piece::Fragment {
                block,
                skip: (part * 1000) as u32,
                bytes,
            };
            builder.file(&format!("small/{}/{n}-{part}", part % 7), [piece]);
        }
    }
    (builder, blocks)
}

#[test]
fn each_block_is_read_and_decoded_once() {
    let (builder, blocks) = fragmented();
    let image = builder.build();
    for threads in [1, 2, 5] {
        let source = CountingSource::new(image.source.clone());
        let reader = reader_on(image.driver(), Arc::new(source.clone()), Limits::default());
        let dir = temp_dir("amounts");
        let options = ExtractOptions {
            threads,
            ..ExtractOptions::default()
        };
        let report = extract(
            &reader,
            &Selection::default(),
            dir.path(),
            &options,
            &NoProgress,
        );
        let report = report.unwrap();
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.files, 806);
        let stats = reader.observer().stats().snapshot();
        assert_eq!(stats.get(Counter::Decodes), blocks, "{threads} threads");
        assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
        let mut asked = source.take_log();
        asked.sort_by_key(|range| range.start);
        for pair in asked.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
        }
        assert!(fs::read(dir.path().join("large/3")).unwrap() == bytes(3, 5 * BLOCK + 777));
        let small = fs::read(dir.path().join("small/2/4-9")).unwrap();
        assert!(small == bytes(104, 40_000)[9000..10_000]);
    }
}

#[test]
fn archives_and_standard_output_decode_once_too() {
    let (builder, blocks) = fragmented();
    let image = builder.build();
    let selection = Selection::default();
    let reader = reader(&image);
    let options = TarWriteOptions::default();
    write_tar(&reader, &selection, &mut Vec::new(), &options, &NoProgress).unwrap();
    let stats = reader.observer().stats().snapshot();
    assert_eq!(stats.get(Counter::Decodes), blocks);
    assert_eq!(stats.get(Counter::RepeatedDecodes), 0);

    let reader = common::reader(&image);
    let mut out = Vec::new();
    let report = write_contents(&reader, &selection, &mut out, &NoProgress).unwrap();
    assert_eq!((report.files, report.bytes as usize), (806, out.len()));
    let stats = reader.observer().stats().snapshot();
    assert_eq!(stats.get(Counter::Decodes), blocks);
}
