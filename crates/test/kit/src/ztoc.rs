//! Makes layers with the tables of contents of SOCI (zTOC).
//!
//! Written from `ztoc.fbs` of soci-snapshotter, and shares nothing with the driver. Spans are members of gzip, so that
//! where they begin is known without a decoder; tests of the driver have tables that SOCI itself made, with checkpoints
//! at any bit.

use forerun_io::u64_from;
use forerun_vfs::{ProvenTable, TablePlace};
use sha2::{Digest as _, Sha256};

use crate::indexed::{gzip, kind_of, sha256, time};

/// Bytes of the header of a member.
const HEADER: usize = 10;
const WINDOW: usize = 32 << 10;

/// A table, before it is written. The names of the fields are those of the schema.
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

/// An entry of a table.
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

/// A gzip archive and its table.
#[derive(Clone, Debug)]
pub struct SociLayer {
    pub blob: Vec<u8>,
    pub ztoc: Ztoc,
}

impl SociLayer {
    /// Compresses an archive with spans of that many bytes, and makes its table.
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

/// Returns a table as a driver takes it.
pub fn beside(bytes: &[u8]) -> ProvenTable {
    ProvenTable {
        digest: Sha256::digest(bytes).into(),
        place: TablePlace::Beside(bytes.into()),
    }
}

/// Returns the entries of an archive.
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
        // Of other nodes the fields may be empty.
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
        let mut flat = Flat(vec![0; 4]);
        let (root, fields) = flat.table(&[
            (0, FlatField::Reference),
            (2, FlatField::I64(self.compressed_archive_size)),
            (3, FlatField::I64(self.uncompressed_archive_size)),
            (4, FlatField::Reference),
            (5, FlatField::Reference),
        ]);
        flat.refer(0, root);
        flat.text(fields[0], self.version.as_bytes());
        let toc = flat.child(fields[1], &[(0, FlatField::Reference)]);
        let entries = flat.list(toc[0], self.metadata.len());
        for (entry, file) in entries.into_iter().zip(&self.metadata) {
            file.encode(&mut flat, entry);
        }
        let info = flat.child(
            fields[2],
            &[
                (0, FlatField::U8(self.compression_algorithm)),
                (2, FlatField::Reference),
                (3, FlatField::Reference),
            ],
        );
        let digests = flat.list(info[0], self.span_digests.len());
        for (place, digest) in digests.into_iter().zip(&self.span_digests) {
            flat.text(place, digest.as_bytes());
        }
        flat.text(info[1], &self.checkpoints);
        flat.0
    }
}

impl ZtocFile {
    fn encode(&self, flat: &mut Flat, entry: usize) {
        let fields = flat.child(
            entry,
            &[
                (0, FlatField::Reference),
                (1, FlatField::Reference),
                (2, FlatField::I64(self.uncompressed_offset)),
                (3, FlatField::I64(self.uncompressed_size)),
                (4, FlatField::Reference),
                (5, FlatField::I64(self.mode)),
                (6, FlatField::U32(self.uid)),
                (7, FlatField::U32(self.gid)),
                (10, FlatField::Reference),
                (11, FlatField::I64(self.devmajor)),
                (12, FlatField::I64(self.devminor)),
                (13, FlatField::Reference),
            ],
        );
        let texts = [
            &self.name[..],
            self.kind.as_bytes(),
            &self.linkname,
            self.mod_time.as_bytes(),
        ];
        for (place, text) in fields.iter().zip(texts) {
            flat.text(*place, text);
        }
        let xattrs = flat.list(fields[4], self.xattrs.len());
        for (place, (key, value)) in xattrs.into_iter().zip(&self.xattrs) {
            let fields = flat.child(
                place,
                &[(0, FlatField::Reference), (1, FlatField::Reference)],
            );
            flat.text(fields[0], key);
            flat.text(fields[1], value);
        }
    }
}

/// A field of a table: a number, or an offset to something that is written later.
enum FlatField {
    U8(u8),
    U32(u32),
    I64(i64),
    Reference,
}

/// A FlatBuffer that is written from its start: what refers comes before what it refers to.
struct Flat(Vec<u8>);

impl Flat {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    /// Writes a table with these fields, by number. Returns its place, and those of its references.
    fn table(&mut self, fields: &[(usize, FlatField)]) -> (usize, Vec<usize>) {
        // Each field has eight bytes, the first after the offset to the list of fields.
        let count = fields.last().map_or(0, |(number, _)| number + 1);
        let mut offsets = vec![0_u16; count];
        for ((number, _), offset) in fields.iter().zip((8_u16..).step_by(8)) {
            offsets[*number] = offset;
        }
        let (list_len, len) = (4 + 2 * count, 8 + 8 * fields.len());
        self.align(8);
        let list = self.0.len();
        for number in [list_len, len] {
            self.0.extend(u16::try_from(number).unwrap().to_le_bytes());
        }
        self.0
            .extend(offsets.iter().flat_map(|at| at.to_le_bytes()));
        self.align(8);
        let at = self.0.len();
        let back = i32::try_from(at - list).unwrap();
        self.0.extend(back.to_le_bytes());
        self.0.extend([0; 4]);
        let mut references = Vec::new();
        for (_, field) in fields {
            let mut bytes = [0; 8];
            match field {
                FlatField::U8(number) => bytes[0] = *number,
                FlatField::U32(number) => bytes[..4].copy_from_slice(&number.to_le_bytes()),
                FlatField::I64(number) => bytes = number.to_le_bytes(),
                FlatField::Reference => references.push(self.0.len()),
            }
            self.0.extend(bytes);
        }
        (at, references)
    }

    /// Has the reference at `from` lead to `to`.
    fn refer(&mut self, from: usize, to: usize) {
        let offset = u32::try_from(to - from).unwrap().to_le_bytes();
        self.0[from..from + 4].copy_from_slice(&offset);
    }

    /// Writes a table that the reference at `from` leads to. Returns the places of its references.
    fn child(&mut self, from: usize, fields: &[(usize, FlatField)]) -> Vec<usize> {
        let (at, references) = self.table(fields);
        self.refer(from, at);
        references
    }

    fn text(&mut self, from: usize, bytes: &[u8]) {
        self.align(4);
        self.refer(from, self.0.len());
        self.0
            .extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        self.0.extend(bytes);
        self.0.push(0);
    }

    /// Writes a list of references. Returns their places.
    fn list(&mut self, from: usize, count: usize) -> Vec<usize> {
        self.align(4);
        self.refer(from, self.0.len());
        self.0.extend(u32::try_from(count).unwrap().to_le_bytes());
        let first = self.0.len();
        self.0.resize(first + 4 * count, 0);
        (first..).step_by(4).take(count).collect()
    }
}
