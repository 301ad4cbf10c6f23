//! Encoders that fill a block of fixed size with as much input as fits.
//!
//! In EROFS the length of the encoded block is fixed, and the length of its input varies. LZ4
//! supports that directly; for the other codecs the length of the input is found by a search.

mod search;

use libdeflater::{CompressionLvl, Compressor};
use lzzzz::{lz4, lz4_hc};
use zstd_safe::{CCtx, CParameter};

use crate::encoding::{EncodingError, lzma_memory};
use crate::microlzma_encode;
use crate::shared::in_range;
use crate::zstd;

use self::search::Search;

/// A codec of EROFS with its options. Ranges and defaults are those of `mkfs.erofs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FillEncoding {
    Lz4,
    /// A raw LZ4 block, encoded by the slow compressor with the better ratio.
    Lz4Hc {
        /// 1 to 12; 9 is the default.
        level: u8,
    },
    /// LZMA without a header and without an end marker.
    MicroLzma {
        /// 0 to 9; 6 is the default.
        level: u8,
        /// Dictionary in bytes, 4 KiB to 8 MiB.
        dictionary: u32,
    },
    /// Raw DEFLATE, with a window of 32 KiB.
    Deflate {
        /// 1 to 12; 1 is the default.
        level: u8,
    },
    /// One Zstandard frame.
    Zstd {
        /// 1 to 22; 3 is the default.
        level: u8,
        /// log2 of the window, 10 to 20. A block takes no more input than the window.
        window_log: u8,
    },
}

impl FillEncoding {
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Lz4 => "lz4",
            Self::Lz4Hc { .. } => "lz4hc",
            Self::MicroLzma { .. } => "lzma",
            Self::Deflate { .. } => "deflate",
            Self::Zstd { .. } => "zstd",
        }
    }

    /// Returns an upper bound on the memory of a [`FillEncoder`] with inputs of `longest` bytes, in
    /// bytes. Measured: LZMA takes 1.7 MiB with a dictionary of 32 KiB, DEFLATE 4.4 MiB at level
    /// 12, Zstandard 4.9 MiB at level 22 with a window of 1 MiB.
    #[must_use]
    pub fn memory(&self, longest: u32) -> u64 {
        match *self {
            Self::Lz4 | Self::Lz4Hc { .. } => 1 << 20,
            // The dictionary is never longer than the input.
            Self::MicroLzma { dictionary, .. } => lzma_memory(dictionary.min(longest).into()),
            Self::Deflate { level } if level < 10 => 1 << 20,
            Self::Deflate { .. } => 6 << 20,
            Self::Zstd { window_log, .. } => (5 << window_log.min(20)) + (1 << 20),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Number of bytes taken from the start of the input.
    pub consumed: usize,
    /// Number of bytes written to the output; less than `consumed`.
    pub produced: usize,
}

/// Fills blocks in turn. The result depends only on the calls since [`restart`](Self::restart).
pub struct FillEncoder {
    kind: FillKind,
    search: Search,
    longest: usize,
}

enum FillKind {
    Lz4,
    Lz4Hc(i32),
    MicroLzma(microlzma_encode::MicroLzmaEncoder),
    Deflate(Box<Compressor>),
    Zstd(CCtx<'static>),
}

impl std::fmt::Debug for FillEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FillEncoder").finish_non_exhaustive()
    }
}

impl FillEncoder {
    /// Creates an encoder for one thread.
    ///
    /// # Errors
    /// [`EncodingError`] if an option is out of its range.
    pub fn new(encoding: &FillEncoding) -> Result<Self, EncodingError> {
        let mut longest = usize::MAX;
        let kind = match *encoding {
            FillEncoding::Lz4 => FillKind::Lz4,
            FillEncoding::Lz4Hc { level } => {
                in_range("lz4hc", "level", level.into(), 1..=12)?;
                FillKind::Lz4Hc(level.into())
            }
            FillEncoding::MicroLzma { level, dictionary } => {
                FillKind::MicroLzma(microlzma_encode::MicroLzmaEncoder::new(level, dictionary)?)
            }
            FillEncoding::Deflate { level } => {
                in_range("deflate", "level", level.into(), 1..=12)?;
                let level = CompressionLvl::new(level.into()).map_err(|_| setup("deflate"))?;
                FillKind::Deflate(Box::new(Compressor::new(level)))
            }
            FillEncoding::Zstd { level, window_log } => {
                in_range("zstd", "level", level.into(), 1..=22)?;
                in_range("zstd", "window", window_log.into(), 10..=20)?;
                longest = 1 << window_log;
                FillKind::Zstd(zstd::context([
                    CParameter::CompressionLevel(level.into()),
                    CParameter::WindowLog(window_log.into()),
                    // The checksum has four bytes. Without it, a flipped bit mostly decodes to
                    // other contents.
                    CParameter::ChecksumFlag(true),
                ])?)
            }
        };
        Ok(Self {
            kind,
            search: Search::default(),
            longest,
        })
    }

    /// Forgets the ratios of earlier inputs. A caller that splits an input over threads calls this
    /// before each part, so that the result does not depend on how the parts are distributed.
    pub fn restart(&mut self) {
        self.search = Search::default();
    }

    /// Encodes as much from the start of `input` as fits into `out`. Returns `None` if the output
    /// would not be shorter than its input.
    pub fn fill(&mut self, input: &[u8], out: &mut [u8]) -> Option<Filled> {
        let input = input.get(..self.longest).unwrap_or(input);
        if input.is_empty() || out.is_empty() {
            return None;
        }
        let filled = match &mut self.kind {
            FillKind::Lz4 => filled(lz4::compress_fill(input, out)),
            FillKind::Lz4Hc(level) => filled(lz4_hc::compress_fill(input, out, *level)),
            FillKind::MicroLzma(encoder) => {
                let encode = |input: &[u8], out: &mut [u8]| encoder.encode(input, out);
                self.search.fill(input, out, encode)
            }
            FillKind::Deflate(encoder) => self.search.fill(input, out, |input, out| {
                encoder.deflate_compress(input, out).ok()
            }),
            FillKind::Zstd(encoder) => self
                .search
                .fill(input, out, |input, out| encoder.compress2(out, input).ok()),
        };
        filled.filter(|filled| filled.produced > 0 && filled.produced < filled.consumed)
    }
}

fn filled<E>(result: Result<(usize, usize), E>) -> Option<Filled> {
    let (consumed, produced) = result.ok()?;
    Some(Filled { consumed, produced })
}

fn setup(codec: &'static str) -> EncodingError {
    EncodingError::Setup {
        codec,
        reason: "out of memory".into(),
    }
}
