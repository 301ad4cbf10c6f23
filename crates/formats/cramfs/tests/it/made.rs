//! Hand-made images, with features that mkfs.cramfs does not use.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use forerun_cramfs::fuzzing::everything;
use forerun_cramfs::fuzzing::maker::{Blocks, Kind, Layout, Node};
use forerun_io::{Limits, MemorySource};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{TreeModel, require, temp_dir};
use forerun_vfs::{DirCursor, FileSystem, Layout as _, Place};

use crate::common::{KEEPS, extended, fsck, open};

fn tree(image: &[u8]) -> TreeModel {
    let fs = open(image);
    check_filesystem(&fs, &Limits::default());
    TreeModel::of_image(&fs, &MemorySource::new(image)).unwrap()
}

#[test]
fn every_way_to_store_blocks_reads_the_same() {
    let reference = tree(&Layout::default().image(&everything(Blocks::Compressed)));
    for ways in [
        Blocks::Compressed,
        Blocks::Stored,
        Blocks::DirectStored,
        Blocks::DirectCompressed,
        Blocks::Mixed,
    ] {
        for (big_endian, padded) in [(false, false), (true, false), (false, true), (true, true)] {
            let layout = Layout {
                big_endian,
                padded,
                ..Layout::extended()
            };
            reference.assert_same(&tree(&layout.image(&everything(ways))), &KEEPS);
        }
    }
}

#[test]
fn an_image_without_version_2_ends_with_its_source() {
    let layout = Layout {
        flags: 0,
        ..Layout::default()
    };
    let mut image = layout.image(&everything(Blocks::Compressed));
    // Size and checksum of such an image are meaningless.
    image[4..8].fill(0xff);
    let expected = tree(&Layout::default().image(&everything(Blocks::Compressed)));
    expected.assert_same(&tree(&image), &KEEPS);
    let fs = open(&image);
    let volume = fs.volume();
    assert_eq!(
        (volume.image_len, volume.inodes),
        (image.len() as u64, None)
    );
}

#[test]
fn holes_and_stored_blocks_are_mapped_as_such() {
    let mut bytes = vec![b'x'; 4 * 4096 + 5];
    bytes[4096..8192].fill(0);
    let places = |ways| {
        let file = Node::new(b"file", Kind::File(bytes.clone(), ways));
        let image = Layout::extended().image(&[file]);
        let fs = open(&image);
        let file = fs.lookup(fs.root(), b"file").unwrap().unwrap();
        let mut places = String::new();
        fs.map(file, 0..u64::MAX, &mut |extent| {
            places.push(match extent.place {
                Place::Zero => '0',
                Place::Stored { .. } => 's',
                Place::Encoded { .. } => 'e',
                Place::Inline(_) => 'i',
            });
            ControlFlow::Continue(())
        })
        .unwrap();
        places
    };
    assert_eq!(places(Blocks::Compressed), "e0eee");
    assert_eq!(places(Blocks::Stored), "s0sss");
    assert_eq!(places(Blocks::DirectStored), "s0sss");
    assert_eq!(places(Blocks::DirectCompressed), "e0eee");
    assert_eq!(places(Blocks::Mixed), "s0ees");
}

#[test]
fn entries_in_no_order_are_found() {
    let layout = Layout {
        flags: 1,
        ..Layout::default()
    };
    let names = [&b"m"[..], b"a", b"z", b"mm", b"b"];
    let image = layout.image(&names.map(|name| Node::file(name, name)));
    let fs = open(&image);
    check_filesystem(&fs, &Limits::default());
    let mut listed = Vec::new();
    fs.read_dir(fs.root(), DirCursor::START, &mut |entry| {
        listed.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(listed, names);
    for name in names {
        assert!(fs.lookup(fs.root(), name).unwrap().is_some());
    }
    assert_eq!(fs.lookup(fs.root(), b"c").unwrap(), None);
}

#[test]
fn an_extended_image_says_that_blocks_may_be_shared() {
    assert!(open(&extended(Blocks::Mixed)).shares_blocks());
    assert!(!open(&crate::common::sample()).shares_blocks());
}

/// Checks the maker of the images above with the reference reader, as far as that knows the flags.
#[test]
fn fsck_extracts_what_was_made_by_hand() {
    if !require::root() {
        return;
    }
    for (big_endian, padded) in [(false, false), (true, false), (false, true)] {
        let layout = Layout {
            big_endian,
            padded,
            ..Layout::default()
        };
        let made = layout.image(&everything(Blocks::Compressed));
        let dir = temp_dir("cramfs");
        let (image, out) = (dir.path().join("image"), dir.path().join("out"));
        fs::write(&image, &made).unwrap();
        let extract = format!(
            "--extract={}",
            String::from_utf8_lossy(out.as_os_str().as_bytes())
        );
        let Some(output) = fsck(&image, &[extract]) else {
            return;
        };
        assert!(output.status.success(), "{output:?}");
        TreeModel::of_host(&out)
            .unwrap()
            .assert_same(&tree(&made), &KEEPS);
    }
}
