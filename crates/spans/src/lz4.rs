//! LZ4 frames (the LZ4 frame format, version 1.6.4), one after the other, and legacy frames.
//!
//! A frame is a sequence of blocks, each preceded by its length. A span is one or several blocks.
//! Blocks that refer to earlier blocks need a history of 64 KiB, so their spans are longer.

use std::hash::Hasher;

use forerun_codec::{Codec, Lz4Pass};
use forerun_io::{MemorySource, ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Result, read_head};
use twox_hash::XxHash32;

use crate::Compression::Lz4;
use crate::cutter::Cutter;
use crate::error::Check;
use crate::failed::Failed;
use crate::history::{History, Packer};
use crate::input::Input;
use crate::options::IndexOptions;

pub const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
pub const LEGACY_MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];

/// Decoded bytes of a span of independent blocks, unless one block is longer: enough to be worth an
/// entry.
const SHORT_SPAN: u64 = 256 << 10;
/// Decoded length of each block of a legacy frame except the last.
const LEGACY_BLOCK: usize = 8 << 20;
/// The longest stored block of a legacy frame, whose encoder stores incompressible bytes with this
/// overhead.
const LEGACY_STORED: usize = LEGACY_BLOCK + LEGACY_BLOCK / 255 + 16;
/// The bit of a length that marks an uncompressed block.
const PLAIN: u32 = 1 << 31;

const VERSION: u8 = 0b1100_0000;
const VERSION_1: u8 = 0b0100_0000;
const INDEPENDENT: u8 = 0b0010_0000;
const BLOCK_CHECKSUM: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
const RESERVED: u8 = 0b0000_0010;
const DICTIONARY: u8 = 0b0000_0001;

/// Reads all frames. Returns the offset of the bytes after them, unless these are zeros.
pub fn read<'a>(
    input: &mut Input<'a>,
    cutter: &mut Cutter<'a>,
    span_len: u64,
) -> Result<Option<u64>, Failed> {
    let mut frames = Frames {
        decoder: Lz4Pass::new(),
        packer: Packer::new(),
        input,
        cutter,
        span_len,
    };
    let mut count = 0_u64;
    loop {
        let offset = frames.input.position();
        match frames.input.peek_at_least(MAGIC.len())? {
            [0x04, 0x22, 0x4d, 0x18, ..] => frames.frame(offset)?,
            [0x02, 0x21, 0x4c, 0x18, ..] => frames.legacy(offset)?,
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] if count > 0 => frames.skippable(offset)?,
            [] | [0, ..] if count > 0 => return Ok(None),
            _ if count > 0 => return Ok(Some(offset)),
            _ => return Err(damaged(offset, offset)),
        }
        count += 1;
    }
}

struct Frames<'p, 'a> {
    decoder: Lz4Pass,
    packer: Packer,
    input: &'p mut Input<'a>,
    cutter: &'p mut Cutter<'a>,
    span_len: u64,
}

/// The fields of a frame that its blocks depend on.
struct Frame {
    offset: u64,
    /// Number of decoded bytes before it.
    start: u64,
    is_linked: bool,
    has_checksums: bool,
    /// Most decoded and most stored bytes of a block.
    block_len: usize,
    stored_len: usize,
    len: Option<u64>,
    /// Checksum of the decoded bytes, if the frame has one.
    checksum: Option<XxHash32>,
}

/// A span whose end is not known yet.
struct Uncut {
    offset: u64,
    /// Number of decoded bytes before it.
    start: u64,
    history: Option<History>,
}

impl Frames<'_, '_> {
    fn frame(&mut self, offset: u64) -> Result<(), Failed> {
        let mut frame = self.descriptor(offset)?;
        self.blocks(&mut frame)?;
        // The end mark.
        self.input.consume(4);
        let decoded = self.cutter.decoded() - frame.start;
        if let Some(stored) = frame.len.filter(|&len| len != decoded) {
            let check = Check::Content { stored, decoded };
            return Err(Failed::Stream(check.at(Lz4, offset)));
        }
        if let Some(hash) = frame.checksum {
            let stored = self.word(offset)?;
            self.input.consume(4);
            compare(stored, &hash, offset)?;
        }
        Ok(())
    }

    /// Reads a frame of programs before 2013: a magic number, and blocks up to the end of the file
    /// or another frame.
    fn legacy(&mut self, offset: u64) -> Result<(), Failed> {
        let mut frame = self.legacy_frame(offset)?;
        self.blocks(&mut frame)
    }

    fn legacy_frame(&mut self, offset: u64) -> Result<Frame, Failed> {
        self.word(offset)?;
        self.input.consume(LEGACY_MAGIC.len());
        Ok(Frame {
            offset,
            start: self.cutter.decoded(),
            is_linked: false,
            has_checksums: false,
            block_len: LEGACY_BLOCK,
            stored_len: LEGACY_STORED,
            len: None,
            checksum: None,
        })
    }

    /// Returns whether the first block of a frame is uncompressed, and where its bytes start and
    /// end.
    fn first_block(&mut self) -> Result<(bool, usize, usize), Failed> {
        let frame = match self.input.peek_at_least(MAGIC.len())? {
            [0x02, ..] => self.legacy_frame(0)?,
            _ => self.descriptor(0)?,
        };
        let Some((is_plain, len)) = self.length(&frame)? else {
            return Ok((true, 0, 0));
        };
        let at = usize_from(self.input.position()) + 4;
        Ok((is_plain, at, at + len))
    }

    fn skippable(&mut self, offset: u64) -> Result<(), Failed> {
        self.input.consume(4);
        let mut left = usize_from(u64::from(self.word(offset)?));
        self.input.consume(4);
        while left > 0 {
            let len = self.input.peek()?.len().min(left);
            if len == 0 {
                return Err(self.cut(offset));
            }
            self.input.consume(len);
            left -= len;
        }
        Ok(())
    }

    fn descriptor(&mut self, offset: u64) -> Result<Frame, Failed> {
        let &[_, _, _, _, flags, sizes, ..] = self.input.peek_at_least(6)? else {
            return Err(self.cut(offset));
        };
        let code = sizes >> 4;
        let is_known = flags & VERSION == VERSION_1 && flags & RESERVED == 0;
        if !is_known || sizes & 0x8f != 0 || !(4..=7).contains(&code) {
            let check = Check::Descriptor { flags, sizes };
            return Err(Failed::Stream(check.at(Lz4, offset)));
        }
        if flags & DICTIONARY != 0 {
            let what = format!("LZ4 frames that need a dictionary (at {offset:#x})");
            return Err(Failed::Other(Error::Unsupported(what)));
        }
        let has_len = flags & CONTENT_SIZE != 0;
        // The checksum covers the descriptor from the flags on.
        let end = if has_len { 14 } else { 6 };
        let bytes = self.input.peek_at_least(end + 1)?;
        let (Some(fields), Some(&stored)) = (bytes.get(4..end), bytes.get(end)) else {
            return Err(self.cut(offset));
        };
        let [_, found, ..] = XxHash32::oneshot(0, fields).to_le_bytes();
        if found != stored {
            let (stored, found) = (u32::from(stored), u32::from(found));
            let check = Check::Checksum { stored, found };
            return Err(Failed::Stream(check.at(Lz4, offset)));
        }
        let len = fields.get(2..).and_then(|len| len.first_chunk());
        let len = len.copied().map(u64::from_le_bytes);
        self.input.consume(end + 1);
        let block_len = 1 << (8 + 2 * u32::from(code));
        Ok(Frame {
            offset,
            start: self.cutter.decoded(),
            is_linked: flags & INDEPENDENT == 0,
            has_checksums: flags & BLOCK_CHECKSUM != 0,
            block_len,
            stored_len: block_len,
            len,
            checksum: (flags & CONTENT_CHECKSUM != 0).then(|| XxHash32::with_seed(0)),
        })
    }

    /// Decodes the blocks of a frame, up to its end mark.
    fn blocks(&mut self, frame: &mut Frame) -> Result<(), Failed> {
        self.decoder.restart();
        let mut open = self.open(None);
        let result = self.decode(frame, &mut open);
        if let Ok(()) | Err(Failed::Stream(_)) = result {
            // A rescue ends the span here.
            self.close(open, frame)?;
        }
        result
    }

    fn decode(&mut self, frame: &mut Frame, open: &mut Uncut) -> Result<(), Failed> {
        let goal = if frame.is_linked {
            self.span_len
        } else {
            self.span_len.min(SHORT_SPAN)
        };
        let most = u64_from(frame.block_len);
        while let Some((is_plain, len)) = self.length(frame)? {
            let decoded = self.cutter.decoded() - open.start;
            let stored = self.input.position() - open.offset;
            let is_long = decoded.max(stored) + most > self.cutter.block_len;
            if decoded > 0 && (decoded >= goal || is_long) {
                let history = if frame.is_linked {
                    self.packer.pack(self.decoder.history())
                } else {
                    None
                };
                let next = self.open(history);
                self.close(std::mem::replace(open, next), frame)?;
            }
            self.block(frame, is_plain, len)?;
        }
        Ok(())
    }

    /// Returns whether the next block is uncompressed, and its stored length; `None` at the end of
    /// the frame. Does not consume the length.
    fn length(&mut self, frame: &Frame) -> Result<Option<(bool, usize)>, Failed> {
        let is_legacy = frame.block_len == LEGACY_BLOCK;
        if is_legacy && self.input.peek()?.is_empty() {
            return Ok(None);
        }
        let word = self.word(frame.offset)?;
        let (is_plain, len) = match is_legacy {
            // Another frame, or zeros after the last one.
            true if word == 0 || is_magic(word) => return Ok(None),
            true => (false, word),
            false if word == 0 => return Ok(None),
            false => (word & PLAIN != 0, word & !PLAIN),
        };
        let len = usize_from(u64::from(len));
        if len > frame.stored_len {
            return Err(damaged(frame.offset, self.input.position()));
        }
        Ok(Some((is_plain, len)))
    }

    /// Decodes the next block, of `len` stored bytes, and verifies its checksum.
    fn block(&mut self, frame: &mut Frame, is_plain: bool, len: usize) -> Result<(), Failed> {
        let near = self.input.position();
        let end = 4 + len;
        let whole = end + if frame.has_checksums { 4 } else { 0 };
        let bytes = self.input.peek_at_least(whole)?;
        let (Some(stored), Some(trailer)) = (bytes.get(4..end), bytes.get(end..whole)) else {
            return Err(self.cut(frame.offset));
        };
        if let Some(checksum) = trailer.first_chunk() {
            let mut hash = XxHash32::with_seed(0);
            hash.write(stored);
            compare(u32::from_le_bytes(*checksum), &hash, near)?;
        }
        if !frame.is_linked {
            self.decoder.restart();
        }
        let decoded = self.decoder.block(is_plain, stored, frame.block_len);
        let decoded = decoded.map_err(|_| damaged(frame.offset, near))?;
        if let Some(hash) = &mut frame.checksum {
            hash.write(decoded);
        }
        self.cutter.take(decoded, self.input.position())?;
        self.input.consume(whole);
        Ok(())
    }

    /// Opens a span at the current position.
    fn open(&self, history: Option<History>) -> Uncut {
        Uncut {
            offset: self.input.position(),
            start: self.cutter.decoded(),
            history,
        }
    }

    /// Adds a span that ends at the current position.
    fn close(&mut self, open: Uncut, frame: &Frame) -> Result<()> {
        let decoded = open.start..self.cutter.decoded();
        let codec = Codec::Lz4Blocks {
            checksums: frame.has_checksums,
        };
        let stored = open.offset..self.input.position();
        self.cutter.block(decoded, stored, codec, open.history)
    }

    /// Returns the next four bytes of the frame at `offset` as a number, without consuming them.
    fn word(&mut self, offset: u64) -> Result<u32, Failed> {
        let word = self.input.peek_at_least(4)?.first_chunk().copied();
        word.map(u32::from_le_bytes).ok_or_else(|| self.cut(offset))
    }

    fn cut(&self, offset: u64) -> Failed {
        let len = self.input.len();
        Failed::Stream(Check::Cut { len }.at(Lz4, offset))
    }
}

/// Returns whether a word that cannot be the length of a legacy block starts another frame.
const fn is_magic(word: u32) -> bool {
    matches!(
        word.to_le_bytes(),
        MAGIC | LEGACY_MAGIC | [0x50..=0x5f, 0x2a, 0x4d, 0x18]
    )
}

/// Compares a stored checksum with the computed one, for a block or frame at `offset`.
fn compare(stored: u32, hash: &XxHash32, offset: u64) -> Result<(), Failed> {
    let found = hash.finish_32();
    if stored == found {
        Ok(())
    } else {
        Err(Failed::Stream(
            Check::Checksum { stored, found }.at(Lz4, offset),
        ))
    }
}

fn damaged(offset: u64, near: u64) -> Failed {
    Failed::Stream(Check::Damaged { near }.at(Lz4, offset))
}

/// Decodes the first `len` bytes of the first block of the frame at the start of `source`.
pub fn head(source: &dyn ReadAt, len: usize) -> Result<Vec<u8>> {
    let bytes = read_head(source, HEAD)?;
    let input = MemorySource::new(&bytes[..]);
    let options = IndexOptions::default();
    let mut sink = |_: &[u8]| Ok(());
    let mut frames = Frames {
        decoder: Lz4Pass::new(),
        packer: Packer::new(),
        input: &mut Input::new(&input, 0..input.len(), HEAD),
        cutter: &mut Cutter::new(Lz4, source.len(), &options, &mut sink),
        span_len: 0,
    };
    let first = frames.first_block();
    let (is_plain, at, end) = first.map_err(|failed| match failed {
        Failed::Stream(error) | Failed::Other(error) => error,
    })?;
    let block = bytes.get(at..end.min(bytes.len())).unwrap_or_default();
    if is_plain {
        return Ok(block[..len.min(block.len())].to_vec());
    }
    let mut out = vec![0; len];
    let decoded = Codec::Lz4.decode_prefix(block, &mut out);
    decoded.map_err(|_| Check::Damaged { near: u64_from(at) }.at(Lz4, 0))?;
    Ok(out)
}

/// Number of bytes of a file that suffice to decode the start of its first block.
const HEAD: usize = 64 << 10;
