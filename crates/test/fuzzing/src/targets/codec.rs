//! Decoders, with hostile streams and with streams of forerun's encoders under any options.

use std::io::Write as _;

use forerun_codec::{BareLzma, Codec, DecodeError, Encoder, FillEncoder};
use lzma_rust2::{LzmaOptions, LzmaWriter};

use super::Made;
use crate::input::{Input, random_seeds};
use crate::options;

const CODECS: [Codec; 11] = [
    Codec::Zlib,
    Codec::Deflate,
    Codec::Lzma,
    Codec::MicroLzma,
    Codec::Lzo,
    Codec::Xz,
    Codec::Lz4,
    Codec::Zstd,
    Codec::LzmaBare(BareLzma::NoLength),
    Codec::LzmaBare(BareLzma::PropertiesOnly),
    Codec::LzmaBare(BareLzma::Parameters),
];
/// The largest block of any format.
const LONGEST: usize = 1 << 20;
/// Fills a buffer before a block is decoded into it.
const BEFORE: u8 = 0xA5;

/// Header bytes of an input of [`decode`].
const HEAD: usize = 4;

/// Decodes any bytes into a buffer of any length. The first byte names the codec, three more the
/// length.
///
/// # Panics
/// If the three ways of decoding contradict one another.
pub fn decode(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let codec = input.one_of(&CODECS);
    let [low, middle, high] = [input.byte(), input.byte(), input.byte()];
    let len = u32::from_le_bytes([low, middle, high, 0]);
    let len = usize::try_from(len).unwrap_or(LONGEST) % (LONGEST + 1);
    let stream = input.rest();
    let mut whole = vec![BEFORE; len];
    let exact = codec.decode(stream, &mut whole);
    let mut front = vec![!BEFORE; len];
    let up_to = codec.decode_up_to(stream, &mut front);
    match (exact, up_to) {
        (Ok(()), Ok(found)) => {
            assert_eq!(found, len);
            // Bytes that the decoder did not write would differ.
            assert!(whole == front, "two results of one stream");
            consistent(codec, stream, &whole, false);
        }
        (Err(DecodeError::Short { actual, expected }), Ok(found)) => {
            assert!(actual == found && found < len && expected == len);
        }
        (Err(DecodeError::Short { actual, expected }), Err(_)) => {
            assert!(actual < expected && expected == len);
        }
        (Err(one), Err(other)) => assert_eq!(one, other),
        (exact, up_to) => unreachable!("{exact:?} and {up_to:?}"),
    }
    prefix(codec, stream, len);
    first(codec, stream, len);
}

/// Decodes the stream at the start of the bytes, which must be everything that the decoder
/// consumes.
fn first(codec: Codec, stream: &[u8], len: usize) {
    let mut out = vec![BEFORE; len];
    if let Ok(first) = codec.decode_first(stream, &mut out) {
        let mut again = vec![!BEFORE; len];
        let taken = stream.get(..first.stored).unwrap_or_default();
        assert_eq!(codec.decode_up_to(taken, &mut again), Ok(first.decoded));
        assert!(out.get(..first.decoded) == again.get(..first.decoded));
    }
}

/// Asserts that decoding a prefix returns the start of `decoded`, and that decoding to a longer
/// length fails. `ours` is set for a stream of forerun's encoder.
fn consistent(codec: Codec, stream: &[u8], decoded: &[u8], ours: bool) {
    let mut longer = vec![BEFORE; decoded.len() + 1];
    // MicroLZMA and bare LZMA have no end marker.
    if !matches!(codec, Codec::MicroLzma | Codec::LzmaBare(_)) {
        let error = codec.decode(stream, &mut longer);
        assert!(error.is_err(), "{codec:?}: longer than it is");
    }
    for len in [1, decoded.len() / 2, decoded.len()] {
        let Some(expected) = decoded.get(..len) else {
            continue;
        };
        let mut out = vec![!BEFORE; len];
        match codec.decode_prefix(stream, &mut out) {
            Ok(()) => assert!(out == expected, "{codec:?}: another prefix of {len} bytes"),
            Err(DecodeError::NoPrefix) => {}
            // The prefix decoders are stricter with streams that no encoder makes.
            Err(error) => assert!(!ours, "{codec:?}: {len} bytes: {error}"),
        }
    }
}

fn prefix(codec: Codec, stream: &[u8], len: usize) {
    let mut out = vec![BEFORE; len];
    match codec.decode_prefix(stream, &mut out) {
        Err(DecodeError::Short { actual, expected }) => {
            assert!(actual < expected && expected == len)
        }
        Ok(()) | Err(DecodeError::Damaged | DecodeError::NoPrefix | DecodeError::Long { .. }) => {}
        Err(error) => unreachable!("{error}"),
    }
}

/// Encodes contents under any options, decodes them again, and decodes truncated and changed
/// streams.
///
/// # Panics
/// If the decoded bytes differ.
pub fn encode(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.flag() {
        fill(&mut input);
    } else {
        block(&mut input);
    }
}

fn block(input: &mut Input<'_>) {
    let encoding = options::encoding(input);
    let contents = input.contents(40_000);
    let block_size = 1 << (12 + input.byte() % 5);
    let Ok(mut encoder) = Encoder::new(&encoding, block_size) else {
        return;
    };
    let contents = contents
        .get(..forerun_usize(block_size))
        .unwrap_or(&contents);
    let mut stream = vec![1, 2, 3];
    if encoder.encode(contents, &mut stream) {
        assert!(stream.len() < contents.len());
        judge(encoding.codec(), &stream, contents, input);
    }
}

fn forerun_usize(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

fn fill(input: &mut Input<'_>) {
    let encoding = options::fill_encoding(input);
    let room = usize::from(input.word() % 8192);
    let contents = input.contents(40_000);
    let codec = match encoding.name() {
        "lz4" | "lz4hc" => Codec::Lz4,
        "lzma" => Codec::MicroLzma,
        "deflate" => Codec::Deflate,
        _ => Codec::Zstd,
    };
    let Ok(mut encoder) = FillEncoder::new(&encoding) else {
        return;
    };
    let mut out = vec![BEFORE; room];
    let Some(filled) = encoder.fill(&contents, &mut out) else {
        return;
    };
    assert!(filled.produced < filled.consumed && filled.produced <= room);
    judge(
        codec,
        &out[..filled.produced],
        &contents[..filled.consumed],
        input,
    );
}

fn judge(codec: Codec, stream: &[u8], contents: &[u8], input: &mut Input<'_>) {
    let mut out = vec![!BEFORE; contents.len()];
    assert_eq!(codec.decode(stream, &mut out), Ok(()), "{codec:?}");
    assert!(out == contents, "{codec:?}: other bytes");
    consistent(codec, stream, contents, true);
    // The result has the right length, or decoding fails.
    let mut changed = stream[..input.below(stream.len() + 1)].to_vec();
    if input.flag() {
        changed = stream.to_vec();
        let at = input.below(stream.len());
        changed[at] ^= input.byte();
    }
    let [low, middle, high, _] = u32::try_from(contents.len()).unwrap_or(0).to_le_bytes();
    let number = CODECS.iter().position(|one| *one == codec).unwrap_or(0);
    let number = u8::try_from(number).unwrap_or(0);
    decode(&[&[number, low, middle, high], &changed[..]].concat());
}

pub fn encode_seeds() -> Made {
    Ok(random_seeds(40, 120))
}

pub fn decode_seeds() -> Made {
    let contents = [&b"a pattern, ".repeat(300)[..], &[0; 700]].concat();
    let len = contents.len().to_le_bytes();
    let mut seeds = Vec::new();
    for (number, codec) in (0_u8..).zip(CODECS) {
        let mut put = |stream: &[u8]| {
            let head = [number, len[0], len[1], len[2]];
            debug_assert_eq!(head.len(), HEAD);
            let name = format!("{}-{}", codec.name(), seeds.len());
            seeds.push((name, [&head[..], stream].concat()));
        };
        if let Some(encoding) = forerun::build::Encoding::default_of(codec) {
            let mut stream = Vec::new();
            Encoder::new(&encoding, 65_536)?.encode(&contents, &mut stream);
            put(&stream);
        }
        for encoding in fills(codec) {
            let mut out = vec![0; 4096];
            let filled = FillEncoder::new(&encoding)?.fill(&contents, &mut out);
            put(&out[..filled.map_or(0, |filled| filled.produced)]);
        }
        for properties in [(3, 0, 2), (8, 4, 4), (3, 2, 0)] {
            if let Some(stream) = lzma(codec, properties, &contents)? {
                put(&stream);
            }
        }
    }
    Ok(seeds)
}

/// Encodes with `lc`, `lp` and `pb` for an LZMA codec.
fn lzma(
    codec: Codec,
    (lc, lp, pb): (u8, u8, u8),
    contents: &[u8],
) -> Result<Option<Vec<u8>>, std::io::Error> {
    let mut options = LzmaOptions::with_preset(6);
    options.dict_size = 65_536;
    (options.lc, options.lp, options.pb) = (lc.into(), lp.into(), pb.into());
    let len = Some(forerun_io::u64_from(contents.len()));
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, len)?;
    writer.write_all(contents)?;
    let mut stream = writer.finish()?;
    match codec {
        Codec::Lzma => {}
        Codec::LzmaBare(BareLzma::NoLength) => drop(stream.drain(5..13)),
        Codec::LzmaBare(BareLzma::PropertiesOnly) => drop(stream.drain(1..13)),
        Codec::LzmaBare(BareLzma::Parameters) => drop(stream.splice(..13, [pb, lc, lp, 0xff])),
        _ => return Ok(None),
    }
    Ok(Some(stream))
}

fn fills(codec: Codec) -> Vec<forerun::build::FillEncoding> {
    use forerun::build::FillEncoding::{Deflate, MicroLzma, Zstd};
    match codec {
        Codec::Deflate => vec![Deflate { level: 1 }],
        Codec::MicroLzma => vec![MicroLzma {
            level: 6,
            dictionary: 65_536,
        }],
        Codec::Zstd => vec![Zstd {
            level: 3,
            window_log: 12,
        }],
        _ => Vec::new(),
    }
}
