//! Streams of every format: in pieces, truncated, altered, and decoded again from the middle.

use forerun_testkit::generate::text;

use super::*;
use crate::Codec;

/// Decodes `stream` in pieces of `piece` bytes. Returns the decoded bytes and the length of the
/// stream.
fn decode(
    format: StreamFormat,
    stream: &[u8],
    piece: usize,
) -> Result<(Vec<u8>, usize), DecodeError> {
    let mut decoder = StreamDecoder::new(format)?;
    let (mut out, mut at) = (Vec::new(), 0);
    loop {
        let input = &stream[at..stream.len().min(at + piece)];
        let step = decoder.step(input)?;
        at += step.used;
        out.extend_from_slice(decoder.decoded());
        if step.place == StreamPlace::End {
            return Ok((out, at));
        }
        let rests = step.used == 0 && decoder.decoded().is_empty();
        if rests && step.place == StreamPlace::Within && at + input.len() >= stream.len() {
            return Err(DecodeError::Damaged);
        }
    }
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; compressor.deflate_compress_bound(bytes.len())];
    let len = compressor.deflate_compress(bytes, &mut out).unwrap();
    out.truncate(len);
    out
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; bytes.len() + 4096];
    let mut stream = Stream::new_easy_encoder(1, liblzma::stream::Check::Crc64).unwrap();
    stream.process(bytes, &mut out, Action::Finish).unwrap();
    out.truncate(usize::try_from(stream.total_out()).unwrap());
    out
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 4096);
    let mut stream = bzip2::Compress::new(bzip2::Compression::fast(), 0);
    stream
        .compress_vec(bytes, &mut out, bzip2::Action::Finish)
        .unwrap();
    out
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
    let len = zstd_safe::compress(&mut out[..], bytes, 3).unwrap();
    out.truncate(len);
    out
}

fn streams(bytes: &[u8]) -> [(StreamFormat, Vec<u8>); 4] {
    [
        (StreamFormat::Deflate, deflate(bytes)),
        (StreamFormat::Zstd, zstd(bytes)),
        (StreamFormat::Xz, xz(bytes)),
        (StreamFormat::Bzip2, bzip2(bytes)),
    ]
}

#[test]
fn pieces_of_any_length_give_the_same_bytes_and_the_end() {
    let bytes = text(700_000);
    for (format, stream) in streams(&bytes) {
        let with_more = [&stream[..], b"what follows"].concat();
        for piece in [1, 7, 4096, usize::MAX / 2] {
            let (decoded, len) = decode(format, &with_more, piece).unwrap();
            assert!(decoded == bytes, "{format:?} in pieces of {piece}");
            assert_eq!(len, stream.len(), "{format:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_stream_that_is_cut_or_altered_never_ends_well() {
    let bytes = text(20_000);
    for (format, stream) in streams(&bytes) {
        for len in (0..stream.len()).step_by(97) {
            assert!(
                decode(format, &stream[..len], 512).is_err(),
                "{format:?} cut at {len}"
            );
        }
        for place in (0..stream.len()).step_by(61) {
            let mut altered = stream.clone();
            altered[place] ^= 0x55;
            // DEFLATE and this Zstandard frame have no checksums, so they may decode to other
            // bytes.
            let has_checksum = matches!(format, StreamFormat::Xz | StreamFormat::Bzip2);
            let decoded = decode(format, &altered, 512);
            let is_wrong = decoded.is_ok_and(|(decoded, _)| decoded != bytes);
            assert!(!is_wrong || !has_checksum, "{format:?} altered at {place}");
        }
    }
}

#[test]
fn a_span_starts_at_any_boundary() {
    let bytes = text(3_000_000);
    let stream = deflate(&bytes);
    for piece in [5, 1000, 1 << 20] {
        let mut decoder = StreamDecoder::new(StreamFormat::Deflate).unwrap();
        let (mut at, mut decoded, mut spans) = (0, 0, 0);
        loop {
            let step = decoder
                .step(&stream[at..stream.len().min(at + piece)])
                .unwrap();
            at += step.used;
            decoded += decoder.decoded().len();
            match step.place {
                StreamPlace::End => break,
                StreamPlace::Within => {}
                StreamPlace::Between { unused_bits } => {
                    spans += 1;
                    let start = at - usize::from(unused_bits > 0);
                    let skip = (8 - unused_bits) % 8;
                    let mut out = vec![0; (bytes.len() - decoded).min(100_000)];
                    let codec = Codec::DeflateSpan { skip };
                    codec
                        .decode_after(decoder.history(), &stream[start..], &mut out)
                        .unwrap();
                    assert!(out == bytes[decoded..decoded + out.len()], "span {spans}");
                }
            }
        }
        assert_eq!(decoded, bytes.len());
        assert!(spans > 5, "{spans} blocks");
    }
}
