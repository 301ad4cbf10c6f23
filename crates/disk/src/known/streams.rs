//! Compressed streams. No header states their length, so they are decoded, in bounded memory.

use forerun_codec::{DecodeError, StreamDecoder, StreamFormat, StreamPlace};
use forerun_io::{ReadAt, u64_from, usize_from};
use libdeflater::Crc;

use super::{Budget, Bytes, Found, joined, made};

/// Bytes of input that a decoder gets first.
const INPUT: usize = 64 << 10;
/// Maximum number of bytes of input that a decoder gets at once. No format has larger blocks.
const MOST_INPUT: usize = 4 << 20;
/// Smallest decoded and stored sizes at which a damaged stream still counts as a stream.
const LEAST_DECODED: u64 = 64 << 10;
const LEAST_STORED: u64 = 4 << 10;
/// Decoded bytes of a stream of LZMA: a few could be anything.
const LEAST_LZMA: u64 = 64;

/// A kind of stream that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Gzip,
    Xz,
    Zstd,
    Bzip2,
    Lzma,
}

impl Stream {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gzip" => Self::Gzip,
            "xz" => Self::Xz,
            "zstd" => Self::Zstd,
            "bzip2" => Self::Bzip2,
            "lzma" => Self::Lzma,
            _ => return None,
        })
    }

    const fn format(self) -> StreamFormat {
        match self {
            Self::Gzip => StreamFormat::Deflate,
            Self::Xz => StreamFormat::Xz,
            Self::Zstd => StreamFormat::Zstd,
            Self::Bzip2 => StreamFormat::Bzip2,
            Self::Lzma => StreamFormat::Lzma,
        }
    }
}

/// The way a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Whole,
    Damaged,
    /// The source ends first.
    Cut,
    /// The budget is used up, or the caller wants no more.
    Unknown,
}

impl End {
    fn after(error: DecodeError) -> Self {
        match error {
            DecodeError::Memory { .. } => Self::Unknown,
            _ => Self::Damaged,
        }
    }
}

/// The result of decoding.
#[derive(Clone, Copy, Debug)]
struct Decoded {
    /// Number of stored bytes.
    len: u64,
    decoded: u64,
    end: End,
}

impl Decoded {
    /// Returns a description of the stream's damage.
    const fn fault(&self) -> Option<&'static str> {
        match self.end {
            End::Whole => None,
            End::Damaged => Some("damaged after them"),
            End::Cut => Some("truncated after them"),
            End::Unknown => Some("and more"),
        }
    }
}

/// Decodes the stream at the start of `source`, as far as possible. `name` is its kind in
/// [`KNOWN`](super::KNOWN). Passes decoded bytes to `sink` until that returns false. Returns the
/// number of decoded bytes; `None` for other kinds.
pub fn decode_stream(
    source: &dyn ReadAt,
    name: &str,
    sink: &mut dyn FnMut(&[u8]) -> bool,
) -> Option<u64> {
    let stream = Stream::named(name)?;
    let budget = Budget {
        reads: u64::MAX,
        decodes: u64::MAX,
    };
    Some(decode(&mut Bytes::new(source, budget), stream, sink).decoded)
}

/// Decodes all consecutive streams at the start of `b`. Passes decoded bytes to `sink` until that
/// returns false.
fn decode(b: &mut Bytes<'_>, stream: Stream, sink: &mut dyn FnMut(&[u8]) -> bool) -> Decoded {
    let mut done = Decoded {
        len: 0,
        decoded: 0,
        end: End::Damaged,
    };
    let Ok(mut decoder) = StreamDecoder::new(stream.format()) else {
        return done;
    };
    loop {
        let before = done;
        if !one(b, stream, &mut decoder, &mut done, sink) {
            // Bytes after a complete stream that are not another one.
            let is_junk = before.end == End::Whole && done.decoded - before.decoded < LEAST_DECODED;
            return if is_junk { before } else { done };
        }
        let again = match stream {
            Stream::Gzip => b.has(done.len, b"\x1f\x8b\x08"),
            Stream::Xz => b.has(done.len, b"\xfd7zXZ\0"),
            Stream::Zstd => b.has(done.len, b"\x28\xb5\x2f\xfd"),
            Stream::Bzip2 => b.has(done.len, b"BZh") && b.has(done.len + 4, b"1AY&SY"),
            Stream::Lzma => false,
        };
        if !again || decoder.restart().is_err() {
            return done;
        }
    }
}

/// Decodes one stream. Returns whether it is complete.
fn one(
    b: &mut Bytes<'_>,
    stream: Stream,
    decoder: &mut StreamDecoder,
    done: &mut Decoded,
    sink: &mut dyn FnMut(&[u8]) -> bool,
) -> bool {
    let start = done.decoded;
    done.end = End::Damaged;
    if stream == Stream::Gzip {
        let Some(header) = gzip_header(b, done.len) else {
            return false;
        };
        done.len = header.end;
    }
    let mut crc = Crc::new();
    let mut wanted = INPUT;
    loop {
        let input = b.up_to(done.len, wanted);
        let given = input.len();
        let step = decoder.step(input);
        let Ok(step) = step.inspect_err(|error| done.end = End::after(*error)) else {
            return false;
        };
        let decoded = decoder.decoded();
        done.len += u64_from(step.used);
        done.decoded += u64_from(decoded.len());
        b.decoded += u64_from(decoded.len());
        if stream == Stream::Gzip {
            crc.update(decoded);
        }
        if !sink(decoded) || b.decoded > b.budget.decodes {
            done.end = End::Unknown;
            return false;
        }
        if step.place == StreamPlace::End {
            break;
        }
        if step.used == 0 && decoded.is_empty() {
            if given < wanted {
                let is_end = done.len + u64_from(given) == b.left();
                done.end = if is_end { End::Cut } else { End::Unknown };
                return false;
            }
            if wanted == MOST_INPUT {
                return false;
            }
            wanted *= 2;
        }
    }
    if stream == Stream::Gzip {
        let trailer = [b.le(done.len, 4), b.le(done.len + 4, 4)];
        let len = done.decoded - start;
        if trailer != [Some(crc.sum().into()), Some(len & 0xffff_ffff)] {
            let is_cut = trailer.contains(&None);
            done.end = if is_cut { End::Cut } else { End::Damaged };
            return false;
        }
        done.len += 8;
    }
    done.end = End::Whole;
    true
}

/// The header of a gzip member.
struct GzipHeader {
    end: u64,
    time: u64,
    name: Vec<u8>,
}

fn gzip_header(b: &mut Bytes<'_>, at: u64) -> Option<GzipHeader> {
    let [flags, extra_flags, system] = [b.le(at + 3, 1)?, b.le(at + 8, 1)?, b.le(at + 9, 1)?];
    let is_system = system <= 13 || system == 255;
    if !b.has(at, b"\x1f\x8b\x08") || flags & 0xe0 != 0 || !is_system || extra_flags > 4 {
        return None;
    }
    let time = b.le(at + 4, 4)?;
    let mut end = at + 10;
    if flags & 4 != 0 {
        end += 2 + b.le(end, 2)?;
    }
    let mut name = Vec::new();
    for flag in [8, 16] {
        if flags & flag != 0 {
            let text = b.up_to(end, 4096);
            let len = text.iter().position(|&byte| byte == 0)?;
            if flag == 8 {
                name = text[..len].to_vec();
            }
            end += u64_from(len) + 1;
        }
    }
    if flags & 2 != 0 {
        end += 2;
    }
    Some(GzipHeader { end, time, name })
}

fn found(b: &mut Bytes<'_>, stream: Stream) -> Option<Found> {
    let decoded = decode(b, stream, &mut |_| true);
    let is_likely = decoded.decoded >= LEAST_DECODED && decoded.len >= LEAST_STORED;
    let fault = decoded.fault();
    if fault.is_some() && !is_likely {
        return None;
    }
    let details = format!("{} bytes decoded", decoded.decoded);
    let details = joined([Some(details), fault.map(str::to_string)]);
    let len = (decoded.end != End::Unknown).then_some(decoded.len);
    Some(Found::of(len).details(details))
}

pub fn gzip(b: &mut Bytes<'_>) -> Option<Found> {
    let header = gzip_header(b, 0)?;
    let mut found = found(b, Stream::Gzip)?.label(header.name);
    found.details = joined([Some(found.details), made(header.time)]);
    Some(found)
}

pub fn xz(b: &mut Bytes<'_>) -> Option<Found> {
    let flags = b.at(6, 2)?;
    let crc = libdeflater::crc32(flags);
    (b.le(8, 4)? == u64::from(crc)).then(|| found(b, Stream::Xz))?
}

pub fn zstd(b: &mut Bytes<'_>) -> Option<Found> {
    // A bit of the descriptor is reserved.
    (b.le(4, 1)? & 8 == 0).then(|| found(b, Stream::Zstd))?
}

pub fn bzip2(b: &mut Bytes<'_>) -> Option<Found> {
    let [b'B', b'Z', b'h', b'1'..=b'9'] = b.array::<4>(0)? else {
        return None;
    };
    found(b, Stream::Bzip2)
}

/// LZMA has no magic number and no checksum. Common properties, a common dictionary size, and an
/// end that matches the header exclude chance.
pub fn lzma(b: &mut Bytes<'_>) -> Option<Found> {
    let [dictionary, len, first] = [b.le(1, 4)?, b.le(5, 8)?, b.le(13, 1)?];
    let is_usual = dictionary.is_power_of_two() || (dictionary / 3).is_power_of_two();
    let is_len = len == u64::MAX || (1..1 << 32).contains(&len);
    if !is_usual || !(1 << 16..=1 << 30).contains(&dictionary) || !is_len || first != 0 {
        return None;
    }
    let found = found(b, Stream::Lzma)?;
    (b.decoded >= LEAST_LZMA).then_some(found)
}

/// Follows the blocks of a frame by their lengths.
pub fn lz4(b: &mut Bytes<'_>) -> Option<Found> {
    let [flags, sizes] = [b.le(4, 1)?, b.le(5, 1)?];
    let has = |flag: u64| flags & flag != 0;
    if flags >> 6 != 1 || has(2) || sizes & 0x8f != 0 || sizes >> 4 < 4 {
        return None;
    }
    let len = 2 + if has(8) { 8 } else { 0 } + if has(1) { 4 } else { 0 };
    let descriptor = b.at(4, len)?;
    let sum = twox_hash::XxHash32::oneshot(0, descriptor) >> 8 & 0xff;
    let most = 1 << (8 + 2 * (sizes >> 4));
    let mut at = 4 + u64_from(len);
    if b.le(at, 1)? != u64::from(sum) {
        return None;
    }
    at += 1;
    loop {
        let Some(block) = b.le(at, 4) else {
            return Some(Found::of(b.left()).details("truncated"));
        };
        at += 4;
        if block == 0 {
            break;
        }
        let stored = block & 0x7fff_ffff;
        if stored > most {
            return Some(Found::of(at).details("damaged"));
        }
        at += stored + if has(16) { 4 } else { 0 };
    }
    at += if has(4) { 4 } else { 0 };
    Some(Found::of(at))
}

/// Follows the blocks of a legacy frame, which ends before an invalid block length.
pub fn lz4_legacy(b: &mut Bytes<'_>) -> Option<Found> {
    const MOST: u64 = (8 << 20) + (8 << 20) / 255 + 16;
    let (mut at, mut blocks) = (4_u64, 0_u64);
    while let Some(block) = b.le(at, 4) {
        let end = at + 4 + block;
        let is_block = (1..=MOST).contains(&block) && end <= b.left();
        // A token without literals cannot begin a block.
        if !is_block || (blocks == 0 && b.le(at + 4, 1)? < 0x10) {
            break;
        }
        at = end;
        blocks += 1;
        if block < 1 << 20 && b.left() == at {
            break;
        }
    }
    let is_likely = blocks > 1 || (blocks == 1 && at == b.left());
    is_likely.then(|| Found::of(at).details(format!("{blocks} blocks")))
}

pub fn lzop(b: &mut Bytes<'_>) -> Option<Found> {
    let [version, needed, method] = [b.be(9, 2)?, b.be(13, 2)?, b.be(15, 1)?];
    let flags = b.be(17, 4)?;
    let has = |flag: u64| flags & flag != 0;
    if version < 0x940 || needed > version || !(1..=3).contains(&method) {
        return None;
    }
    // A filter has a number of its own, and times have a high half.
    let name_at = 17 + 4 + if has(0x800) { 4 } else { 0 } + 12;
    let name = b.be(name_at, 1)?;
    let label = b.text(name_at + 1, usize_from(name));
    let mut at = name_at + 1 + name + 4 + if has(0x40) { 8 } else { 0 };
    let sums = |adler: u64, crc: u64| u64::from(has(adler)) * 4 + u64::from(has(crc)) * 4;
    loop {
        let plain = b.be(at, 4)?;
        at += 4;
        if plain == 0 {
            return Some(Found::of(at).label(label));
        }
        let stored = b.be(at, 4)?;
        if plain > 64 << 20 || stored > plain {
            return None;
        }
        // Stored blocks have no second checksum.
        let packed = if stored < plain { sums(2, 0x200) } else { 0 };
        at += 4 + sums(1, 0x100) + packed + stored;
    }
}
