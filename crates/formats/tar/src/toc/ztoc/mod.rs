//! SOCI tables of contents for layers (zTOC): each describes an unchanged gzip archive, and is a
//! separate blob.
//!
//! A zTOC is a FlatBuffer. It has the members of the archive with their offsets in the decoded
//! bytes, checkpoints where decoding can start, and the digest of the stored bytes between two
//! checkpoints. `ztoc.fbs` of soci-snapshotter defines the schema; docs/formats/tar.md describes
//! it.

mod entry;
mod flat;

use std::sync::Arc;

use forerun_codec::{Codec, gzip_header_len};
use forerun_io::{Limits, u64_from};
use forerun_spans::zran_spans;
use forerun_vfs::{EncodedBlock, Error, Held, Place, Result, Verifier};

use super::digest::{self, Sha};
use super::error::{EntryCheck, TocCheck};
use super::locate::compare;
use crate::error::{Check, lossy};
use crate::header::BLOCK;
use crate::index::{Facts, Index};
use crate::stream::Stream;
use crate::tree::Builder;
use entry::ZtocEntry;
use flat::{BadFlat, FlatList, FlatTable};

/// The only version so far.
const VERSION: &[u8] = b"0.9";
/// `CompressionAlgorithm.Gzip`, which is also the default.
const GZIP: u8 = 1;

/// The digests of the stored bytes of spans.
#[derive(Debug)]
pub struct SpanDigests(Vec<(u64, Sha)>);

impl Verifier for SpanDigests {
    /// Compares the stored bytes of a block with their digest. A gzip header at the start of the
    /// block belongs to no span: if a change moves the end of the header, the rest has another
    /// digest.
    fn verify_stored(&self, block: &EncodedBlock, stored: &[u8]) -> Result<()> {
        let found = self
            .0
            .binary_search_by_key(&block.offset, |(offset, _)| *offset);
        let Some((_, expected)) = found.ok().and_then(|at| self.0.get(at)) else {
            return Err(TocCheck::Unknown.at(block.offset));
        };
        let start = match block.codec {
            Codec::GzipMembers => gzip_header_len(stored).unwrap_or(0),
            _ => 0,
        };
        let span = &stored[start..];
        let found = digest::of(span);
        if found == *expected {
            return Ok(());
        }
        let check = TocCheck::Piece {
            start: u64_from(start),
            len: u64_from(span.len()),
            expected: digest::hex(expected),
            found: digest::hex(&found),
        };
        Err(check.at(block.offset))
    }

    fn proves(&self, place: &Place) -> bool {
        matches!(place, Place::Encoded { .. })
    }
}

/// An archive with the index from its zTOC.
pub struct ZtocArchive {
    pub index: Index,
    pub stream: Stream,
    pub digests: SpanDigests,
}

/// Opens an archive of `source_len` bytes from its table, which must have the given digest. Reads
/// nothing of the archive. Fails with `Corrupt` for a table with another digest, for another
/// archive, or with invalid values. `Unsupported` for other versions, for archives not compressed
/// with gzip, and for sparse files, whose maps the table lacks.
pub fn open(
    source_len: u64,
    table: &Arc<[u8]>,
    expected: &Sha,
    limits: &Limits,
    is_layer: bool,
) -> Result<ZtocArchive> {
    compare(table, expected, 0)?;
    let document = Document::read(table).map_err(bad)?;
    let unsupported = |what: String| Err(Error::Unsupported(what));
    if document.version != VERSION {
        let version = lossy(document.version);
        return unsupported(format!("tables of contents of SOCI of version {version:?}"));
    }
    if document.compression != GZIP {
        return unsupported("tables of contents of SOCI of archives without gzip".to_string());
    }
    let (stored, decoded) = (document.stored_len, document.decoded_len);
    let (Ok(stored), Ok(decoded)) = (u64::try_from(stored), u64::try_from(decoded)) else {
        return Err(TocCheck::Lengths { stored, decoded }.at(0));
    };
    if stored != source_len {
        return Err(TocCheck::OtherArchive { stored, source_len }.at(0));
    }
    let spans = zran_spans(document.checkpoints, source_len, decoded, limits)?;
    let digests = digests(document.digests, &spans.starts, spans.checkpoints)?;
    let index = index(document.entries, decoded, limits, is_layer)?;
    Ok(ZtocArchive {
        index,
        stream: Stream::kept(spans.spans, source_len),
        digests,
    })
}

/// Returns the error for a buffer that refers outside of itself.
fn bad(error: BadFlat) -> Error {
    TocCheck::Flat { at: error.0 }.at(0)
}

/// The fields of a table.
struct Document<'b> {
    version: &'b [u8],
    stored_len: i64,
    decoded_len: i64,
    entries: FlatList<'b>,
    compression: u8,
    digests: FlatList<'b>,
    checkpoints: &'b [u8],
}

impl<'b> Document<'b> {
    /// Reads the tables `Ztoc`, `TOC` and `CompressionInfo`.
    fn read(bytes: &'b [u8]) -> std::result::Result<Self, BadFlat> {
        let root = FlatTable::root(bytes)?;
        let toc = root.table(4)?.ok_or(BadFlat(0))?;
        let info = root.table(5)?.ok_or(BadFlat(0))?;
        Ok(Self {
            version: root.bytes(0)?,
            stored_len: root.i64(2)?,
            decoded_len: root.i64(3)?,
            entries: toc.list(0)?,
            compression: info.u8(0, GZIP)?,
            digests: info.list(2)?,
            checkpoints: info.bytes(3)?,
        })
    }
}

/// Reads the digests of the spans that begin at `starts`, each with the number of its checkpoint.
fn digests(
    texts: FlatList<'_>,
    starts: &[(u64, usize)],
    checkpoints: usize,
) -> Result<SpanDigests> {
    if texts.len() != checkpoints {
        let found = texts.len();
        return Err(TocCheck::Digests { found, checkpoints }.at(0));
    }
    let mut starts = starts.iter().peekable();
    let mut digests = Vec::new();
    for (number, text) in texts.texts().enumerate() {
        let text = text.map_err(bad)?;
        if let Some((offset, _)) = starts.next_if(|(_, of)| *of == number) {
            let digest = str::from_utf8(text).ok().and_then(digest::parse);
            let digest = digest.ok_or_else(|| TocCheck::BadDigest(lossy(text)).at(0))?;
            digests.push((*offset, digest));
        }
    }
    Ok(SpanDigests(digests))
}

/// Builds the tree of the members, which follow each other in `decoded_len` bytes.
fn index(
    entries: FlatList<'_>,
    decoded_len: u64,
    limits: &Limits,
    is_layer: bool,
) -> Result<Index> {
    let mut builder = Builder::new(limits, is_layer);
    let mut facts = Facts {
        len: decoded_len,
        ..Facts::default()
    };
    // Entries may share their strings, so their memory is bounded separately from the tree.
    let mut read = Held::new(limits);
    let mut end = 0_u64;
    for (number, entry) in (0..).zip(entries.tables()) {
        let entry = ZtocEntry::read(&entry.map_err(bad)?).map_err(bad)?;
        read.add(entry.held())?;
        let name = lossy(entry.name);
        let refused = |what| {
            let (entry, name) = (number, name.clone());
            TocCheck::Entry { entry, name, what }.at(0)
        };
        if entry.is_sparse().map_err(bad)? {
            let what = format!("the sparse file {name:?} in a table of contents of SOCI");
            return Err(Error::Unsupported(what));
        }
        let mut member = entry.member().map_err(|error| match error {
            entry::EntryError::Flat(error) => bad(error),
            entry::EntryError::Check(what) => refused(what),
        })?;
        // `decoded_len` is far below the maximum.
        let least = end + u64_from(BLOCK);
        let is_aligned = member.data.is_multiple_of(u64_from(BLOCK));
        if member.data < least || !is_aligned || member.end > decoded_len {
            let (offset, end) = (member.data, member.end);
            return Err(refused(EntryCheck::Place { offset, end }));
        }
        end = member.end.next_multiple_of(u64_from(BLOCK));
        facts.members += 1;
        let header = member.header;
        for check in std::mem::take(&mut member.odd) {
            facts.warn(header, check);
        }
        match builder.add(member)? {
            None => {}
            Some(check @ (Check::Climbs { .. } | Check::Name { .. })) => {
                return Err(refused(EntryCheck::Path(check.to_string())));
            }
            Some(check) => facts.leave_out(header, check),
        }
    }
    Ok(Index {
        tree: builder.finish(),
        facts,
        damage: None,
    })
}
