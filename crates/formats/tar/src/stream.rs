//! Reads compressed archives: the parser reads members from the decoded stream, in one pass.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{BlobId, ReadAt, u64_from, usize_from};
use forerun_spans::{Compression, IndexOptions, Indexed, SPOOL, Spans, Spool};
use forerun_vfs::{Blobs, Codec, EncodedBlock, Error, History, KeepIndex, Place, Result, Verifier};

use crate::error::Check;
use crate::index::{Index, Pass, Progress};
use crate::kept::Recorder;

/// The compressed stream of an archive.
pub struct Stream {
    spans: Spans,
    spool: Option<Spool>,
    pub len: u64,
}

impl Stream {
    /// Returns a stream with spans from a stored index, which need no temporary file, in a file of
    /// `len` bytes.
    pub const fn kept(spans: Spans, len: u64) -> Self {
        Self {
            spans,
            spool: None,
            len,
        }
    }

    pub const fn compression(&self) -> Compression {
        self.spans.compression()
    }

    /// Returns the number of spans, each of which is decoded separately.
    pub fn spans(&self) -> usize {
        self.spans.count()
    }

    /// Visits the locations of the archive's bytes in `range`.
    pub fn map(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Place) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.spans.map(range, visit)
    }
}

impl Blobs for Stream {
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        match &self.spool {
            Some(spool) if blob == SPOOL => Ok(spool.clone()),
            _ => Err(Error::no_blob(blob)),
        }
    }
}

impl History for Stream {
    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        self.spans.history(block)
    }
}

impl Verifier for Stream {
    /// Returns whether the first pass has verified the bytes at `place` with a checksum of the
    /// stream.
    fn proves(&self, place: &Place) -> bool {
        match place {
            Place::Encoded { block, .. } => match block.codec {
                Codec::GzipSpan { .. } | Codec::GzipMembers => true,
                Codec::Lz4Blocks { checksums } => checksums,
                _ => false,
            },
            _ => false,
        }
    }
}

/// Reads a compressed archive. In rescue mode, the archive ends at the first damage. Fails with
/// `UnknownFormat` if the stream is not an archive.
pub fn read(
    source: &dyn ReadAt,
    compression: Compression,
    options: &IndexOptions,
    (pass, keep): (Pass, Option<&dyn KeepIndex>),
) -> Result<(Index, Stream)> {
    let mut feed = Feed {
        pass,
        recorder: Recorder::new(keep.is_some(), &options.limits),
        at: 0,
        partial: Vec::new(),
        last: (0, 0),
        state: Within::Open,
        no_zeros: false,
        rescue: options.rescue,
        compression,
    };
    let indexed =
        forerun_spans::index(source, compression, options, &mut |bytes| feed.push(bytes))?;
    let Indexed {
        spans,
        spool,
        trailing,
        damage,
    } = indexed;
    let damage = match feed.finish(spans.decoded_len())? {
        Some(of_archive) if damage.is_none() => Some(of_archive),
        _ => damage,
    };
    if let Some(offset) = trailing {
        feed.pass.warn(offset, Check::Trailing);
    }
    let len = source.len();
    if let Some(keep) = keep {
        feed.recorder.keep(keep, Some(&spans), len, trailing);
    }
    let stream = Stream { spans, spool, len };
    Ok((feed.pass.finish(damage), stream))
}

/// Passes the parser the bytes that it asks for from the decoded stream.
struct Feed {
    pass: Pass,
    recorder: Recorder,
    /// Offset of the next decoded byte.
    at: u64,
    /// The bytes so far of a request by the parser.
    partial: Vec<u8>,
    /// Offset of the header of the last member, and the end of its data.
    last: (u64, u64),
    state: Within,
    /// Bytes other than zeros follow the end of the archive.
    no_zeros: bool,
    rescue: bool,
    compression: Compression,
}

enum Within {
    Open,
    Ended,
    /// The archive ended at damage, in rescue mode.
    Damaged(Error),
}

impl Feed {
    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        if let Within::Ended = self.state {
            self.no_zeros |= bytes.iter().any(|&byte| byte != 0);
        }
        while let (Within::Open, false) = (&self.state, bytes.is_empty()) {
            let (from, len) = self.pass.wants();
            let (skip, missing) = if self.partial.is_empty() {
                (from - self.at, len)
            } else {
                (0, len - self.partial.len())
            };
            let skip = usize_from(skip).min(bytes.len());
            let (_, rest) = bytes.split_at(skip);
            let (taken, rest) = rest.split_at(missing.min(rest.len()));
            self.partial.extend_from_slice(taken);
            self.at += u64_from(skip + taken.len());
            bytes = rest;
            if self.partial.len() >= len {
                let is_zero = self.partial.iter().all(|&byte| byte == 0);
                self.take()?;
                if let Within::Ended = self.state {
                    self.no_zeros = !is_zero || bytes.iter().any(|&byte| byte != 0);
                }
            }
        }
        Ok(())
    }

    /// Passes the requested bytes to the parser.
    fn take(&mut self) -> Result<()> {
        let result = self.pass.take(&self.partial, u64::MAX);
        self.recorder.record(&self.partial);
        self.partial.clear();
        match result {
            Ok(Progress::Open { header, end }) if end > self.last.1 => self.last = (header, end),
            Ok(Progress::Open { .. }) => {}
            Ok(Progress::Ended) => self.state = Within::Ended,
            Err(Error::Corrupt(_)) if self.last == (0, 0) => return Err(self.no_archive()),
            Err(error @ Error::Corrupt(_)) if self.rescue => self.state = Within::Damaged(error),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Finishes parsing when the stream ends after `len` bytes. With `rescue`, returns the damage
    /// instead of failing.
    fn finish(&mut self, len: u64) -> Result<Option<Error>> {
        // A stream of zeros followed by other data is not an archive.
        let no_zeros = self.no_zeros || self.partial.iter().any(|&byte| byte != 0);
        if len == 0 || (no_zeros && !self.pass.has_headers()) {
            return Err(self.no_archive());
        }
        let (header, end) = self.last;
        let ended = match std::mem::replace(&mut self.state, Within::Ended) {
            Within::Damaged(error) => return Ok(Some(error)),
            Within::Ended => Ok(()),
            // The stream ends within the data of a member.
            Within::Open if end > len => Err(Check::Cut { end, len }.at(header)),
            Within::Open => self.pass.end_of_source(len),
        };
        match ended {
            Ok(()) => Ok(None),
            Err(Error::Corrupt(_)) if self.last == (0, 0) => Err(self.no_archive()),
            Err(error @ Error::Corrupt(_)) if self.rescue => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Returns the error for a stream that is not an archive.
    fn no_archive(&self) -> Error {
        let name = self.compression.name();
        Error::UnknownFormat {
            expected: Some("tar".to_string()),
            found: format!("a {name} file that holds no archive; decompress it first"),
        }
    }
}
