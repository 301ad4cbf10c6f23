//! Compressed archives read like the trees from which they were made.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_io::{FileSource, MemorySource, ReadAt};
use forerun_tar::Tar;
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{CountingSource, Keeps, Shape, TreeModel, require, temp_dir};
use forerun_vfs::{Error, FileSystem, MakeSpool, OpenWith, Result};

use crate::common::{archive, member, node, sparse};

struct Temporary;

impl MakeSpool for Temporary {
    fn make(&self) -> io::Result<File> {
        tempfile::tempfile()
    }
}

fn open(source: Arc<dyn ReadAt>, rescue: bool) -> Result<Tar> {
    let mut with = OpenWith::new(source);
    with.archive.spool = Some(Arc::new(Temporary));
    with.rescue = rescue;
    Tar::open_with(&with)
}

/// Runs a program on a file, which it replaces by a file with another suffix. Returns false if the
/// program is not installed.
fn run(program: &str, arguments: &[&str], file: &Path) -> bool {
    let Some(program) = require::program(program) else {
        return false;
    };
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    true
}

/// Programs, the suffix of their output, and whether the driver needs a temporary file for it.
const PROGRAMS: [(&str, &str, bool); 5] = [
    ("gzip", "gz", false),
    ("zstd", "zst", false),
    ("xz", "xz", true),
    ("bzip2", "bz2", true),
    ("lz4", "lz4", false),
];

/// Makes an archive of `tree` and compresses it with each program.
fn each(tree: &Path, mut check: impl FnMut(&str, bool, &Path)) {
    let dir = temp_dir("tar-compressed");
    let archive = dir.path().join("archive.tar");
    let Some(tar) = require::program("tar") else {
        return;
    };
    let output = Command::new(tar)
        .args(["--format=posix", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(tree)
        .arg(".")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    for (program, suffix, is_spooled) in PROGRAMS {
        // With `-m`, `lz4` chooses the output name itself.
        let arguments: &[&str] = if program == "lz4" {
            &["-q", "-m", "-k"]
        } else {
            &["-k"]
        };
        if run(program, arguments, &archive) {
            let compressed = archive.with_extension(format!("tar.{suffix}"));
            check(program, is_spooled, &compressed);
        }
    }
}

#[test]
fn archives_of_every_compression_read_as_their_trees() {
    let dir = temp_dir("tar-compressed");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    Shape::Mixed.populate(&tree);
    let expected = TreeModel::of_host(&tree).unwrap();
    each(&tree, |program, is_spooled, compressed| {
        let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(compressed).unwrap());
        let fs = open(Arc::clone(&source), false).unwrap();
        check_filesystem(&fs, &forerun_io::Limits::default());
        let volume = fs.volume();
        assert_eq!(volume.warnings, Vec::<String>::new(), "{program}");
        assert_eq!(volume.image_len, source.len());
        assert!(
            volume
                .details
                .contains(&("compression", program.to_string()))
        );
        let blobs = fs.capabilities().blobs.unwrap();
        assert_eq!(
            blobs.blob(forerun_io::BlobId(1)).is_ok(),
            is_spooled,
            "{program}"
        );
        let actual = TreeModel::of_image(&fs, &*source).unwrap();
        expected.assert_same(&actual, &Keeps::EVERYTHING);
    });
}

#[test]
fn opening_reads_the_file_once() {
    let dir = temp_dir("tar-compressed");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    Shape::OddLengths.populate(&tree);
    each(&tree, |program, _, compressed| {
        let source = Arc::new(CountingSource::new(FileSource::open(compressed).unwrap()));
        open(Arc::<CountingSource<_>>::clone(&source), false).unwrap();
        // Format detection also reads the first block.
        assert_eq!(source.bytes(), source.len() + 512, "{program}");
    });
}

fn gzip(bytes: &[u8]) -> Option<Vec<u8>> {
    let dir = temp_dir("tar-compressed");
    let file = dir.path().join("file");
    fs::write(&file, bytes).unwrap();
    run("gzip", &["-9"], &file).then(|| fs::read(file.with_extension("gz")).unwrap())
}

fn error(bytes: &[u8]) -> Error {
    let opened = open(Arc::new(MemorySource::new(bytes)), false);
    opened.map(|_| ()).unwrap_err()
}

#[test]
fn a_compressed_file_that_is_no_archive_is_named() {
    for bytes in [&b""[..], b"text", &[0x55; 100_000]] {
        let Some(compressed) = gzip(bytes) else {
            return;
        };
        let error = error(&compressed);
        assert!(matches!(error, Error::UnknownFormat { .. }), "{error}");
        let expected = "a gzip file that holds no archive; decompress it first";
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_map_that_ends_in_the_next_header_costs_its_file_only() {
    let (records, map) = sparse(b"10", b"9\n1\n", b"");
    for data in [&b""[..], &map] {
        let bytes = archive(&[
            member(b'x', b"x", b"", &records),
            member(b'0', b"holes", b"", data),
            member(b'0', b"last", b"", b"text"),
        ]);
        let Some(compressed) = gzip(&bytes) else {
            return;
        };
        let stream = open(Arc::new(MemorySource::new(compressed)), false).unwrap();
        let plain = open(Arc::new(MemorySource::new(bytes)), false).unwrap();
        for fs in [stream, plain] {
            assert!(node(&fs, "holes").is_none() && node(&fs, "last").is_some());
            assert_eq!(fs.volume().warnings.len(), 1);
        }
    }
}

#[test]
fn an_archive_that_is_cut_inside_the_stream_is_damaged_and_rescued() {
    let files = [
        member(b'0', b"a", b"", &[b'a'; 700]),
        member(b'0', b"b", b"", &[b'b'; 5000]),
    ];
    let whole = archive(&files);
    let Some(compressed) = gzip(&whole[..4000]) else {
        return;
    };
    let text = error(&compressed).to_string();
    assert!(text.contains("0x600") && text.contains("ends at"), "{text}");
    let fs = open(Arc::new(MemorySource::new(&compressed[..])), true).unwrap();
    assert!(node(&fs, "a").is_some() && node(&fs, "b").is_some());
    assert_eq!(fs.volume().warnings.len(), 1);
    // A damaged header ends the tree; members before it can be read.
    let mut damaged = whole;
    damaged[1536] ^= 1;
    let Some(compressed) = gzip(&damaged) else {
        return;
    };
    assert!(error(&compressed).to_string().contains("checksum"));
    let source: Arc<dyn ReadAt> = Arc::new(MemorySource::new(&compressed[..]));
    let fs = open(Arc::clone(&source), true).unwrap();
    let tree = TreeModel::of_image(&fs, &*source).unwrap();
    assert!(tree.nodes.contains_key(&b"a"[..]));
    assert!(node(&fs, "b").is_none());
}
