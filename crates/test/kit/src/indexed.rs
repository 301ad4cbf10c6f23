//! Archives with a table of contents, as in container layers: eStargz and zstd:chunked. Some were
//! made by other programs and are stored in the repository; others are made here.
//!
//! Written from the specifications, without sharing code with the driver. The input is any archive
//! that the crate `tar` reads, without sparse files.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forerun_io::u64_from;
use forerun_vfs::{ProvenTable, TablePlace};
use jiff::Timestamp;
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tar::EntryType;

use crate::packed::packed_file;

const ESTARGZ_DIGEST: &str = "containerd.io/snapshot/stargz/toc.digest";
const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
const CHUNKED: &str = "io.github.containers.zstd-chunked";

#[derive(Clone, Debug)]
pub struct IndexedOptions {
    /// Most bytes of a chunk.
    pub chunk_len: usize,
    /// The first file that is not prefetched.
    pub landmark: Option<String>,
}

impl Default for IndexedOptions {
    fn default() -> Self {
        Self {
            chunk_len: 64 << 10,
            landmark: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct IndexedArchive {
    pub blob: Vec<u8>,
    /// The annotations of its layer in a manifest.
    pub annotations: Vec<(String, String)>,
    /// Location and digest of the table.
    pub table: ProvenTable,
    /// Bytes of the blob before the table.
    pub data_len: usize,
    /// The decoded table.
    pub json: String,
    pub media_type: &'static str,
}

/// One layer, and archives of it made by real tools. `tools/layer-fixtures` makes this file.
const FIXTURES: &str = "crates/formats/tar/tests/it/data/indexed.tar.zst";
const FOOTER: usize = 51;

/// Returns the layer from which the [`fixtures`] were made.
pub fn fixture_layer() -> Vec<u8> {
    packed_file(FIXTURES, "layer.tar")
}

/// Returns archives made by the libraries of stargz-snapshotter and of containers/storage: eStargz
/// with members of one chunk, of several, with short chunks and the first file before the landmark;
/// zstd:chunked of both libraries.
pub fn fixtures() -> [IndexedArchive; 5] {
    ["estargz", "merged", "landmark", "stargz-zstd", "chunked"].map(fixture)
}

pub fn fixture(name: &str) -> IndexedArchive {
    let annotations = packed_file(FIXTURES, &format!("{name}.json"));
    let annotations: BTreeMap<String, String> = serde_json::from_slice(&annotations).unwrap();
    let annotation = |end: &str| {
        let mut all = annotations.iter();
        let found = all.find(|(name, _)| name.ends_with(end));
        found.map(|(_, value)| value.clone())
    };
    let blob = packed_file(FIXTURES, name);
    let Some(position) = annotation("manifest-position") else {
        let footer = blob.len() - FOOTER;
        let offset = std::str::from_utf8(&blob[footer + 16..footer + 32]).unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        let mut archive = vec![0; 1 << 20];
        let len = Decompressor::new().gzip_decompress(&blob[offset..footer], &mut archive);
        archive.truncate(len.unwrap());
        let json = parts(&archive).0[0].data.to_vec();
        assert_eq!(annotation("toc.digest"), Some(sha256(&json)));
        return IndexedArchive {
            annotations: annotations.into_iter().collect(),
            table: ProvenTable {
                digest: Sha256::digest(&json).into(),
                place: TablePlace::Footer,
            },
            data_len: offset,
            json: String::from_utf8(json).unwrap(),
            media_type: GZIP,
            blob,
        };
    };
    let numbers: Vec<usize> = position.split(':').map(|n| n.parse().unwrap()).collect();
    let [at, len, decoded_len, _] = numbers[..] else {
        panic!("{position}");
    };
    let stored = &blob[at..at + len];
    assert_eq!(annotation("manifest-checksum"), Some(sha256(stored)));
    let mut json = vec![0; decoded_len];
    zstd_safe::decompress(&mut json[..], stored).unwrap();
    IndexedArchive {
        annotations: annotations.into_iter().collect(),
        table: ProvenTable {
            digest: Sha256::digest(stored).into(),
            place: TablePlace::At {
                offset: u64_from(at),
                len: u64_from(len),
                decoded_len: u64_from(decoded_len),
            },
        },
        // The header of a skippable frame.
        data_len: at - 8,
        json: String::from_utf8(json).unwrap(),
        media_type: ZSTD,
        blob,
    }
}

/// A member of the input archive: the bytes before its data, its data, its padding, and its entry.
struct Part<'a> {
    headers: &'a [u8],
    data: &'a [u8],
    padding: &'a [u8],
    entry: Entry,
}

type Entry = Map<String, Value>;

fn table(entries: &[Entry]) -> String {
    json!({"version": 1, "entries": entries}).to_string()
}

pub fn estargz(archive: &[u8], options: &IndexedOptions) -> IndexedArchive {
    let (mut blob, mut entries) = (Vec::new(), Vec::new());
    let (parts, _end) = parts(archive);
    let mark = mark(landmark(options));
    let (mark, _) = self::parts(&mark);
    let mut between = Vec::new();
    for part in with_mark(&parts, &mark, options) {
        between.extend(part.headers);
        for (at, chunk) in chunks(part.data, options.chunk_len) {
            if !between.is_empty() {
                blob.extend(gzip(&between));
                between.clear();
            }
            let mut entry = chunk_entry(part, at, chunk);
            entry.insert("offset".into(), blob.len().into());
            if at + chunk.len() == part.data.len() {
                entry.remove("chunkSize");
            }
            blob.extend(gzip(chunk));
            entries.push(entry);
        }
        between.extend(part.padding);
        if part.data.is_empty() {
            entries.push(part.entry.clone());
        }
    }
    blob.extend(gzip(&between));
    estargz_of(blob, &table(&entries))
}

const fn landmark(options: &IndexedOptions) -> &'static str {
    match options.landmark {
        Some(_) => ".prefetch.landmark",
        None => ".no.prefetch.landmark",
    }
}

/// Puts the landmark before the first file that is not prefetched.
fn with_mark<'p>(
    parts: &'p [Part<'p>],
    mark: &'p [Part<'p>],
    options: &IndexedOptions,
) -> Vec<&'p Part<'p>> {
    let at = options.landmark.as_deref().and_then(|name| {
        let is_named = |part: &Part<'_>| part.entry["name"] == name;
        parts.iter().position(is_named)
    });
    let (before, behind) = parts.split_at(at.unwrap_or(0));
    before.iter().chain(mark).chain(behind).collect()
}

/// Appends a table and its footer to gzip members.
pub fn estargz_of(mut blob: Vec<u8>, json: &str) -> IndexedArchive {
    let text = json.as_bytes();
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = header(text.len());
    archive
        .append_data(&mut header, "stargz.index.json", text)
        .unwrap();
    let offset = blob.len();
    blob.extend(gzip(&archive.into_inner().unwrap()));
    blob.extend(b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x1a\x00SG\x16\x00");
    blob.extend(format!("{offset:016x}STARGZ").as_bytes());
    blob.extend(b"\x01\0\0\xff\xff\0\0\0\0\0\0\0\0");
    let digest: [u8; 32] = Sha256::digest(text).into();
    IndexedArchive {
        blob,
        annotations: vec![(ESTARGZ_DIGEST.to_string(), sha256(text))],
        table: ProvenTable {
            digest,
            place: TablePlace::Footer,
        },
        data_len: offset,
        json: json.to_string(),
        media_type: GZIP,
    }
}

pub fn zstd_chunked(archive: &[u8], options: &IndexedOptions) -> IndexedArchive {
    let mut blob = Vec::new();
    let mut entries = Vec::new();
    let (parts, end) = parts(archive);
    for part in &parts {
        blob.extend(zstd(part.headers));
        let first = entries.len();
        for (at, chunk) in chunks(part.data, options.chunk_len) {
            let mut entry = chunk_entry(part, at, chunk);
            entry.insert("offset".into(), blob.len().into());
            if chunk.len() >= 1024 && chunk.iter().all(|&byte| byte == 0) {
                entry.insert("chunkType".into(), "zeros".into());
            }
            blob.extend(zstd(chunk));
            entries.push(entry);
        }
        let end = blob.len();
        blob.extend(zstd(part.padding));
        match entries.get_mut(first) {
            Some(entry) => {
                entry.insert("endOffset".into(), end.into());
            }
            None => entries.push(part.entry.clone()),
        }
    }
    blob.extend(zstd(end));
    zstd_chunked_of(blob, &table(&entries))
}

/// Appends a table and its footer to Zstandard frames.
pub fn zstd_chunked_of(mut blob: Vec<u8>, json: &str) -> IndexedArchive {
    const SKIPPABLE: &[u8] = b"\x50\x2a\x4d\x18";
    let data_len = blob.len();
    let text = json.as_bytes();
    let stored = zstd(text);
    let split = zstd(b"{}");
    let frame = |blob: &mut Vec<u8>, bytes: &[u8]| {
        blob.extend(SKIPPABLE);
        blob.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
        let at = blob.len();
        blob.extend(bytes);
        at
    };
    let at = frame(&mut blob, &stored);
    let split_at = frame(&mut blob, &split);
    let footer = [at, stored.len(), text.len(), 1, split_at, split.len(), 2];
    let footer = footer.map(|number| u64_from(number).to_le_bytes()).concat();
    frame(&mut blob, &[&footer[..], b"GNUlInUx"].concat());
    let (len, decoded) = (stored.len(), text.len());
    let place = TablePlace::At {
        offset: u64_from(at),
        len: u64_from(len),
        decoded_len: u64_from(decoded),
    };
    let position = format!("{at}:{len}:{decoded}:1");
    let split = format!("{split_at}:{}:2", split.len());
    let annotations = [
        ("manifest-checksum", sha256(&stored)),
        ("manifest-position", position),
        ("tarsplit-position", split),
    ];
    let annotations = annotations.map(|(name, value)| (format!("{CHUNKED}.{name}"), value));
    IndexedArchive {
        blob,
        annotations: annotations.to_vec(),
        table: ProvenTable {
            digest: Sha256::digest(&stored).into(),
            place,
        },
        data_len,
        json: json.to_string(),
        media_type: ZSTD,
    }
}

fn chunks(data: &[u8], len: usize) -> impl Iterator<Item = (usize, &[u8])> {
    (0..data.len())
        .step_by(len.max(1))
        .zip(data.chunks(len.max(1)))
}

/// Returns the entry of a chunk. The first chunk uses the entry of its file.
fn chunk_entry(part: &Part<'_>, at: usize, chunk: &[u8]) -> Entry {
    let mut entry = part.entry.clone();
    if at > 0 {
        let name = &part.entry["name"];
        entry = fields(json!({"name": name, "type": "chunk", "chunkOffset": at}));
    }
    let of_chunk = json!({"chunkSize": chunk.len(), "chunkDigest": sha256(chunk)});
    entry.extend(fields(of_chunk));
    entry
}

fn fields(value: Value) -> Entry {
    match value {
        Value::Object(fields) => fields,
        other => panic!("{other}"),
    }
}

fn header(len: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(u64_from(len));
    header.set_mode(0o444);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// Makes an archive with a landmark file and without an end.
fn mark(name: &str) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = header(1);
    archive.append_data(&mut header, name, &[0xf][..]).unwrap();
    let mut archive = archive.into_inner().unwrap();
    archive.truncate(1024);
    archive
}

/// Splits an archive into its members, and returns the bytes after them.
fn parts(bytes: &[u8]) -> (Vec<Part<'_>>, &[u8]) {
    let (mut parts, mut end) = (Vec::new(), 0);
    let mut archive = tar::Archive::new(bytes);
    for member in archive.entries().unwrap() {
        let mut member = member.unwrap();
        let data = usize::try_from(member.raw_file_position()).unwrap();
        let size = usize::try_from(member.size()).unwrap();
        let digest = sha256(&bytes[data..data + size]);
        let mut entry = entry_of(&mut member);
        if size > 0 {
            entry.extend(fields(json!({"size": size, "digest": digest})));
        }
        parts.push(Part {
            headers: &bytes[end..data],
            data: &bytes[data..data + size],
            padding: &bytes[data + size..(data + size).next_multiple_of(512)],
            entry,
        });
        end = (data + size).next_multiple_of(512);
    }
    (parts, &bytes[end..])
}

/// Returns the name of a kind of member in tables of contents.
pub(crate) const fn kind_of(kind: EntryType) -> &'static str {
    match kind {
        EntryType::Directory => "dir",
        EntryType::Symlink => "symlink",
        EntryType::Link => "hardlink",
        EntryType::Char => "char",
        EntryType::Block => "block",
        EntryType::Fifo => "fifo",
        _ => "reg",
    }
}

/// Returns the entry of a member, without the fields that only files with data have.
fn entry_of(member: &mut tar::Entry<'_, &[u8]>) -> Entry {
    let mut xattrs = Entry::new();
    for record in member.pax_extensions().unwrap().into_iter().flatten() {
        let record = record.unwrap();
        if let Some(name) = record.key().unwrap().strip_prefix("SCHILY.xattr.") {
            let value = STANDARD.encode(record.value_bytes());
            xattrs.insert(name.to_string(), value.into());
        }
    }
    let header = member.header();
    let mut entry = fields(json!({
        "name": String::from_utf8_lossy(&member.path_bytes()),
        "type": kind_of(header.entry_type()),
        "mode": header.mode().unwrap(),
        "uid": header.uid().unwrap(),
        "gid": header.gid().unwrap(),
        "modtime": time(header.mtime().unwrap()),
    }));
    if let Some(link) = member.link_name_bytes() {
        entry.insert("linkName".into(), String::from_utf8_lossy(&link).into());
    }
    if let (Ok(Some(major)), Ok(Some(minor))) = (header.device_major(), header.device_minor()) {
        entry.extend(fields(json!({"devMajor": major, "devMinor": minor})));
    }
    if !xattrs.is_empty() {
        entry.insert("xattrs".into(), xattrs.into());
    }
    entry
}

/// Formats a time in whole seconds since 1970 as RFC 3339.
pub(crate) fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap();
    Timestamp::from_second(seconds).unwrap().to_string()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::new(CompressionLvl::new(6).unwrap());
    let mut out = vec![0; compressor.gzip_compress_bound(bytes.len())];
    let len = compressor.gzip_compress(bytes, &mut out).unwrap();
    out.truncate(len);
    out
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![0; zstd_safe::compress_bound(bytes.len())];
    let len = zstd_safe::compress(&mut out[..], bytes, 3).unwrap();
    out.truncate(len);
    out
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
