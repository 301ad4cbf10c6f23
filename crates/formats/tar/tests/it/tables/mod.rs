//! Archives with tables of contents: they read the same with and without the table, and hostile
//! tables are refused.

mod lies;

use std::sync::Arc;

use forerun_engine::EngineOptions;
use forerun_io::{Limits, MemorySource, ReadAt};
use forerun_tar::Tar;
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::indexed::{
    IndexedArchive, IndexedOptions, estargz, estargz_of, fixture, fixture_layer, fixtures,
    zstd_chunked,
};
use forerun_testkit::opened::reader_on;
use forerun_testkit::{CountingSource, Keeps, TreeModel};
use forerun_vfs::{Error, FileSystem, Layout, OpenWith, ProvenTable, Result};
use serde_json::Value;

use crate::common::{archive, member, node, record};

fn open(blob: &[u8], table: ProvenTable) -> Result<Tar> {
    open_source(Arc::new(MemorySource::new(blob)), Some(table))
}

fn open_source(source: Arc<dyn ReadAt>, table: Option<ProvenTable>) -> Result<Tar> {
    let mut with = OpenWith::new(source);
    with.archive.table = table;
    Tar::open_with(&with)
}

fn noise(len: u32) -> Vec<u8> {
    let mixed = |at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[1];
    (0..len).map(mixed).collect()
}

/// Returns an archive of every kind of node, with files of several chunks and holes.
fn plain() -> Vec<u8> {
    let large = noise(200_000);
    let holes = [noise(1000), vec![0; 150_000], noise(10)].concat();
    let attributes = record("SCHILY.xattr.user.x", b"y\0z");
    archive(&[
        member(b'5', b"./", b"", b""),
        member(b'5', b"./bin/", b"", b""),
        member(b'0', b"./bin/large", b"", &large),
        member(b'0', b"./bin/holes", b"", &holes),
        member(b'0', b"./etc/.wh.gone", b"", b""),
        member(b'x', b"pax", b"", &attributes),
        member(b'0', b"./etc/passwd", b"", b"root\n"),
        member(b'1', b"./etc/hard", b"./etc/passwd", b""),
        member(b'2', b"./etc/link", b"passwd", b""),
        member(b'6', b"./etc/fifo", b"", b""),
        member(b'0', b"./etc/twice", b"", b"first"),
        member(b'0', b"./etc/twice", b"", b"second"),
    ])
}

/// Returns archives made by other programs, and indexed forms of [`plain`], each paired with its
/// plain archive.
fn forms() -> Vec<(Vec<u8>, IndexedArchive)> {
    let (layer, plain) = (fixture_layer(), plain());
    let options = IndexedOptions::default();
    let made = [estargz(&plain, &options), zstd_chunked(&plain, &options)];
    let made = made.map(|form| (plain.clone(), form));
    let fixtures = fixtures().map(|form| (layer.clone(), form));
    fixtures.into_iter().chain(made).collect()
}

/// Reads all files through the engine.
fn model(fs: Arc<dyn FileSystem>, source: Arc<dyn ReadAt>) -> Result<TreeModel> {
    let options = EngineOptions::default();
    let reader = reader_on(Arc::clone(&fs), source, options, Limits::default());
    TreeModel::of_reader(&*fs, |node, offset, out| {
        let data = reader.read(node, offset, out.len())?;
        out[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    })
}

#[test]
fn the_table_shows_the_tree_of_the_archive() {
    for (plain, form) in forms() {
        let source = MemorySource::new(plain);
        let without = Tar::open(Arc::new(source.clone()), &Limits::default()).unwrap();
        let expected = TreeModel::of_image(&without, &source).unwrap();
        let source = Arc::new(MemorySource::new(&form.blob[..]));
        let fs = Arc::new(open(&form.blob, form.table.clone()).unwrap());
        check_filesystem(&*fs, &Limits::default());
        let tree = TreeModel::of_image(&*fs, &*source).unwrap();
        expected.assert_same(&tree, &Keeps::EVERYTHING);
        let tree = model(fs.clone(), source.clone()).unwrap();
        expected.assert_same(&tree, &Keeps::EVERYTHING);
        let attributes = |fs: &Tar| {
            let (mut found, passwd) = (Vec::new(), node(fs, "etc/passwd").unwrap());
            let mut note = |name: &[u8], value: &[u8]| found.push((name.to_vec(), value.to_vec()));
            fs.xattrs(passwd, &mut note).unwrap();
            found
        };
        assert_eq!(attributes(&fs), attributes(&without));
        // Without the digest of its table, it opens like any other archive.
        let whole = open_source(source, None).unwrap();
        let landmark = node(&whole, ".prefetch.landmark").or(node(&whole, ".no.prefetch.landmark"));
        let has_landmark = form.json.contains(".prefetch.landmark");
        assert_eq!(landmark.is_some(), has_landmark);
        assert_eq!(node(&fs, ".no.prefetch.landmark"), None);
        assert_eq!(node(&fs, ".prefetch.landmark"), None);
    }
}

#[test]
fn only_the_table_is_read_before_a_file_is_and_then_only_its_chunks() {
    for (_, form) in forms() {
        let source = Arc::new(CountingSource::new(MemorySource::new(&form.blob[..])));
        let fs = Arc::new(open_source(source.clone(), Some(form.table.clone())).unwrap());
        let first = source.take_log();
        assert!(first.iter().all(|read| read.start >= form.data_len as u64));
        let passwd = node(&fs, "etc/passwd").unwrap();
        assert_eq!(source.take_log(), []);
        let reader = reader_on(
            fs,
            source.clone(),
            EngineOptions::default(),
            Limits::default(),
        );
        assert_eq!(&*reader.read(passwd, 0, 100).unwrap(), b"root\n");
        let read: u64 = source
            .take_log()
            .iter()
            .map(|read| read.end - read.start)
            .sum();
        assert!(
            read * 2 < form.data_len as u64,
            "{read} of {}",
            form.data_len
        );
        assert_eq!(&*reader.read(passwd, 0, 100).unwrap(), b"root\n");
        assert_eq!(source.take_log(), []);
    }
}

#[test]
fn what_is_before_the_landmark_is_wanted_ahead() {
    let wanted = |form: &IndexedArchive| {
        let fs = open(&form.blob, form.table.clone()).unwrap();
        let mut json: Value = serde_json::from_str(&form.json).unwrap();
        let mut entries = json["entries"].as_array_mut().unwrap().iter_mut();
        let mark = entries.find(|entry| entry["name"] == ".prefetch.landmark");
        let offset = mark.map(|mark| mark["offset"].take().as_u64().unwrap_or(0));
        (fs.wanted_ahead(), offset, json.to_string())
    };
    assert_eq!(wanted(&fixture("estargz")).0, 0..0);
    let merged = fixture("merged");
    for form in [&fixture("landmark"), &merged] {
        let (range, offset, _) = wanted(form);
        assert!(offset > Some(1000), "{offset:?}");
        assert_eq!(range, 0..offset.unwrap());
    }
    // If a member contains the landmark and data before it, the whole member is prefetched.
    let (range, _, mut json) = wanted(&merged);
    json = json.replace("\"offset\":null", "\"innerOffset\":70000");
    let data = merged.blob[..merged.data_len].to_vec();
    assert_eq!(wanted(&estargz_of(data, &json)).0, range);
}

/// Changes bytes before the table at regular steps, and reads everything: only bytes of the tree
/// are returned.
#[test]
fn no_altered_byte_is_served() {
    for (_, form) in forms() {
        let source = Arc::new(MemorySource::new(&form.blob[..]));
        let expected = model(
            Arc::new(open(&form.blob, form.table.clone()).unwrap()),
            source,
        )
        .unwrap();
        let (mut refused, mut tried) = (0, 0);
        for at in (0..form.data_len).step_by(form.data_len / 97) {
            let mut blob = form.blob.clone();
            blob[at] ^= 0x10;
            let source = Arc::new(MemorySource::new(&blob[..]));
            let fs = open(&blob, form.table.clone()).unwrap();
            tried += 1;
            match model(Arc::new(fs), source) {
                // The changed byte was in a header between the chunks, or has no effect.
                Ok(tree) => expected.assert_same(&tree, &Keeps::EVERYTHING),
                Err(Error::Corrupt(_)) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused * 10 > tried * 6, "{refused} of {tried}");
        for at in form.data_len..form.blob.len() {
            let mut blob = form.blob.clone();
            blob[at] ^= 0x10;
            match open(&blob, form.table.clone()) {
                // The changed byte has no meaning in gzip, or follows the table of zstd:chunked.
                Ok(_) | Err(Error::Corrupt(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}
