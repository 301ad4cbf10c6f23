//! Checks of formats that few tools can create.

use forerun_io::MemorySource;

use super::*;

fn check(check: fn(&mut Bytes<'_>) -> Option<Found>, head: &[u8], len: usize) -> Option<Found> {
    let mut bytes = head.to_vec();
    bytes.resize(len, 0);
    let source = MemorySource::new(bytes);
    let budget = Budget {
        reads: u64::MAX,
        decodes: u64::MAX,
    };
    check(&mut Bytes::new(&source, budget))
}

fn uimage_of(len: u32, change: Option<usize>) -> Vec<u8> {
    let mut head = vec![0; 64];
    head[..4].copy_from_slice(b"\x27\x05\x19\x56");
    head[8..12].copy_from_slice(&1_600_000_000_u32.to_be_bytes());
    head[12..16].copy_from_slice(&len.to_be_bytes());
    head[30] = 7;
    head[31] = 1;
    head[32..36].copy_from_slice(b"root");
    let crc = libdeflater::crc32(&head);
    head[4..8].copy_from_slice(&crc.to_be_bytes());
    if let Some(at) = change {
        head[at] ^= 1;
    }
    head
}

#[test]
fn legacy_headers_of_u_boot_are_validated() {
    for (head, len) in [
        (uimage_of(100, None), Some(164)),
        (uimage_of(u32::MAX, None), Some((1 << 32) + 63)),
        (uimage_of(100, Some(33)), None),
        (uimage_of(100, Some(5)), None),
    ] {
        let found = check(boot::uimage, &head, 164);
        assert_eq!(found.as_ref().map(|it| it.len), len.map(Some));
        if let Some(found) = found {
            assert_eq!(found.label, b"root");
            assert_eq!(found.details, "filesystem, gzip, made 2020-09-13");
        }
    }
    assert_eq!(check(boot::uimage, &uimage_of(100, None), 63), None);
}

#[test]
fn trx_headers_are_validated() {
    let head = |len: u32, version: u32, offsets: [u32; 4]| {
        let words = [len, 0, version << 16];
        let words = words.into_iter().chain(offsets);
        let words: Vec<_> = words.flat_map(u32::to_le_bytes).collect();
        [b"HDR0", &words[..]].concat()
    };
    for (head, is_valid) in [
        (head(1000, 1, [28, 500, 0, 0]), true),
        (head(1000, 2, [32, 500, 600, 700]), true),
        (head(1001, 1, [28, 500, 0, 0]), false),
        (head(1000, 3, [28, 500, 0, 0]), false),
        (head(1000, 0, [28, 500, 0, 0]), false),
        (head(1000, 1, [0; 4]), false),
        (head(1000, 1, [27, 500, 0, 0]), false),
        (head(1000, 1, [500, 28, 0, 0]), false),
        (head(1000, 1, [500, 500, 0, 0]), false),
        (head(1000, 1, [28, 1000, 0, 0]), false),
        (head(0, 1, [28, 0, 0, 0]), false),
    ] {
        assert_eq!(
            check(firmware::trx, &head, 1000).is_some(),
            is_valid,
            "{head:?}"
        );
    }
}

/// Each field of the input may have any of its extreme values.
#[test]
fn no_check_panics_or_reads_without_end_on_hostile_fields() {
    for known in KNOWN {
        let at = usize_from(known.magic.offset);
        for filler in [0x00, 0x01, 0x30, 0x7f, 0x80, 0xff] {
            for len in [at + known.magic.bytes.len(), at + 64, at + 100_000] {
                let mut head = vec![filler; len];
                head[at..at + known.magic.bytes.len()].copy_from_slice(known.magic.bytes);
                for place in 0..len.min(512) {
                    let held = head[place];
                    for value in [0, 1, 4, 0x7f, 0xff] {
                        head[place] = value;
                        if len < 2000 || place < 64 {
                            check(known.check, &head, len);
                        }
                    }
                    head[place] = held;
                }
            }
        }
    }
}

#[test]
fn no_magic_number_begins_as_padding_does() {
    for known in KNOWN {
        let bytes = known.magic.bytes;
        assert!(
            bytes.len() >= 2 && bytes[..2] != [0; 2] && bytes[..2] != [0xff; 2],
            "{known:?}"
        );
    }
}
