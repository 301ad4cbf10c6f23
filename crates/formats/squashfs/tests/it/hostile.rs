//! Hostile images give an error with the offset, never a panic, a hang or unbounded memory.

use forerun_squashfs::FORMAT;
use forerun_squashfs::fuzzing::{self, Parts};
use forerun_squashfs::write::{Compress, Fragments, SquashfsOptions};
use forerun_testkit::conformance::check_faults;
use forerun_testkit::told;
use forerun_testkit::trees::tree_of;
use forerun_vfs::{Error, FileSystem, NodeId};

use crate::common::*;
use crate::writer_common::image;

#[test]
fn the_sample_is_laid_out_as_the_tests_assume() {
    let image = sample();
    for (at, bytes) in [
        (DATA, &b"twenty bytes"[..]),
        (ROOT, &[8, 0]),
        (FILE, &[2, 0]),
        (DIR, &[8, 0]),
        (LINK + 24, b"target"),
        (NULL, &[5, 0]),
        (TAIL, &[9, 0]),
        (INNER, &[2, 0]),
        (DATA_ENTRY + 8, b"data"),
        (DIR_ENTRY + 8, b"dir"),
        (LINK_ENTRY + 8, b"link"),
        (NULL_ENTRY + 8, b"null"),
        (INNER_ENTRY + 8, b"inner"),
        (FRAGMENTS, &[116, 0]),
        (EXPORT + 8, &[40, 0]),
        (IDS + 4, &[0xE8, 3]),
        (PAIRS + 9, b"VALUE"),
        (SECOND_PAIR, &[1, 1]),
        (SETS + 8, &[2, 0]),
    ] {
        assert_eq!(&image[at..at + bytes.len()], bytes, "{at}");
    }
    let pointers = [
        (FRAGMENT_POINTER, FRAGMENTS - 2),
        (EXPORT_POINTER, EXPORT - 2),
        (ID_POINTER, IDS - 2),
        (XATTR_HEAD, PAIRS - 2),
        (XATTR_POINTER, SETS - 2),
    ];
    for (at, value) in pointers {
        assert_eq!(image[at..at + 8], (value as u64).to_le_bytes(), "{at}");
    }
    assert_eq!(image.len(), END);
    let errors = fuzzing::walk(&image);
    assert!(errors.is_empty(), "{errors:?}");
    let fs = open(image).unwrap();
    let tail = fs.lookup(fs.root(), b"tail").unwrap().unwrap();
    let mut xattrs = Vec::new();
    fs.xattrs(tail, &mut |name, value| {
        xattrs.push((name.to_vec(), value.to_vec()))
    })
    .unwrap();
    let value = b"VALUE".to_vec();
    let expected = [
        (b"user.a".to_vec(), value.clone()),
        (b"trusted.b".to_vec(), value),
    ];
    assert_eq!(xattrs, expected);
}

#[test]
fn a_superblock_that_lies() {
    let mut short = sample();
    short.truncate(95);
    let images = vec![
        ("magic", with(0, b"XXXX")),
        ("95 bytes", short),
        ("nothing", Vec::new()),
        ("version 4.1", with_u16(30, 1)),
        ("version 5.0", with_u16(28, 5)),
        ("version 3.1", with(28, &[3, 0, 1, 0])),
        ("big-endian", with(0, b"sqsh")),
        ("vendor magic", with(0, b"shsq")),
        ("compressor 0", with_u16(20, 0)),
        ("compressor 7", with_u16(20, 7)),
        ("block size 0", with_u32(12, 0)),
        ("block size 4097", with_u32(12, 4097)),
        ("block size 2 MiB", with(12, &[0, 0, 32, 0])),
        ("block log 63", with_u16(22, 63)),
        ("no ids", with_u16(26, 0)),
        ("more bytes than the source", with_u64(40, END as u64 + 1)),
        ("fewer bytes than the tables", with_u64(40, 600)),
        ("absurd length", with_u64(40, u64::MAX)),
        ("id table in the superblock", with_u64(48, 0)),
        ("id table at the end", with_u64(48, END as u64)),
        ("xattr table behind the end", with_u64(56, 1 << 62)),
        ("xattr table at the last byte", with_u64(56, END as u64 - 1)),
        ("inode table behind directories", with_u64(64, 500)),
        ("directory table on the inodes", with_u64(72, 146)),
        ("fragments without a table", with_u64(80, u64::MAX)),
        ("fragment table outside", with_u64(80, u64::MAX - 1)),
        ("2^32-1 fragments", with_u32(16, u32::MAX)),
        ("export table of 2^32-1 inodes", with_u32(4, u32::MAX)),
        ("65535 ids", with_u16(26, 65535)),
        ("root out of the table", with_u64(32, 281 << 16)),
        ("root past a block", with_u64(32, 8192)),
        ("root in the last byte", with_u64(32, 278)),
        ("root is a file", with_u64(32, (FILE - INODES) as u64)),
    ];
    insta::assert_snapshot!("superblock", told(images, fuzzing::walk));
}

#[test]
fn inodes_that_lie() {
    let mut far = with_u64(TAIL + 16, u64::MAX);
    far[TAIL + 56] = 100;
    let images = vec![
        ("type 0", with_u16(FILE, 0)),
        ("type 15", with_u16(FILE, 15)),
        ("owner 2 of 2", with_u16(FILE + 4, 2)),
        ("group 65535", with_u16(FILE + 6, 65535)),
        ("inode number 0", with_u32(FILE + 12, 0)),
        ("inode number of another", with_u32(FILE + 12, 3)),
        ("file of 4 GiB", with_u32(FILE + 28, u32::MAX)),
        ("file of 2^64-1 bytes", with_u64(TAIL + 24, u64::MAX)),
        ("file of 2^62 bytes", with_u64(TAIL + 24, 1 << 62)),
        ("block too long as it is", with_u32(FILE + 32, 1 << 24 | 21)),
        (
            "block longer than the block size",
            with_u32(FILE + 32, 4097),
        ),
        ("block of no bytes", with_u32(FILE + 32, 1 << 24)),
        ("block behind the end", with_u32(FILE + 16, END as u32 - 19)),
        ("start at 2^64-1", far),
        ("fragment 1 of 1", with_u32(TAIL + 44, 1)),
        ("fragment offset past its end", with_u32(TAIL + 48, 21)),
        ("fragment offset 2^32-1", with_u32(TAIL + 48, u32::MAX)),
        ("xattr set 1 of 1", with_u32(TAIL + 52, 1)),
        ("link of no bytes", with_u32(LINK + 20, 0)),
        ("link of 5000 bytes", with_u32(LINK + 20, 5000)),
        ("link of 2^32-1 bytes", with_u32(LINK + 20, u32::MAX)),
        ("link out of the table", with_u32(LINK + 20, 300)),
        ("NUL in a link", with(LINK + 26, &[0])),
        ("listing of 2 bytes", with_u32(DIR + 20, 2)),
        ("listing of 4 GiB", with_u32(DIR + 20, u32::MAX)),
        ("listing past a block", with_u16(DIR + 34, 8193)),
        ("listing past its block's end", with_u16(DIR + 34, 96)),
        ("listing out of the table", with_u32(DIR + 24, 98)),
        ("65535 indexes", with_u16(DIR + 32, 65535)),
        ("index behind the listing", with_u32(DIR + 40, 25)),
        ("index into an entry", with_u32(DIR + 40, 12)),
        ("index to another block", with_u32(DIR + 44, 50)),
        ("index with another name", with(DIR + 52, b"innes")),
        (
            "index with a name of 2^32 bytes",
            with_u32(DIR + 48, u32::MAX),
        ),
    ];
    insta::assert_snapshot!("inodes", told(images, fuzzing::walk));
}

#[test]
fn listings_that_lie() {
    let images = vec![
        ("257 entries", with_u32(ROOT_RUN, 256)),
        ("2^32 entries", with_u32(ROOT_RUN, u32::MAX)),
        ("one entry more", with_u32(DIR_RUN, 1)),
        ("one entry fewer", with_u32(ROOT_RUN, 3)),
        ("inodes out of the table", with_u32(ROOT_RUN + 4, 281)),
        ("inode past a block", with_u16(DATA_ENTRY, 8192)),
        ("inode in another", with_u16(DATA_ENTRY, 41)),
        ("entry type 0", with_u16(DATA_ENTRY + 4, 0)),
        (
            "entry type of an extended inode",
            with_u16(DATA_ENTRY + 4, 9),
        ),
        ("entry type of another kind", with_u16(DATA_ENTRY + 4, 1)),
        ("name of 65536 bytes", with_u16(INNER_ENTRY + 6, 65535)),
        ("name of 256 bytes", with_u16(DATA_ENTRY + 6, 255)),
        ("slash", with(INNER_ENTRY + 10, b"/")),
        ("NUL", with(INNER_ENTRY + 10, b"\0")),
        ("dot dot", with(INNER_ENTRY + 6, b"\x01\0..")),
        ("dot", with(INNER_ENTRY + 6, b"\0\0.")),
        ("out of order", with(DIR_ENTRY + 8, b"abc")),
        ("twice", with(NULL_ENTRY + 8, b"link")),
        ("root in itself", with_u16(DIR_ENTRY, 0)),
        ("dir in itself", with(INNER_ENTRY, &[76, 0, 0, 0, 1, 0])),
    ];
    insta::assert_snapshot!("listings", told(images, fuzzing::walk));
}

#[test]
fn tables_that_lie() {
    let images = vec![
        ("metadata block of no bytes", with_u16(INODES - 2, 0x8000)),
        ("metadata block of 8193 bytes", with_u16(INODES - 2, 0xA001)),
        (
            "metadata block past its table",
            with_u16(INODES - 2, 0x8118),
        ),
        (
            "metadata block that is too short",
            with_u16(INODES - 2, 0x8100),
        ),
        (
            "metadata block that does not decode",
            with_u16(INODES - 2, 279),
        ),
        ("listings that do not decode", with_u16(LISTINGS - 2, 96)),
        ("fragment of no bytes", with_u32(FRAGMENTS + 8, 1 << 24)),
        ("fragment of 4097 bytes", with_u32(FRAGMENTS + 8, 4097)),
        ("fragment behind the end", with_u64(FRAGMENTS, 700)),
        ("fragment at 2^64-1", with_u64(FRAGMENTS, u64::MAX)),
        ("fragments in the superblock", with_u64(FRAGMENT_POINTER, 0)),
        (
            "fragments behind their pointers",
            with_u64(FRAGMENT_POINTER, 543),
        ),
        (
            "fragments in the middle of others",
            with_u64(FRAGMENT_POINTER, 530),
        ),
        ("export table of another", with_u64(EXPORT + 8, 41)),
        ("export pointer", with_u64(EXPORT_POINTER, u64::MAX)),
        ("id pointer", with_u64(ID_POINTER, u64::MAX)),
        ("ids too short", with_u16(IDS - 2, 0x8004)),
        ("ids on other tables", with_u64(ID_POINTER, 427)),
    ];
    insta::assert_snapshot!("tables", told(images, fuzzing::walk));
}

#[test]
fn xattrs_that_lie() {
    let images = vec![
        ("pairs in the superblock", with_u64(XATTR_HEAD, 0)),
        ("pairs behind the head", with_u64(XATTR_HEAD, 686)),
        ("2^32-1 sets", with_u32(XATTR_HEAD + 8, u32::MAX)),
        ("no sets", with_u32(XATTR_HEAD + 8, 0)),
        ("sets pointer", with_u64(XATTR_POINTER, 710)),
        ("set out of the table", with_u64(SETS, 51 << 16)),
        ("set past its block", with_u64(SETS, 32)),
        ("three pairs", with_u32(SETS + 8, 3)),
        ("2^32-1 pairs", with_u32(SETS + 8, u32::MAX)),
        ("size too small", with_u32(SETS + 12, 26)),
        ("prefix 3", with_u16(PAIRS, 3)),
        ("prefix with unknown bits", with_u16(PAIRS, 0x200)),
        ("no name", with_u16(PAIRS + 2, 0)),
        ("name of 300 bytes", with_u16(PAIRS + 2, 300)),
        ("NUL in a name", with(PAIRS + 4, &[0])),
        (
            "NUL behind a slash in a name",
            with(PAIRS + 2, b"\x02\0/\0"),
        ),
        ("value of 65537 bytes", with_u32(PAIRS + 5, 65537)),
        ("value past the table", with_u32(PAIRS + 5, 60)),
        ("reference of 9 bytes", with_u32(SECOND_PAIR + 5, 9)),
        (
            "reference out of the table",
            with_u64(SECOND_PAIR + 9, 51 << 16),
        ),
        ("reference to itself", with_u64(SECOND_PAIR + 9, 19)),
        ("reference to a name", with_u64(SECOND_PAIR + 9, 4)),
    ];
    insta::assert_snapshot!("xattrs", told(images, fuzzing::walk));
}

#[test]
fn an_xattr_of_unknown_prefix_is_passed_over() {
    let node = NodeId((TAIL - INODES) as u64);
    let names = |image: Vec<u8>| {
        let mut names = Vec::new();
        let fs = open(image).unwrap();
        fs.xattrs(node, &mut |name, _| names.push(name.to_vec()))
            .unwrap();
        names
    };
    let sound = names(sample());
    assert_eq!(sound.len(), 2);
    for (what, image, left) in [
        ("the first", with_u16(PAIRS, 3), &sound[1..]),
        ("one out of line", with_u16(SECOND_PAIR, 0x105), &sound[..1]),
    ] {
        assert_eq!(names(image.clone()), left, "{what}");
        let problems = fuzzing::walk(&image);
        assert!(
            matches!(&problems[..], [Error::Corrupt(error)] if error.to_string().contains("unknown prefix")),
            "{what}: {problems:?}"
        );
    }
}

#[test]
fn the_size_of_a_set_of_xattrs_is_a_hint() {
    let node = NodeId((TAIL - INODES) as u64);
    let names = |fs: &dyn FileSystem| {
        let mut names = Vec::new();
        fs.xattrs(node, &mut |name, _| names.push(name.to_vec()))
            .unwrap();
        names
    };
    let sound = names(&open(sample()).unwrap());
    for size in [0, 1, 26, 28, u32::MAX] {
        let image = with_u32(SETS + 12, size);
        let fs = open(image.clone()).unwrap();
        assert_eq!(names(&fs), sound, "{size}");
        let mut problems = Vec::new();
        fs.check(None, &mut |problem| problems.push(problem))
            .unwrap();
        assert!(
            matches!(&problems[..], [problem] if !problem.fatal && problem.error.to_string().contains("readers ignore")),
            "{size}: {problems:?}"
        );
    }
}

fn listing_of(names: &[&[u8]]) -> Vec<u8> {
    let mut parts = Parts::default();
    let mut listing = vec![(names.len() - 1) as u8];
    listing.resize(12, 0);
    for name in names {
        let len = ((name.len() - 1) as u16).to_le_bytes();
        listing.extend_from_slice(&[32 + 8, 0, 2, 0, 6, 0, len[0], len[1]]);
        listing.extend_from_slice(name);
    }
    parts.inodes = fuzzing::inode::root(listing.len() as u32);
    parts
        .inodes
        .extend(fuzzing::inode::fifo_with_xattrs(u32::MAX));
    parts.export = vec![0, 40];
    parts.listings = listing;
    parts.image()
}

#[test]
fn a_bad_entry_hides_no_other_one() {
    let (long, longer) = ([b'm'; 256], [b'm'; 9000]);
    for bad in [&long[..], &longer, b"b/c", b"..", b"n\0", b"a", b"aa"] {
        let fs = open(listing_of(&[b"aa", bad, b"y", b"zz"])).unwrap();
        let mut next = forerun_vfs::DirCursor::START;
        let mut shown = Vec::new();
        let mut step = |visit: &mut dyn FnMut(&[u8])| {
            let from = next;
            fs.read_dir(fs.root(), from, &mut |entry| {
                visit(entry.name);
                next = entry.next;
                std::ops::ControlFlow::Break(())
            })
        };
        for _ in 0..3 {
            step(&mut |name| shown.push(name.to_vec())).unwrap();
        }
        assert_eq!(shown, [&b"aa"[..], b"y", b"zz"], "{bad:?}");
        let end = step(&mut |name| panic!("{name:?}"));
        assert!(matches!(end, Err(Error::Corrupt(_))), "{bad:?}: {end:?}");
        for name in shown {
            assert!(fs.lookup(fs.root(), &name).unwrap().is_some());
        }
        if bad.len() > 2 {
            assert_eq!(fs.lookup(fs.root(), b"missing").unwrap(), None);
        }
    }
}

#[test]
fn a_streamed_image_has_its_superblock_at_its_end() {
    let sound = sample();
    let mut image = sound.clone();
    image[..96].fill(0);
    image[..4].copy_from_slice(b"HSQS");
    image.resize(4096, 0);
    let unfinished = image.clone();
    image.extend_from_slice(&sound[..96]);
    assert!((FORMAT.probe)(&image));
    assert!(fuzzing::walk(&image).is_empty());
    let fs = open(image.clone()).unwrap();
    assert!(fs.lookup(fs.root(), b"data").unwrap().is_some());
    let measured = (FORMAT.measure)(&forerun_io::MemorySource::new(image)).unwrap();
    assert_eq!(measured.len, Some(4096 + 96));
    let error = open(unfinished).err().unwrap().to_string();
    assert!(error.contains("it may be truncated"), "{error}");
    assert!(matches!(
        open(b"HSQS".to_vec()),
        Err(Error::Corrupt(_) | Error::Io { .. })
    ));
}

/// Linux and unsquashfs read such a file.
#[test]
fn a_stored_block_longer_than_the_end_of_its_file_is_cut_and_reported() {
    let bytes: Vec<u8> = (0..5000_u32).map(|n| n.to_le_bytes()[0]).collect();
    let options = SquashfsOptions {
        block_size: 4096,
        fragments: Fragments::No,
        compress: Compress {
            inodes: false,
            data: false,
            ..Compress::default()
        },
        ..SquashfsOptions::default()
    };
    let image = image(&tree_of(&[("file", &bytes)]), &options).unwrap();
    let words = [4096_u32 | 1 << 24, 904 | 1 << 24]
        .map(u32::to_le_bytes)
        .concat();
    let at = image.windows(8).position(|window| window == words).unwrap();
    for (stored, is_read) in [(904_u32, true), (905, true), (4097, false), (903, false)] {
        let mut image = image.clone();
        image[at + 4..at + 8].copy_from_slice(&(stored | 1 << 24).to_le_bytes());
        let fs = open(image).unwrap();
        let file = fs.lookup(fs.root(), b"file").unwrap().unwrap();
        let mut ends = Vec::new();
        let mapped = fs.map(file, 0..5000, &mut |extent| {
            ends.push(extent.logical.end);
            std::ops::ControlFlow::Continue(())
        });
        assert_eq!(mapped.is_ok(), is_read, "{stored}");
        assert!(!is_read || ends == [4096, 5000], "{stored}: {ends:?}");
        let mut warnings = Vec::new();
        fs.check(Some(file), &mut |problem| {
            assert!(!problem.fatal);
            warnings.push(problem.error.to_string());
        })
        .unwrap();
        let says = "block 1 of the file has 904 bytes, but takes 905 in the image";
        let is_said = warnings.iter().any(|warning| warning.contains(says));
        assert_eq!(is_said, stored == 905, "{stored}: {warnings:?}");
    }
}

#[test]
fn a_link_count_of_0_is_shown_and_reported() {
    let image = with_u32(TAIL + 40, 0);
    let fs = open(image.clone()).unwrap();
    let node = NodeId((TAIL - INODES) as u64);
    assert_eq!(fs.metadata(node).unwrap().nlink, 0);
    let problems = fuzzing::walk(&image);
    assert!(
        matches!(&problems[..], [Error::Corrupt(error)] if error.to_string().contains("link count 0")),
        "{problems:?}"
    );
}

#[test]
fn every_byte_of_the_metadata_with_many_values() {
    let images = [sample(), seed("everything"), seed("lz4")];
    for image in images {
        let step = if image.len() > 800 { 3 } else { 1 };
        for at in (0..image.len()).step_by(step) {
            for value in [
                0,
                1,
                0x7f,
                0x80,
                0xff,
                image[at] ^ 1,
                image[at].wrapping_add(1),
            ] {
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
fn every_truncation_is_refused() {
    for image in [sample(), seed("everything")] {
        for len in 0..image.len() {
            let error = open(image[..len].to_vec()).err().unwrap();
            assert!(
                matches!(error, Error::Corrupt(_) | Error::UnknownFormat { .. }),
                "{len}: {error}"
            );
        }
        // Bytes after the end of an image are not part of it.
        assert!(fuzzing::walk(&[&image[..], &[0xff; 5000]].concat()).is_empty());
    }
}

#[test]
fn a_metadata_block_decodes_to_8_kib_at_most() {
    // 8193 zeros in stored deflate blocks would not be short; zlib made this stream, from 1 MiB of
    // zeros.
    let mut bomb = vec![0x78, 0xda];
    bomb.extend_from_slice(&[
        0xed, 0xc1, 0x01, 0x0d, 0x00, 0x00, 0x00, 0xc2, 0xa0, 0xf7, 0x4f,
    ]);
    bomb.extend_from_slice(&[0x6d, 0x0e, 0x37, 0xa0, 0x00]);
    let mut parts = Parts::everything();
    parts.inodes.resize(279, 0);
    let mut image = parts.image();
    image[INODES - 2..INODES].copy_from_slice(&279_u16.to_le_bytes());
    image[INODES..INODES + bomb.len()].copy_from_slice(&bomb);
    let error = open(image).err().unwrap().to_string();
    assert!(error.contains("offset 0x92: metadata block: "), "{error}");
}

#[test]
fn a_fault_at_any_read_is_an_error_once_and_forgotten() {
    check_faults(&FORMAT, &sample());
    check_faults(&FORMAT, &seed("everything"));
}

#[test]
fn a_block_that_does_not_decode_fails_each_time_and_alone() {
    // The listing is bad, but the inodes are not.
    let fs = open(with_u16(LISTINGS - 2, 96)).unwrap();
    let first = fs.lookup(fs.root(), b"data").unwrap_err().to_string();
    let second = fs.lookup(fs.root(), b"data").unwrap_err().to_string();
    assert_eq!(first, second);
    assert!(first.contains("0x1ab"), "{first}");
    assert!(fs.metadata(fs.root()).is_ok());
    let node = NodeId((FILE - INODES) as u64);
    assert_eq!(fs.metadata(node).unwrap().size, 20);
}

fn seed(wanted: &str) -> Vec<u8> {
    let seeds = fuzzing::seeds().unwrap();
    let found = seeds.into_iter().find(|(name, _)| *name == wanted);
    found.unwrap().1
}
