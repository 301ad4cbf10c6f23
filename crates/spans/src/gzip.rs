//! gzip (RFC 1952): a sequence of members, each a DEFLATE stream. Also a raw DEFLATE stream.

use forerun_codec::{Codec, StreamDecoder, StreamFormat, StreamPlace};
use forerun_vfs::{Error, Result};
use libdeflater::Crc;

use crate::cutter::Cutter;
use crate::error::Check;
use crate::failed::Failed;
use crate::history::{History, Packer};
use crate::input::Input;

/// Length of the mandatory header fields (RFC 1952, section 2.3).
const HEADER: usize = 10;
/// Length of the checksum and the decoded length after each member.
const TRAILER: usize = 8;

const FHCRC: u8 = 2;
const FEXTRA: u8 = 4;
const FNAME: u8 = 8;
const FCOMMENT: u8 = 16;
const RESERVED: u8 = 0xe0;

/// Reads all members. Returns the offset of bytes after them, unless these are zeros.
pub fn read<'a>(
    input: &mut Input<'a>,
    cutter: &mut Cutter<'a>,
    span_len: u64,
) -> Result<Option<u64>, Failed> {
    let mut pass = Pass::new(input, cutter, span_len)?;
    let mut members = 0_u64;
    loop {
        let offset = pass.input.position();
        match pass.input.peek_at_least(2)? {
            [] if members > 0 => return Ok(None),
            [0x1f, 0x8b, ..] => {}
            [0, ..] if members > 0 => return Ok(None),
            _ if members > 0 => return Ok(Some(offset)),
            _ => return Err(Failed::Stream(pass.damaged(offset, offset))),
        }
        pass.header(offset)?;
        pass.restart(offset)?;
        pass.member(offset)?;
        members += 1;
    }
}

/// Reads one DEFLATE stream without a header. Returns the offset of the bytes after it, if any.
pub fn read_bare<'a>(
    input: &mut Input<'a>,
    cutter: &mut Cutter<'a>,
    span_len: u64,
) -> Result<Option<u64>, Failed> {
    let mut pass = Pass::new(input, cutter, span_len)?;
    let offset = pass.input.position();
    pass.stream(offset, &mut Crc::new())?;
    let end = pass.input.position();
    Ok((end < pass.input.len()).then_some(end))
}

struct Pass<'p, 'a> {
    decoder: StreamDecoder,
    packer: Packer,
    input: &'p mut Input<'a>,
    cutter: &'p mut Cutter<'a>,
    span_len: u64,
}

/// A span whose end is not known yet.
struct Open {
    /// Offset of the first byte, and how many of its bits belong to the preceding span.
    offset: u64,
    skip: u8,
    /// Number of decoded bytes before the span.
    start: u64,
    history: Option<History>,
}

impl<'p, 'a> Pass<'p, 'a> {
    fn new(
        input: &'p mut Input<'a>,
        cutter: &'p mut Cutter<'a>,
        span_len: u64,
    ) -> Result<Self, Failed> {
        let setup = |_| Failed::Stream(Check::Damaged { near: 0 }.at(cutter.compression, 0));
        Ok(Self {
            decoder: StreamDecoder::new(StreamFormat::Deflate).map_err(setup)?,
            packer: Packer::new(),
            input,
            cutter,
            span_len,
        })
    }

    fn restart(&mut self, offset: u64) -> Result<(), Failed> {
        let restarted = self.decoder.restart();
        restarted.map_err(|_| Failed::Stream(self.damaged(offset, offset)))
    }

    /// Skips the header of the member at `offset`.
    fn header(&mut self, offset: u64) -> Result<(), Failed> {
        let cut = Failed::Stream(self.cut(offset));
        let &[_, _, method, flags, _, _, _, _, _, _, ..] = self.input.peek_at_least(HEADER)? else {
            return Err(cut);
        };
        if method != 8 || flags & RESERVED != 0 {
            let check = Check::Header { method, flags };
            return Err(Failed::Stream(self.failed(check, offset)));
        }
        self.input.consume(HEADER);
        if flags & FEXTRA != 0 {
            let &[low, high, ..] = self.input.peek_at_least(2)? else {
                return Err(cut);
            };
            self.skip(2 + usize::from(u16::from_le_bytes([low, high])), offset)?;
        }
        for text in [FNAME, FCOMMENT] {
            if flags & text != 0 {
                self.skip_text(offset)?;
            }
        }
        if flags & FHCRC != 0 {
            self.skip(2, offset)?;
        }
        Ok(())
    }

    fn skip(&mut self, len: usize, offset: u64) -> Result<(), Failed> {
        if self.input.peek_at_least(len)?.len() < len {
            return Err(Failed::Stream(self.cut(offset)));
        }
        self.input.consume(len);
        Ok(())
    }

    fn skip_text(&mut self, offset: u64) -> Result<(), Failed> {
        loop {
            let bytes = self.input.peek()?;
            if bytes.is_empty() {
                return Err(Failed::Stream(self.cut(offset)));
            }
            let end = bytes.iter().position(|&byte| byte == 0);
            let len = end.map_or(bytes.len(), |end| end + 1);
            self.input.consume(len);
            if end.is_some() {
                return Ok(());
            }
        }
    }

    /// Decodes the stream of the member at `offset`, and adds its spans.
    fn stream(&mut self, offset: u64, crc: &mut Crc) -> Result<(), Failed> {
        let mut open = Open {
            offset: self.input.position(),
            skip: 0,
            start: self.cutter.decoded(),
            history: None,
        };
        if let Err(failed) = self.spans(offset, &mut open, crc) {
            if let Failed::Stream(_) = failed {
                // A rescue ends the span here. The next byte may hold its last bits.
                let end = self.input.position() + 1;
                self.close(open, end.min(self.input.len()))?;
            }
            return Err(failed);
        }
        let end = self.input.position();
        Ok(self.close(open, end)?)
    }

    /// Decodes the member at `offset`, whose header was read, and verifies its checksum.
    fn member(&mut self, offset: u64) -> Result<(), Failed> {
        let start = self.cutter.decoded();
        let mut crc = Crc::new();
        self.stream(offset, &mut crc)?;
        let &[c0, c1, c2, c3, l0, l1, l2, l3, ..] = self.input.peek_at_least(TRAILER)? else {
            return Err(Failed::Stream(self.cut(offset)));
        };
        self.input.consume(TRAILER);
        let (stored, found) = (u32::from_le_bytes([c0, c1, c2, c3]), crc.sum());
        if stored != found {
            let check = Check::Checksum { stored, found };
            return Err(Failed::Stream(self.failed(check, offset)));
        }
        let stored = u32::from_le_bytes([l0, l1, l2, l3]);
        let [f0, f1, f2, f3, ..] = (self.cutter.decoded() - start).to_le_bytes();
        let found = u32::from_le_bytes([f0, f1, f2, f3]);
        if stored != found {
            let check = Check::Length { stored, found };
            return Err(Failed::Stream(self.failed(check, offset)));
        }
        Ok(())
    }

    /// Decodes a member to its end. Leaves the last span open.
    fn spans(&mut self, offset: u64, open: &mut Open, crc: &mut Crc) -> Result<(), Failed> {
        loop {
            let bytes = self.input.peek()?;
            let is_end = bytes.is_empty();
            let step = self.decoder.step(bytes);
            let near = self.input.position();
            let step = step.map_err(|_| Failed::Stream(self.damaged(offset, near)))?;
            self.input.consume(step.used);
            let decoded = self.decoder.decoded();
            crc.update(decoded);
            self.cutter.take(decoded, self.input.position())?;
            let stored = self.input.position();
            let len = self.cutter.decoded() - open.start;
            match step.place {
                StreamPlace::End => return Ok(()),
                StreamPlace::Between { unused_bits } => {
                    if len.max(stored - open.offset) >= self.span_len {
                        let next = Open {
                            offset: stored - u64::from(unused_bits > 0),
                            skip: (8 - unused_bits) % 8,
                            start: self.cutter.decoded(),
                            history: self.packer.pack(self.decoder.history()),
                        };
                        let done = std::mem::replace(open, next);
                        self.close(done, stored)?;
                    }
                }
                StreamPlace::Within => {
                    if is_end && step.used == 0 && self.decoder.decoded().is_empty() {
                        return Err(Failed::Stream(self.cut(offset)));
                    }
                    self.cutter
                        .check_len(open.offset, len.max(stored - open.offset))?;
                }
            }
        }
    }

    /// Adds a span that ends with the stored byte before `end`.
    fn close(&mut self, open: Open, end: u64) -> Result<()> {
        let decoded = open.start..self.cutter.decoded();
        let codec = Codec::DeflateSpan { skip: open.skip };
        self.cutter
            .block(decoded, open.offset..end, codec, open.history)
    }

    fn cut(&self, offset: u64) -> Error {
        let len = self.input.len();
        self.failed(Check::Cut { len }, offset)
    }

    fn damaged(&self, offset: u64, near: u64) -> Error {
        self.failed(Check::Damaged { near }, offset)
    }

    fn failed(&self, check: Check, offset: u64) -> Error {
        check.at(self.cutter.compression, offset)
    }
}
