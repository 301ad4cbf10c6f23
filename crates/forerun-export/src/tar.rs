//! An image as a tar stream.
//!
//! POSIX headers, with PAX extensions where a field does not fit. Entries come in the order of the
//! walk, which is nearly that of the image, while the data is read ahead across files. Sparse files
//! are written whole.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, Read, Write};

use forerun_engine::Reader;
use forerun_io::u64_from;
use forerun_vfs::{FileType, NodeId, Timestamp};
use tar::{Builder, EntryType, Header};

use crate::select::{Selected, Selection, failure, select};
use crate::{ExportError, Progress};

/// How an archive is written.
#[derive(Clone, Debug, Default)]
pub struct TarWriteOptions {
    /// Times of modification later than this are set to it, in seconds since the epoch.
    pub latest: Option<i64>,
}

/// What is in the archive, and what is not.
#[derive(Debug, Default)]
pub struct TarReport {
    /// Entries written.
    pub entries: u64,
    /// Bytes of file data written.
    pub bytes: u64,
    /// What could not be looked at and is left out.
    pub failures: Vec<ExportError>,
}

/// Writes what is selected as a tar archive, and the blocks that end it.
///
/// # Errors
/// A selected path that is not there, more bytes than the limit, an output that fails, and any file
/// that cannot be read to its end: the archive is of no use then, and the error names the file.
pub fn write_tar(
    reader: &Reader,
    selection: &Selection,
    out: &mut dyn Write,
    options: &TarWriteOptions,
    progress: &dyn Progress,
) -> Result<TarReport, ExportError> {
    let chosen = select(reader, selection)?;
    let bytes = chosen.check_limit(reader.limits().total_bytes)?;
    progress.begin(bytes, u64_from(chosen.entries.len()));
    let mut report = TarReport {
        failures: chosen.failures,
        ..TarReport::default()
    };
    let mut first_names = HashMap::new();
    let mut nodes: Vec<NodeId> = Vec::new();
    for entry in chosen
        .entries
        .iter()
        .filter(|entry| entry.metadata.kind != FileType::Directory)
    {
        if let Entry::Vacant(first) = first_names.entry(entry.node) {
            first.insert(entry.name.clone());
            nodes.extend((entry.metadata.kind == FileType::Regular).then_some(entry.node));
        }
    }
    let bulk = reader.bulk(nodes);
    let mut builder = Builder::new(out);
    for entry in &chosen.entries {
        if entry.name.is_empty() {
            continue;
        }
        if entry.metadata.kind == FileType::Socket {
            let reason = "archives hold no sockets";
            report.failures.push(ExportError::LeftOut {
                path: entry.name.clone(),
                reason,
            });
            continue;
        }
        let hard_link = first_names
            .get(&entry.node)
            .filter(|first| **first != entry.name);
        let data = match (entry.metadata.kind, hard_link) {
            (FileType::Regular, None) => {
                bulk.take();
                Some(entry.metadata.size)
            }
            _ => None,
        };
        let fields = Fields::of(reader, entry, hard_link, options)?;
        fields
            .write(&mut builder, data.unwrap_or(0))
            .map_err(ExportError::Output)?;
        if let Some(size) = data {
            copy(reader, entry, size, builder.get_mut(), progress)?;
            report.bytes += size;
        }
        report.entries += 1;
        progress.advance(0, 1);
    }
    builder.finish().map_err(ExportError::Output)?;
    builder.get_mut().flush().map_err(ExportError::Output)?;
    Ok(report)
}

/// Bytes read and written at a time.
const CHUNK: usize = 1 << 20;

/// The data of one file and its padding.
fn copy(
    reader: &Reader,
    entry: &Selected,
    size: u64,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<(), ExportError> {
    let mut at = 0;
    while at < size {
        let data = reader
            .read(entry.node, at, CHUNK)
            .map_err(|error| failure(entry, error))?;
        if data.is_empty() {
            return Err(ExportError::Output(io::ErrorKind::UnexpectedEof.into()));
        }
        out.write_all(&data).map_err(ExportError::Output)?;
        at += u64_from(data.len());
        progress.advance(u64_from(data.len()), 0);
    }
    let padding = io::repeat(0).take(size.next_multiple_of(512) - size);
    io::copy(&mut { padding }, out).map_err(ExportError::Output)?;
    Ok(())
}

/// A header and what does not fit it.
struct Fields {
    header: Header,
    extensions: Vec<(String, Vec<u8>)>,
}

/// Longest name and link that a POSIX header holds without help.
const NAME_MAX: usize = 100;
/// Ids that do not fit seven octal digits, and sizes that do not fit eleven, go to PAX.
const ID_MAX: u32 = 0o7_777_777;
const SIZE_MAX: u64 = 0o77_777_777_777;

impl Fields {
    fn of(
        reader: &Reader,
        entry: &Selected,
        hard_link: Option<&Vec<u8>>,
        options: &TarWriteOptions,
    ) -> Result<Self, ExportError> {
        let metadata = &entry.metadata;
        let mut fields = Self {
            header: Header::new_ustar(),
            extensions: Vec::new(),
        };
        let mut name = entry.name.clone();
        if metadata.kind == FileType::Directory {
            name.push(b'/');
        }
        fields.name(name);
        let link = match (hard_link, metadata.kind) {
            (Some(first), _) => Some(first.clone()),
            (None, FileType::Symlink) => Some(
                reader
                    .fs()
                    .read_link(entry.node)
                    .map_err(|error| failure(entry, error))?,
            ),
            _ => None,
        };
        if let Some(link) = link {
            fields.link(link);
        }
        fields
            .header
            .set_entry_type(entry_type(metadata.kind, hard_link.is_some()));
        fields.header.set_mode(metadata.mode.into());
        fields.id("uid", metadata.uid);
        fields.id("gid", metadata.gid);
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
        let mut xattrs = Vec::new();
        let add = &mut |name: &[u8], value: &[u8]| xattrs.push((name.to_vec(), value.to_vec()));
        reader
            .fs()
            .xattrs(entry.node, add)
            .map_err(|error| failure(entry, error))?;
        for (name, value) in xattrs {
            // Keys are text in the format; names that are none are rare enough to be lossy.
            fields.extensions.push((
                format!("SCHILY.xattr.{}", String::from_utf8_lossy(&name)),
                value,
            ));
        }
        Ok(fields)
    }

    fn name(&mut self, name: Vec<u8>) {
        let field = &mut self.header.as_old_mut().name;
        fill(field, &name);
        if name.len() > NAME_MAX {
            self.extensions.push(("path".into(), name));
        }
    }

    fn link(&mut self, link: Vec<u8>) {
        let field = &mut self.header.as_old_mut().linkname;
        fill(field, &link);
        if link.len() > NAME_MAX {
            self.extensions.push(("linkpath".into(), link));
        }
    }

    fn id(&mut self, key: &str, id: u32) {
        let short = u64::from(if id > ID_MAX { 0 } else { id });
        match key {
            "uid" => self.header.set_uid(short),
            _ => self.header.set_gid(short),
        }
        if id > ID_MAX {
            self.extensions
                .push((key.into(), id.to_string().into_bytes()));
        }
    }

    fn mtime(&mut self, time: Timestamp) {
        let seconds = u64::try_from(time.seconds)
            .ok()
            .filter(|&seconds| seconds <= SIZE_MAX);
        self.header.set_mtime(seconds.unwrap_or(0));
        if seconds.is_none() || time.nanoseconds != 0 {
            self.extensions
                .push(("mtime".into(), decimal(time).into_bytes()));
        }
    }

    fn write(mut self, builder: &mut Builder<&mut dyn Write>, size: u64) -> io::Result<()> {
        self.header.set_size(if size > SIZE_MAX { 0 } else { size });
        if size > SIZE_MAX {
            self.extensions
                .push(("size".into(), size.to_string().into_bytes()));
        }
        self.header.set_cksum();
        if !self.extensions.is_empty() {
            let pairs = self
                .extensions
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_slice()));
            builder.append_pax_extensions(pairs)?;
        }
        builder.get_mut().write_all(self.header.as_bytes())
    }
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
        // Sockets are left out before they get here.
        FileType::Fifo | FileType::Socket => EntryType::Fifo,
    }
}

/// Seconds and their fraction; before the epoch the fraction counts away from it.
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
