//! Hostile images: an error that names the offset, never a panic, a hang or unbounded memory.

use std::ops::ControlFlow;

use forerun_io::Limits;
use forerun_romfs::Romfs;
use forerun_vfs::{DirCursor, Error, FileSystem, NodeId};

use crate::common::*;

#[test]
fn the_sample_is_laid_out_as_the_tests_assume() {
    let image = sample();
    for (offset, name) in [
        (ROOT, &b".\0"[..]),
        (DOTS, b"..\0"),
        (DIR, b"dir\0"),
        (DIR_DOT, b".\0"),
        (INNER, b"inner\0"),
        (FILE, b"file\0"),
        (HARD, b"hard\0"),
        (LINK, b"link\0"),
    ] {
        assert_eq!(
            &image[offset + 16..offset + 16 + name.len()],
            name,
            "{offset:#x}"
        );
    }
    assert!(use_it(source(image)).is_empty());
}

/// Opens, walks and reads each image, and checks that one of the errors contains the expected text.
#[track_caller]
fn assert_errors<const N: usize>(cases: [(&str, Vec<u8>, &str); N]) {
    for (what, image, expected) in cases {
        let errors: Vec<_> = use_it(source(image))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{what}: {errors:?}"
        );
    }
}

#[test]
fn superblock_fields_that_lie_are_exact_errors() {
    assert_errors([
        (
            "magic",
            with_word(0, 0),
            "offset 0x0: bad magic [00, 00, 00, 00, 31, 66, 73, 2d]",
        ),
        (
            "size past the source",
            with_word(8, 4096),
            "offset 0x0: the superblock says 4096 bytes, the source has 1024",
        ),
        (
            "no room for a root",
            with_word(8, 0x2F),
            "offset 0x0: the superblock says 47 bytes, too few",
        ),
        (
            "volume name",
            with(|image| image[16..300].fill(b'v')),
            "volume name does not end within 255",
        ),
    ]);
}

#[test]
fn headers_that_lead_astray_are_exact_errors() {
    const DIRECTORY: u32 = 9;
    const REGULAR: u32 = 2;
    let file = |next: usize| next as u32 | REGULAR;
    assert_errors([
        (
            "root kind",
            with_word(ROOT, file(DOTS)),
            "node 32, offset 0x20: the root is not a directory",
        ),
        (
            "next outside",
            with_word(DIR, 0x4000 | DIRECTORY),
            "offset 0x4000: header outside the image",
        ),
        (
            "first outside",
            with_word(DIR + 4, 0xFFFF_FFF0),
            "offset 0xfffffff0: header outside the image",
        ),
        (
            "chain to itself",
            with_word(FILE, file(FILE)),
            "offset 0xf0: the chain of entries returns",
        ),
        (
            "chain to the start",
            with_word(LINK, ROOT as u32 | 3),
            "offset 0x20: the chain of entries returns",
        ),
        (
            "directory below itself",
            with_word(DIR + 4, ROOT as u32),
            "directory 96 lies below itself at /dir/dir",
        ),
    ]);
}

#[test]
fn data_past_the_end_is_an_exact_error() {
    assert_errors([
        (
            "file past the end",
            with_word(FILE + 8, u32::MAX),
            "node 240, offset 0xf0: 4294967295 bytes of data at 0x110",
        ),
        (
            "link past the end",
            with_word(LINK + 8, 0x1000),
            "offset 0x140: 4096 bytes of data",
        ),
        (
            "empty link",
            with_word(LINK + 8, 0),
            "offset 0x140: symbolic link of 0 bytes",
        ),
        (
            "NUL in a link",
            with(|image| image[LINK + 32 + 3] = 0),
            "symbolic link contains a NUL",
        ),
    ]);
}

#[test]
fn hard_links_that_lead_astray_are_exact_errors() {
    assert_errors([
        (
            "hard link to itself",
            with_word(HARD + 4, HARD as u32),
            "node 288, offset 0x120: hard link to 0x120 begins a chain",
        ),
        (
            "hard link outside",
            with_word(HARD + 4, 0x8000),
            "offset 0x8000: header outside the image",
        ),
        (
            "hard link to the root",
            with_word(HARD + 4, ROOT as u32),
            "node 288, offset 0x120: hard link to the directory at 0x20",
        ),
    ]);
}

#[test]
fn names_that_lie_are_exact_errors() {
    let endless = with(|image| image[FILE + 16..FILE + 16 + 290].fill(b'n'));
    assert_errors([
        (
            "slash",
            with(|image| image[FILE + 17] = b'/'),
            "offset 0xf0: name contains a slash: \"f/le\"",
        ),
        (
            "empty name",
            with(|image| image[FILE + 16] = 0),
            "offset 0xf0: empty name",
        ),
        (
            "endless name",
            endless,
            "node 32, offset 0xf0: the name does not end within 112 bytes",
        ),
        (
            "duplicate",
            with(|image| image[HARD + 16..HARD + 20].copy_from_slice(b"file")),
            "offset 0x120: second entry named \"file\"; the first is at 0xf0",
        ),
    ]);
}

#[test]
fn a_wrong_sum_of_the_superblock_is_an_exact_error() {
    let mut broken = sample();
    broken[20] ^= 1;
    let errors = use_it(source(broken));
    assert!(
        errors[0]
            .to_string()
            .contains("the words of the first 368 bytes add up to"),
        "{errors:?}"
    );
}

/// A problem that `check` must report: the image, the node, the offset, the text.
type Reported<'a> = (Vec<u8>, usize, usize, &'a str);

/// Checks the node of each image, and looks for the problem among the reported ones.
#[track_caller]
fn assert_reported<const N: usize>(is_fatal: bool, cases: [Reported<'_>; N]) {
    for (image, node, offset, expected) in cases {
        let romfs = Romfs::open(source(image), &Limits::default()).unwrap();
        let mut found = Vec::new();
        romfs
            .check(Some(NodeId(node as u64)), &mut |problem| {
                assert_eq!(problem.node, Some(NodeId(node as u64)));
                found.push((problem.fatal, problem.error.to_string()))
            })
            .unwrap();
        let place = format!("offset {offset:#x}: ");
        assert!(
            found.iter().any(|(fatal, problem)| *fatal == is_fatal
                && problem.contains(&place)
                && problem.contains(expected)),
            "{expected}: {found:?}"
        );
    }
}

#[test]
fn check_reports_headers_with_a_wrong_sum() {
    let flipped = |at: usize| with(move |image| image[at] ^= 1);
    let sum = "the words of header and name add up to";
    assert_reported(
        true,
        [
            (flipped(ROOT + 12), ROOT, ROOT, sum),
            (flipped(FILE + 12), FILE, FILE, sum),
            (flipped(INNER + 12), INNER, INNER, sum),
            // Hard links and dots are not nodes: the check of their directory reports them.
            (flipped(HARD + 12), ROOT, HARD, sum),
            (flipped(DIR_DOT + 12), DIR, DIR_DOT, sum),
        ],
    );
}

#[test]
fn check_reports_fields_that_reading_ignores() {
    assert_reported(
        false,
        [
            (
                with_word(FILE + 4, 5),
                FILE,
                FILE,
                "spec.info is 0x5; this type",
            ),
            (
                with_word(HARD + 4, 0xF1),
                ROOT,
                HARD,
                "spec.info is 0xf1; the low",
            ),
            (with_word(DIR + 8, 7), DIR, DIR, "size is 7"),
            (
                with(|image| image[LINK + 3] |= 8),
                LINK,
                LINK,
                "executable bit",
            ),
        ],
    );
}

#[test]
fn check_reports_dots_that_lead_elsewhere() {
    assert_reported(
        false,
        [
            (
                with_word(DIR_DOT + 4, ROOT as u32),
                DIR,
                DIR_DOT,
                "the entry \".\" refers to 0x20",
            ),
            (
                with_word(DOTS + 4, FILE as u32),
                ROOT,
                DOTS,
                "the entry \"..\" refers to 0xf0",
            ),
            (with_word(DOTS + 4, 0x8000), ROOT, 0x8000, "header outside"),
            (
                with(|image| image[DIR_DOT + 16] = b'x'),
                DIR,
                DIR,
                "no entry \".\"",
            ),
        ],
    );
}

#[test]
fn check_reports_missing_padding() {
    let mut unpadded = sample();
    unpadded.truncate(0x170);
    let romfs = Romfs::open(source(unpadded), &Limits::default()).unwrap();
    let mut found = Vec::new();
    romfs
        .check(None, &mut |problem| found.push(problem.error.to_string()))
        .unwrap();
    assert!(found[0].contains("the source ends at 0x170"), "{found:?}");
}

#[test]
fn damage_stays_where_it_is() {
    let names = |image: Vec<u8>| {
        let romfs = Romfs::open(source(image), &Limits::default()).unwrap();
        let mut names = Vec::new();
        let outcome = romfs.read_dir(romfs.root(), DirCursor::START, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        });
        for name in &names {
            assert!(
                romfs
                    .lookup(romfs.root(), name.as_bytes())
                    .unwrap()
                    .is_some()
            );
        }
        (names.join(" "), outcome.is_ok())
    };
    let sorted = |names: &str, ok| (names.to_string(), ok);
    // A file whose data is missing is still listed, and so are the entries after it.
    assert_eq!(
        names(with_word(FILE + 8, u32::MAX)),
        sorted("dir file hard link", true)
    );
    // An unusable entry is not listed, but does not hide the entries after it.
    assert_eq!(
        names(with_word(HARD + 4, 0x8000)),
        sorted("dir file link", false)
    );
    assert_eq!(
        names(with(|image| image[FILE + 16] = b'/')),
        sorted("dir hard link", false)
    );
    // A broken chain does hide them.
    assert_eq!(names(with_word(FILE, 0x4002)), sorted("dir file", false));
    let romfs = Romfs::open(source(with_word(FILE, 0x4002)), &Limits::default()).unwrap();
    let error = romfs.lookup(romfs.root(), b"link").unwrap_err().to_string();
    assert!(
        error.contains("node 32, offset 0x4000: header outside"),
        "{error}"
    );
    assert!(romfs.metadata(NodeId(FILE as u64)).is_ok());
}

#[test]
fn a_chain_may_go_backwards() {
    // The new order is dir, link, hard, file.
    let image = with(|image| {
        let mut next = |at: usize, to: usize| {
            let word = u32::from_be_bytes(image[at..at + 4].try_into().unwrap());
            image[at..at + 4].copy_from_slice(&((word & 0xF) | to as u32).to_be_bytes());
        };
        next(DIR, LINK);
        next(LINK, HARD);
        next(HARD, FILE);
        next(FILE, 0);
        for at in [DIR, LINK, HARD, FILE] {
            image[at + 12..at + 16].fill(0);
            let sum = sum(&image[at..at + 32]).wrapping_neg();
            image[at + 12..at + 16].copy_from_slice(&sum.to_be_bytes());
        }
    });
    for index_bytes in [Limits::default().dir_index_bytes, 0] {
        let mut limits = Limits::default();
        limits.dir_index_bytes = index_bytes;
        let romfs = Romfs::open(source(image.clone()), &limits).unwrap();
        forerun_testkit::conformance::check_filesystem(&romfs, &limits);
        let mut names = Vec::new();
        romfs
            .read_dir(romfs.root(), DirCursor::START, &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(names.join(" "), "dir link hard file");
    }
}

#[test]
fn any_byte_can_be_any_other() {
    let image = sample();
    let used = u32::from_be_bytes(image[8..12].try_into().unwrap()) as usize;
    for at in 0..used {
        for value in [0, 1, 2, 7, 8, 0x10, 0x20, 0x7F, 0x80, 0xF0, 0xFF] {
            let mut mutated = image.clone();
            if mutated[at] == value {
                continue;
            }
            mutated[at] = value;
            // Unchanged, nearly all mutations fail the first check; with a corrected checksum they
            // reach the others.
            let refused = use_it(source(mutated.clone()));
            assert!(
                !refused.is_empty(),
                "byte {at:#x} is covered by the checksum"
            );
            fix_checksum(&mut mutated);
            for error in use_it(source(mutated)) {
                let located = match &error {
                    Error::Corrupt(corrupt) => corrupt.to_string().contains("offset"),
                    Error::DirectoryLoop { .. } => true,
                    _ => false,
                };
                assert!(located, "byte {at:#x} = {value:#x}: {error}");
            }
        }
    }
}

#[test]
fn any_two_bytes_of_headers_can_be_any_others() {
    let image = sample();
    let mut state = 1u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..20_000 {
        let mut mutated = image.clone();
        for _ in 0..2 + random(3) {
            // Small values make plausible offsets.
            let value = if random(2) == 0 {
                random(256)
            } else {
                random(24) * 16
            };
            mutated[ROOT + random(0x140)] = value as u8;
        }
        fix_checksum(&mut mutated);
        use_it(source(mutated));
    }
}

#[test]
fn every_truncation_is_an_error() {
    let image = sample();
    let used = u32::from_be_bytes(image[8..12].try_into().unwrap()) as usize;
    for len in 0..used {
        let errors = use_it(source(image[..len].to_vec()));
        assert!(
            matches!(errors[..], [Error::Corrupt(_)]),
            "{len}: {errors:?}"
        );
        // The same with a superblock that agrees with the new length.
        let mut shorter = image[..len].to_vec();
        if len >= 16 {
            shorter[8..12].copy_from_slice(&(len as u32).to_be_bytes());
            fix_checksum(&mut shorter);
            let errors = use_it(source(shorter));
            assert!(
                errors
                    .iter()
                    .all(|error| matches!(error, Error::Corrupt(_))),
                "{len}: {errors:?}"
            );
            // The last bytes are padding after the target of the link.
            assert_eq!(
                errors.is_empty(),
                len >= LINK + 32 + "dir/inner".len(),
                "{len}"
            );
        }
    }
    assert!(use_it(source(image[..used].to_vec())).is_empty());
}
