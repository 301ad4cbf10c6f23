//! The header of a tar entry and its PAX extensions.

use std::io::{self, Write};
use std::ops::Range;

use forerun_engine::Reader;
use forerun_vfs::{ACL_ACCESS, ACL_DEFAULT, FileType, PosixAcl, Timestamp};
use tar::{EntryType, Header};

use super::TarWriteOptions;
use crate::ExportError;
use crate::select::{Selected, failure};

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
            header: Header::new_ustar(),
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
        fields
            .header
            .set_entry_type(entry_type(metadata.kind, hard_link.is_some()));
        fields.header.set_mode(metadata.mode.into());
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
            let unfit = |_| {
                failure(
                    entry,
                    forerun_vfs::Error::Unsupported("device number in a tar archive".into()),
                )
            };
            let io = |result: io::Result<()>| result.map_err(unfit);
            io(fields.header.set_device_major(metadata.device.major))?;
            io(fields.header.set_device_minor(metadata.device.minor))?;
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
        self.header.set_size(if size > SIZE_MAX { 0 } else { size });
        if size > SIZE_MAX {
            self.extend("size", size.to_string().into_bytes());
        }
        self.header.set_cksum();
        if !self.extensions.is_empty() {
            let mut body = Vec::new();
            for (key, value) in &self.extensions {
                record(&mut body, key, value);
            }
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            fill(&mut header.as_old_mut().name, b"PaxHeaders/extensions");
            header.set_mode(0o644);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(forerun_io::u64_from(body.len()));
            header.set_cksum();
            body.resize(body.len().next_multiple_of(512), 0);
            out.write_all(header.as_bytes())?;
            out.write_all(&body)?;
        }
        out.write_all(self.header.as_bytes())
    }

    fn extend(&mut self, key: impl Into<Vec<u8>>, value: Vec<u8>) {
        self.extensions.push((key.into(), value));
    }

    fn name(&mut self, name: Vec<u8>) {
        let field = &mut self.header.as_old_mut().name;
        fill(field, &name);
        if name.len() > NAME_MAX {
            self.extend("path", name);
        }
    }

    fn link(&mut self, link: Vec<u8>) {
        let field = &mut self.header.as_old_mut().linkname;
        fill(field, &link);
        if link.len() > NAME_MAX {
            self.extend("linkpath", link);
        }
    }

    fn id(&mut self, key: &str, id: u32) {
        let short = u64::from(if id > ID_MAX { 0 } else { id });
        match key {
            "uid" => self.header.set_uid(short),
            _ => self.header.set_gid(short),
        }
        if id > ID_MAX {
            self.extend(key, id.to_string().into_bytes());
        }
    }

    fn mtime(&mut self, time: Timestamp) {
        let seconds = u64::try_from(time.seconds)
            .ok()
            .filter(|&seconds| seconds <= SIZE_MAX);
        self.header.set_mtime(seconds.unwrap_or(0));
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

fn fill(field: &mut [u8], bytes: &[u8]) {
    let len = bytes.len().min(field.len());
    field.fill(0);
    for (to, from) in field.iter_mut().zip(bytes.iter().take(len)) {
        *to = *from;
    }
}

const fn entry_type(kind: FileType, hard_link: bool) -> EntryType {
    match kind {
        _ if hard_link => EntryType::Link,
        FileType::Directory => EntryType::Directory,
        FileType::Regular => EntryType::Regular,
        FileType::Symlink => EntryType::Symlink,
        FileType::BlockDevice => EntryType::Block,
        FileType::CharDevice => EntryType::Char,
        // Sockets are omitted before this point.
        FileType::Fifo | FileType::Socket => EntryType::Fifo,
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
