//! Hostile images: an error that names the offset, never a panic, a hang or unbounded memory.

use std::ops::ControlFlow;

use forerun_cramfs::fuzzing;
use forerun_cramfs::fuzzing::maker::{Blocks, Layout};
use forerun_testkit::mutate::is_located;
use forerun_vfs::{DirCursor, FileSystem, NodeId};

use crate::common::*;

#[test]
fn the_sample_is_laid_out_as_the_tests_assume() {
    let image = sample();
    for (at, name) in [
        (DIR, &b"dir"[..]),
        (FILE, b"file"),
        (LINK, b"link"),
        (INNER, b"inner"),
    ] {
        assert_eq!(&image[at + 12..at + 12 + name.len()], name, "{at:#x}");
    }
    for (at, table) in [(INNER, INNER_TABLE), (FILE, FILE_TABLE), (LINK, LINK_TABLE)] {
        assert_eq!(word(&image, at + 8) as usize >> 6 << 2, table, "{at:#x}");
    }
    assert_eq!(errors(&image), Vec::<String>::new());
}

/// Encodes a word of an inode: the low 6 bits are the length of a name in units, the others an
/// offset in units.
fn place(name: usize, offset: usize) -> u32 {
    name.div_ceil(4) as u32 | (offset as u32 / 4) << 6
}

fn check_each(cases: Vec<(&str, Vec<u8>, &str)>) {
    for (what, image, expected) in cases {
        let errors = errors(&image);
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{what}: {errors:#?}"
        );
    }
}

#[test]
fn superblocks_that_lie() {
    let len = sample().len();
    let outside = format!(
        "node 64, offset 0x40: the directory's 16777215 bytes of entries at 0x4c lie outside the image of {len:#x} bytes"
    );
    let short = format!("offset 0x0: the superblock says 4294967295 bytes, the source has {len}");
    check_each(vec![
        (
            "magic",
            with_word(0, 0),
            "offset 0x0: bad magic [00, 00, 00, 00]",
        ),
        (
            "only a magic",
            sample()[..75].to_vec(),
            "offset 0x0: the image is 75 bytes long; a superblock takes 76",
        ),
        (
            "size below the superblock",
            with_word(4, 75),
            "offset 0x0: the superblock says 75 bytes, fewer than the 76 up to its own end",
        ),
        ("size past the source", with_word(4, u32::MAX), &short),
        (
            "unknown flags",
            with_word(8, 0x8000_1003),
            "not supported: cramfs flags 0x80001000",
        ),
        (
            "root is a file",
            with_word(ROOT, 0o100_644),
            "node 64, offset 0x40: the root has the mode 0o100644, which is not a directory",
        ),
        (
            "root of no type",
            with_word(ROOT, 0o644),
            "node 64, offset 0x40: unknown file type in mode 0o644",
        ),
        ("entries outside", with_word(ROOT + 4, 0xff_ffff), &outside),
        (
            "entries in the superblock",
            with_word(ROOT + 8, place(0, 72)),
            "node 64, offset 0x40: the directory's 48 bytes of entries at 0x48 lie outside",
        ),
        (
            "entries far behind",
            with_word(ROOT + 8, u32::MAX),
            "node 64, offset 0x40: the directory's 48 bytes of entries at 0xffffffc lie outside",
        ),
    ]);
}

#[test]
fn entries_that_lie() {
    let root_place = place(3, DIR);
    check_each(vec![
        (
            "a name that includes what follows the directory",
            with_word(LINK + 8, place(252, LINK_TABLE)),
            "node 64, offset 0x6c: name contains a NUL byte",
        ),
        (
            "no units of name",
            with_word(LINK + 8, place(0, LINK_TABLE)),
            "node 64, offset 0x6c: the entry has no name",
        ),
        (
            "only padding",
            with_word(FILE + 12, 0),
            "node 64, offset 0x5c: the entry has no name",
        ),
        (
            "slash",
            with(|image| image[FILE + 13] = b'/'),
            "node 64, offset 0x5c: name contains a slash: \"f/le\"",
        ),
        (
            "NUL",
            with(|image| image[FILE + 13] = 0),
            "node 64, offset 0x5c: name contains a NUL byte: \"f\\0le\"",
        ),
        (
            "dot",
            with(|image| image[FILE + 12..FILE + 16].copy_from_slice(b".\0\0\0")),
            "node 64, offset 0x5c: name is . or ..: \".\"",
        ),
        (
            "dots",
            with(|image| image[FILE + 12..FILE + 16].copy_from_slice(b"..\0\0")),
            "node 64, offset 0x5c: name is . or ..: \"..\"",
        ),
        (
            "duplicate",
            with(|image| image[LINK + 12..LINK + 16].copy_from_slice(b"file")),
            "node 64, offset 0x6c: second entry named \"file\"; the first is at 0x5c",
        ),
        (
            "type",
            with_word(FILE, 0o170_644),
            "node 64, offset 0x5c: unknown file type in mode 0o170644",
        ),
        (
            "a directory in itself",
            with(|image| {
                set_word(image, DIR + 4, 48);
                set_word(image, DIR + 8, root_place);
            }),
            "directory 76 lies below itself at /dir/dir",
        ),
        (
            "entries of a directory outside",
            with_word(DIR + 8, place(3, 1 << 24)),
            "node 76, offset 0x4c: the directory's 20 bytes of entries at 0x1000000 lie outside",
        ),
    ]);
}

#[test]
fn blocks_that_lie() {
    let len = sample().len();
    let end = |block: usize| FILE_TABLE + 4 * block;
    let outside = format!(
        "node 92, offset 0xb8: block 3 at 0x30dd..0xffffffff lies outside the image of {len:#x} bytes"
    );
    check_each(vec![
        (
            "table outside",
            with_word(FILE + 8, place(4, len - 12)),
            "node 92, offset 0x5c: the table of 4 block pointers at 0x30fc lies outside",
        ),
        (
            "table in the superblock",
            with_word(FILE + 8, place(4, 0)),
            "node 92, offset 0x5c: the table of 4 block pointers at 0x0 lies outside",
        ),
        (
            "size",
            with_word(FILE + 4, 0xff_ffff),
            "node 92, offset 0x5c: the table of 4096 block pointers at 0xac lies outside",
        ),
        (
            "first block in the table",
            with_word(end(0), FILE_TABLE as u32),
            "node 92, offset 0xac: block 0 ends at 0xac, before its start at 0xbc",
        ),
        (
            "backwards",
            with_word(end(1), 200),
            "node 92, offset 0xb0: block 1 ends at 0xc8, before its start at 0x10c7",
        ),
        ("past the end", with_word(end(3), u32::MAX), &outside),
        (
            "too long",
            with(|image| {
                let last = word(image, end(3));
                for block in 0..3 {
                    set_word(image, end(block), last);
                }
            }),
            "node 92, offset 0xac: block 0 takes 12340 compressed bytes, more than 8192",
        ),
    ]);
}

#[test]
fn pointers_with_flags_that_lie() {
    let with = |ways, at, word| {
        let mut image = extended(ways);
        set_word(&mut image, at, word);
        Layout::extended().sum(&mut image);
        image
    };
    let stored = extended(Blocks::Stored);
    let first = word(&stored, FILE_TABLE);
    check_each(vec![
        (
            "too short",
            with(Blocks::Stored, FILE_TABLE, first - 1),
            "node 92, offset 0xac: block 0 is not compressed and has 4095 bytes instead of 4096",
        ),
        (
            "direct, outside",
            with(Blocks::DirectStored, FILE_TABLE, u32::MAX),
            "node 92, offset 0xac: block 0 at 0xfffffffc..0x100000ffc lies outside",
        ),
        (
            "direct and compressed, outside",
            with(Blocks::DirectCompressed, FILE_TABLE, 0x7fff_ffff),
            "node 92, offset 0xac: block 0 at 0xfffffffc..0xfffffffe lies outside",
        ),
        (
            "direct and compressed, too long",
            with(Blocks::DirectCompressed, FILE_TABLE + 16, 8193),
            "node 92, offset 0xac: block 0 takes 8193 compressed bytes, more than 8192",
        ),
        (
            "backwards",
            with(Blocks::Mixed, FILE_TABLE + 4, 1 << 31),
            "node 92, offset 0xb0: block 1 ends at 0x0, before its start at 0x10bc",
        ),
    ]);
}

#[test]
fn symbolic_links_that_lie() {
    check_each(vec![
        (
            "empty",
            with_word(LINK + 4, 0),
            "node 108, offset 0x6c: symbolic link of 0 bytes; from 1 to 4096 are allowed",
        ),
        (
            "long",
            with_word(LINK + 4, 4097),
            "node 108, offset 0x6c: symbolic link of 4097 bytes; from 1 to 4096 are allowed",
        ),
        (
            "a hole",
            with_word(LINK_TABLE, LINK_TABLE as u32 + 4),
            "node 108, offset 0x30f0: the target of the symbolic link contains a NUL byte",
        ),
        (
            "damaged",
            with_word(LINK_TABLE + 4, 0),
            "node 108, offset 0x30f4: the target of the symbolic link cannot be decoded: the compressed data is damaged",
        ),
        (
            "of another length",
            with_word(LINK + 4, 10),
            "node 108, offset 0x30f4: the target of the symbolic link cannot be decoded: it decodes to 9 bytes instead of 10",
        ),
    ]);
}

#[test]
fn check_reports_what_reading_does_not_mind() {
    let swapped = with(|image| {
        image[DIR + 12..DIR + 16].copy_from_slice(b"zdir");
    });
    let mut wrong_sum = sample();
    wrong_sum[32] ^= 1;
    for (image, node, fatal, expected) in [
        (wrong_sum, None, true, "offset 0x0: the image's CRC-32 is"),
        (
            with(|image| image[16] = b'c'),
            None,
            false,
            "offset 0x0: the signature is [63, 6f, 6d",
        ),
        (
            with_word(12, 9),
            None,
            false,
            "offset 0x0: the reserved word `future` is 0x9 instead of 0",
        ),
        (
            with_word(ROOT + 8, place(0, FILE)),
            None,
            false,
            "offset 0x0: the root's entries begin at 0x5c instead of 0x4c",
        ),
        (
            with_word(ROOT + 4, 40),
            Some(ROOT),
            false,
            "node 64, offset 0x6c: 8 bytes are left for an inode, which takes 12",
        ),
        (
            with_word(ROOT + 4, 46),
            Some(ROOT),
            false,
            "node 64, offset 0x6c: the name of 4 bytes reaches past the end of the directory at 0x7a",
        ),
        (
            swapped,
            Some(ROOT),
            false,
            "node 64, offset 0x5c: the entry \"file\" comes before \"zdir\" in the order of names",
        ),
        (
            with_word(FILE + 4, 0),
            Some(FILE),
            false,
            "node 92, offset 0x5c: the offset is 0xac; an inode without data must have 0",
        ),
        (
            with_word(FILE, 0o10_644),
            Some(FILE),
            false,
            "node 92, offset 0x5c: the size is 12296; this type of file must have 0",
        ),
    ] {
        let fs = open(&image);
        let mut found = Vec::new();
        let node = node.map(|node| NodeId(node as u64));
        fs.check(node, &mut |problem| {
            found.push((problem.fatal, problem.error.to_string()));
        })
        .unwrap();
        assert!(
            found
                .iter()
                .any(|(is_fatal, text)| *is_fatal == fatal && text.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn damage_stays_where_it_is() {
    let names = |image: Vec<u8>| {
        let fs = open(&image);
        let mut names = Vec::new();
        let outcome = fs.read_dir(fs.root(), DirCursor::START, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        });
        for name in &names {
            let found = fs.lookup(fs.root(), name.as_bytes()).unwrap();
            assert!(found.is_some());
        }
        assert_eq!(fs.lookup(fs.root(), b"missing").is_ok(), outcome.is_ok());
        (names.join(" "), outcome.is_ok())
    };
    let listed = |names: &str, ok| (names.to_string(), ok);
    // A file whose data is missing is still listed, and so are the entries after it.
    assert_eq!(
        names(with_word(FILE + 8, !63 | 1)),
        listed("dir file link", true)
    );
    // An unusable entry is not listed, but does not hide the entries after it.
    assert_eq!(
        names(with(|image| image[FILE + 13] = b'/')),
        listed("dir link", false)
    );
    assert_eq!(names(with_word(FILE, 0)), listed("dir link", false));
    // Linux shows an entry that starts before the end of its directory.
    for size in [34, 40, 46] {
        assert_eq!(
            names(with_word(ROOT + 4, size)),
            listed("dir file link", true)
        );
    }
    // The bytes up to the end of the image are entries of a directory that is too long.
    let (found, is_whole) = names(with_word(ROOT + 4, 0xff_ffff));
    assert!(found.starts_with("dir file link "), "{found}");
    assert!(!is_whole);
    // A name that reaches past the end does hide them.
    assert_eq!(
        names(with_word(FILE + 8, place(252, FILE_TABLE))),
        listed("dir", false)
    );
}

#[test]
fn any_byte_of_metadata_can_be_any_other() {
    let image = sample();
    let parts = [0..FILE_TABLE + 30, LINK_TABLE..image.len()];
    for at in parts.into_iter().flatten() {
        for value in [
            0, 1, 2, 7, 8, 0x10, 0x20, 0x41, 0x7F, 0x80, 0xA1, 0xF0, 0xFF,
        ] {
            let mut mutated = image.clone();
            mutated[at] = value;
            for error in fuzzing::walk(&mutated) {
                assert!(is_located(&error), "byte {at:#x} = {value:#x}: {error}");
            }
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let image = sample();
    for len in (0..LINK_TABLE + 8).step_by(3).chain(0..600) {
        assert!(!errors(&image[..len]).is_empty(), "{len}");
        // The same with a superblock that agrees with the new length.
        let mut shorter = image[..len].to_vec();
        if len >= 76 {
            set_word(&mut shorter, 4, len as u32);
            Layout::default().sum(&mut shorter);
            assert!(!errors(&shorter).is_empty(), "{len}");
        }
    }
}
