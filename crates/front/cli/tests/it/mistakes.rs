//! Mistakes of users: the messages and exit codes.

use std::fs;

use crate::common::Fixture;

type Mistake<'a> = (&'a [&'a str], i32, &'a str);

/// Paths, patterns and limits that do not fit the image.
const IN_THE_IMAGE: &[Mistake<'_>] = &[
    (
        &["cat", "a.img", "/etc"],
        1,
        "forerun: a.img: /etc: is a directory\n  hint: forerun ls lists a directory, forerun \
         extract copies it",
    ),
    (
        &["ls", "a.img", "/etc/pass\u{7}wd"],
        1,
        "forerun: a.img: /etc/pass\\007wd: no such file or directory\n  hint: forerun ls -R \
         a.img lists every path",
    ),
    (
        &["ls", "a.img", "/etc/pass\nwd"],
        1,
        "forerun: a.img: /etc/pass\\nwd: no such file or directory\n  hint: forerun ls -R \
         a.img lists every path",
    ),
    (
        &["ls", "a.img", "/etc/passwd/x"],
        1,
        "forerun: a.img: /etc/passwd/x: not a directory",
    ),
    (
        &["extract", "-C", "out", "a.img", "/nope"],
        1,
        "forerun: a.img: /nope: no such file or directory\n  hint: forerun ls -R a.img lists \
         every path",
    ),
    (
        &[
            "extract",
            "-C",
            "out",
            "--limit",
            "total-bytes=10",
            "a.img",
            "big",
        ],
        1,
        "forerun: a.img: 3000000 bytes to be written exceed the limit of 10\n  hint: if you \
         trust the image, raise the limit with --limit total-bytes=BYTES",
    ),
    (
        &["ls", "-R", "--limit", "entries=2", "a.img"],
        1,
        "forerun: a.img: /: number of entries of all directories exceeds the limit of 2\n  \
         hint: if you trust the image, raise the limit with --limit entries=N",
    ),
    (
        &["tar", "--limit", "walk-memory=10", "-o", "x", "a.img"],
        1,
        "forerun: a.img: /etc/passwd: memory for the walk, in bytes, exceeds the limit of 10\n  \
         hint: if you trust the image, raise the limit with --limit walk-memory=BYTES",
    ),
    (
        &["extract", "-C", "out", "--include", "[", "a.img"],
        2,
        "forerun: pattern \"[\": unclosed character class; missing ']'\n  hint: quote patterns \
         so that the shell leaves them alone",
    ),
];

const OUTPUTS: &[Mistake<'_>] = &[
    (
        &["extract", "-C", "empty", "a.img"],
        5,
        "forerun: empty: is not a directory",
    ),
    (
        &["tar", "-o", "a.img", "a.img"],
        2,
        "forerun: a.img: the image and the archive are the same file",
    ),
    (
        &["tar", "-o", "nodir/x.tar", "a.img"],
        5,
        "forerun: nodir/x.tar: No such file or directory\n  hint: its directory must exist: make it first",
    ),
    (
        &["tar", "-o", "empty", "a.img"],
        5,
        "forerun: empty: exists already\n  hint: --force replaces it",
    ),
    (
        &["tar", "-o", "tree", "a.img"],
        5,
        "forerun: tree: is a directory\n  hint: name the file to write",
    ),
    (
        &["pack", "--format", "romfs", "empty", "empty"],
        2,
        "forerun: empty: input and output are the same file",
    ),
];

#[track_caller]
fn assert_told(fixture: &Fixture, mistakes: &[Mistake<'_>]) {
    for (args, code, stderr) in mistakes {
        let ran = fixture.run(args);
        ran.fails(*code, stderr);
        assert_eq!(ran.stdout, b"", "{args:?}");
    }
    assert!(!fixture.path("out").exists() && !fixture.path("x").exists());
}

/// The word `text`, compressed with gzip.
const TEXT_AS_GZIP: &[u8] =
    b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x49\xad\x28\x01\0\xc7\xa7\x8b\x3b\x04\0\0\0";

#[test]
fn an_unusable_source_is_told_with_what_to_try() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    let len = image.len();
    let full = u32::from_be_bytes(image[8..12].try_into().unwrap());
    fs::write(fixture.path("short.img"), &image[..1000]).unwrap();
    fs::write(fixture.path("a.gz"), TEXT_AS_GZIP).unwrap();
    fs::write(fixture.path("empty"), "").unwrap();
    let shorter = format!(
        "forerun: short.img: damaged romfs image: offset 0x0: the superblock says {full} bytes, the \
         source has 1000\n  hint: the copy may be incomplete: copy the image again, or read the rest with --salvage (mount: -o salvage)"
    );
    let past =
        format!("forerun: a.img: --offset 99999999 lies past the end at 2.9 MiB ({len} bytes)");
    let names = forerun::format_names();
    let unknown = "not an image of a known format";
    let gzip = "forerun: a.gz: not a tar image: a gzip file that holds no archive\n  hint: decompress it first";
    let nothing = format!("forerun: empty: {unknown}: no data");
    let ext9 = format!(
        "forerun: a.img: unknown format \"ext9\"\n  hint: known: {}",
        names.join(", ")
    );
    let mistakes: &[Mistake<'_>] = &[
        (
            &["info", "nope"],
            4,
            "forerun: nope: No such file or directory",
        ),
        (
            &["ls", "tree"],
            4,
            "forerun: tree: is a directory, not an image\n  hint: forerun pack makes an image of a directory",
        ),
        (
            &["ls", "/dev/null"],
            4,
            "forerun: /dev/null: not a regular file or block device",
        ),
        (&["ls", "a.gz"], 3, gzip),
        (&["ls", "empty"], 3, &nothing),
        (&["cat", "short.img", "big"], 1, &shorter),
        (&["info", "--offset", "99999999", "a.img"], 2, &past),
        (&["info", "--format", "ext9", "a.img"], 2, &ext9),
        (
            &["pack", "--format", "romfs", "nope", "x"],
            4,
            "forerun: nope: No such file or directory",
        ),
    ];
    assert_told(&fixture, mistakes);
    let not_tar = fixture.run(&["pack", "--format", "romfs", "a.gz", "x"]);
    assert_eq!(not_tar.code, Some(3));
    assert!(
        not_tar.stderr.starts_with("forerun: a.gz: "),
        "{}",
        not_tar.stderr
    );
    assert!(
        not_tar.stderr.contains("a gzip file that holds no archive"),
        "{}",
        not_tar.stderr
    );
    assert!(!fixture.path("x").exists());
}

#[test]
fn what_the_image_does_not_fit_is_told_with_what_to_try() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    assert_told(&fixture, IN_THE_IMAGE);
}

#[test]
fn an_unusable_output_is_told_with_what_to_try() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.path("empty"), "").unwrap();
    assert_told(&fixture, OUTPUTS);
}

#[test]
fn errors_can_be_json() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let ran = fixture.run(&["--json", "cat", "a.img", "/nope"]);
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    let expected = serde_json::json!({ "error": {
        "kind": "not_found",
        "subject": "a.img",
        "path": "/nope",
        "message": "no such file or directory",
        "hint": "forerun ls -R a.img lists every path",
        "exit_code": 1,
    }});
    assert_eq!(error, expected);
    assert_eq!(ran.code, Some(1));
}

#[test]
fn usage_errors_come_from_the_command_line_parser() {
    let fixture = Fixture::tree();
    for (args, message) in [
        (
            &["frobnicate"][..],
            "forerun: unknown command frobnicate\n  hint: forerun --help lists the commands\n",
        ),
        (
            &["sacn", "a.img"],
            "forerun: unknown command sacn\n  hint: did you mean scan?\n",
        ),
        (
            &["cat", "a.img"],
            "forerun: missing <PATH>...\n  hint: usage: forerun cat [OPTIONS] <IMAGE> <PATH>...\n",
        ),
        (
            &["ls", "--size", "1Q", "a.img"],
            "forerun: --size 1Q: not a number of bytes such as 4096, 0x1000, 64K, 8M or 1G\n",
        ),
        (&["ls", "--size"], "forerun: --size <BYTES> needs a value\n"),
        (
            &["ls", "--threads", "999", "a.img"],
            "forerun: --threads 999: 999 is not in 0..=256\n",
        ),
        (
            &["umount", "--dead", "mnt"],
            "forerun: --dead cannot be used with [DIRS]...\n",
        ),
        (
            &["pack", "tree", "x"],
            "forerun: x: its suffix does not name a format",
        ),
        (
            &["pack", "--format", "ntfs", "tree", "x"],
            "forerun: --format ntfs: not one of romfs, squashfs, erofs, composefs, exfat, sif\n",
        ),
        (&["pack", "--format", "romfs", "tree"], "<OUTPUT>"),
        (
            &["pack", "--format", "romfs", "--align", "5", "tree", "x"],
            "not a power of two from 16 to 64K",
        ),
        (&[], "Usage: forerun [OPTIONS] <COMMAND>"),
    ] {
        let ran = fixture.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
    let told = fixture.run(&["ls", "--json", "--nosuch", "a.img"]);
    let error: serde_json::Value = serde_json::from_str(&told.stderr).unwrap();
    assert_eq!(error["error"]["message"], "unknown option --nosuch");
    let ran = fixture
        .command(&["tar", "a.img"])
        .env("SOURCE_DATE_EPOCH", "yesterday")
        .output()
        .unwrap();
    assert_eq!(
        ran.status.code(),
        Some(4),
        "the image is missing, which is found first"
    );
}

#[test]
fn unwritable_places_are_named() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for args in [
        &["tar", "-o", "/proc/x", "a.img"][..],
        &["extract", "-C", "/proc/x", "a.img"],
    ] {
        let ran = fixture.run(args);
        assert_eq!(ran.code, Some(5), "{}", ran.stderr);
        assert!(
            ran.stderr.starts_with("forerun: /proc/x: "),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn only_what_may_have_been_meant_is_suggested() {
    let fixture = Fixture::tree();
    for (args, tip) in [
        (&["ls", "--badopt", "x"][..], None),
        (&["tar", "--directory", "x", "y"], None),
        (&["mount", "--badopt", "x", "y"], None),
        (&["ls", "--recursiv", "x"], Some("--recursive")),
        (&["cache", "gc", "--tu", "1"], Some("--to")),
        (&["mount", "--option", "ro", "x", "y"], Some("--options")),
    ] {
        let told = fixture.run(args);
        assert_eq!(told.code, Some(2), "{args:?}");
        let lines: Vec<_> = told.stderr.lines().collect();
        let [message, hint] = lines[..] else {
            panic!("{args:?}: {}", told.stderr);
        };
        assert!(
            message.starts_with("forerun: unknown option --"),
            "{message}"
        );
        match tip {
            Some(tip) => assert_eq!(hint, format!("  hint: did you mean {tip}?")),
            None => assert!(hint.starts_with("  hint: usage: forerun "), "{hint}"),
        }
    }
    for (word, hint) in [
        ("allow_othr", "did you mean allow_other?"),
        ("umsak=7", "did you mean umask=?"),
        ("viaa=kernel", "did you mean via=?"),
        (
            "badword",
            "forerun mount --help-all lists the mount options",
        ),
    ] {
        let told = fixture.run(&["mount", "-o", word, "x", "y"]);
        assert_eq!(told.code, Some(2), "{word}");
        let found = told
            .stderr
            .lines()
            .find_map(|line| line.strip_prefix("  hint: "));
        assert_eq!(found, Some(hint), "{}", told.stderr);
    }
}
