//! Makes layers with SOCI tables of contents (zTOC).
//!
//! Written from `ztoc.fbs` of soci-snapshotter, without sharing code with the driver. Spans are
//! gzip members, so their start is known without a decoder. Tests of the driver have tables made by
//! SOCI itself, with checkpoints at any bit.

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, UnionWIPOffset, WIPOffset};
use forerun_io::u64_from;
use forerun_vfs::{ProvenTable, TablePlace};
use sha2::{Digest as _, Sha256};

use crate::indexed::{gzip, kind_of, sha256, time};

/// Length of a member's header.
const HEADER: usize = 10;
const WINDOW: usize = 32 << 10;

/// A table before it is written. The field names are those of the schema.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct Ztoc {
    pub version: String,
    pub compressed_archive_size: i64,
    pub uncompressed_archive_size: i64,
    pub metadata: Vec<ZtocFile>,
    pub compression_algorithm: u8,
    pub span_digests: Vec<String>,
    pub checkpoints: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
#[allow(missing_docs)]
pub struct ZtocFile {
    pub name: Vec<u8>,
    pub kind: String,
    pub uncompressed_offset: i64,
    pub uncompressed_size: i64,
    pub linkname: Vec<u8>,
    pub mode: i64,
    pub uid: u32,
    pub gid: u32,
    pub mod_time: String,
    pub devmajor: i64,
    pub devminor: i64,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Debug)]
pub struct SociLayer {
    pub blob: Vec<u8>,
    pub ztoc: Ztoc,
}

impl SociLayer {
    /// Compresses an archive with spans of `span` bytes, and makes its table.
    pub fn new(archive: &[u8], span: usize) -> Self {
        let (mut blob, mut starts) = (Vec::new(), Vec::new());
        for (number, bytes) in archive.chunks(span).enumerate() {
            starts.push((blob.len() + HEADER, number * span));
            blob.extend(gzip(bytes));
        }
        let ends = starts.iter().skip(1).map(|(offset, _)| *offset);
        let ends = ends.chain([blob.len()]);
        let digests = starts.iter().zip(ends);
        let digests = digests.map(|((start, _), end)| sha256(&blob[*start..end]));
        let mut checkpoints = u32::try_from(starts.len()).unwrap().to_le_bytes().to_vec();
        checkpoints.extend(u64_from(span).to_le_bytes());
        for (offset, decoded) in &starts {
            checkpoints.extend(u64_from(*offset).to_le_bytes());
            checkpoints.extend(u64_from(*decoded).to_le_bytes());
            checkpoints.push(0);
            let before = &archive[decoded.saturating_sub(WINDOW)..*decoded];
            checkpoints.resize(checkpoints.len() + WINDOW - before.len(), 0);
            checkpoints.extend(before);
        }
        let ztoc = Ztoc {
            version: "0.9".to_string(),
            compressed_archive_size: signed(blob.len()),
            uncompressed_archive_size: signed(archive.len()),
            metadata: metadata(archive),
            compression_algorithm: 1,
            span_digests: digests.collect(),
            checkpoints,
        };
        Self { blob, ztoc }
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap()
}

/// Returns a table in the form for a driver.
pub fn beside(bytes: &[u8]) -> ProvenTable {
    ProvenTable {
        digest: Sha256::digest(bytes).into(),
        place: TablePlace::Beside(bytes.into()),
    }
}

fn metadata(bytes: &[u8]) -> Vec<ZtocFile> {
    let mut archive = tar::Archive::new(bytes);
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let mut xattrs = Vec::new();
        for record in entry.pax_extensions().unwrap().into_iter().flatten() {
            let record = record.unwrap();
            xattrs.push((record.key_bytes().to_vec(), record.value_bytes().to_vec()));
        }
        let header = entry.header();
        // Other nodes may have empty fields.
        let device =
            |number: std::io::Result<Option<u32>>| i64::from(number.ok().flatten().unwrap_or(0));
        let narrow = |number: std::io::Result<u64>| u32::try_from(number.unwrap()).unwrap();
        let kind = kind_of(header.entry_type());
        ZtocFile {
            name: entry.path_bytes().into_owned(),
            kind: kind.to_string(),
            uncompressed_offset: i64::try_from(entry.raw_file_position()).unwrap(),
            uncompressed_size: i64::try_from(entry.size()).unwrap(),
            linkname: entry.link_name_bytes().unwrap_or_default().into_owned(),
            mode: i64::from(header.mode().unwrap()),
            uid: narrow(header.uid()),
            gid: narrow(header.gid()),
            mod_time: time(header.mtime().unwrap()),
            devmajor: device(header.device_major()),
            devminor: device(header.device_minor()),
            xattrs,
        }
    });
    entries.collect()
}

impl Ztoc {
    pub fn encode(&self) -> Vec<u8> {
        let mut flat = FlatBufferBuilder::new();
        let files = self.metadata.iter().map(|file| file.encode(&mut flat));
        let files: Vec<_> = files.collect();
        let files = flat.create_vector(&files);
        let toc = table(&mut flat, &[(0, Field::at(files))]);
        let digests = self.span_digests.iter();
        let digests: Vec<_> = digests.map(|digest| flat.create_string(digest)).collect();
        let digests = flat.create_vector(&digests);
        let checkpoints = flat.create_vector(&self.checkpoints);
        let info = [
            (0, Field::Byte(self.compression_algorithm)),
            (2, Field::at(digests)),
            (3, Field::at(checkpoints)),
        ];
        let info = table(&mut flat, &info);
        let version = flat.create_string(&self.version);
        let fields = [
            (0, Field::at(version)),
            (2, Field::Signed(self.compressed_archive_size)),
            (3, Field::Signed(self.uncompressed_archive_size)),
            (4, Field::at(toc)),
            (5, Field::at(info)),
        ];
        let root = table(&mut flat, &fields);
        flat.finish_minimal(root);
        flat.finished_data().to_vec()
    }
}

impl ZtocFile {
    fn encode(&self, flat: &mut FlatBufferBuilder<'_>) -> Table {
        let mut xattrs = Vec::new();
        for (key, value) in &self.xattrs {
            let pair = [key, value].map(|text| Field::at(flat.create_byte_string(text)));
            let [key, value] = pair;
            xattrs.push(table(flat, &[(0, key), (1, value)]));
        }
        let texts = [
            &self.name[..],
            self.kind.as_bytes(),
            &self.linkname,
            self.mod_time.as_bytes(),
        ];
        let [name, kind, linkname, mod_time] =
            texts.map(|text| Field::at(flat.create_byte_string(text)));
        let fields = [
            (0, name),
            (1, kind),
            (2, Field::Signed(self.uncompressed_offset)),
            (3, Field::Signed(self.uncompressed_size)),
            (4, linkname),
            (5, Field::Signed(self.mode)),
            (6, Field::Unsigned(self.uid)),
            (7, Field::Unsigned(self.gid)),
            (10, mod_time),
            (11, Field::Signed(self.devmajor)),
            (12, Field::Signed(self.devminor)),
            (13, Field::at(flat.create_vector(&xattrs))),
        ];
        table(flat, &fields)
    }
}

type Table = WIPOffset<TableFinishedWIPOffset>;

#[derive(Clone, Copy)]
enum Field {
    Byte(u8),
    Unsigned(u32),
    Signed(i64),
    At(WIPOffset<UnionWIPOffset>),
}

impl Field {
    fn at<T>(offset: WIPOffset<T>) -> Self {
        Self::At(offset.as_union_value())
    }
}

/// Writes a table with these fields, by number.
fn table(flat: &mut FlatBufferBuilder<'_>, fields: &[(u16, Field)]) -> Table {
    let start = flat.start_table();
    for (number, field) in fields {
        let slot = 4 + 2 * number;
        match *field {
            Field::Byte(number) => flat.push_slot_always(slot, number),
            Field::Unsigned(number) => flat.push_slot_always(slot, number),
            Field::Signed(number) => flat.push_slot_always(slot, number),
            Field::At(offset) => flat.push_slot_always(slot, offset),
        }
    }
    flat.end_table(start)
}
