//! Formats are found by content, parts of files are opened as images, and both block modes cost the
//! expected requests.

use std::sync::Arc;

use forerun::build::{Content, NewNode, NodeKind, RomfsOptions, Tree};
use forerun::vfs::{Error, FollowLast, resolve};
use forerun::{EngineOptions, Image, MemorySource, Observer, OpenOptions, Writer};
use forerun_io::{Counter, EventKind, EventLog, Purpose};

fn image(len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..len).map(|n| (n / 7 % 251) as u8).collect();
    let mut tree = Tree::default();
    let kind = NodeKind::File {
        len: len as u64,
        content: Content::Bytes(bytes.into()),
    };
    tree.add(Tree::ROOT, b"file", NewNode::new(kind, 0o644))
        .unwrap();
    let mut out = Vec::new();
    Writer::Romfs(RomfsOptions::default())
        .write(&tree, &mut out, &Arc::new(Observer::default()))
        .unwrap();
    out
}

fn open(bytes: Vec<u8>, options: &OpenOptions) -> Result<Image, Error> {
    Image::from_source(Arc::new(MemorySource::new(bytes)), options)
}

fn read_file(image: &Image) -> usize {
    let reader = image.reader();
    let node = resolve(reader.fs(), b"file", FollowLast::Yes, reader.limits()).unwrap();
    let mut at = 0;
    loop {
        let data = reader.read(node, at as u64, 1 << 20).unwrap();
        assert!(
            data.iter()
                .enumerate()
                .all(|(n, &byte)| byte == ((at + n) / 7 % 251) as u8)
        );
        at += data.len();
        if data.is_empty() {
            return at;
        }
    }
}

#[test]
fn an_image_inside_another_file() {
    let inner = image(100_000);
    let mut outer = vec![0xAA; 777];
    outer.extend_from_slice(&inner);
    outer.extend_from_slice(&[0xBB; 333]);
    for size in [None, Some(inner.len() as u64)] {
        let options = OpenOptions {
            offset: 777,
            size,
            ..OpenOptions::default()
        };
        assert_eq!(read_file(&open(outer.clone(), &options).unwrap()), 100_000);
    }
    let past = OpenOptions {
        offset: 1 << 40,
        ..OpenOptions::default()
    };
    assert!(matches!(open(outer.clone(), &past), Err(Error::Io { .. })));
    let cut = OpenOptions {
        offset: 777,
        size: Some(5000),
        ..OpenOptions::default()
    };
    assert!(matches!(open(outer, &cut), Err(Error::Corrupt(_))));
}

#[test]
fn what_is_no_image_is_named() {
    let nothing = "not an image of a known format: no data";
    for (bytes, expected) in [
        (vec![], nothing),
        (
            b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x49\xad\x28\x01\0\xc7\xa7\x8b\x3b\x04\0\0\0"
                .to_vec(),
            "a gzip file that holds no archive; decompress it first",
        ),
        (
            b"\x7fELF\x02\x01\x01\0".to_vec(),
            "an ELF file without an image behind it",
        ),
        (b"text".to_vec(), "data that starts with 74 65 78 74"),
        (
            [&[0; 0x438][..], b"\x53\xef"].concat(),
            "ext2, ext3 or ext4",
        ),
    ] {
        let error = open(bytes, &OpenOptions::default()).unwrap_err();
        assert!(
            matches!(error, Error::UnknownFormat { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
    let options = OpenOptions {
        format: Some("romfs".into()),
        ..OpenOptions::default()
    };
    let error = open(vec![0; 4096], &options).unwrap_err();
    assert!(
        error.to_string().contains("bad magic"),
        "by name it is opened, and the driver says what is wrong: {error}"
    );
    let options = OpenOptions {
        format: Some("floppy".into()),
        ..OpenOptions::default()
    };
    assert!(
        open(image(1), &options)
            .unwrap_err()
            .to_string()
            .contains("not a floppy image")
    );
}

#[test]
fn both_block_modes_cost_what_they_say() {
    const LEN: usize = 25_000_000;
    let bytes = image(LEN);
    let modes = [true, false].map(|large_blocks| {
        let events = Arc::new(EventLog::new(1 << 20));
        let engine = EngineOptions {
            large_blocks,
            ..EngineOptions::default()
        };
        let options = OpenOptions {
            engine,
            events: Some(events.clone()),
            ..OpenOptions::default()
        };
        let image = open(bytes.clone(), &options).unwrap();
        assert_eq!(
            image.reader().fs().volume().block_size,
            1024,
            "statfs says 1024 in both"
        );
        assert_eq!(read_file(&image), LEN);
        let stats = image.reader().observer().stats().snapshot();
        (stats, events.take())
    });
    let [(large, _), (legacy, events)] = modes;
    let requests = large.get(Counter::SourceRequests);
    assert!(requests <= (LEN >> 20) as u64 + 10, "{requests}");
    assert!(large.get(Counter::ReadaheadRequests) > 0);

    assert!(legacy.get(Counter::SourceRequests) >= (LEN / 1024) as u64);
    assert_eq!(legacy.get(Counter::ReadaheadRequests), 0);
    for event in events {
        if let EventKind::SourceRead { purpose, ok } = event.kind {
            assert!(
                ok && purpose != Purpose::Readahead
                    && event.len <= 1024
                    && event.offset % 1024 == 0,
                "{event:?}"
            );
        }
    }
}
