//! Makes small archives for tests and seeds, with every supported method and every record.
//!
//! Not a writer for users. It compresses nothing: its streams hold their bytes uncompressed, so
//! that the same members give the same archive whatever libraries the workspace uses.

use forerun_io::{u64_from, usize_from};
use libdeflater::crc32;

use crate::ondisk::{CENTRAL, END, END64, LOCAL, LOCATOR, UTF8};

#[derive(Clone, Debug)]
pub struct Made {
    /// Name in both headers.
    pub name: Vec<u8>,
    /// Contents before they are encoded.
    pub contents: Vec<u8>,
    /// Compression method. Contents are encoded for 8 and 93, and stored unchanged for others.
    pub method: u16,
    pub flags: u16,
    /// Upper byte of `version made by`.
    pub host: u8,
    pub attributes: u32,
    /// Extra field in both headers.
    pub extra: Vec<u8>,
    /// Extra field in the local header only.
    pub local_extra: Vec<u8>,
    /// Whether sizes and offset are in a zip64 field.
    pub zip64: bool,
}

impl Made {
    /// Creates a UNIX member with this mode, which includes the type.
    #[must_use]
    pub fn new(name: &[u8], mode: u32, method: u16, contents: &[u8]) -> Self {
        Self {
            name: name.to_vec(),
            contents: contents.to_vec(),
            method,
            flags: UTF8,
            host: crate::ondisk::HOST_UNIX,
            attributes: mode << 16,
            extra: Vec::new(),
            local_extra: Vec::new(),
            zip64: false,
        }
    }

    fn encoded(&self) -> Vec<u8> {
        match self.method {
            8 => deflate(&self.contents),
            93 => zstd(&self.contents),
            _ => self.contents.clone(),
        }
    }
}

#[must_use]
pub fn archive(members: &[Made]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut directory = Vec::new();
    for made in members {
        member(made, &mut bytes, &mut directory);
    }
    let offset = u64_from(bytes.len());
    bytes.extend_from_slice(&directory);
    let is_zip64 = members.iter().any(|made| made.zip64);
    let (count, len) = (u64_from(members.len()), u64_from(directory.len()));
    if is_zip64 {
        let end = u64_from(bytes.len());
        bytes.extend(END64);
        bytes.extend(44_u64.to_le_bytes());
        bytes.extend([45, 0, 45, 0]);
        bytes.extend([0; 8]);
        for number in [count, count, len, offset] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(LOCATOR);
        bytes.extend([0; 4]);
        bytes.extend(end.to_le_bytes());
        bytes.extend([1, 0, 0, 0]);
    }
    bytes.extend(END);
    bytes.extend([0; 4]);
    for number in [count, count] {
        bytes.extend(if is_zip64 { u16::MAX } else { low(number) }.to_le_bytes());
    }
    for number in [len, offset] {
        bytes.extend(if is_zip64 { u32::MAX } else { long(number) }.to_le_bytes());
    }
    bytes.extend([0; 2]);
    bytes
}

fn member(made: &Made, bytes: &mut Vec<u8>, directory: &mut Vec<u8>) {
    let encoded = made.encoded();
    let offset = u64_from(bytes.len());
    let sizes = [u64_from(made.contents.len()), u64_from(encoded.len())];
    let common = |extra: &[u8]| {
        let mut fields = vec![20, 0];
        fields.extend(made.flags.to_le_bytes());
        fields.extend(made.method.to_le_bytes());
        // 2024-02-29 12:00:00.
        fields.extend([0, 0x60, 0x5d, 0x58]);
        fields.extend(crc32(&made.contents).to_le_bytes());
        for size in [sizes[1], sizes[0]] {
            fields.extend(if made.zip64 { u32::MAX } else { long(size) }.to_le_bytes());
        }
        fields.extend(low(u64_from(made.name.len())).to_le_bytes());
        fields.extend(low(u64_from(extra.len())).to_le_bytes());
        fields
    };
    let zip64 = |values: &[u64]| {
        let mut extra = Vec::new();
        if made.zip64 {
            extra.extend([1, 0]);
            extra.extend(low(u64_from(values.len() * 8)).to_le_bytes());
            extra.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        extra
    };
    let local = [zip64(&sizes), made.local_extra.clone()].concat();
    bytes.extend(LOCAL);
    bytes.extend(common(&local));
    bytes.extend_from_slice(&made.name);
    bytes.extend_from_slice(&local);
    bytes.extend_from_slice(&encoded);
    let extra = [zip64(&[sizes[0], sizes[1], offset]), made.extra.clone()].concat();
    directory.extend(CENTRAL);
    directory.extend([30, made.host]);
    directory.extend(common(&extra));
    directory.extend([0; 6]);
    directory.extend(made.attributes.to_le_bytes());
    directory.extend(if made.zip64 { u32::MAX } else { long(offset) }.to_le_bytes());
    directory.extend_from_slice(&made.name);
    directory.extend_from_slice(&extra);
}

/// Returns a DEFLATE stream of stored blocks (RFC 1951, 3.2.4).
fn deflate(contents: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = contents;
    loop {
        let (block, after) = rest.split_at(rest.len().min(0x7fff));
        let len = low(u64_from(block.len()));
        bytes.push(u8::from(after.is_empty()));
        bytes.extend(len.to_le_bytes());
        bytes.extend((!len).to_le_bytes());
        bytes.extend_from_slice(block);
        if after.is_empty() {
            return bytes;
        }
        rest = after;
    }
}

/// Returns a Zstandard frame of raw blocks (RFC 8878, 3.1.1).
fn zstd(contents: &[u8]) -> Vec<u8> {
    // A single segment, and a content size of four bytes.
    let mut bytes = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    bytes.extend(long(u64_from(contents.len())).to_le_bytes());
    let mut rest = contents;
    loop {
        let (block, after) = rest.split_at(rest.len().min(0x7fff));
        let header = long(u64_from(block.len())) << 3 | u32::from(after.is_empty());
        bytes.extend_from_slice(header.to_le_bytes().get(..3).unwrap_or_default());
        bytes.extend_from_slice(block);
        if after.is_empty() {
            return bytes;
        }
        rest = after;
    }
}

#[must_use]
pub fn field(id: u16, contents: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_le_bytes().to_vec();
    bytes.extend(low(u64_from(contents.len())).to_le_bytes());
    bytes.extend_from_slice(contents);
    bytes
}

/// Returns archives with every record and kind of member, and names for them.
#[must_use]
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let text = b"text ".repeat(40);
    let all = vec![
        Made::new(b"dir/", 0o040_755, 0, b""),
        Made::new(b"dir/stored", 0o100_644, 0, b"stored"),
        Made::new(b"dir/deflate", 0o100_600, 8, &text),
        Made::new(b"zstd", 0o104_755, 93, &text),
        Made::new(b"implied/dir/link", 0o120_777, 8, b"../../zstd"),
        Made::new(b"pipe", 0o010_644, 0, b""),
        Made::new(b"empty", 0o100_644, 8, b""),
    ];
    let mut times = Made::new(b"times", 0o100_644, 0, b"1");
    times.extra = [
        field(0x5455, &[1, 1, 2, 3, 4]),
        field(0x7875, &[1, 4, 1, 0, 0, 0, 2, 2, 0]),
    ]
    .concat();
    times.local_extra = field(0x5455, &[3, 1, 2, 3, 4, 5, 6, 7, 8]);
    let mut windows = Made::new(b"old\\name", 0, 8, &text);
    (windows.host, windows.flags, windows.attributes) = (0, 0, 0x21);
    windows.extra = field(0x000a, &[&[0; 4][..], &[1, 0, 24, 0], &[1; 24]].concat());
    let mut zip64 = all.clone();
    for made in &mut zip64 {
        made.zip64 = true;
    }
    let mut encrypted = Made::new(b"secret", 0o100_644, 8, b"secret");
    encrypted.flags |= 1;
    let unsupported = Made::new(b"bzip2", 0o100_644, 12, b"BZh9");
    let long = vec![b'l'; usize_from(crate::fuzzing::LARGE)];
    let large = [
        Made::new(b"deflate", 0o100_644, 8, &long),
        Made::new(b"zstd", 0o100_644, 93, &long),
    ];
    vec![
        ("everything", archive(&all)),
        ("zip64", archive(&zip64)),
        ("fields", archive(&[times, windows, encrypted, unsupported])),
        ("large", archive(&large)),
        ("prefix", [&b"#!/bin/sh\n"[..], &archive(&all)].concat()),
        ("empty", archive(&[])),
    ]
}

fn low(number: u64) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

fn long(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
