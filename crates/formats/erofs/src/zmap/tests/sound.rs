//! Maps of valid headers, indexes and records.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

use forerun_codec::{Codec, DecodeError};
use forerun_io::MemorySource;
use forerun_testkit::CountingSource;
use forerun_vfs::{DecodedLen, Extent, Padding, Place};

use super::Entry::{Blocks, Head, Inner, Partial};
use super::{Crafted, FORMAT_ZSTD, K, LZMA, PLAIN, ZSTD, encoded, stored};
use crate::zmap::check::ZmapCheck;
use crate::zmap::{IndexLayout, Piece, Sums};

#[test]
fn heads_of_all_kinds_and_the_mark_at_the_end() {
    // Clusters 0 and 1 are one LZMA extent, 2 is uncompressed from 100 on, 3 is zstd from 96 on, 4
    // is the end mark.
    let entries = [
        Head(LZMA, 0, 9),
        Inner(1),
        Head(PLAIN, 100, 11),
        Head(ZSTD, 96, 12),
        Head(LZMA, 7, 0),
    ];
    let expected = [
        encoded(0..2 * K + 100, 9 * K, 4096, Codec::MicroLzma),
        stored(2 * K + 100..3 * K + 96, 11 * K),
        encoded(3 * K + 96..4 * K + 7, 12 * K, 4096, Codec::Zstd),
    ];
    Crafted::full(4 * K + 7, 0, &entries).gives(&expected);
    // The packed form, with one block for each head after the base. The last cluster of a pack
    // holds no distance back; it follows from the previous cluster.
    let packs = [
        (entries[0], Inner(1), 8),
        (entries[2], entries[3], 10),
        (entries[4], Head(PLAIN, 0, 0), 12),
    ];
    Crafted::compact(4 * K + 7, 0, &packs).gives(&expected);
}

#[test]
fn interlaced_bytes_are_where_their_blocks_would_have_them() {
    let entries = [Head(LZMA, 0, 2), Head(PLAIN, 96, 3), Head(LZMA, 80, 4)];
    Crafted::full(3 * K, 0x10, &entries).gives(&[
        encoded(0..K + 96, 2 * K, 4096, Codec::MicroLzma),
        stored(K + 96..2 * K, 3 * K + 96),
        stored(2 * K..2 * K + 80, 3 * K),
        encoded(2 * K + 80..3 * K, 4 * K, 4096, Codec::MicroLzma),
    ]);
}

#[test]
fn interlaced_bytes_of_several_blocks_are_cut_where_a_block_of_the_file_ends() {
    // A hole in a compressed extent, then random bytes: two blocks hold 8192 of them from 96 on.
    let entries = [
        Head(LZMA, 0, 2),
        Head(PLAIN, 96, 3),
        Blocks(2),
        Head(LZMA, 96, 0),
    ];
    Crafted::full(3 * K + 96, 0x16, &entries).gives(&[
        encoded(0..K + 96, 2 * K, 4096, Codec::MicroLzma),
        stored(K + 96..2 * K, 4 * K + 96),
        stored(2 * K..3 * K + 96, 3 * K),
    ]);
}

#[test]
fn blocks_are_counted_behind_the_head() {
    let expected = [
        encoded(0..3 * K + 5, 50 * K, 3 * 4096, Codec::MicroLzma),
        encoded(3 * K + 5..4 * K + 6, 53 * K, 4096, Codec::Zstd),
        encoded(4 * K + 6..6 * K, 54 * K, 2 * 4096, Codec::MicroLzma),
    ];
    let entries = [
        Head(LZMA, 0, 50),
        Blocks(3),
        Inner(2),
        Head(ZSTD, 5, 53),
        Head(LZMA, 6, 54),
        Blocks(2),
    ];
    Crafted::full(6 * K, 6, &entries).gives(&expected);
    // The base address of a pack is that of the first extent it counts or starts.
    let packs = [
        (entries[0], entries[1], 50),
        (Inner(2), entries[3], 53),
        (entries[4], entries[5], 54),
    ];
    Crafted::compact(6 * K, 6, &packs).gives(&expected);
    let shifted = [
        (Head(LZMA, 0, 0), Head(LZMA, 1, 0), 50),
        (Blocks(3), Head(ZSTD, 5, 0), 51),
        (Head(LZMA, 6, 0), Blocks(2), 55),
    ];
    Crafted::compact(6 * K, 6, &shifted).gives(&[
        encoded(0..K + 1, 50 * K, 4096, Codec::MicroLzma),
        encoded(K + 1..3 * K + 5, 51 * K, 3 * 4096, Codec::MicroLzma),
        encoded(3 * K + 5..4 * K + 6, 54 * K, 4096, Codec::Zstd),
        encoded(4 * K + 6..6 * K, 55 * K, 2 * 4096, Codec::MicroLzma),
    ]);
}

#[test]
fn a_stream_that_goes_on_is_decoded_in_part() {
    let mut crafted = Crafted::full(K, 0, &[Partial(LZMA, 0, 3)]);
    let decoded_len = |crafted: &Crafted| match &crafted.map(0..1).unwrap()[..] {
        [Piece::Extent(Extent { place, .. })] => match place {
            Place::Encoded { block, .. } => (block.decoded_len, block.padding),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let wanted = DecodedLen::Prefix(4096);
    assert_eq!(decoded_len(&crafted), (wanted, Padding::Leading));
    // Old images have LZ4 streams without leading zeros, and no map header.
    crafted = Crafted::full(K, 0x55, &[Head(LZMA, 0, 3)]);
    (crafted.features, crafted.algorithms) = (0, 1);
    assert_eq!(decoded_len(&crafted), (wanted, Padding::None));
}

#[test]
fn tails_behind_the_index_and_in_the_packed_inode() {
    let entries = [Head(LZMA, 0, 3), Head(ZSTD, 9, 5)];
    let first = encoded(0..K + 9, 3 * K, 4096, Codec::MicroLzma);
    let mut inline = Crafted::full(2 * K, 8, &entries);
    inline.meta[2..4].copy_from_slice(&77_u16.to_le_bytes());
    inline.meta.extend([1; 77]);
    inline.gives(&[first.clone(), encoded(K + 9..2 * K, 32, 77, Codec::Zstd)]);

    let mut fragment = Crafted::full(2 * K, 0x20, &entries);
    fragment.meta[..4].copy_from_slice(&1234_u32.to_le_bytes());
    let (logical, offset) = (K + 9..2 * K, 5 << 32 | 1234);
    fragment.gives(&[first, Piece::Fragment { logical, offset }]);

    let (logical, offset) = (0..70_000, 0x42 << 32 | 9);
    let whole = Crafted::new(IndexLayout::Compact, 70_000, 9, 0x42, 0, 0x80);
    whole.gives(&[Piece::Fragment { logical, offset }]);
}

#[test]
fn a_tail_in_metadata_that_is_no_part_of_the_image_comes_along() {
    let mut crafted = Crafted::full(5, 8, &[Head(PLAIN, 0, 0)]);
    crafted.meta[2..4].copy_from_slice(&5_u16.to_le_bytes());
    crafted.meta.extend(b"bytes");
    crafted.gives(&[stored(0..5, 24)]);
    crafted.in_image = false;
    crafted.gives(&[Piece::Extent(Extent {
        logical: 0..5,
        place: Place::Inline(b"bytes"[..].into()),
    })]);
    crafted.meta[16] = 1;
    crafted.fails(
        16,
        &ZmapCheck::Tail {
            source: DecodeError::Damaged,
        },
    );
}

#[test]
fn records_of_all_lengths() {
    let hole = |logical| {
        let place = Place::Zero;
        Piece::Extent(Extent { logical, place })
    };
    let four = [0x5_0001, 0, FORMAT_ZSTD | 100, 0, FORMAT_ZSTD | 50];
    Crafted::records(2 * 8192 + 10, 1, 0, 1, &four).gives(&[
        encoded(0..8192, 0x5_0001, 100, Codec::Zstd),
        hole(8192..16384),
        encoded(16384..16394, 0x5_0065, 50, Codec::Zstd),
    ]);
    let eight = [FORMAT_ZSTD | 100, 777, 5000, 4096, 0, 0];
    Crafted::records(2 * K + 1, 3, 0, 0, &eight).gives(&[
        encoded(0..K, 777, 100, Codec::Zstd),
        stored(K..2 * K, 4096),
        hole(2 * K..2 * K + 1),
    ]);
    let sixteen = [FORMAT_ZSTD | 9, 1, 0, 0, 4096, 8192, 0, 300];
    let mut crafted = Crafted::records(400, 0x15, 2, 0, &sixteen);
    crafted.gives(&[encoded(0..300, 1, 9, Codec::Zstd), {
        // Rotated as with an index, because whole blocks are stored.
        stored(300..400, 8192 + 300)
    }]);
    crafted.meta[0] = 1;
    crafted.gives(&[encoded(0..400, 1, 9, Codec::Zstd)]);
    let long = [
        FORMAT_ZSTD | 9,
        1,
        0,
        0,
        0,
        0,
        0,
        0,
        55,
        6,
        0,
        0,
        1,
        0,
        0,
        0,
    ];
    let crafted = Crafted::records((1 << 32) + 8, 0x27, 2, 0, &long);
    let piece = Piece::Fragment {
        logical: 1 << 32..(1 << 32) + 8,
        offset: 6 << 32 | 55,
    };
    assert_eq!(crafted.map(1 << 32..(1 << 32) + 1).unwrap(), [piece]);
}

#[test]
fn a_file_of_many_lengths_is_summed_once() {
    const COUNT: u64 = 100_000;
    let words: Vec<u32> = [4096, 0]
        .into_iter()
        .chain((0..COUNT).map(|n| FORMAT_ZSTD | (n % 1000 + 1) as u32))
        .collect();
    let crafted = Crafted::records(COUNT * K, 1, 0, 0, &words);
    let meta = CountingSource::new(MemorySource::new(crafted.meta.clone()));
    let sums = Sums::default();
    let mut address = 4096;
    for n in 0..COUNT {
        let len = n % 1000 + 1;
        let found = crafted.map_from(&meta, &sums, n * K..n * K + 1).unwrap();
        let expected = encoded(n * K..(n + 1) * K, address, len as u32, Codec::Zstd);
        assert_eq!(found, [expected]);
        address += len;
    }
    // Reads the header and the piece with the record, and sometimes the previous piece.
    let reads = meta.reads();
    assert!(reads < COUNT * 3, "{reads} reads");
    // A map from the middle of another file sums all lengths before it, but only the first time.
    let reads_of = |at: u64, sums: &Sums| {
        let before = meta.reads();
        crafted.map_from(&meta, sums, at..at + 1).unwrap();
        meta.reads() - before
    };
    let fresh = Sums::default();
    assert!(reads_of(COUNT / 2 * K, &fresh) > 90);
    for at in [COUNT / 2 * K, COUNT / 4 * K, 0] {
        assert!(reads_of(at, &fresh) <= 3, "{at}");
    }
}
