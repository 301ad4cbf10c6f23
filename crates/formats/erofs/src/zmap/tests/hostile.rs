//! Each way in which a header, an index or records can be wrong, with its exact error.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

use forerun_codec::Codec;
use forerun_vfs::Error;

use super::Entry::{Blocks, Head, Inner};
use super::{Crafted, Entry, FORMAT_ZSTD, K, LZMA, PLAIN, ZSTD, encoded};
use crate::zmap::IndexLayout;
use crate::zmap::check::ZmapCheck;

#[test]
fn indexes_that_lead_nowhere() {
    let head = Head(LZMA, 0, 3);
    let full = |entries: &[Entry]| Crafted::full(entries.len() as u64 * K, 0, entries);
    let at = |cluster: u64| 16 + 8 * cluster;
    full(&[Inner(1), head]).fails(16, &ZmapCheck::NoExtent { position: 0 });
    full(&[Inner(0), head]).fails(16, &ZmapCheck::NoExtent { position: 0 });
    full(&[Head(LZMA, 1, 3)]).fails(16, &ZmapCheck::NoExtent { position: 0 });
    for distance in [0, 3, 0x7FF] {
        let crafted = full(&[head, Inner(1), Inner(distance)]);
        // A map from the start does not use the distances back.
        assert_eq!(crafted.map(0..1).unwrap().len(), 1);
        let distance = u64::from(distance);
        let error = crafted.map(2 * K..2 * K + 1).unwrap_err();
        let Error::Corrupt(corrupt) = error else {
            panic!("{error:?}");
        };
        let check = ZmapCheck::LookBack {
            cluster: 2,
            distance,
        };
        assert_eq!(corrupt.check().downcast_ref(), Some(&check));
        assert_eq!(corrupt.offset(), at(2));
    }
    let offset = ZmapCheck::ClusterOffset {
        cluster: 1,
        offset: 4096,
        len: 4096,
    };
    full(&[head, Head(LZMA, 4096, 4)]).fails(at(1), &offset);
    let mut marked = full(&[head, Head(LZMA, 9, 4)]);
    marked.size = K + 8;
    marked.fails(
        at(1),
        &ZmapCheck::Start {
            start: K + 9,
            size: K + 8,
        },
    );
    let mut flags = full(&[head]);
    flags.meta[17] = 0x40;
    let (cluster, bits) = (0, 0x4000);
    flags.fails(
        16,
        &ZmapCheck::EntryFlags {
            cluster,
            flags: bits,
        },
    );
}

#[test]
fn distances_that_contradict_each_other_change_no_extent() {
    // All entries except the first have a distance that is too long or too short.
    let entries = [
        Head(LZMA, 0, 3),
        Inner(1),
        Head(ZSTD, 0, 4),
        Inner(3),
        Inner(1),
        Inner(5),
    ];
    Crafted::full(6 * K, 0, &entries).gives(&[
        encoded(0..2 * K, 3 * K, 4096, Codec::MicroLzma),
        encoded(2 * K..6 * K, 4 * K, 4096, Codec::Zstd),
    ]);
}

#[test]
fn counts_that_cannot_be() {
    let check = |blocks, why| ZmapCheck::BlockCount {
        cluster: 0,
        blocks,
        why,
    };
    let head = Head(LZMA, 0, 3);
    for (advice, second, expected) in [
        (
            0,
            Blocks(2),
            check(2, "extents of this file have one block"),
        ),
        (
            4,
            Blocks(2),
            check(2, "extents of this file have one block"),
        ),
        (2, Inner(1), check(0, "they are not counted")),
        (2, Blocks(0), check(0, "it has none")),
    ] {
        Crafted::full(2 * K, advice, &[head, second]).fails(16, &expected);
    }
    let mut outside = Crafted::full(2 * K, 2, &[head, Blocks(2)]);
    outside.data = 5 * K - 1;
    let range = 3 * K..5 * K;
    outside.fails(16, &ZmapCheck::DataOutside { range });
    let (len, stored) = (K + 1, K);
    Crafted::full(2 * K, 0, &[Head(PLAIN, 0, 3), Head(LZMA, 1, 3)])
        .fails(16, &ZmapCheck::Plain { len, stored });
}

#[test]
fn headers_that_cannot_be() {
    let with = |change: &dyn Fn(&mut Crafted)| {
        let mut crafted = Crafted::full(K, 0, &[Head(LZMA, 0, 3)]);
        change(&mut crafted);
        crafted
    };
    with(&|one| one.meta.truncate(7)).fails(0, &ZmapCheck::HeaderOutside { end: 8, len: 7 });
    with(&|one| one.meta[4] = 0x28).fails(0, &ZmapCheck::TwoTails);
    with(&|one| one.meta[7] = 5).fails(0, &ZmapCheck::ClusterBits { bits: 17, max: 16 });
    let compact = Crafted::new(IndexLayout::Compact, K, 0, 0, 0, 3);
    compact.fails(0, &ZmapCheck::ClusterBits { bits: 15, max: 14 });
    let packs = Crafted::new(IndexLayout::Compact, K, 0, 1, 0, 1);
    packs.fails(0, &ZmapCheck::ClusterBits { bits: 13, max: 12 });
    let (id, set) = (1, 0xD);
    with(&|one| one.algorithms = 0xD).fails(16, &ZmapCheck::Algorithm { id, set });
    for (advice, features, what) in [
        (2, 0x10, "a cluster of several blocks"),
        (0x20, 2, "a tail in the packed inode"),
        (1, 2, "encoded extents"),
    ] {
        let crafted = with(&|one| {
            one.meta[4] = advice;
            one.features = features;
        });
        crafted.fails(0, &ZmapCheck::Feature { what, features });
    }
    let (clusters, end, len) = (2, 32, 24);
    with(&|one| one.size = 2 * K).fails(8, &ZmapCheck::IndexOutside { clusters, end, len });
    let (clusters, len) = (1 << 51, 24);
    let end = 16 + (1 << 54);
    with(&|one| one.size = 1 << 63).fails(8, &ZmapCheck::IndexOutside { clusters, end, len });
    let tail = with(&|one| {
        one.meta[4] = 8;
        one.meta[2] = 1;
    });
    let range = 24..25;
    tail.fails(16, &ZmapCheck::TailOutside { range, len: 24 });
}

#[test]
fn records_that_cannot_be() {
    let sixteen = |first: u32, second: u32| {
        let words = [FORMAT_ZSTD | 9, 1, 0, first, FORMAT_ZSTD | 9, 64, 0, second];
        Crafted::records(400, 5, 2, 0, &words)
    };
    sixteen(1, 300).fails(16, &ZmapCheck::NoExtent { position: 0 });
    for second in [0, 5] {
        let mut crafted = sixteen(0, second);
        crafted.meta.extend(crafted.meta.clone()[16..32].to_vec());
        crafted.meta[0] = 3;
        // The third extent starts where the first one does.
        let check = ZmapCheck::RecordOrder {
            record: if second == 0 { 3 } else { 2 },
            start: 0,
            before: u64::from(second),
        };
        match second {
            // The search finds the last of the extents with equal starts.
            0 => assert_eq!(crafted.map(0..400).unwrap().len(), 1),
            _ => crafted.fails(32, &check),
        }
    }
    let none = Crafted::records(400, 5, 0, 0, &[]);
    let (clusters, end, len) = (0, 16, 16);
    none.fails(8, &ZmapCheck::IndexOutside { clusters, end, len });
    let far = Crafted::records(400, 5, u32::MAX, 0, &[0; 4]);
    let clusters = u64::from(u32::MAX);
    let (end, len) = (16 + 16 * clusters, 32);
    far.fails(8, &ZmapCheck::IndexOutside { clusters, end, len });
    let (id, set) = (14, 0xF);
    Crafted::records(400, 1, 0, 0, &[0, 0, 0xF000_0001])
        .fails(16, &ZmapCheck::Algorithm { id, set });
}

#[test]
fn an_extent_without_end_is_a_limit() {
    let count = (1 << 20) + 2;
    let mut entries = vec![Inner(1); count];
    entries[0] = Head(LZMA, 0, 3);
    let crafted = Crafted::full(count as u64 * K, 0, &entries);
    for position in [0, (count as u64 - 1) * K] {
        let error = crafted.map(position..position + 1).unwrap_err();
        assert_eq!(error.kind(), "limit", "{error}");
    }
}
