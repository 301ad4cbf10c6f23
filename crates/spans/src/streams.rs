//! Streams that cannot be decoded from the middle: Zstandard, XZ, bzip2. A file may consist of
//! several of them.
//!
//! A Zstandard frame that is short enough to be decoded as one block becomes a span. All others are
//! decoded into a temporary file.

use forerun_codec::{Codec, DecodeError, StreamDecoder, StreamFormat, StreamPlace};
use forerun_io::u64_from;
use forerun_vfs::{Bound, Error};

use crate::Compression;
use crate::cutter::Cutter;
use crate::error::Check;
use crate::failed::Failed;
use crate::input::Input;

/// Reads all streams. Returns the offset of the bytes after them, unless these are zeros.
pub fn read(
    input: &mut Input<'_>,
    cutter: &mut Cutter<'_>,
    format: StreamFormat,
) -> Result<Option<u64>, Failed> {
    let compression = cutter.compression;
    let damaged = |offset, near| Failed::Stream(Check::Damaged { near }.at(compression, offset));
    let mut decoder = StreamDecoder::new(format).map_err(|_| damaged(0, 0))?;
    let mut streams = 0_u64;
    loop {
        skip_zeros(input)?;
        let offset = input.position();
        let head = input.peek_at_least(Compression::PROBE_LEN)?;
        if Compression::of(head) != Some(compression) {
            return match (head.is_empty(), streams) {
                (true, 1..) => Ok(None),
                (false, 1..) => Ok(Some(offset)),
                (_, 0) => Err(damaged(offset, offset)),
            };
        }
        decoder.restart().map_err(|_| damaged(offset, offset))?;
        let mut stream = Stream {
            offset,
            start: cutter.decoded(),
            whole: (compression == Compression::Zstd).then(Vec::new),
        };
        if let Err(failed) = stream.decode(&mut decoder, input, cutter) {
            if let Failed::Stream(_) = failed {
                stream.rescue(cutter)?;
            }
            return Err(failed);
        }
        streams += 1;
    }
}

/// Skips zeros, which pad XZ streams.
fn skip_zeros(input: &mut Input<'_>) -> Result<(), Error> {
    loop {
        let bytes = input.peek()?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        if zeros == 0 {
            return Ok(());
        }
        input.consume(zeros);
    }
}

struct Stream {
    offset: u64,
    /// Number of decoded bytes before the stream.
    start: u64,
    /// All bytes decoded so far; `None` once the temporary file has them.
    whole: Option<Vec<u8>>,
}

impl Stream {
    fn decode(
        &mut self,
        decoder: &mut StreamDecoder,
        input: &mut Input<'_>,
        cutter: &mut Cutter<'_>,
    ) -> Result<(), Failed> {
        let compression = cutter.compression;
        let offset = self.offset;
        let mut wanted = 1;
        loop {
            let bytes = input.peek_at_least(wanted)?;
            let (len, is_less) = (bytes.len(), bytes.len() < wanted);
            let step = decoder.step(bytes);
            let near = input.position();
            let step = step.map_err(|error| match error {
                DecodeError::Memory { limit } => {
                    let name = compression.name();
                    let what = format!("the decoder's memory for the {name} stream at {offset:#x}");
                    Failed::Other(Error::limit(Bound::DecoderMemory, what, limit))
                }
                _ => Failed::Stream(Check::Damaged { near }.at(compression, offset)),
            })?;
            input.consume(step.used);
            let decoded = decoder.decoded();
            cutter.take(decoded, input.position())?;
            self.keep(decoded, input.position(), cutter)?;
            wanted = 1;
            if step.place == StreamPlace::End {
                return Ok(self.end(input.position(), cutter)?);
            }
            if step.used == 0 && decoded.is_empty() {
                if is_less {
                    let len = input.len();
                    return Err(Failed::Stream(Check::Cut { len }.at(compression, offset)));
                }
                wanted = len + 1;
            }
        }
    }

    /// Keeps decoded bytes until the end of the stream is known, or writes them to the temporary
    /// file.
    fn keep(
        &mut self,
        decoded: &[u8],
        position: u64,
        cutter: &mut Cutter<'_>,
    ) -> Result<(), Error> {
        if let Some(whole) = &mut self.whole {
            let len = u64_from(whole.len() + decoded.len());
            if len.max(position - self.offset) <= cutter.block_len {
                whole.extend_from_slice(decoded);
                return Ok(());
            }
            let whole = std::mem::take(whole);
            self.whole = None;
            cutter.spool(&whole, self.offset)?;
        }
        cutter.spool(decoded, self.offset)
    }

    fn end(&self, position: u64, cutter: &mut Cutter<'_>) -> Result<(), Error> {
        let decoded = self.start..cutter.decoded();
        match self.whole {
            Some(_) => cutter.block(decoded, self.offset..position, Codec::Zstd, None),
            None => cutter.spooled(decoded),
        }
    }

    /// Keeps the bytes that were decoded before the damage.
    fn rescue(&mut self, cutter: &mut Cutter<'_>) -> Result<(), Error> {
        if let Some(whole) = self.whole.take() {
            cutter.spool(&whole, self.offset)?;
        }
        cutter.spooled(self.start..cutter.decoded())
    }
}
