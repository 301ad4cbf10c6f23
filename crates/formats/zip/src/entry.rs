//! An entry of the central directory (4.3.12).

use std::borrow::Cow;

use forerun_io::{u16_from, u64_from};
use forerun_vfs::{FileType, Ownership, Timestamp};
use libdeflater::crc32;
use zerocopy::FromBytes;

use crate::error::{Check, lossy};
use crate::extra::{Extra, Zip64};
use crate::method::Method;
use crate::name;
use crate::node::Data;
use crate::ondisk::{CENTRAL, CentralHeader, HOST_OS_X, HOST_UNIX, UTF8};
use crate::time;

/// Length of an entry before its name.
pub const HEADER: usize = size_of::<CentralHeader>();

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'b> {
    /// The path; not validated yet.
    pub path: Cow<'b, [u8]>,
    pub kind: FileType,
    pub mode: u16,
    pub owner: Option<(u32, u32)>,
    pub mtime: Timestamp,
    pub size: u64,
    pub data: Data,
    pub disk: u32,
    /// The type in its UNIX mode, if trees do not have such nodes.
    pub odd_kind: Option<u32>,
}

/// Returns the length of the name, the extra field and the comment after the header of an entry.
pub fn rest_len(header: &CentralHeader) -> Result<usize, Check> {
    let found = header.signature;
    if found == CENTRAL {
        Ok([header.name_len, header.extra_len, header.comment_len]
            .iter()
            .map(|len| usize::from(len.get()))
            .sum())
    } else {
        Err(Check::Signature { found })
    }
}

/// Parses an entry. `rest` is the name, the extra field and the comment after its header; `prefix`
/// is the number of bytes in the file before the archive.
pub fn parse<'b>(
    header: &CentralHeader,
    rest: &'b [u8],
    prefix: u64,
    ownership: &Ownership,
) -> Result<Member<'b>, Check> {
    let (raw, rest) = rest.split_at(usize::from(header.name_len.get()).min(rest.len()));
    let extra = rest.get(..usize::from(header.extra_len.get()));
    let extra = Extra::parse(extra.unwrap_or_default());
    let flags = header.flags.get();
    let mut zip64 = Zip64::new(&extra);
    let mut long = |field: u32, name| {
        let path = || lossy(raw);
        let value = zip64.long(field);
        value.ok_or_else(|| Check::Zip64 {
            path: path(),
            field: name,
        })
    };
    // This is the order of the values in the zip64 field (4.5.3).
    let size = long(header.size.get(), "size")?;
    let len = long(header.compressed_size.get(), "compressed size")?;
    let offset = long(header.offset.get(), "offset")?;
    let disk = zip64.disk(header.disk.get());
    let path = match extra.unicode {
        Some((crc, unicode)) if flags & UTF8 == 0 && crc == crc32(raw) => Cow::Borrowed(unicode),
        _ => name::path(raw, flags, header.host),
    };
    let attributes = header.external_attributes.get();
    let is_unix = header.host == HOST_UNIX || header.host == HOST_OS_X;
    let unix = if is_unix { attributes >> 16 } else { 0 };
    let (kind, odd_kind) = kind(&path, size, unix, attributes);
    Ok(Member {
        kind,
        mode: mode(kind, unix, attributes, ownership),
        owner: extra.owner,
        mtime: extra
            .mtime
            .unwrap_or_else(|| time::of_dos(header.date.get(), header.time.get(), &ownership.zone)),
        size,
        data: Data {
            header: offset
                .checked_add(prefix)
                .ok_or(Check::Header { offset, prefix })?,
            len,
            crc: header.crc.get(),
            method: Method::of(header.method.get(), flags),
        },
        disk: disk.unwrap_or(0),
        odd_kind,
        path,
    })
}

/// Returns the kind of a member, and its UNIX type if trees do not have such nodes. A slash at the
/// end makes it a directory, whatever its other fields say.
fn kind(path: &[u8], size: u64, unix: u32, attributes: u32) -> (FileType, Option<u32>) {
    /// `FILE_ATTRIBUTE_DIRECTORY`.
    const DIRECTORY: u32 = 0x10;
    let unix = unix & 0o170_000;
    let kind = match unix {
        _ if path.ends_with(b"/") => FileType::Directory,
        0 if attributes & DIRECTORY != 0 => FileType::Directory,
        0 | 0o100_000 => FileType::Regular,
        0o040_000 => FileType::Directory,
        0o120_000 => FileType::Symlink,
        // Info-ZIP's zip records the pipe that it read a member from.
        0o010_000 if size > 0 => FileType::Regular,
        0o010_000 => FileType::Fifo,
        0o140_000 => FileType::Socket,
        // Archives store no device numbers.
        _ => return (FileType::Regular, Some(unix)),
    };
    (kind, None)
}

fn mode(kind: FileType, unix: u32, attributes: u32, ownership: &Ownership) -> u16 {
    /// `FILE_ATTRIBUTE_READONLY`.
    const READ_ONLY: u32 = 1;
    if unix != 0 {
        return u16_from(u64::from(unix & 0o7777));
    }
    let writable = match attributes & READ_ONLY {
        0 => 0,
        _ => 0o222,
    };
    match kind {
        FileType::Directory => 0o777 & !ownership.directory_mask,
        _ => 0o666 & !ownership.file_mask & !writable,
    }
}

pub fn header(bytes: &[u8]) -> Option<CentralHeader> {
    let read = CentralHeader::read_from_prefix(bytes);
    read.ok().map(|(header, _)| header)
}

/// Returns the length of an entry with `rest` bytes after its header.
pub fn entry_len(rest: usize) -> u64 {
    u64_from(HEADER + rest)
}
