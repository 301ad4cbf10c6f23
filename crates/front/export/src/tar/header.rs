//! The header of a tar entry and its PAX extensions.

use std::io::{self, Write};
use std::ops::Range;

use forerun_engine::Reader;
use forerun_vfs::{ACL_ACCESS, ACL_DEFAULT, FileType, PosixAcl, Timestamp};

use super::TarWriteOptions;
use crate::ExportError;
use crate::select::{Selected, failure};

/// A header of POSIX (`ustar`).
struct Header([u8; 512]);

/// Offsets and lengths of its fields.
const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (100, 8);
const UID: (usize, usize) = (108, 8);
const GID: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const MTIME: (usize, usize) = (136, 12);
const SUM: (usize, usize) = (148, 8);
const TYPE: (usize, usize) = (156, 1);
const LINK: (usize, usize) = (157, 100);
const MAGIC: (usize, usize) = (257, 8);
const MAJOR: (usize, usize) = (329, 8);
const MINOR: (usize, usize) = (337, 8);

impl Header {
    fn new(kind: u8) -> Self {
        let mut header = Self([0; 512]);
        header.bytes(MAGIC, b"ustar\x0000");
        header.bytes(TYPE, &[kind]);
        header
    }

    /// Sets a field to bytes, as many as fit.
    fn bytes(&mut self, (at, len): (usize, usize), bytes: &[u8]) {
        let len = len.min(bytes.len());
        self.0[at..at + len].copy_from_slice(&bytes[..len]);
    }

    /// Sets a field to a number that fits: octal digits and a NUL.
    fn number(&mut self, field: (usize, usize), number: impl Into<u64>) {
        let digits = format!("{:0width$o}", number.into(), width = field.1 - 1);
        self.bytes(field, digits.as_bytes());
    }

    /// Sets the checksum, the sum of all bytes with spaces in its place, and returns the header.
    fn finished(mut self) -> [u8; 512] {
        self.bytes(SUM, b"        ");
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        self.number(SUM, sum);
        self.bytes((SUM.0 + SUM.1 - 1, 1), b"\0");
        self.0
    }
}

/// A header, and the values that do not fit into it.
pub struct Fields {
    header: Header,
    extensions: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Maximum length of names and link targets in a POSIX header.
const NAME_MAX: usize = 100;
/// IDs above seven octal digits and sizes above eleven go into PAX records.
const ID_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;

impl Fields {
    pub fn of(
        reader: &Reader,
        entry: &Selected,
        hard_link: Option<&[u8]>,
        options: &TarWriteOptions,
    ) -> Result<Self, ExportError> {
        let metadata = &entry.metadata;
        let mut fields = Self {
            header: Header::new(letter(metadata.kind, hard_link.is_some())),
            extensions: Vec::new(),
        };
        let mut name = entry.name().to_vec();
        if name.is_empty() {
            name.push(b'.');
        }
        if metadata.kind == FileType::Directory {
            name.push(b'/');
        }
        fields.name(name);
        match (hard_link, metadata.kind) {
            (Some(first), _) => fields.link(first.to_vec()),
            (None, FileType::Symlink) => {
                let target = reader.fs().read_link(entry.node);
                fields.link(target.map_err(|error| failure(entry, error))?);
            }
            _ => {}
        }
        fields.header.number(MODE, metadata.mode);
        fields.id("uid", options.uids.map(metadata.uid));
        fields.id("gid", options.gids.map(metadata.gid));
        let latest = |time: Timestamp| match options.latest {
            Some(seconds) if time.seconds >= seconds => Timestamp {
                seconds,
                nanoseconds: 0,
            },
            _ => time,
        };
        fields.mtime(latest(metadata.mtime));
        if matches!(metadata.kind, FileType::BlockDevice | FileType::CharDevice) {
            let (major, minor) = (metadata.device.major, metadata.device.minor);
            if major > ID_MAX || minor > ID_MAX {
                let what = format!("the device number {major}:{minor} in a tar archive");
                return Err(failure(entry, forerun_vfs::Error::Unsupported(what)));
            }
            fields.header.number(MAJOR, major);
            fields.header.number(MINOR, minor);
        }
        if hard_link.is_none() && !options.no_xattrs {
            fields.xattrs(reader, entry)?;
        }
        Ok(fields)
    }

    pub fn lost(&mut self, lost: &[Range<u64>]) {
        let ranges = lost
            .iter()
            .map(|lost| format!("{}-{}", lost.start, lost.end));
        let ranges: Vec<_> = ranges.collect();
        self.extend("FORERUN.lost", ranges.join(",").into_bytes());
    }

    /// Turns the header into one of a sparse file in GNU format 1.0. Programs without support for
    /// it extract a file with a different name, not a truncated file with the right one.
    pub fn sparse(&mut self, name: &[u8], size: u64) {
        let (dir, base) = match name.iter().rposition(|&byte| byte == b'/') {
            Some(at) => name.split_at(at + 1),
            None => name.split_at(0),
        };
        self.extensions.retain(|(key, _)| key != b"path");
        self.name([dir, b"GNUSparseFile.0/", base].concat());
        for (key, value) in [
            ("major", b"1".to_vec()),
            ("minor", b"0".to_vec()),
            ("name", name.to_vec()),
            ("realsize", size.to_string().into_bytes()),
        ] {
            self.extend(format!("GNU.sparse.{key}"), value);
        }
    }

    /// Writes the header and its extensions. `size` bytes of data follow.
    pub fn write(mut self, out: &mut dyn Write, size: u64) -> io::Result<()> {
        self.header
            .number(SIZE, if size > SIZE_MAX { 0 } else { size });
        if size > SIZE_MAX {
            self.extend("size", size.to_string().into_bytes());
        }
        if !self.extensions.is_empty() {
            let mut body = Vec::new();
            for (key, value) in &self.extensions {
                record(&mut body, key, value);
            }
            let mut header = Header::new(b'x');
            header.bytes(NAME, b"PaxHeaders/extensions");
            header.number(MODE, 0o644_u32);
            for field in [UID, GID, MTIME] {
                header.number(field, 0_u32);
            }
            header.number(SIZE, forerun_io::u64_from(body.len()));
            body.resize(body.len().next_multiple_of(512), 0);
            out.write_all(&header.finished())?;
            out.write_all(&body)?;
        }
        out.write_all(&self.header.finished())
    }

    fn extend(&mut self, key: impl Into<Vec<u8>>, value: Vec<u8>) {
        self.extensions.push((key.into(), value));
    }

    fn name(&mut self, name: Vec<u8>) {
        self.header.bytes(NAME, &[0; NAME_MAX]);
        self.header.bytes(NAME, &name);
        if name.len() > NAME_MAX {
            self.extend("path", name);
        }
    }

    fn link(&mut self, link: Vec<u8>) {
        self.header.bytes(LINK, &link);
        if link.len() > NAME_MAX {
            self.extend("linkpath", link);
        }
    }

    fn id(&mut self, key: &str, id: u32) {
        let field = if key == "uid" { UID } else { GID };
        self.header.number(field, if id > ID_MAX { 0 } else { id });
        if id > ID_MAX {
            self.extend(key, id.to_string().into_bytes());
        }
    }

    fn mtime(&mut self, time: Timestamp) {
        let seconds = u64::try_from(time.seconds)
            .ok()
            .filter(|&seconds| seconds <= SIZE_MAX);
        self.header.number(MTIME, seconds.unwrap_or(0));
        if seconds.is_none() || time.nanoseconds != 0 {
            self.extend("mtime", decimal(time).into_bytes());
        }
    }

    fn xattrs(&mut self, reader: &Reader, entry: &Selected) -> Result<(), ExportError> {
        let add = &mut |name: &[u8], value: &[u8]| {
            let mut key = b"SCHILY.xattr.".to_vec();
            for &byte in name {
                match byte {
                    // An equals sign would end the key; GNU tar escapes it like this.
                    b'=' => key.extend_from_slice(b"%3D"),
                    b'%' => key.extend_from_slice(b"%25"),
                    byte => key.push(byte),
                }
            }
            self.extend(key, value.to_vec());
            // bsdtar reads ACLs only in this form, and GNU tar sets them only from it.
            let record = match name {
                ACL_ACCESS => "SCHILY.acl.access",
                ACL_DEFAULT => "SCHILY.acl.default",
                _ => return,
            };
            if let Some(acl) = PosixAcl::from_bytes(value) {
                self.extend(record, acl.to_text().into_bytes());
            }
        };
        let read = reader.fs().xattrs(entry.node, add);
        read.map_err(|error| failure(entry, error))
    }
}

/// Appends a PAX record: its own length in decimal, space, key, equals sign, value, newline.
fn record(body: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    // The length includes its own digits.
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    body.extend_from_slice(format!("{len} ").as_bytes());
    body.extend_from_slice(key);
    body.push(b'=');
    body.extend_from_slice(value);
    body.push(b'\n');
}

/// Returns the letter of a type.
const fn letter(kind: FileType, hard_link: bool) -> u8 {
    match kind {
        _ if hard_link => b'1',
        FileType::Directory => b'5',
        FileType::Regular => b'0',
        FileType::Symlink => b'2',
        FileType::BlockDevice => b'4',
        FileType::CharDevice => b'3',
        // Sockets are omitted before this point.
        FileType::Fifo | FileType::Socket => b'6',
    }
}

/// Formats a time as decimal seconds. Before the epoch, the fraction is subtracted from the whole
/// seconds.
fn decimal(time: Timestamp) -> String {
    let Timestamp {
        seconds,
        nanoseconds,
    } = time;
    if nanoseconds == 0 {
        return seconds.to_string();
    }
    if seconds >= 0 {
        return format!("{seconds}.{nanoseconds:09}");
    }
    let (whole, fraction) = (seconds + 1, 1_000_000_000 - nanoseconds);
    let sign = if whole == 0 { "-" } else { "" };
    format!("{sign}{whole}.{fraction:09}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for (len, expected) in [(1, 6), (91, 97), (92, 98), (93, 99), (94, 101)] {
            let mut body = Vec::new();
            record(&mut body, b"k", &vec![b'v'; len]);
            let told: usize = String::from_utf8_lossy(&body)
                .split_once(' ')
                .unwrap()
                .0
                .parse()
                .unwrap();
            assert_eq!((told, body.len()), (expected, expected), "{len}");
        }
    }
}
