//! Finds a table of contents in an archive, compares it with its digest, and decodes it.

use std::sync::Arc;

use forerun_codec::Codec;
use forerun_io::{Limits, MemorySource, ReadAt, u64_from, usize_from};
use forerun_spans::{Compression, IndexOptions};
use forerun_vfs::{Bound, Error, FileType, OpenWith, ProvenTable, Result, TablePlace};

use super::digest::{self, Sha};
use super::error::TocCheck;
use crate::header::BLOCK;
use crate::index::Pass;
use crate::plain;

/// The member that stores the table of an eStargz archive.
pub const FILE_NAME: &[u8] = b"stargz.index.json";

/// Length of the eStargz footer: a gzip header with an extra field of 26 bytes, an empty block,
/// checksum and length.
const FOOTER: usize = 51;
/// Length of the footer of stargz, the predecessor, whose extra field has no subfield header.
const OLD_FOOTER: usize = 47;
const GZIP_HEADER: usize = 10;
/// Hexadecimal digits of the table's offset; the magic number follows them.
const DIGITS: usize = 16;
const MAGIC: &[u8] = b"STARGZ";

pub struct LocatedTable {
    pub json: Vec<u8>,
    /// Offset of the table in the archive, where the data ends.
    pub offset: u64,
    pub compression: Compression,
}

pub fn read(source: &dyn ReadAt, table: &ProvenTable, limits: &Limits) -> Result<LocatedTable> {
    match &table.place {
        TablePlace::Beside(_) => Err(TocCheck::NoFile.at(0)),
        TablePlace::Footer => in_archive(source, &table.digest, limits),
        &TablePlace::At {
            offset,
            len,
            decoded_len,
        } => {
            bounded(decoded_len, limits)?;
            let stored = part(source, offset, len, limits)?;
            compare(&stored, &table.digest, offset)?;
            let mut json = vec![0; usize_from(decoded_len)];
            let decoded = Codec::Zstd.decode(&stored, &mut json);
            decoded.map_err(|_| TocCheck::Damaged.at(offset))?;
            Ok(LocatedTable {
                json,
                offset,
                compression: Compression::Zstd,
            })
        }
    }
}

/// Reads the table of an eStargz archive, which is a gzip member that the footer points to.
fn in_archive(source: &dyn ReadAt, expected: &Sha, limits: &Limits) -> Result<LocatedTable> {
    let source_len = source.len();
    let (offset, footer) = footer(source)?;
    let Some(len) = footer.checked_sub(offset) else {
        let len = 0;
        return Err(outside(offset, len, source_len).at(footer));
    };
    let stored = part(source, offset, len, limits)?;
    let archive = decode(&stored, offset, limits)?;
    let json = table_of(archive, offset, limits)?;
    compare(&json, expected, offset)?;
    Ok(LocatedTable {
        json,
        offset,
        compression: Compression::Gzip,
    })
}

const fn outside(offset: u64, len: u64, source_len: u64) -> TocCheck {
    TocCheck::Outside {
        offset,
        len,
        source_len,
    }
}

/// Reads the footer. Returns the offset of the table, and the offset of the footer.
fn footer(source: &dyn ReadAt) -> Result<(u64, u64)> {
    let len = source.len();
    let start = len.saturating_sub(u64_from(FOOTER));
    let mut bytes = vec![0; usize_from(len - start)];
    let read = source.read_exact_at(start, &mut bytes);
    read.map_err(|error| Error::io(start, bytes.len(), error))?;
    for footer in [FOOTER, OLD_FOOTER] {
        let at = bytes.len().checked_sub(footer);
        let found = at.and_then(|at| Some((at, table_offset(bytes.get(at..)?)?)));
        if let Some((at, offset)) = found {
            return Ok((offset, start + u64_from(at)));
        }
    }
    Err(TocCheck::Footer.at(start))
}

fn table_offset(footer: &[u8]) -> Option<u64> {
    const EXTRA: u8 = 4;
    let (header, rest) = footer.split_at_checked(GZIP_HEADER)?;
    let &[0x1f, 0x8b, 8, EXTRA, ..] = header else {
        return None;
    };
    let lead: &[u8] = match footer.len() {
        FOOTER => b"\x1a\x00SG\x16\x00",
        _ => b"\x16\x00",
    };
    let (digits, rest) = rest.strip_prefix(lead)?.split_at_checked(DIGITS)?;
    rest.starts_with(MAGIC).then_some(())?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Reads a range of the archive; fails if it is outside.
fn part(source: &dyn ReadAt, offset: u64, len: u64, limits: &Limits) -> Result<Vec<u8>> {
    let source_len = source.len();
    if offset
        .checked_add(len)
        .is_none_or(|end| end > source_len || len == 0)
    {
        return Err(outside(offset, len, source_len).at(offset));
    }
    bounded(len, limits)?;
    source.will_need(offset..offset + len);
    let mut bytes = vec![0; usize_from(len)];
    let read = source.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, bytes.len(), error))?;
    Ok(bytes)
}

/// Refuses a table that would take too much memory in addition to the tree built from it.
fn bounded(len: u64, limits: &Limits) -> Result<()> {
    let most = limits.walk_bytes / 2;
    if len <= most {
        Ok(())
    } else {
        Err(Error::limit(
            Bound::WalkMemory,
            "length of the table of contents",
            most,
        ))
    }
}

/// Compares a table at `offset` with its digest.
pub fn compare(bytes: &[u8], expected: &Sha, offset: u64) -> Result<()> {
    let found = digest::of(bytes);
    if found == *expected {
        return Ok(());
    }
    let (expected, found) = (digest::hex(expected), digest::hex(&found));
    Err(TocCheck::Digest { expected, found }.at(offset))
}

/// Decodes the gzip members that store the table's archive.
fn decode(stored: &[u8], offset: u64, limits: &Limits) -> Result<Vec<u8>> {
    let options = IndexOptions {
        limits: limits.clone(),
        ..IndexOptions::default()
    };
    let mut archive = Vec::new();
    let mut sink = |bytes: &[u8]| {
        bounded(u64_from(archive.len() + bytes.len()), limits)?;
        archive.extend_from_slice(bytes);
        Ok(())
    };
    let source = MemorySource::new(stored);
    match forerun_spans::index(&source, Compression::Gzip, &options, &mut sink) {
        Ok(_) => Ok(archive),
        Err(Error::Corrupt(_)) => Err(TocCheck::Damaged.at(offset)),
        Err(error) => Err(error),
    }
}

/// Extracts the table from its archive.
fn table_of(archive: Vec<u8>, offset: u64, limits: &Limits) -> Result<Vec<u8>> {
    let none = || TocCheck::NoFile.at(offset);
    let source = Arc::new(MemorySource::new(archive));
    let head = forerun_vfs::read_head(&*source, BLOCK)?;
    let mut with = OpenWith::new(Arc::<MemorySource>::clone(&source));
    with.limits = limits.clone();
    let index = plain::read(
        &*source,
        &head,
        &with,
        (Pass::new(&with.limits, with.archive.is_layer), None),
    )
    .map_err(|error| match error {
        Error::Corrupt(_) | Error::Unsupported(_) => none(),
        error => error,
    })?;
    let tree = &index.tree;
    let node = tree.lookup(tree.root(), FILE_NAME)?.ok_or_else(none)?;
    let node = tree.node(node)?;
    if node.kind != FileType::Regular || node.extra.is_some() {
        return Err(none());
    }
    // The parser has checked that the file ends within the archive.
    let mut json = vec![0; usize_from(node.size)];
    let read = source.read_exact_at(node.data, &mut json);
    read.map_err(|_| none())?;
    Ok(json)
}
