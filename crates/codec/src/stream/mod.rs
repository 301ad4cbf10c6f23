//! Decoders of long streams, which are fed piece by piece, for the first pass over a compressed
//! archive.
//!
//! A stream is decoded this way once, in order. Later, [`Codec`](crate::Codec) decodes single
//! blocks.

mod inflate;

use bzip2::Decompress;
use liblzma::stream::{Action, Error, Status, Stream};
use zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_frameParameter_windowTooLarge;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::{DecodeError, usize_from, xz};
use inflate::Inflate;
pub(crate) use inflate::Inflate as PassInflate;

/// Most decoded bytes that one step returns.
const STEP: usize = 256 << 10;
/// log2 of the largest window of a Zstandard frame: the most that the `zstd` tool accepts without
/// an option.
const WINDOW_LOG: u32 = 27;
/// The library returns the negated number of an error.
#[expect(clippy::as_conversions)]
const WINDOW_TOO_LARGE: usize = (ZSTD_error_frameParameter_windowTooLarge as usize).wrapping_neg();

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamFormat {
    /// Raw DEFLATE (RFC 1951). Steps end between its blocks.
    Deflate,
    /// A Zstandard frame (RFC 8878), or a skippable frame, which decodes to nothing.
    Zstd,
    /// An XZ stream, without padding after it.
    Xz,
    Bzip2,
    /// LZMA alone: a header, and no checksum.
    Lzma,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub used: usize,
    pub place: StreamPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPlace {
    /// Within a block. More input may be needed.
    Within,
    /// Between two blocks, where [`Codec::DeflateSpan`](crate::Codec::DeflateSpan) can start.
    Between {
        /// Number of bits of the last used byte that belong to the next block, 0 to 7.
        unused_bits: u8,
    },
    /// At the end of the stream. Further input does not belong to it.
    End,
}

pub struct StreamDecoder {
    kind: Kind,
    out: Vec<u8>,
    /// Number of bytes that the last step decoded, at the start of `out`.
    len: usize,
}

enum Kind {
    Deflate(Inflate),
    Zstd(DCtx<'static>),
    /// XZ, or LZMA alone.
    Xz(Stream, StreamFormat),
    Bzip2(Decompress),
}

impl std::fmt::Debug for StreamDecoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamDecoder").finish_non_exhaustive()
    }
}

impl StreamDecoder {
    /// Creates a decoder at the start of a stream.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if a library cannot set up its context.
    pub fn new(format: StreamFormat) -> Result<Self, DecodeError> {
        let damaged = DecodeError::Damaged;
        let kind = match format {
            StreamFormat::Deflate => Kind::Deflate(Inflate::new()),
            StreamFormat::Zstd => {
                let mut context = DCtx::try_create().ok_or(damaged)?;
                let limit = DParameter::WindowLogMax(WINDOW_LOG);
                context.set_parameter(limit).map_err(|_| damaged)?;
                Kind::Zstd(context)
            }
            StreamFormat::Xz => {
                let stream = Stream::new_stream_decoder(xz::MEMORY, 0);
                Kind::Xz(stream.map_err(|_| damaged)?, format)
            }
            StreamFormat::Lzma => {
                let stream = Stream::new_lzma_decoder(xz::MEMORY);
                Kind::Xz(stream.map_err(|_| damaged)?, format)
            }
            StreamFormat::Bzip2 => Kind::Bzip2(Decompress::new(false)),
        };
        let out = match format {
            StreamFormat::Deflate => Vec::new(),
            StreamFormat::Zstd | StreamFormat::Xz | StreamFormat::Bzip2 | StreamFormat::Lzma => {
                vec![0; STEP]
            }
        };
        Ok(Self { kind, out, len: 0 })
    }

    /// Starts another stream of the same format.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new).
    pub fn restart(&mut self) -> Result<(), DecodeError> {
        self.len = 0;
        match &mut self.kind {
            Kind::Deflate(inflate) => inflate.restart(),
            Kind::Zstd(context) => {
                let reset = context.reset(ResetDirective::SessionOnly);
                reset.map_err(|_| DecodeError::Damaged)?;
            }
            Kind::Xz(_, format) => *self = Self::new(*format)?,
            Kind::Bzip2(_) => *self = Self::new(StreamFormat::Bzip2)?,
        }
        Ok(())
    }

    /// Decodes a part of `input`, which continues after the bytes that earlier steps used.
    /// [`decoded`](Self::decoded) then returns the decoded bytes. A step that neither used nor
    /// decoded any bytes needs more input.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`] if the stream is damaged, [`DecodeError::Memory`] if it asks for
    /// more memory than its usual tools allow.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, DecodeError> {
        let Self { kind, out, len } = self;
        let (used, decoded, place) = match kind {
            Kind::Deflate(inflate) => return inflate.step(input),
            Kind::Zstd(context) => zstd(context, input, out)?,
            Kind::Xz(stream, _) => xz(stream, input, out)?,
            Kind::Bzip2(stream) => bzip2(stream, input, out)?,
        };
        *len = decoded;
        Ok(Step { used, place })
    }

    /// Returns the bytes that the last step decoded.
    #[must_use]
    pub fn decoded(&self) -> &[u8] {
        match &self.kind {
            Kind::Deflate(inflate) => inflate.decoded(),
            Kind::Zstd(_) | Kind::Xz(..) | Kind::Bzip2(_) => &self.out[..self.len],
        }
    }

    /// Returns the decoded bytes that a block at this position may refer to: the last 32 KiB of a
    /// DEFLATE stream, or fewer at its start; empty for other streams.
    #[must_use]
    pub fn history(&self) -> &[u8] {
        match &self.kind {
            Kind::Deflate(inflate) => inflate.history(),
            Kind::Zstd(_) | Kind::Xz(..) | Kind::Bzip2(_) => &[],
        }
    }
}

/// Used bytes, decoded bytes, and the position after them.
type Done = (usize, usize, StreamPlace);

fn zstd(context: &mut DCtx<'_>, input: &[u8], out: &mut [u8]) -> Result<Done, DecodeError> {
    let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(out));
    let hint = context.decompress_stream(&mut to, &mut from);
    // Zero marks the end of the frame.
    let failed = |code| match code {
        WINDOW_TOO_LARGE => DecodeError::Memory {
            limit: 1 << WINDOW_LOG,
        },
        _ => DecodeError::Damaged,
    };
    let place = match hint.map_err(failed)? {
        0 => StreamPlace::End,
        _ => StreamPlace::Within,
    };
    Ok((from.pos(), to.pos(), place))
}

fn xz(stream: &mut Stream, input: &[u8], out: &mut [u8]) -> Result<Done, DecodeError> {
    let (read, written) = (stream.total_in(), stream.total_out());
    let status = stream.process(input, out, Action::Run);
    let failed = |error| match error {
        Error::MemLimit => DecodeError::Memory { limit: xz::MEMORY },
        _ => DecodeError::Damaged,
    };
    let place = match status.map_err(failed)? {
        Status::StreamEnd => StreamPlace::End,
        // `MemNeeded` means no progress: the caller must pass more input, or has reached its end.
        _ => StreamPlace::Within,
    };
    let used = usize_from(stream.total_in() - read);
    Ok((used, usize_from(stream.total_out() - written), place))
}

fn bzip2(stream: &mut Decompress, input: &[u8], out: &mut [u8]) -> Result<Done, DecodeError> {
    let (read, written) = (stream.total_in(), stream.total_out());
    let status = stream.decompress(input, out);
    let place = match status.map_err(|_| DecodeError::Damaged)? {
        bzip2::Status::StreamEnd => StreamPlace::End,
        bzip2::Status::MemNeeded => return Err(DecodeError::Damaged),
        _ => StreamPlace::Within,
    };
    let used = usize_from(stream.total_in() - read);
    Ok((used, usize_from(stream.total_out() - written), place))
}

#[cfg(test)]
mod tests;
