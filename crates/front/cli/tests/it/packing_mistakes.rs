//! pack and convert: mistakes of users.

use std::fs;

use crate::common::Fixture;

const PACK: [&str; 3] = ["pack", "--format", "squashfs"];
const CONVERT: [&str; 3] = ["convert", "--format", "squashfs"];

/// The first words, the other words, the exit code, and the message.
type Mistake = (
    &'static [&'static str],
    &'static [&'static str],
    i32,
    &'static str,
);

/// Options that conflict with the format, the compressor or another option.
const UNFIT_OPTIONS: &[Mistake] = &[
    (
        &PACK,
        &["--align", "4K", "tree", "x"],
        2,
        "forerun: --align is an option of romfs and exfat, but the image is squashfs",
    ),
    (
        &["pack", "--format", "romfs"],
        &["--no-sparse", "tree", "x"],
        2,
        "forerun: --no-sparse is an option of squashfs, but the image is romfs",
    ),
    (
        &["pack", "--format", "romfs"],
        &["--level", "3", "tree", "x"],
        2,
        "forerun: --level is an option of squashfs and erofs, but the image is romfs",
    ),
    (
        &PACK,
        &["--cluster-size", "64K", "tree", "x"],
        2,
        "forerun: --cluster-size is an option of erofs and exfat, but the image is squashfs",
    ),
    (
        &PACK,
        &["--compressor", "deflate", "tree", "x"],
        2,
        "forerun: squashfs has no compressor deflate",
    ),
    (
        &["pack", "--format", "erofs"],
        &["--compressor", "gzip", "tree", "x"],
        2,
        "forerun: erofs has no compressor gzip",
    ),
    (
        &["pack", "--format", "erofs"],
        &["--cluster-size", "64K", "tree", "x"],
        2,
        "forerun: --cluster-size has no effect without a compressor",
    ),
    (
        &["pack", "--format", "erofs"],
        &["--compressor", "lz4hc", "--cluster-size", "2M", "tree", "x"],
        2,
        "forerun: physical clusters of 2097152 bytes; they are a power of two from a block to \
         1048576",
    ),
    (
        &["pack", "--format", "romfs"],
        &["--compressor-options", "bcj=x86", "tree", "x"],
        2,
        "forerun: --compressor-options is an option of squashfs, but the image is romfs",
    ),
    (
        &PACK,
        &["--dedupe", "extents", "tree", "x"],
        2,
        "forerun: --dedupe takes none or files for squashfs",
    ),
    (
        &PACK,
        &["--fragments", "all", "tree", "x"],
        2,
        "forerun: --fragments takes none, small or tails for squashfs",
    ),
    (
        &["pack", "--format", "erofs"],
        &["--inline", "64", "tree", "x"],
        2,
        "forerun: --inline takes none, plain or all for erofs; bytes are for composefs",
    ),
    (
        &["pack", "--format", "romfs"],
        &["--align", "100", "tree", "x"],
        2,
        "forerun: --align 100: not a power of two from 16 to 64K",
    ),
    (
        &PACK,
        &["--owner", "3", "--uid-map", "0:1", "tree", "x"],
        2,
        "forerun: --uid-map has no effect: --owner gives everything to one owner",
    ),
    (
        &["pack", "--format", "romfs"],
        &["--owner", "0:0", "tree", "x"],
        2,
        "forerun: --owner has no effect: romfs stores no owners and times",
    ),
    (
        &["pack", "--format", "romfs"],
        &["--xattrs-include", "user", "tree", "x"],
        2,
        "forerun: --xattrs-include has no effect: romfs stores no extended attributes",
    ),
    (
        &PACK,
        &[
            "--compressor",
            "zstd",
            "--compressor-options",
            "window=9",
            "tree",
            "x",
        ],
        2,
        "forerun: --compressor-options window is an option of gzip, but the compressor is zstd",
    ),
    (
        &PACK,
        &["--compressor", "xz", "--level", "9", "tree", "x"],
        2,
        "forerun: --level is an option of gzip, zstd, but the compressor is xz",
    ),
    (
        &PACK,
        &["--level", "10", "tree", "x"],
        2,
        "forerun: --level 10: gzip has levels from 1 to 9",
    ),
    (
        &PACK,
        &["--mkfs-time", "2200-01-01", "tree", "x"],
        2,
        "forerun: SquashFS cannot store the time 7258118400, only 1970 to 2106",
    ),
];

const UNFIT_INPUTS: &[Mistake] = &[
    (
        &PACK,
        &["--uid-map", "1", "tree", "x"],
        2,
        "forerun: --uid-map: \"1\" is not FROM:TO or FROM:TO:COUNT, with numbers below \
         4294967295",
    ),
    (
        &PACK,
        &["--gid-map", "0:5:10", "--gid-map", "3:3", "tree", "x"],
        2,
        "forerun: --gid-map: \"3:3\" begins in a range that another mapping covers",
    ),
    (
        &PACK,
        &["--uid-map", "@ids", "tree", "x"],
        4,
        "forerun: ids:2: \"1 1 1\" begins in a range that another mapping covers",
    ),
    (
        &PACK,
        &["--xattrs-exclude", "a(", "tree", "x"],
        2,
        "forerun: pattern \"a(\": unclosed group\n  hint: quote patterns so that the shell \
         leaves them alone",
    ),
    (
        &PACK,
        &["--order", "order", "tree", "x"],
        4,
        "forerun: order:2: priority \"high\" is not a number from -32768 to 32767",
    ),
    (
        &PACK,
        &["--manifest", "list", "tree", "x"],
        4,
        "forerun: list:2: forerun runs no commands (\"f\"): run the command first, and name its output with \"h mode uid gid FILE\"",
    ),
    (
        &PACK,
        &["--manifest", "nope", "x"],
        4,
        "forerun: nope: No such file or directory",
    ),
    (
        &PACK,
        &["--manifest", "-", "-", "x"],
        2,
        "forerun: standard input can be read only once",
    ),
    (
        &PACK,
        &["--manifest", "list", "--force", "list"],
        2,
        "forerun: list: input and output are the same file",
    ),
    (
        &["convert", "--format", "romfs"],
        &["--force", "a.img", "a.img"],
        2,
        "forerun: a.img: input and output are the same file",
    ),
    (
        &CONVERT,
        &["tree", "x"],
        4,
        "forerun: tree: is a directory, not an image\n  hint: forerun pack makes an image of a \
         directory",
    ),
    (
        &CONVERT,
        &["--limit", "depth=1", "--exclude", "/bin", "a.img", "x"],
        1,
        "forerun: a.img: /etc: depth of the directory tree exceeds the limit of 1\n  hint: if \
         you trust the image, raise the limit with --limit depth=N",
    ),
    (
        &CONVERT,
        &[
            "--limit",
            "total-bytes=9",
            "--exclude",
            "big",
            "--exclude",
            "hard",
            "--exclude",
            "odd*",
            "--exclude",
            "/etc",
            "a.img",
            "x",
        ],
        1,
        "forerun: a.img: /bin/tool: bytes of all files exceeds the limit of 9\n  hint: if you trust the image, raise the limit with --limit total-bytes=BYTES",
    ),
];

#[test]
fn mistakes_are_told() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    fs::write(fixture.path("cut.img"), &image[..image.len() / 2]).unwrap();
    fs::write(fixture.path("list"), "a d 755 0 0\nb f 644 0 0 date\n").unwrap();
    fs::write(fixture.path("order"), "etc 5\nbin high\n").unwrap();
    fs::write(fixture.path("ids"), "0 1 2\n1 1 1\n").unwrap();
    for (first, args, code, stderr) in [UNFIT_OPTIONS, UNFIT_INPUTS].concat() {
        let args = [first, args].concat();
        fixture.run(&args).fails(code, stderr);
        assert!(!fixture.path("x").exists(), "{args:?}");
    }
    let ran = fixture.run(&[&CONVERT[..], &["cut.img", "x"]].concat());
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(!fixture.path("x").exists());
}

#[test]
fn options_that_exclude_each_other_are_usage_errors() {
    let fixture = Fixture::tree();
    for (args, message) in [
        (
            &["--no-xattrs", "--xattrs-include", "a"][..],
            "cannot be used with",
        ),
        (
            &["--block-size", "5000"],
            "not a power of two from 512 to 1M",
        ),
        (
            &["--compressor-options", "dict-size=200%"],
            "not a part of a block such as 75% or 37.5%",
        ),
        (
            &["--mtime", "soon"],
            "not seconds since 1970 nor a time as in 2026-01-31",
        ),
        (&["--owner", "4294967295"], "not a number below 4294967295"),
        (
            &["--compressor-options", "window=7"],
            "window must be a number from 8 to 15",
        ),
        (&["--limit", "depth"], "not NAME=VALUE"),
        (
            &["--limit", "width=3"],
            "the limits are total-bytes, entries",
        ),
        (
            &["--no-compress", "all,words"],
            "not one of inodes, data, fragments, xattrs, ids, all",
        ),
        (
            &["--compressor", "bzip2"],
            "not one of gzip, lzo, lz4, lz4hc, xz, lzma, deflate, zstd, none",
        ),
    ] {
        let args = [&PACK[..], args, &["tree", "x"]].concat();
        let ran = fixture.run(&args);
        assert_eq!(ran.code, Some(2), "{args:?}");
        assert!(ran.stderr.contains(message), "{args:?}: {}", ran.stderr);
    }
    let ran = fixture.run(&CONVERT);
    assert!(
        ran.stderr.contains("<OUTPUT|--output <OUTPUT>>"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_image_as_input_leads_to_convert() {
    let fixture = Fixture::tree();
    for input in ["oci://registry.example/app:1", "oci-layout:images:1"] {
        let ran = fixture.run(&["pack", input, "x.sqsh"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains("forerun convert"), "{}", ran.stderr);
    }
}
