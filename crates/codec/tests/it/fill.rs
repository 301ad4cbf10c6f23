//! Encoders that fill a block: the output decodes to the input, and the block is filled.

use forerun_codec::{Codec, FillEncoder, FillEncoding};

/// Creates text of words in no order, which compresses to about a third.
fn text(len: usize) -> Vec<u8> {
    let words = [
        "alpha ", "beta ", "gamma ", "delta ", "epsilon ", "\n", "zeta-", "42 ",
    ];
    let mut state = 1_u64;
    let mut bytes = Vec::new();
    while bytes.len() < len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.extend_from_slice(words[(state >> 61) as usize].as_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn encodings() -> Vec<(FillEncoding, Codec)> {
    let window_log = 20;
    vec![
        (FillEncoding::Lz4, Codec::Lz4),
        (FillEncoding::Lz4Hc { level: 9 }, Codec::Lz4),
        (FillEncoding::Deflate { level: 6 }, Codec::Deflate),
        (
            FillEncoding::Zstd {
                level: 3,
                window_log,
            },
            Codec::Zstd,
        ),
        (
            FillEncoding::MicroLzma {
                level: 6,
                dictionary: 1 << 20,
            },
            Codec::MicroLzma,
        ),
    ]
}

#[test]
fn rooms_are_filled_with_what_decodes() {
    let input = text(400_000);
    for (encoding, codec) in encodings() {
        for room in [4096, 65_536] {
            let mut encoder = FillEncoder::new(&encoding).unwrap();
            let mut out = vec![0; room];
            let mut at = 0;
            while at < input.len() {
                let filled = encoder.fill(&input[at..], &mut out).unwrap();
                let ends = at + filled.consumed == input.len();
                assert!(
                    ends || filled.produced > room - room / 8,
                    "{encoding:?} {filled:?}"
                );
                let mut decoded = vec![0; filled.consumed];
                codec.decode(&out[..filled.produced], &mut decoded).unwrap();
                assert!(decoded == input[at..at + filled.consumed], "{encoding:?}");
                at += filled.consumed;
            }
        }
    }
}

#[test]
fn what_gets_no_shorter_is_refused() {
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    })
    .take(10_000)
    .collect();
    for (encoding, _) in encodings() {
        let mut encoder = FillEncoder::new(&encoding).unwrap();
        assert_eq!(encoder.fill(&noise, &mut [0; 4096]), None, "{encoding:?}");
        assert_eq!(encoder.fill(&[], &mut [0; 4096]), None, "{encoding:?}");
    }
}

#[test]
fn a_restart_forgets() {
    let (input, other) = (text(100_000), vec![7; 100_000]);
    for (encoding, _) in encodings() {
        let mut encoder = FillEncoder::new(&encoding).unwrap();
        let mut out = [0; 4096];
        let first = encoder.fill(&input, &mut out).unwrap();
        let bytes = out;
        encoder.fill(&other, &mut out).unwrap();
        encoder.restart();
        assert_eq!(encoder.fill(&input, &mut out), Some(first), "{encoding:?}");
        assert!(
            out[..first.produced] == bytes[..first.produced],
            "{encoding:?}"
        );
    }
}

#[test]
fn ranges_are_checked() {
    for encoding in [
        FillEncoding::Lz4Hc { level: 0 },
        FillEncoding::Deflate { level: 13 },
        FillEncoding::Zstd {
            level: 23,
            window_log: 20,
        },
        FillEncoding::Zstd {
            level: 3,
            window_log: 21,
        },
        FillEncoding::MicroLzma {
            level: 10,
            dictionary: 4096,
        },
        FillEncoding::MicroLzma {
            level: 6,
            dictionary: 16 << 20,
        },
    ] {
        assert!(FillEncoder::new(&encoding).is_err(), "{encoding:?}");
    }
}
