//! A walk over all metadata reads each block of it once, in large requests.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use forerun::build::{ComposefsOptions, ErofsOptions, ScanOptions, scan};
use forerun::{Image, OpenOptions, Reader, Writer};
use forerun_io::Counter;
use forerun_testkit::{generate, temp_dir};

fn pack(dir: &Path, writer: &Writer) -> Image {
    let tree = scan(&dir.join("tree"), &ScanOptions::default()).unwrap();
    let path = dir.join("image");
    let mut out = File::create(&path).unwrap();
    writer.write(&tree, &mut out, &Arc::default()).unwrap();
    let mut options = OpenOptions {
        objects: matches!(writer, Writer::Composefs(_)).then(|| dir.join("objects")),
        ..OpenOptions::default()
    };
    // Cache the whole image: a block evicted before all readers used it would be read twice.
    options.engine.cache = 512 << 20;
    Image::open_with(&path, &options).unwrap()
}

/// Walks like `ls -lR`: each directory's entries with their inodes, then the directories below.
fn walk(reader: &Reader) -> u64 {
    let mut names = 0;
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.unwrap();
        reader.fs().metadata(entry.node).unwrap();
        names += 1;
    }
    names
}

#[test]
fn each_block_is_read_once_in_requests_of_128_kib_and_more() {
    let dir = temp_dir("metadata");
    // Inline data of the same length as in a tree of source files: about half a block.
    generate::spread(&dir.path().join("tree"), 6000, 3000).unwrap();
    let mut composefs = ComposefsOptions::default();
    composefs.objects = Some(dir.path().join("objects"));
    for writer in [
        Writer::Erofs(ErofsOptions::default()),
        Writer::Composefs(composefs),
    ] {
        let image = pack(dir.path(), &writer);
        let reader = image.reader();
        assert!(walk(reader) > 6000);
        let layout = reader.fs().metadata_layout();
        let ranges = layout.ranges();
        let len: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert!(len > 1 << 20, "{len} bytes of metadata");
        let stats = reader.observer().stats();
        let (requests, bytes) = (
            stats.get(Counter::SourceRequests),
            stats.get(Counter::SourceBytes),
        );
        let what = format!(
            "{}: {requests} requests, {bytes} of {len} bytes",
            image.format()
        );
        assert_eq!(requests, stats.get(Counter::MetadataRequests), "{what}");
        // Allow for the superblock, and for other bytes read before the metadata ranges are known.
        assert!(bytes <= len + (64 << 10), "{what}");
        assert!(bytes / requests >= 128 << 10, "{what}");
    }
}
