//! Images with one changed byte: the result is an error or another tree, never a panic or an
//! endless walk, and only objects of the store are opened.

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_composefs::fuzzing;
use forerun_composefs::{Needed, ObjectStore, Objects};
use forerun_io::MemorySource;
use forerun_vfs::{FileType, OpenWith, Verity};

use crate::common::{content, open, pack, tree_of};

fn look(image: &[u8], store: &std::path::Path) {
    let objects = Objects::new(ObjectStore::open(store).unwrap());
    let Ok(reader) = open(image, Arc::new(objects), Verity::On) else {
        return;
    };
    let fs = reader.fs();
    let _ = (fs.volume(), fs.describe(None));
    for entry in reader.walk(fs.root()).take(2000) {
        let Ok(entry) = entry else { break };
        let _ = fs.xattrs(entry.node, &mut |_, _| ());
        let _ = fs.describe(Some(entry.node));
        let _ = fs.backing(entry.node);
        if entry
            .metadata
            .is_ok_and(|metadata| metadata.kind == FileType::Regular)
        {
            let _ = fs.map(entry.node, 0..100, &mut |_| ControlFlow::Continue(()));
            let _ = reader.open(entry.node);
            let _ = reader.read(entry.node, 0, 1 << 16);
        }
    }
}

/// Checks dumps with any byte changed as well: they are refused, or their image has a dump that makes the same.
#[test]
fn the_dump_of_an_image_makes_the_same_dump() {
    for text in [
        include_str!("golden/every_kind.dump"),
        include_str!("golden/shared_attributes.dump"),
        include_str!("golden/whiteouts.dump"),
    ] {
        fuzzing::dump(text.as_bytes());
        for at in 0..text.len() {
            for value in [b' ', b'\\', b'7', b'@', b'\n', 0xff] {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = value;
                fuzzing::dump(&changed);
            }
        }
    }
    for (_, seed) in fuzzing::dump_seeds().unwrap() {
        fuzzing::dump(&seed);
    }
}

#[test]
fn one_changed_byte_anywhere() {
    let dir = forerun_testkit::temp_dir("composefs-mutations");
    let store = dir.path().join("store");
    let image = pack(
        &tree_of(&[
            ("a", content(100)),
            ("gone", content(5000)),
            ("s", content(9)),
        ]),
        &store,
    );
    look(&image, &store);
    // Changes every byte of the header, the superblock and the inodes of files, and every seventh
    // byte of the rest.
    let parts = [0..16, 1024..1216, 0x1aa0..0x2800];
    let positions: Vec<usize> = parts
        .into_iter()
        .flatten()
        .chain((0..image.len()).step_by(7))
        .filter(|&at| at < image.len())
        .collect();
    for at in positions {
        for value in [image[at] ^ 1, image[at] ^ 0x80, 0xff, b'.'] {
            let mut changed = image.clone();
            changed[at] = value;
            look(&changed, &store);
            if at % 5 == 0 {
                let source = Arc::new(MemorySource::new(changed));
                let opened = ObjectStore::open(&store).unwrap();
                let _ = Needed::default().add(&opened, OpenWith::new(source), None);
            }
        }
    }
    for len in (0..image.len()).step_by(509) {
        look(&image[..len], &store);
    }
}
