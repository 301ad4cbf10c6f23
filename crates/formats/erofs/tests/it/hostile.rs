//! Hostile images give an error with the offset, never a panic, a hang or unbounded memory.

use std::sync::Arc;

use forerun_erofs::fuzzing::{self, DATA, LEN, at, nid};
use forerun_erofs::{Erofs, FORMAT};
use forerun_io::MemorySource;
use forerun_testkit::conformance::check_faults;
use forerun_testkit::told;
use forerun_vfs::{Error, FileSystem, NodeId, OpenWith, Result};

use crate::golden;

/// Offsets of the superblock and of the structures it points to.
const SB: usize = 1024;
const DEVICE: usize = 1152;
const PREFIX: usize = 1280;
const SHARED: usize = 1536;

fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut image = fuzzing::image();
    image[at..at + bytes.len()].copy_from_slice(bytes);
    image
}

fn with_u16(at: usize, value: u16) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

fn with_u32(at: usize, value: u32) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

fn with_u64(at: usize, value: u64) -> Vec<u8> {
    with(at, &value.to_le_bytes())
}

fn open(image: Vec<u8>) -> Result<Erofs> {
    Erofs::open(OpenWith::new(Arc::new(MemorySource::new(image))))
}

#[test]
fn the_sample_is_sound_and_laid_out_as_the_tests_assume() {
    let image = fuzzing::image();
    let root = at(nid::ROOT) + 64;
    for (at, bytes) in [
        (SB, &[0xe2, 0xe1, 0xf5, 0xe0][..]),
        (DEVICE, b"data"),
        (PREFIX + 3, b"overlay."),
        (SHARED + 5, b"VALUE"),
        (root, &nid::ROOT.to_le_bytes()),
        (root + 132, b"...blocks"),
        (at(nid::LINK) + 32, b"target"),
        (at(nid::TAIL) + 32, b"twenty bytes"),
        (DATA, b"dddd"),
    ] {
        assert_eq!(&image[at..at + bytes.len()], bytes, "{at}");
    }
    assert_eq!(image.len(), LEN);
    let errors = fuzzing::walk(&image);
    assert!(errors.is_empty(), "{errors:?}");
    let fs = open(image).unwrap();
    let mut xattrs = Vec::new();
    fs.xattrs(NodeId(nid::XATTRS), &mut |name, value| {
        let name = String::from_utf8_lossy(name).into_owned();
        xattrs.push((name, value.to_vec()));
    })
    .unwrap();
    let expected = [
        ("security.b".to_string(), b"xy".to_vec()),
        ("user.a".to_string(), b"VALUE".to_vec()),
        ("trusted.overlay.opaque".to_string(), b"y".to_vec()),
    ];
    assert_eq!(xattrs, expected);
}

#[test]
fn a_superblock_that_lies() {
    let mut short = fuzzing::image();
    short.truncate(1151);
    let mut sum = fuzzing::seeds().unwrap().remove(1).1;
    sum[SB + 64] ^= 1;
    let images = vec![
        ("magic", with(SB, b"XXXX")),
        ("1151 bytes", short),
        ("nothing", Vec::new()),
        ("checksum", sum),
        ("blocks of 256 bytes", with(SB + 12, &[8])),
        ("blocks of 128 KiB", with(SB + 12, &[17])),
        ("blocks of 2^255 bytes", with(SB + 12, &[255])),
        ("255 extension slots", with(SB + 13, &[255])),
        ("185 extension slots of a long image", {
            let mut image = with(SB + 13, &[185]);
            image.resize(8192, 0);
            image
        }),
        ("10^9 nanoseconds", with_u32(SB + 32, 1_000_000_000)),
        ("no blocks", with_u32(SB + 36, 0)),
        ("reserved", with(SB + 106, &[1])),
        ("directory blocks of two blocks", with(SB + 90, &[1])),
    ];
    insta::assert_snapshot!("superblock", told(images, fuzzing::walk));
}

#[test]
fn places_in_the_superblock_that_lie() {
    let images = vec![
        ("root outside", with_u16(SB + 14, 0xffff)),
        ("root is a link", with_u16(SB + 14, nid::LINK as u16)),
        ("metadata outside", with_u32(SB + 40, u32::MAX)),
        ("shared xattrs outside", with_u32(SB + 44, u32::MAX)),
        ("shared xattrs outside, and none of them in use", {
            let mut image = with_u32(SB + 44, u32::MAX);
            image[at(nid::XATTRS) + 2] = 0;
            image
        }),
        (
            "shared xattrs in a metabox that is not there",
            with_u32(SB + 8, 0x1a),
        ),
        ("equal files by a prefix that is not there", {
            let mut image = with_u32(SB + 8, 0x32);
            image[SB + 105] = 1;
            image
        }),
        (
            "packed inode outside, without fragments",
            with_u64(SB + 96, 1 << 63),
        ),
        ("packed inode is a link", {
            let mut image = with_u32(SB + 80, 0x6c);
            image[SB + 96] = nid::LINK as u8;
            image
        }),
    ];
    insta::assert_snapshot!("superblock_places", told(images, fuzzing::walk));
}

#[test]
fn tables_of_devices_and_prefixes_that_lie() {
    let images = vec![
        ("an empty device", {
            let mut image = with_u16(SB + 88, 4096 / 128);
            image.resize(8192, 0);
            image
        }),
        ("devices beyond the table", with_u16(SB + 86, u16::MAX)),
        ("a device of other bytes", with(DEVICE + 127, &[7])),
        ("65535 devices", with_u16(SB + 86, 65535)),
        ("devices outside", with_u16(SB + 88, 65535)),
        ("prefixes without the feature", {
            let mut image = with_u32(SB + 80, 0xc);
            image[SB + 91] = 2;
            image
        }),
        ("a prefix of 256 bytes", with_u16(PREFIX, 257)),
        ("two prefixes", with(SB + 91, &[2])),
        ("prefixes outside", with_u32(SB + 92, u32::MAX)),
    ];
    insta::assert_snapshot!("superblock_tables", told(images, fuzzing::walk));
}

#[test]
fn features_that_lie() {
    let images = vec![
        ("unknown feature", with_u32(SB + 80, 0x24c)),
        ("all features", with_u32(SB + 80, u32::MAX)),
        ("metabox without its number", with_u32(SB + 80, 0x14c)),
        ("unknown compressors", {
            let mut image = with_u32(SB + 80, 0x4e);
            image[SB + 84..SB + 86].copy_from_slice(&0x11_u16.to_le_bytes());
            image
        }),
        ("settings cut off", {
            let mut image = with_u32(SB + 80, 0x4e);
            image[SB + 84] = 1;
            image
        }),
    ];
    insta::assert_snapshot!("superblock_features", told(images, fuzzing::walk));
}

#[test]
fn inodes_that_lie() {
    let (plain, tail) = (at(nid::PLAIN), at(nid::TAIL));
    let (link, null) = (at(nid::LINK), at(nid::NULL));
    let images = vec![
        ("layout 5", with_u16(plain, 5 << 1 | 1)),
        ("layout 7", with_u16(plain, 7 << 1 | 1)),
        ("unknown bits", with_u16(plain, 0x8001)),
        ("no kind", with_u16(plain + 4, 0o644)),
        ("kind 15", with_u16(plain + 4, 0o170_644)),
        ("2^63 bytes", with_u64(plain + 8, 1 << 63)),
        ("2^61 bytes", with_u64(plain + 8, 1 << 61)),
        ("data outside", with_u32(plain + 16, 0x0fff_ffff)),
        ("data past the end", with_u32(plain + 16, 7)),
        ("data on the device", with_u32(plain + 16, 101)),
        ("data past the device", with_u32(plain + 16, 103)),
        ("10^9 nanoseconds", with_u32(plain + 40, 1_000_000_000)),
        ("reserved", with(plain + 48, &[1; 16])),
        ("no links", with_u32(plain + 44, 0)),
        ("end across blocks", with_u32(tail + 8, 512 + 430)),
        ("end without a block", with_u32(tail + 8, 1023)),
        ("inline of whole blocks", with_u32(tail + 8, 512)),
        ("empty link", with_u32(link + 8, 0)),
        ("link of 4097 bytes", with_u32(link + 8, 4097)),
        ("NUL in a link", with(link + 34, &[0])),
        ("link in chunks", with_u16(link, 4 << 1)),
        ("compressed", with_u16(plain, 1 << 1 | 1)),
        ("compressed, compact", with_u16(tail, 3 << 1)),
        ("device with a size", with_u32(null + 8, 77)),
        ("xattrs of 256 KiB", with_u16(plain + 2, 0xffff)),
    ];
    insta::assert_snapshot!("inodes", told(images, fuzzing::walk));
}

#[test]
fn chunks_and_devices_that_lie() {
    let (chunks, blocks) = (at(nid::CHUNKS), at(nid::BLOCKS));
    let entry = chunks + 32;
    let images = vec![
        ("unknown bits", with_u32(chunks + 16, 0xa0)),
        ("48 bits", with_u32(chunks + 16, 0x60)),
        ("chunks of 2^40 bytes", with_u32(chunks + 16, 0x3f)),
        ("a block map of indexes", with_u32(chunks + 16, 0)),
        ("indexes of a block map", with_u32(blocks + 16, 0x20)),
        ("4 GiB in chunks", with_u32(chunks + 8, u32::MAX)),
        ("block outside", with_u32(entry + 4, 0x00ff_ffff)),
        ("device 2", with_u16(entry + 2, 2)),
        ("device 65535", with_u16(entry + 2, 65535)),
        ("on the device by its address", with_u32(entry + 4, 101)),
        ("device at the start", with_u32(DEVICE + 68, 1)),
        ("device of 2^48 blocks", with(DEVICE + 64, &[0xff; 12])),
    ];
    insta::assert_snapshot!("chunks", told(images, fuzzing::walk));
}

#[test]
fn listings_that_lie() {
    let root = at(nid::ROOT) + 64;
    let entry = |n: usize| root + n * 12;
    let names = root + 132;
    let images = vec![
        ("no entries", with_u16(entry(0) + 8, 0)),
        (
            "names in the middle of entries",
            with_u16(entry(0) + 8, 131),
        ),
        ("names behind the block", with_u16(entry(0) + 8, 65532)),
        ("one entry more", with_u16(entry(0) + 8, 144)),
        ("name before the names", with_u16(entry(3) + 8, 12)),
        (
            "name that ends before it starts",
            with_u16(entry(3) + 8, 170),
        ),
        ("name behind the block", with_u16(entry(10) + 8, 4000)),
        ("empty name", with_u16(entry(4) + 8, 141)),
        ("slash in a name", with(names + 4, b"/")),
        ("NUL in a name", with(names + 4, b"\0")),
        ("names out of order", with(names + 3, b"z")),
        ("equal names", with(names + 3, b"chunksdir")),
        ("unknown type", with(entry(3) + 10, &[8])),
        ("type left to the inode", with(entry(3) + 10, &[0])),
        ("wrong type", with(entry(3) + 10, &[2])),
        ("directory in itself", with_u64(entry(4), nid::ROOT)),
        ("node outside", with_u64(entry(3), 1 << 40)),
        ("node in a metabox", with_u64(entry(3), 1 << 63)),
        ("node of all ones", with_u64(entry(3), u64::MAX)),
        ("itself is another", with_u64(entry(0), nid::DIR)),
        (
            "parent of the root is another",
            with_u64(entry(1), nid::DIR),
        ),
        ("links of the root", with_u32(at(nid::ROOT) + 44, 9)),
        ("an empty root", with_u64(at(nid::ROOT) + 8, 0)),
        ("a root of 5 bytes", with_u64(at(nid::ROOT) + 8, 5)),
        ("a root of 2^60 bytes", with_u64(at(nid::ROOT) + 8, 1 << 60)),
    ];
    insta::assert_snapshot!("listings", told(images, fuzzing::walk));
}

#[test]
fn a_bad_entry_hides_no_other_one() {
    let root = at(nid::ROOT) + 64;
    let names = root + 132;
    let listed = |image: Vec<u8>| {
        let fs = open(image).unwrap();
        let (mut shown, mut next) = (Vec::new(), forerun_vfs::DirCursor::START);
        loop {
            let before = shown.len();
            let read = fs.read_dir(fs.root(), next, &mut |entry| {
                shown.push(entry.name.to_vec());
                next = entry.next;
                std::ops::ControlFlow::Break(())
            });
            if shown.len() == before {
                return (shown, read);
            }
        }
    };
    let (sound, _) = listed(fuzzing::image());
    assert_eq!(sound.len(), 9);
    for (what, image, gone) in [
        ("slash in a name", with(names + 4, b"/"), 0),
        ("unknown type", with(root + 3 * 12 + 10, &[8]), 1),
        ("node outside", with_u64(root + 3 * 12, 1 << 40), 1),
        ("name before the names", with_u16(root + 3 * 12 + 8, 12), 1),
    ] {
        let (shown, end) = listed(image);
        assert!(matches!(end, Err(Error::Corrupt(_))), "{what}: {end:?}");
        assert!(shown.len() >= sound.len() - 2, "{what}: {shown:?}");
        assert!(!shown.contains(&sound[gone]), "{what}");
        assert_eq!(shown.last(), sound.last(), "{what}");
    }
}

#[test]
fn xattrs_that_lie() {
    let xattrs = at(nid::XATTRS) + 32;
    let own = xattrs + 20;
    let images = vec![
        ("only a header", with_u16(at(nid::XATTRS) + 2, 1)),
        ("255 shared ones", with(xattrs + 4, &[255])),
        ("four shared ones", with(xattrs + 4, &[4])),
        ("shared one outside", with_u32(xattrs + 12, u32::MAX)),
        ("shared one past the end", with_u32(xattrs + 12, 639)),
        ("shared value past the end", with_u16(SHARED + 2, 65535)),
        ("prefix 5", with(own + 1, &[5])),
        ("prefix 7", with(own + 1, &[7])),
        ("long prefix 1", with(own + 1, &[0x81])),
        ("name past the xattrs", with(own, &[255])),
        ("value past the xattrs", with_u16(own + 2, 65535)),
        ("no name", with(own, &[0])),
        ("NUL in a name", with(own + 4, &[0])),
        ("nothing but room", with(own, &[0; 8])),
        ("base of a prefix", with(PREFIX + 2, &[9])),
        ("empty prefix", with_u16(PREFIX, 0)),
        ("prefix past the end", with_u16(PREFIX, 65535)),
    ];
    insta::assert_snapshot!("xattrs", told(images, fuzzing::walk));
}

fn xattrs_of(fs: &Erofs, node: NodeId) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut all = Vec::new();
    fs.xattrs(node, &mut |name, value| all.push((text(name), text(value))))
        .unwrap();
    all
}

#[test]
fn an_xattr_of_unknown_prefix_is_passed_over() {
    let node = NodeId(nid::XATTRS);
    let sound = xattrs_of(&open(fuzzing::image()).unwrap(), node);
    assert_eq!(sound.len(), 3, "{sound:?}");
    let own = at(nid::XATTRS) + 32 + 20;
    for (what, image, left) in [
        ("its own", with(own + 1, &[7]), &[1, 2]),
        ("its own, long", with(own + 1, &[0x81]), &[1, 2]),
        ("the shared one", with(SHARED + 1, &[5]), &[0, 2]),
    ] {
        let fs = open(image.clone()).unwrap();
        let left: Vec<_> = left.iter().map(|&n: &usize| sound[n].clone()).collect();
        assert_eq!(xattrs_of(&fs, node), left, "{what}");
        let problems = fuzzing::walk(&image);
        assert!(
            matches!(&problems[..], [Error::Corrupt(error)] if error.to_string().contains("unknown prefix")),
            "{what}: {problems:?}"
        );
    }
}

#[test]
fn an_xattr_whose_name_ends_with_a_dot_is_shown() {
    let own = at(nid::XATTRS) + 32 + 20;
    let mut image = fuzzing::image();
    let end = own + 4 + usize::from(image[own]) - 1;
    image[end] = b'.';
    let fs = open(image.clone()).unwrap();
    let shown = xattrs_of(&fs, NodeId(nid::XATTRS));
    assert_eq!(shown.len(), 3);
    assert!(
        shown.iter().any(|(name, _)| name.ends_with('.')),
        "{shown:?}"
    );
    assert!(fuzzing::walk(&image).is_empty());
}

/// mkfs.erofs stores digests of files as xattrs under a long prefix that is in no namespace.
#[test]
fn xattrs_outside_of_all_name_spaces_are_hidden() {
    let image = with(PREFIX + 2, &[0]);
    let fs = open(image.clone()).unwrap();
    let shown = xattrs_of(&fs, NodeId(nid::XATTRS));
    assert!(
        shown.iter().all(|(name, _)| !name.contains("overlay")),
        "{shown:?}"
    );
    assert!(fuzzing::walk(&image).is_empty());
}

#[test]
fn a_link_count_of_0_is_shown_and_reported() {
    let image = with_u16(at(nid::XATTRS) + 6, 0);
    let fs = open(image.clone()).unwrap();
    assert_eq!(fs.metadata(NodeId(nid::XATTRS)).unwrap().nlink, 0);
    let problems = fuzzing::walk(&image);
    assert!(
        matches!(&problems[..], [Error::Corrupt(error)] if error.to_string().contains("link count 0")),
        "{problems:?}"
    );
}

#[test]
fn every_byte_of_the_metadata_with_many_values() {
    let mut images = vec![fuzzing::image()];
    for (name, image) in golden::images() {
        if ["metabox48", "mixed", "zdirs"].contains(&name) {
            images.push(golden::without_checksum(&image));
        }
    }
    for image in images {
        let step = if image.len() > LEN { 5 } else { 1 };
        for at in (1024..image.len()).step_by(step) {
            for value in [0, 1, 0x7f, 0x80, 0xff, image[at] ^ 1] {
                let mut image = image.clone();
                image[at] = value;
                for error in fuzzing::walk(&image) {
                    assert!(!matches!(error, Error::Io { .. }), "{at}: {error}");
                }
            }
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let image = fuzzing::image();
    for len in 0..image.len() {
        let errors = fuzzing::walk(&image[..len]);
        assert!(!errors.is_empty(), "{len}");
        for error in errors {
            let known = matches!(
                error,
                Error::Corrupt(_) | Error::UnknownFormat { .. } | Error::StaleNode(_)
            );
            assert!(known, "{len}: {error}");
        }
    }
    // Bytes after the end of an image are not part of it.
    assert!(fuzzing::walk(&[&image[..], &[0xff; 5000]].concat()).is_empty());
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    check_faults(&FORMAT, &fuzzing::image());
    check_faults(&FORMAT, &golden::images().remove(3).1);
}
