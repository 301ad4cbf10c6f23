//! LZ4 frames of every kind that `lz4` writes, with independent blocks and blocks that refer back.

use std::fs;

use forerun_spans::KeptSpans;
use forerun_testkit::mutate::in_time;
use forerun_testkit::temp_dir;
use forerun_vfs::{Error, Limits};

use crate::common::{assert_decodes, decode, options, pass, run, text};

fn lz4(arguments: &[&str], bytes: &[u8]) -> Option<Vec<u8>> {
    run("lz4", &[&["-q", "-c"], arguments].concat(), bytes)
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn frames_of_all_options_decode_span_by_span() {
    // Text, noise that is stored uncompressed, and text again.
    let bytes = [text(500_000), noise(300_000), text(200_000)].concat();
    // The number of spans of at least 1 byte, and of at least 300,000 bytes if blocks refer back.
    for (arguments, short, long) in [
        (&["-B4", "-BI"][..], 16, 4),
        (&["-B4", "-BD"], 16, 4),
        (&["-B4", "-BD", "-BX"], 16, 4),
        (&["-B5", "-BX", "--no-frame-crc"], 4, 4),
        (&["-B7", "-9"], 1, 1),
        (&["-B7", "-BD", "-9"], 1, 1),
        (&["-l"], 1, 1),
    ] {
        let Some(stream) = lz4(arguments, &bytes) else {
            return;
        };
        let spans = assert_decodes(&stream, &bytes, &options(1));
        assert_eq!(spans, short, "{arguments:?}");
        let spans = assert_decodes(&stream, &bytes, &options(300_000));
        assert_eq!(spans, long, "{arguments:?}");
        let (indexed, _) = pass(&stream, &options(1)).unwrap();
        assert!(indexed.spool.is_none(), "{arguments:?}");
    }
}

#[test]
fn blocks_of_a_few_bytes_are_one_span() {
    let bytes = text(20_000);
    for arguments in [&["-B32", "-BI"][..], &["-B32", "-BD", "-BX"]] {
        let Some(stream) = lz4(arguments, &bytes) else {
            return;
        };
        assert_eq!(assert_decodes(&stream, &bytes, &options(1 << 20)), 1);
        assert!(assert_decodes(&stream, &bytes, &options(1)) > 100);
    }
}

#[test]
fn frames_follow_each_other_with_skippable_ones_between() {
    let bytes = text(400_000);
    let parts = [
        &bytes[..100_000],
        &bytes[100_000..300_000],
        &bytes[300_000..],
    ];
    let kinds = [&["-l"][..], &["-BD", "-B4"], &["-l", "-9"]];
    let mut stream = Vec::new();
    for (part, arguments) in parts.into_iter().zip(kinds) {
        let Some(frame) = lz4(arguments, part) else {
            return;
        };
        stream.extend(frame);
        stream.extend([0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3]);
    }
    assert_eq!(assert_decodes(&stream, &bytes, &options(1 << 20)), 3);
    let end = u64::try_from(stream.len()).unwrap();
    for (more, trailing) in [(&b"garbage"[..], Some(end)), (&[0; 9], None)] {
        let (indexed, out) = pass(&[&stream[..], more].concat(), &options(1)).unwrap();
        assert_eq!(indexed.trailing, trailing);
        assert!(out == bytes);
    }
}

#[test]
fn legacy_blocks_of_8_mib_are_spans() {
    let bytes = text(17 << 20);
    let Some(stream) = lz4(&["-l"], &bytes) else {
        return;
    };
    assert_eq!(assert_decodes(&stream, &bytes, &options(1 << 20)), 3);
}

#[test]
fn checksums_and_lengths_are_verified() {
    let bytes = text(10_000);
    let dir = temp_dir("lz4");
    let file = dir.path().join("file");
    fs::write(&file, &bytes).unwrap();
    let name = file.to_str().unwrap();
    let Some(stream) = lz4(&["--content-size", "-BX", name], b"") else {
        return;
    };
    assert_eq!(assert_decodes(&stream, &bytes, &options(1)), 1);
    let check = |alter: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut altered = stream.clone();
        alter(&mut altered);
        let error = pass(&altered, &options(1)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let len = stream.len();
    check(&|stream| stream[4] |= 2, "flags");
    check(&|stream| stream[5] = 0x30, "sizes 0x30");
    // The checksums of the descriptor, of the block, and of the contents.
    check(&|stream| stream[14] ^= 1, "checksum");
    check(&|stream| stream[len - 12] ^= 1, "checksum");
    check(&|stream| stream[len - 1] ^= 1, "checksum");
    // A length one byte too long, with a correct checksum of the descriptor.
    let longer = |stream: &mut Vec<u8>| {
        stream[6] += 1;
        let hash = twox_hash::XxHash32::oneshot(0, &stream[4..14]);
        stream[14] = hash.to_le_bytes()[1];
    };
    check(&longer, "decodes to 10000 bytes; it declares 10001");
    let dictionary = |stream: &mut Vec<u8>| stream[4] |= 1;
    check(&dictionary, "dictionary");
}

#[test]
fn a_kept_index_decodes_as_the_pass_did() {
    let bytes = [text(300_000), noise(100_000)].concat();
    for arguments in [&["-B4", "-BD", "-BX"][..], &["-B4"]] {
        let Some(stream) = lz4(arguments, &bytes) else {
            return;
        };
        let (mut indexed, _) = pass(&stream, &options(100_000)).unwrap();
        let kept = KeptSpans::of(&indexed.spans).unwrap();
        let len = u64::try_from(stream.len()).unwrap();
        let again = kept.spans(len, &Limits::default());
        assert_eq!(again.as_ref(), Some(&indexed.spans));
        indexed.spans = again.unwrap();
        assert!(decode(&stream, &indexed) == bytes);
    }
}

#[test]
fn a_block_that_is_longer_than_its_frame_allows_is_damage() {
    // Blocks may have 64 KiB, and nothing of this length is allocated.
    let mut stream = vec![0x04, 0x22, 0x4d, 0x18, 0x40, 0x40];
    let hash = twox_hash::XxHash32::oneshot(0, &stream[4..6]);
    stream.push(hash.to_le_bytes()[1]);
    stream.extend(0x7fff_ffff_u32.to_le_bytes());
    stream.extend([0; 1000]);
    in_time(|| {
        let error = pass(&stream, &options(1)).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
        // A legacy block of half a gigabyte.
        let stream = [&[0x02, 0x21, 0x4c, 0x18, 0, 0, 0, 0x20][..], &[0; 1000]].concat();
        let error = pass(&stream, &options(1)).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    });
}
