//! Consecutive blocks of an LZ4 frame, as they are in the frame: each preceded by its length.
//!
//! Blocks of a frame may refer to the 64 KiB before them, which the library takes as a dictionary.
//! This module does not read other fields of the frame or checksums: `forerun-spans` reads and
//! verifies them once.

use std::ops::Range;

use crate::DecodeError;
use crate::lz4;

/// Number of bytes before a block that it may refer to.
const WINDOW: usize = 64 << 10;
/// Length of the length field before a block, and of the checksum after it.
const WORD: usize = 4;
/// The last match of a block must start at least this far before the end of the block.
const LAST_MATCH: usize = 12;
/// The bit of the length that marks an uncompressed block.
const PLAIN: u32 = 1 << 31;

/// Decodes blocks until `input` ends. `history` has the decoded bytes of the frame before them;
/// only its last 64 KiB are used. Returns the decoded length. Skips the checksums after blocks.
pub fn decode(
    checksums: bool,
    history: &[u8],
    input: &[u8],
    out: &mut [u8],
) -> Result<usize, DecodeError> {
    let (mut rest, mut filled) = (input, 0);
    let mut before = Vec::new();
    while !rest.is_empty() {
        let block = split(&mut rest, checksums)?;
        let (done, to) = out.split_at_mut(filled);
        let len = match (done.len() >= WINDOW, history.is_empty()) {
            (true, _) | (_, true) => one(block, last(done), to)?,
            (false, false) if done.is_empty() => one(block, last(history), to)?,
            (false, false) => {
                // The library takes a single slice.
                before.clear();
                before.extend_from_slice(last(history));
                before.extend_from_slice(done);
                one(block, last(&before), to)?
            }
        };
        filled += len;
    }
    Ok(filled)
}

#[derive(Clone, Copy)]
struct Block<'i> {
    is_plain: bool,
    bytes: &'i [u8],
}

fn split<'i>(rest: &mut &'i [u8], checksums: bool) -> Result<Block<'i>, DecodeError> {
    let damaged = DecodeError::Damaged;
    let (word, after) = rest.split_first_chunk::<WORD>().ok_or(damaged)?;
    let word = u32::from_le_bytes(*word);
    let len = usize::try_from(word & !PLAIN).map_err(|_| damaged)?;
    let (bytes, after) = after.split_at_checked(len).ok_or(damaged)?;
    let trailer = if checksums { WORD } else { 0 };
    *rest = after.get(trailer..).ok_or(damaged)?;
    let is_plain = word & PLAIN != 0;
    Ok(Block { is_plain, bytes })
}

/// Decodes one block, which may refer to `before`, into the start of `out`.
fn one(block: Block<'_>, before: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let Block { is_plain, bytes } = block;
    if is_plain {
        let expected = out.len();
        let to = out.get_mut(..bytes.len());
        to.ok_or(DecodeError::Long { expected })?
            .copy_from_slice(bytes);
        return Ok(bytes.len());
    }
    match lz4::decode_after(before, bytes, out) {
        Err(DecodeError::Damaged) => with_room(before, bytes, out),
        decoded => decoded,
    }
}

/// Decodes a block whose last match starts nearer to its end than the format permits (LZ4 block
/// format, end of block conditions). The library refuses such a block only if the buffer ends with
/// the block. So the first pass accepts it, and so do the programs that the frame was made for.
fn with_room(before: &[u8], bytes: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut room = vec![0; out.len() + LAST_MATCH];
    let len = lz4::decode_after(before, bytes, &mut room)?;
    match (out.get_mut(..len), room.get(..len)) {
        (Some(out), Some(decoded)) => out.copy_from_slice(decoded),
        _ => return Err(DecodeError::Damaged),
    }
    Ok(len)
}

fn last(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().saturating_sub(WINDOW)..]
}

/// A decoder of the blocks of LZ4 frames in order, for a first pass.
#[derive(Debug, Default)]
pub struct Lz4Pass {
    /// The last decoded bytes before the last block.
    history: Vec<u8>,
    out: Vec<u8>,
    /// The range of `out` with the decoded bytes of the last block.
    decoded: Range<usize>,
}

impl Lz4Pass {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets earlier blocks. Called when a frame starts, or if blocks do not refer to each other.
    pub fn restart(&mut self) {
        self.history.clear();
        self.decoded = 0..0;
    }

    /// Decodes the next block, of at most `most` bytes, and returns the decoded bytes. With
    /// `is_plain`, they are `bytes`.
    ///
    /// # Errors
    /// [`DecodeError`], also for a block with matches at distance 0, for which the result of the
    /// library is undefined.
    pub fn block(
        &mut self,
        is_plain: bool,
        bytes: &[u8],
        most: usize,
    ) -> Result<&[u8], DecodeError> {
        self.keep_history();
        if !is_plain && lz4::copies_nothing(bytes, 0..usize::MAX) {
            return Err(DecodeError::Damaged);
        }
        if self.out.len() < most {
            self.out.resize(most, 0);
        }
        let out = &mut self.out[..most];
        let len = one(Block { is_plain, bytes }, &self.history, out)?;
        self.decoded = 0..len;
        Ok(self.decoded())
    }

    /// Returns the bytes that the next block may refer to: the last 64 KiB, or fewer at the start.
    pub fn history(&mut self) -> &[u8] {
        self.keep_history();
        &self.history
    }

    fn decoded(&self) -> &[u8] {
        &self.out[self.decoded.clone()]
    }

    /// Moves the end of the last block to the history.
    fn keep_history(&mut self) {
        let decoded = last(&self.out[self.decoded.clone()]);
        let kept = WINDOW - decoded.len();
        let gone = self.history.len().saturating_sub(kept);
        self.history.drain(..gone);
        self.history.extend_from_slice(decoded);
        self.decoded = 0..0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a block that copies 8 bytes from `distance` before it, followed by 5 literals.
    fn copy(distance: u16) -> Vec<u8> {
        let [low, high] = distance.to_le_bytes();
        [&[0x04, low, high, 0x50][..], b"after"].concat()
    }

    fn framed(bytes: &[u8], is_plain: bool) -> Vec<u8> {
        let mark = if is_plain { PLAIN } else { 0 };
        let word = u32::try_from(bytes.len()).unwrap() | mark;
        [&word.to_le_bytes()[..], bytes].concat()
    }

    #[test]
    fn blocks_refer_to_the_history_and_to_those_before_them() {
        let input = [
            framed(&copy(10), false),
            framed(b"plain", true),
            framed(&copy(26), false),
        ];
        let mut out = [0; 31];
        let decoded = decode(false, b"0123456789", &input.concat(), &mut out);
        assert_eq!(decoded, Ok(31));
        assert_eq!(
            &out,
            b"01234567afterplain23456789after"
                .as_slice()
                .get(..31)
                .unwrap()
        );
    }

    #[test]
    fn a_pass_gives_what_the_spans_give() {
        let blocks = [
            (true, b"0123456789".to_vec()),
            (false, copy(10)),
            (false, copy(23)),
        ];
        let mut pass = Lz4Pass::new();
        let mut out = Vec::new();
        for (is_plain, bytes) in &blocks {
            out.extend_from_slice(pass.block(*is_plain, bytes, 64).unwrap());
        }
        assert_eq!(pass.history(), &out);
        let input: Vec<u8> = blocks
            .iter()
            .flat_map(|(is_plain, bytes)| framed(bytes, *is_plain))
            .collect();
        let mut again = vec![0; out.len()];
        assert_eq!(decode(false, b"", &input, &mut again), Ok(out.len()));
        assert_eq!(again, out);
        pass.restart();
        assert!(
            pass.block(false, &copy(1), 64).is_err(),
            "there is no history"
        );
        assert!(pass.block(true, b"xx", 1).is_err(), "it is too long");
    }

    #[test]
    fn a_match_near_the_end_of_a_block_decodes_as_in_the_pass() {
        // Four bytes from 10 bytes before, and five literals.
        let near = [&[0x00, 10, 0, 0x50][..], b"after"].concat();
        let mut pass = Lz4Pass::new();
        pass.block(true, b"0123456789", 64).unwrap();
        assert_eq!(pass.block(false, &near, 64).unwrap(), b"0123after");
        let input = [framed(b"0123456789", true), framed(&near, false)].concat();
        let mut out = [0; 19];
        assert_eq!(decode(false, b"", &input, &mut out), Ok(19));
        assert_eq!(&out, b"01234567890123after");
        assert!(decode(false, b"", &input, &mut out[..18]).is_err());
    }

    #[test]
    fn the_history_is_the_last_64_kib() {
        let mut pass = Lz4Pass::new();
        for byte in 0..5 {
            pass.block(true, &[byte; 30_000], 30_000).unwrap();
        }
        let history = pass.history();
        assert_eq!(history.len(), WINDOW);
        assert_eq!((history[0], history[WINDOW - 1]), (2, 4));
    }

    #[test]
    fn what_is_cut_or_refers_to_nothing_is_damage() {
        let mut out = [0; 64];
        let block = framed(&copy(4), false);
        assert_eq!(decode(false, b"abcd", &block, &mut out), Ok(13));
        for len in 1..block.len() {
            assert!(
                decode(false, b"abcd", &block[..len], &mut out).is_err(),
                "{len}"
            );
        }
        assert!(decode(false, b"abc", &block, &mut out).is_err());
        assert!(
            decode(true, b"abcd", &block, &mut out).is_err(),
            "no checksum"
        );
        assert!(decode(false, b"abcd", &block, &mut out[..12]).is_err());
        let mut pass = Lz4Pass::new();
        pass.block(true, b"abcd", 64).unwrap();
        assert!(pass.block(false, &copy(0), 64).is_err());
    }
}
