//! Maps of in-memory images: every byte counts once, memory is bounded, and no file data is read.

use forerun_engine::EngineOptions;
use forerun_io::{BlobId, Counter};
use forerun_pictures::{ImageMap, Kind, LARGEST_PAGE};
use forerun_testkit::opened::{Opened, open};
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{Extent, Place};

fn survey(opened: &Opened) -> ImageMap {
    let mut failed = Vec::new();
    let map = ImageMap::survey(&opened.reader, &mut |path, error| {
        failed.push((path, error))
    });
    assert!(failed.is_empty(), "{failed:?}");
    map.unwrap()
}

fn stored(offset: u64, logical: std::ops::Range<u64>) -> Extent {
    let place = Place::Stored {
        blob: BlobId::IMAGE,
        offset,
    };
    Extent { logical, place }
}

#[test]
fn files_are_where_they_are() {
    let mut builder = MemFsBuilder::new();
    builder.dir("dir");
    let file = builder.file(
        "dir/file",
        [
            Piece::Stored(vec![1; 5000]),
            Piece::Zero(3000),
            Piece::Inline(vec![2; 10]),
        ],
    );
    builder.hard_link("dir/again", file);
    let at = builder.store(&[3; 1000]);
    builder.raw_file("same", 1000, vec![stored(at, 0..1000)]);
    builder.raw_file("twin", 1000, vec![stored(at, 0..1000)]);
    builder.raw_file(
        "pieces",
        20,
        vec![stored(at, 0..10), stored(at + 500, 10..20)],
    );
    let opened = open(&builder.build(), EngineOptions::default());
    let map = survey(&opened);
    let total = map.total();
    assert_eq!((total.files, total.others), (4, 1));
    assert_eq!(total.size, 8010 + 1000 + 1000 + 20);
    assert_eq!((total.holes, total.inline), (3000, 10));
    assert_eq!(total.stored, 5010 + 1000 + 1000 + 20);
    assert_eq!((total.shared, total.fragmented), (1020, 1));
    assert_eq!(total.in_image(), 5010 + 1000, "shared bytes count once");
    assert_eq!(map.shared(), 1000);
    let data = map
        .kinds()
        .into_iter()
        .find(|(kind, _)| *kind == Kind::Data);
    assert_eq!(data, Some((Kind::Data, 6000)));
    assert_eq!(map.fragmented()[0].path, b"pieces");
    let (dirs, rest) = map.directories();
    assert_eq!(dirs.len(), 1);
    assert_eq!((dirs[0].1.files, rest.files), (1, 3));
    assert!(map.is_exact());
    for counter in [
        Counter::CacheMisses,
        Counter::Decodes,
        Counter::ReadaheadRequests,
    ] {
        assert_eq!(opened.count(counter), 0, "{counter:?}");
    }
}

#[test]
fn many_files_make_a_small_page() {
    let mut builder = MemFsBuilder::new();
    let name = "&<>\u{1b}\u{e9}".repeat(20);
    for n in 0..20_000_u64 {
        let at = n * 7919 % 20_000;
        let extents = vec![stored(at * 64, 0..32)];
        builder.raw_file(&format!("d{}/{name}{n}", n % 300), 32, extents);
    }
    builder.store(&vec![0; 20_000 * 64]);
    let opened = open(&builder.build(), EngineOptions::default());
    let map = survey(&opened);
    assert_eq!(map.total().files, 20_000);
    assert_eq!(map.total().stored, 20_000 * 32);
    let page = map.page("many");
    assert!(page.len() <= LARGEST_PAGE, "{}", page.len());
    assert!(page.is_ascii());
    let svg = map.svg("a<b");
    assert!(svg.len() <= LARGEST_PAGE, "{}", svg.len());
    assert!(svg.contains("<title>Map of a&lt;b</title>"));
}

#[test]
fn extents_that_lie_are_clamped() {
    let mut builder = MemFsBuilder::new();
    builder.raw_file("far", u64::MAX, vec![stored(u64::MAX - 10, 0..u64::MAX)]);
    builder.raw_file("whole", u64::MAX, vec![stored(0, 0..u64::MAX)]);
    let opened = open(&builder.build(), EngineOptions::default());
    let map = survey(&opened);
    let sum: u64 = map.kinds().iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(map.json()["image_bytes"], sum);
    assert!(map.page("odd").len() <= LARGEST_PAGE);
    assert!(map.svg("odd").len() <= LARGEST_PAGE);
}
