//! Decoding of raw streams (without a container format), and of only the first bytes of a stream.

use forerun_codec::{Codec, DecodeError, Encoder, Encoding};

const BARE: [Codec; 4] = [Codec::Deflate, Codec::MicroLzma, Codec::Lz4, Codec::Zstd];

/// Creates text of words from a small vocabulary, in an order that never repeats.
fn text(len: usize) -> Vec<u8> {
    let words = ["inode ", "extent ", "block ", "cluster ", "super", "( "];
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

/// Returns the stream of a codec, without the container that its encoder makes.
fn encoded(codec: Codec, input: &[u8]) -> Vec<u8> {
    let container = match codec {
        Codec::Deflate => Codec::Zlib,
        Codec::MicroLzma => Codec::Lzma,
        other => other,
    };
    let encoding = Encoding::default_of(container).unwrap();
    let mut out = Vec::new();
    assert!(
        Encoder::new(&encoding, 128 << 10)
            .unwrap()
            .encode(input, &mut out)
    );
    match codec {
        Codec::Deflate => out[2..out.len() - 4].to_vec(),
        Codec::MicroLzma => {
            assert_eq!(out[13], 0, "the first byte of an LZMA stream");
            [&[!out[0]], &out[14..]].concat()
        }
        _ => out,
    }
}

#[test]
fn bare_streams_decode_to_their_exact_length() {
    for codec in [Codec::Deflate, Codec::MicroLzma] {
        for input in [text(300), text(8192), text(128 << 10), vec![0; 128 << 10]] {
            let (block, len) = (encoded(codec, &input), input.len());
            let mut out = vec![0xAA; len];
            codec.decode(&block, &mut out).unwrap();
            assert!(out == input, "{codec:?}");
            let short = codec.decode(&block, &mut vec![0; len - 1]).unwrap_err();
            let long = codec.decode(&block, &mut vec![0; len + 1]).unwrap_err();
            match codec {
                Codec::MicroLzma => {
                    assert_eq!((short, long), (DecodeError::Damaged, DecodeError::Damaged));
                }
                _ => {
                    assert_eq!(short, DecodeError::Long { expected: len - 1 });
                    let (actual, expected) = (len, len + 1);
                    assert_eq!(long, DecodeError::Short { actual, expected });
                }
            }
        }
    }
}

#[test]
fn a_prefix_is_what_the_whole_starts_with() {
    for codec in BARE {
        for input in [text(300), text(20_000), vec![0; 128 << 10]] {
            let mut block = encoded(codec, &input);
            let len = input.len();
            for wanted in [0, 1, 2, 17, 255, len / 2, len - 1, len] {
                let mut out = vec![0xAA; wanted];
                codec.decode_prefix(&block, &mut out).unwrap();
                assert!(out == input[..wanted], "{codec:?} {wanted} of {len}");
            }
            // Bytes after a stream are ignored. An LZ4 block has no end marker, so only bytes
            // before its end are certain to be right.
            block.extend_from_slice(&[0; 4000]);
            for wanted in [1, 100, len / 2, len] {
                let mut out = vec![0xAA; wanted];
                codec.decode_prefix(&block, &mut out).unwrap();
                assert!(
                    out == input[..wanted],
                    "{codec:?} {wanted} of {len}, padded"
                );
            }
        }
    }
}

#[test]
fn a_prefix_longer_than_the_stream_is_an_error() {
    let input = text(3000);
    for codec in BARE {
        let error = codec.decode_prefix(&encoded(codec, &input), &mut vec![0; 3001]);
        let (actual, expected) = (3000, 3001);
        assert_eq!(
            error,
            Err(DecodeError::Short { actual, expected }),
            "{codec:?}"
        );
    }
}

#[test]
fn what_was_cut_or_changed_gives_no_panic_and_no_stale_byte() {
    let input = text(2000);
    for codec in BARE {
        let block = encoded(codec, &input);
        for len in 0..block.len() {
            let mut out = vec![0xAA; input.len()];
            if codec.decode_prefix(&block[..len], &mut out).is_ok() {
                // The last bytes of some streams carry no data.
                assert!(
                    out == input && len + 16 > block.len(),
                    "{codec:?} cut to {len}"
                );
            }
        }
        for at in 0..block.len() {
            for value in [0, 0xFF, block[at] ^ 1, block[at] ^ 0x80] {
                let mut mutated = block.clone();
                mutated[at] = value;
                let (mut out, mut half) = (vec![0; input.len()], vec![0; input.len() / 2]);
                let _either = codec.decode(&mutated, &mut out);
                let _either = codec.decode_prefix(&mutated, &mut half);
            }
        }
    }
}

#[test]
fn a_window_beyond_the_limit_is_refused() {
    // A frame header without content size, with a window of 2^27 bytes (RFC 8878, section
    // 3.1.1.1.2).
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 17 << 3, 0x01, 0x00, 0x00];
    let error = Codec::Zstd.decode_prefix(&frame, &mut [0; 16]);
    assert_eq!(error, Err(DecodeError::Damaged));
}

#[test]
fn gzip_members_decode_whole_and_in_part() {
    let input = text(100_000);
    let stream = encoded(Codec::Deflate, &input);
    // A header with a name.
    let mut member = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0".to_vec();
    member.extend_from_slice(&stream);
    member.extend_from_slice(&libdeflater::crc32(&input).to_le_bytes());
    member.extend_from_slice(&u32::try_from(input.len()).unwrap().to_le_bytes());
    let more = [&member[..], b"other bytes"].concat();
    for stored in [&member, &more] {
        let mut out = vec![0xAA; input.len()];
        Codec::Gzip.decode(stored, &mut out).unwrap();
        assert!(out == input);
        for len in [1, 777, input.len()] {
            let mut out = vec![0xAA; len];
            Codec::Gzip.decode_prefix(stored, &mut out).unwrap();
            assert!(out == input[..len], "{len}");
        }
    }
    let longer = Codec::Gzip.decode_prefix(&member, &mut vec![0; input.len() + 1]);
    let (actual, expected) = (input.len(), input.len() + 1);
    assert_eq!(longer, Err(DecodeError::Short { actual, expected }));
    let at = member.len() - 8;
    member[at] ^= 1;
    let wrong = Codec::Gzip.decode(&member, &mut vec![0; input.len()]);
    assert_eq!(wrong, Err(DecodeError::Damaged), "the checksum");
    let bare = Codec::Gzip.decode_prefix(&stream, &mut [0; 10]);
    assert_eq!(bare, Err(DecodeError::Damaged));
}

#[test]
fn codecs_without_prefixes_say_so() {
    for codec in [Codec::Zlib, Codec::Lzma, Codec::Lzo, Codec::Xz] {
        let error = codec.decode_prefix(&[1, 2, 3], &mut [0; 4]);
        assert_eq!(error, Err(DecodeError::NoPrefix), "{codec:?}");
    }
}

/// liblz4 accepts such a match, and leaves the output unchanged if it ends with one.
#[test]
fn a_match_at_distance_zero_shows_nothing_of_the_buffer() {
    let block = [0x1F, b'a', 0, 0, 100, 0x50, 1, 2, 3, 4, 5];
    for len in 1..=125 {
        let outs = [0x00, 0xA5, 0xEE].map(|before| {
            let mut out = vec![before; len];
            let decoded = Codec::Lz4.decode_prefix(&block, &mut out);
            decoded.map(|()| out)
        });
        assert!(outs[0] == outs[1] && outs[1] == outs[2], "{len}: {outs:?}");
        if (13..119).contains(&len) {
            assert_eq!(outs[0], Err(DecodeError::Damaged), "{len}");
        }
    }
}

/// Checks prefixes with every last byte, since the decoder first marks the end of the buffer with a
/// byte.
#[test]
fn lz4_prefixes_end_with_any_byte() {
    for last in 0..=u8::MAX {
        let mut input = text(5000);
        input[2999] = last;
        let block = encoded(Codec::Lz4, &input);
        let mut out = vec![!last; 3000];
        Codec::Lz4.decode_prefix(&block, &mut out).unwrap();
        assert!(out == input[..3000], "{last}");
    }
}

#[test]
fn the_first_of_several_streams_ends_where_it_says() {
    for codec in [Codec::Zlib, Codec::Xz, Codec::Zstd] {
        for input in [text(1), text(300), text(8192), text(100_000), vec![0; 9000]] {
            // Some codecs cannot make so short an input shorter, and then there is no stream.
            let encoding = Encoding::default_of(codec).unwrap();
            let mut stream = Vec::new();
            let mut encoder = Encoder::new(&encoding, 128 << 10).unwrap();
            if !encoder.encode(&input, &mut stream) {
                continue;
            }
            let len = stream.len();
            assert!(codec.may_start(&stream) && !codec.may_start(b"text"));
            for more in [&b""[..], b"more", &stream.clone()] {
                let both = [&stream[..], more].concat();
                let mut out = vec![0xAA; 128 << 10];
                let first = codec.decode_first(&both, &mut out).unwrap();
                assert_eq!(
                    (first.stored, first.decoded),
                    (len, input.len()),
                    "{codec:?}"
                );
                assert!(out[..first.decoded] == input);
                let mut exact = vec![0; input.len()];
                assert_eq!(codec.decode_first(&both, &mut exact), Ok(first));
                let expected = input.len() - 1;
                let long = codec.decode_first(&both, &mut exact[..expected]);
                assert_eq!(long, Err(DecodeError::Long { expected }));
            }
            let mut out = vec![0; 128 << 10];
            let cut = codec.decode_first(&stream[..len - 1], &mut out);
            assert_eq!(cut, Err(DecodeError::Damaged));
        }
    }
    for codec in [Codec::Lzo, Codec::Lz4, Codec::Lzma, Codec::MicroLzma] {
        let none = codec.decode_first(b"any", &mut [0; 8]);
        assert_eq!(none, Err(DecodeError::NoPrefix));
    }
}
