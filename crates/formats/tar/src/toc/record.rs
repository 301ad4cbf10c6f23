//! Builds a tree and the chunks of its files from the entries of a table.

use forerun_io::{Limits, u64_from};
use forerun_spans::Compression;
use forerun_vfs::{Bound, Error, Held, Result};

use super::chunks::{Chunks, FilePieces, TocPiece};
use super::digest::{self, Sha};
use super::entry::TocEntry;
use super::error::{EntryCheck, TocCheck};
use super::locate::FILE_NAME;
use crate::error::{Check, lossy};
use crate::index::{Facts, Index};
use crate::tree::Builder;

/// An eStargz file that ends the prefetch range.
const LANDMARK: &str = ".prefetch.landmark";
/// An eStargz file that requests no prefetch.
const NO_LANDMARK: &str = ".no.prefetch.landmark";

/// Consumes the entries of a table in order.
pub struct TocRecorder {
    compression: Compression,
    offset: u64,
    limits: Limits,
    held: Held,
    builder: Builder,
    pieces: Vec<TocPiece>,
    files: Vec<FilePieces>,
    open: Option<OpenFile>,
    /// Location of the landmark: its member, and its offset in the decoded member.
    landmark: Option<(u64, u64)>,
    facts: Facts,
}

/// The file whose chunks are being read.
struct OpenFile {
    entry: u64,
    name: String,
    size: u64,
    /// End of its stored bytes, or 0: some programs that make eStargz do not state it.
    end_offset: u64,
    /// Total length of the chunks so far.
    covered: u64,
}

impl TocRecorder {
    pub fn new(compression: Compression, offset: u64, limits: &Limits) -> Self {
        Self {
            compression,
            offset,
            limits: limits.clone(),
            held: Held::new(limits),
            // Links in a table stay inside it.
            builder: Builder::new(limits, false),
            pieces: Vec::new(),
            files: Vec::new(),
            open: None,
            landmark: None,
            facts: Facts::default(),
        }
    }

    pub const fn offset(&self) -> u64 {
        self.offset
    }

    pub fn add(&mut self, entry: TocEntry) -> Result<()> {
        let number = self.facts.members;
        self.facts.members += 1;
        let name = lossy(entry.name.as_bytes());
        let refused = |what| {
            let (entry, name) = (number, name.clone());
            TocCheck::Entry { entry, name, what }
        };
        if entry.is_piece() {
            let is_of = |open: &OpenFile| open.name == entry.name;
            if !self.open.as_ref().is_some_and(is_of) {
                return Err(refused(EntryCheck::NoFile).at(self.offset));
            }
            return self.piece(&entry, number);
        }
        self.close()?;
        let mut data = 0;
        if entry.kind == "reg" && entry.size > 0 {
            data = u64_from(self.files.len());
            self.begin(&entry, number)?;
        }
        if entry.path() == LANDMARK {
            self.landmark = Some((entry.offset, entry.inner_offset));
        }
        let hidden = [LANDMARK.as_bytes(), NO_LANDMARK.as_bytes(), FILE_NAME];
        if hidden.contains(&entry.path().as_bytes()) {
            return Ok(());
        }
        let member = entry.member(number, data);
        let member = member.map_err(|what| refused(what).at(self.offset))?;
        match self.builder.add(member)? {
            None => Ok(()),
            Some(check @ (Check::Climbs { .. } | Check::Name { .. })) => {
                Err(refused(EntryCheck::Path(check.to_string())).at(self.offset))
            }
            Some(check) => {
                self.facts.leave_out(self.offset, check);
                Ok(())
            }
        }
    }

    /// Begins a file with its first chunk.
    fn begin(&mut self, entry: &TocEntry, number: u64) -> Result<()> {
        self.held.add(size_of::<FilePieces>() + entry.name.len())?;
        let first = self.pieces.len();
        self.files.push(FilePieces(first..first));
        self.open = Some(OpenFile {
            entry: number,
            name: entry.name.clone(),
            size: entry.size,
            end_offset: entry.end_offset,
            covered: 0,
        });
        self.piece(entry, number)
    }

    /// Adds a chunk of the open file.
    fn piece(&mut self, entry: &TocEntry, number: u64) -> Result<()> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let refused = |what| {
            let (entry, name) = (number, lossy(open.name.as_bytes()));
            TocCheck::Entry { entry, name, what }.at(self.offset)
        };
        let (covered, size) = (open.covered, open.size);
        if entry.chunk_offset != covered {
            let (found, expected) = (entry.chunk_offset, covered);
            return Err(refused(EntryCheck::Gap { found, expected }));
        }
        // The last chunk may omit its length.
        let len = match entry.chunk_size {
            0 => size - covered,
            len => len,
        };
        let end = covered.checked_add(len);
        let Some(end) = end.filter(|&end| end <= size && len > 0) else {
            let end = end.unwrap_or(u64::MAX);
            return Err(refused(EntryCheck::Size { end, size }));
        };
        let is_zeros = self.compression == Compression::Zstd && entry.chunk_type == "zeros";
        let is_whole = len == size;
        let digest = if is_zeros {
            None
        } else {
            Some(piece_digest(entry, is_whole).map_err(refused)?)
        };
        let piece = TocPiece {
            logical: covered,
            len,
            offset: entry.offset,
            inner: entry.inner_offset,
            end: None,
            digest,
        };
        self.bound(&piece)?;
        self.held.add(size_of::<TocPiece>() + size_of::<u64>())?;
        self.end_last(entry.offset);
        self.pieces.push(piece);
        if let (Some(file), Some(open)) = (self.files.last_mut(), &mut self.open) {
            file.0.end = self.pieces.len();
            open.covered = end;
        }
        Ok(())
    }

    /// Refuses a chunk that is too long to decode at once.
    fn bound(&self, piece: &TocPiece) -> Result<()> {
        let most = u64::from(self.limits.block_len);
        let end = piece.inner.checked_add(piece.len);
        if piece.digest.is_none() || end.is_some_and(|end| end <= most) {
            return Ok(());
        }
        let at = piece.offset;
        let what = format!("what is decoded for a piece at {at:#x} of the archive, in bytes,");
        Err(Error::limit(Bound::Other, what, most))
    }

    /// Sets the end of the open file's last chunk, which the next chunk or the file states. Chunks
    /// in gzip members have no ends, because headers follow them. Chunks with one offset share a
    /// frame.
    fn end_last(&mut self, end: u64) {
        let is_frame = self.compression == Compression::Zstd && end > 0;
        let has_pieces = self.open.as_ref().is_some_and(|open| open.covered > 0);
        let last = self.pieces.last_mut().filter(|_| is_frame && has_pieces);
        if let Some(last) = last.filter(|last| last.offset != end) {
            last.end = Some(end);
        }
    }

    /// Ends the open file.
    fn close(&mut self) -> Result<()> {
        let end_offset = self.open.as_ref().map_or(0, |open| open.end_offset);
        self.end_last(end_offset);
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        if open.covered == open.size {
            return Ok(());
        }
        let what = EntryCheck::Size {
            end: open.covered,
            size: open.size,
        };
        let (entry, name) = (open.entry, lossy(open.name.as_bytes()));
        Err(TocCheck::Entry { entry, name, what }.at(self.offset))
    }

    /// Returns the tree, and the chunks in an archive of `source_len` bytes. Chunks that overlap or
    /// are outside the archive are `Corrupt`.
    pub fn finish(mut self, source_len: u64) -> Result<(Index, Chunks)> {
        self.close()?;
        let end = self.offset.min(source_len);
        let mut chunks = Chunks::new(
            self.compression,
            (self.pieces, self.files),
            end,
            &self.limits,
        )?;
        chunks.set_landmark(self.landmark);
        self.facts.len = source_len;
        let index = Index {
            tree: self.builder.finish(),
            facts: self.facts,
            damage: None,
        };
        Ok((index, chunks))
    }
}

/// Returns the digest of a chunk. A file of one chunk may have the digest of the file instead.
fn piece_digest(entry: &TocEntry, is_whole: bool) -> std::result::Result<Sha, EntryCheck> {
    let text = match entry.chunk_digest.as_str() {
        "" if is_whole => &entry.digest,
        text => text,
    };
    if text.is_empty() {
        return Err(EntryCheck::NoDigest);
    }
    digest::parse(text).ok_or_else(|| EntryCheck::BadDigest(lossy(text.as_bytes())))
}
