//! Every codec both ways: exact lengths, truncations, mutations, options.

use forerun_codec::{
    Bcj, BcjSet, Codec, DecodeError, Encoder, Encoding, EncodingError, LzmaTuning, LzoAlgorithm,
    ZlibStrategy,
};

const CODECS: [Codec; 6] = [
    Codec::Zlib,
    Codec::Lzma,
    Codec::Lzo,
    Codec::Xz,
    Codec::Lz4,
    Codec::Zstd,
];

/// Creates text of words from a small vocabulary, in an order that never repeats.
fn text(len: usize) -> Vec<u8> {
    let words = [
        "inode ", "extent ", "block ", "cluster ", "super", "read", "ahead\n", "( ",
    ];
    let mut state = 0x1234_5678_u32;
    let mut out = Vec::new();
    while out.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        out.extend_from_slice(words[(state >> 24) as usize % words.len()].as_bytes());
        out.push((state >> 16) as u8 % 16 + b'0');
    }
    out.truncate(len);
    out
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn encoder(codec: Codec) -> Encoder {
    Encoder::new(&Encoding::default_of(codec).unwrap(), 128 << 10).unwrap()
}

fn encoded(codec: Codec, input: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(encoder(codec).encode(input, &mut out), "{codec:?}");
    out
}

#[test]
fn what_goes_in_comes_out_at_its_exact_length() {
    for codec in CODECS {
        for input in [text(300), text(8192), text(128 << 10), vec![0; 128 << 10]] {
            let block = encoded(codec, &input);
            assert!(block.len() < input.len());
            let len = input.len();
            let mut out = vec![0xAA; len];
            codec.decode(&block, &mut out).unwrap();
            assert!(out == input, "{codec:?}");

            let mut roomy = vec![0; len + 100];
            assert_eq!(codec.decode_up_to(&block, &mut roomy), Ok(len), "{codec:?}");
            assert_eq!(roomy[..len], input);
            assert_eq!(
                codec.decode(&block, &mut roomy),
                Err(DecodeError::Short {
                    actual: len,
                    expected: len + 100
                })
            );
            let tight = codec.decode(&block, &mut vec![0; len - 1]).unwrap_err();
            let expected = DecodeError::Long { expected: len - 1 };
            assert_eq!(tight, expected, "{codec:?}");
        }
    }
}

#[test]
fn what_does_not_shrink_is_left_as_it_is() {
    for codec in CODECS {
        let mut out = Vec::new();
        for input in [noise(4096), Vec::new(), vec![7]] {
            assert!(!encoder(codec).encode(&input, &mut out), "{codec:?}");
        }
    }
}

#[test]
fn an_encoder_used_again_gives_the_same_bytes() {
    for codec in CODECS {
        let (mut used, mut out) = (encoder(codec), Vec::new());
        for input in [text(100_000), noise(5000), vec![0; 9000], text(777)] {
            used.encode(&input, &mut out);
        }
        assert!(used.encode(&text(50_000), &mut out));
        assert!(out == encoded(codec, &text(50_000)), "{codec:?}");
    }
}

#[test]
fn no_truncation_decodes_whole() {
    let input = text(3000);
    for codec in CODECS {
        let block = encoded(codec, &input);
        for len in 0..block.len() {
            let mut out = vec![0; input.len()];
            let context = format!("{codec:?} cut to {len} of {}", block.len());
            match codec.decode_up_to(&block[..len], &mut out) {
                // libdeflate continues with zeros, and may fill the buffer before it notices the
                // end.
                Err(DecodeError::Long { .. }) if codec == Codec::Zlib => {}
                Err(error) => assert_eq!(error, DecodeError::Damaged, "{context}"),
                // An LZ4 block that ends between two sequences is valid.
                Ok(actual) => assert!(codec == Codec::Lz4 && actual < input.len(), "{context}"),
            }
        }
    }
}

#[test]
fn no_mutation_panics_or_writes_past_the_end() {
    let input = text(2000);
    for codec in CODECS {
        let block = encoded(codec, &input);
        for at in 0..block.len() {
            for value in [
                0,
                0xFF,
                block[at] ^ 1,
                block[at] ^ 0x80,
                block[at].wrapping_add(7),
            ] {
                let mut mutated = block.clone();
                mutated[at] = value;
                let mut out = vec![0; input.len()];
                if let Ok(len) = codec.decode_up_to(&mutated, &mut out) {
                    assert!(len <= out.len());
                }
            }
        }
    }
}

#[test]
fn what_follows_the_stream_is_damage_where_the_stream_has_an_end() {
    for codec in CODECS {
        // An LZ4 block ends where its bytes end.
        if codec == Codec::Lz4 {
            continue;
        }
        let mut block = encoded(codec, &text(5000));
        block.extend_from_slice(b"more");
        assert_eq!(
            codec.decode(&block, &mut vec![0; 5000]),
            Err(DecodeError::Damaged),
            "{codec:?}"
        );
    }
}

fn xz(tuning: LzmaTuning) -> Encoding {
    Encoding::Xz {
        dictionary: None,
        filters: BcjSet::default(),
        tuning,
    }
}

#[test]
fn every_option_makes_what_decodes() {
    let zlib = |level, window_bits, strategies: &[ZlibStrategy]| Encoding::Zlib {
        level,
        window_bits,
        strategies: strategies.iter().copied().collect(),
    };
    let mut encodings: Vec<_> = (1..=9).map(|level| zlib(level, 15, &[])).collect();
    encodings.extend((9..=14).map(|window| zlib(9, window, &[])));
    encodings.extend(ZlibStrategy::ALL.iter().map(|&one| zlib(6, 15, &[one])));
    encodings.push(zlib(9, 8, ZlibStrategy::ALL));
    encodings.extend([1, 3, 15, 19, 22].map(|level| Encoding::Zstd { level }));
    encodings.extend([false, true].map(|high| Encoding::Lz4 { high }));
    for dictionary in [8192, 12288, 65536, 98304] {
        encodings.push(Encoding::Xz {
            dictionary: Some(dictionary),
            filters: Bcj::ALL.iter().copied().collect(),
            tuning: LzmaTuning::default(),
        });
    }
    for (lc, lp, pb) in [(0, 2, 2), (4, 0, 0), (0, 4, 4)] {
        encodings.push(xz(LzmaTuning {
            preset: Some(9),
            extreme: true,
            lc: Some(lc),
            lp: Some(lp),
            pb: Some(pb),
        }));
    }
    for encoding in encodings {
        let (input, mut block) = (text(128 << 10), Vec::new());
        let mut encoder = Encoder::new(&encoding, 128 << 10).unwrap();
        assert!(encoder.encode(&input, &mut block), "{encoding:?}");
        let mut out = vec![0; input.len()];
        encoding.codec().decode(&block, &mut out).unwrap();
        assert!(out == input, "{encoding:?}");
    }
}

#[test]
fn a_strategy_more_never_makes_it_longer() {
    let input = vec![3; 100_000];
    let len = |strategies: &[ZlibStrategy]| {
        let encoding = Encoding::Zlib {
            level: 9,
            window_bits: 15,
            strategies: strategies.iter().copied().collect(),
        };
        let (mut encoder, mut out) = (Encoder::new(&encoding, 128 << 10).unwrap(), Vec::new());
        assert!(encoder.encode(&input, &mut out));
        out.len()
    };
    let all = len(ZlibStrategy::ALL);
    for &one in &ZlibStrategy::ALL[1..] {
        assert!(all <= len(&[one]), "{one:?}");
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let zlib = |level, window_bits| Encoding::Zlib {
        level,
        window_bits,
        strategies: [].into_iter().collect(),
    };
    let xz_dictionary = |dictionary| Encoding::Xz {
        dictionary: Some(dictionary),
        filters: [].into_iter().collect(),
        tuning: LzmaTuning::default(),
    };
    let literal = |lc, lp| {
        xz(LzmaTuning {
            lc: Some(lc),
            lp: Some(lp),
            ..LzmaTuning::default()
        })
    };
    let lzo = |algorithm, level| Encoding::Lzo { algorithm, level };
    for (encoding, expected) in [
        (zlib(0, 15), "zlib level 0 is not between 1 and 9"),
        (zlib(10, 15), "zlib level 10 is not between 1 and 9"),
        (zlib(9, 7), "zlib window 7 is not between 8 and 15"),
        (
            Encoding::Zstd { level: 23 },
            "zstd level 23 is not between 1 and 22",
        ),
        (literal(3, 2), "xz lc 3 is not between 0 and 2"),
        (literal(0, 5), "xz lp 5 is not between 0 and 4"),
        (
            xz_dictionary(4096),
            "xz dictionary 4096 is not between 8192 and 131072",
        ),
        (
            xz_dictionary(1 << 18),
            "xz dictionary 262144 is not between 8192 and 131072",
        ),
        (
            xz_dictionary(10_000),
            "xz dictionary of 10000 bytes: it must be a power of two, or the sum of two \
             neighbouring ones",
        ),
        (
            lzo(LzoAlgorithm::Lzo1x1, 8),
            "lzo lzo1x1 at level 8: only algorithm lzo1x_999 at level 8 is supported",
        ),
        (
            lzo(LzoAlgorithm::Lzo1x999, 3),
            "lzo lzo1x999 at level 3: only algorithm lzo1x_999 at level 8 is supported",
        ),
    ] {
        let error: EncodingError = Encoder::new(&encoding, 128 << 10).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_bomb_stops_at_the_end_of_the_buffer() {
    let zeros = vec![0; 32 << 20];
    for codec in CODECS {
        let block = encoded(codec, &zeros);
        let mut out = vec![0; 4096];
        let error = codec.decode_up_to(&block, &mut out);
        assert_eq!(
            error,
            Err(DecodeError::Long { expected: 4096 }),
            "{codec:?}"
        );
        assert!(codec.decode(&block, &mut []).is_err(), "{codec:?}");
    }
}

#[test]
fn what_is_no_stream_is_damage() {
    for codec in CODECS {
        for input in [&[][..], &[0], &[0xFF; 16]] {
            match codec.decode_up_to(input, &mut [0; 64]) {
                Err(error) => assert_eq!(error, DecodeError::Damaged, "{codec:?} {input:?}"),
                // A token without literals is an empty block.
                Ok(len) => assert_eq!((codec, input, len), (Codec::Lz4, &[0][..], 0)),
            }
        }
    }
}

#[test]
fn a_stream_that_asks_for_much_memory_is_refused() {
    let mut block = encoded(Codec::Lzma, &text(5000));
    // A dictionary of 4 GiB less one.
    block[1..5].fill(0xFF);
    let error = Codec::Lzma.decode(&block, &mut vec![0; 5000]);
    assert_eq!(error, Err(DecodeError::Damaged));
}

/// Encodes in the `.lzma` container, with the length in the header or with an end marker.
fn alone(input: &[u8], (lc, lp, pb): (u32, u32, u32), has_len: bool) -> Vec<u8> {
    let mut options = lzma_rust2::LzmaOptions::with_preset(6);
    options.dict_size = 1 << 16;
    (options.lc, options.lp, options.pb) = (lc, lp, pb);
    let len = has_len.then_some(input.len() as u64);
    let mut writer = lzma_rust2::LzmaWriter::new_use_header(Vec::new(), &options, len).unwrap();
    std::io::Write::write_all(&mut writer, input).unwrap();
    writer.finish().unwrap()
}

#[test]
fn lzma_with_any_properties() {
    let input = text(20_000);
    for properties in [
        (3, 0, 2),
        (8, 4, 4),
        (8, 4, 0),
        (8, 0, 2),
        (3, 2, 0),
        (1, 4, 1),
    ] {
        for has_len in [true, false] {
            let context = format!("{properties:?} {has_len}");
            let block = alone(&input, properties, has_len);
            let mut out = vec![0xAA; input.len()];
            assert_eq!(Codec::Lzma.decode(&block, &mut out), Ok(()), "{context}");
            assert!(out == input, "{context}");
            let mut roomy = vec![0; input.len() + 100];
            let found = Codec::Lzma.decode_up_to(&block, &mut roomy);
            assert_eq!(found, Ok(input.len()), "{context}");
            let expected = input.len() - 1;
            let tight = Codec::Lzma.decode(&block, &mut vec![0; expected]);
            assert_eq!(tight, Err(DecodeError::Long { expected }), "{context}");
            let longer = [&block[..], b"more"].concat();
            let found = Codec::Lzma.decode(&longer, &mut out);
            assert_eq!(found, Err(DecodeError::Damaged), "{context}");
            for len in (0..block.len()).step_by(97).chain([block.len() - 1]) {
                let cut = Codec::Lzma.decode_up_to(&block[..len], &mut out);
                assert_eq!(cut, Err(DecodeError::Damaged), "{context} cut to {len}");
            }
        }
    }
}

#[test]
fn lzma_with_any_properties_takes_no_memory_for_its_dictionary() {
    let input = text(5000);
    let mut block = alone(&input, (8, 4, 2), true);
    // A dictionary of 4 GiB less one. The caller's buffer bounds it.
    block[1..5].fill(0xFF);
    let mut out = vec![0; 5000];
    assert_eq!(Codec::Lzma.decode(&block, &mut out), Ok(()));
    assert!(out == input);
    // A length of 2^62.
    block[5..13].copy_from_slice(&(1_u64 << 62).to_le_bytes());
    assert!(Codec::Lzma.decode(&block, &mut out).is_err());
}
