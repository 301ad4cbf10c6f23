//! Holes of inputs cost neither time nor space, and files too long for their image are refused.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use forerun_testkit::require;

use crate::common::{Fixture, Ran, command, ran};

const LONG: u64 = 1 << 40;
const PLACE: u64 = 3 << 38;

/// Runs the program with a CPU time limit in which it cannot read terabytes.
fn run(fixture: &Fixture, args: &[&str], stdin: Option<&str>) -> Ran {
    let forerun = command(args);
    let mut limited = Command::new("prlimit");
    limited
        .args(["--cpu=40", "--"])
        .arg(forerun.get_program())
        .args(args)
        .current_dir(fixture.dir.path());
    if let Some(stdin) = stdin {
        limited.stdin(File::open(fixture.path(stdin)).unwrap());
    }
    ran(limited.output().unwrap())
}

/// Makes a directory with two sparse files of a terabyte that start with the same bytes.
fn plant(fixture: &Fixture, len: u64) {
    let dir = fixture.path("sparse");
    fs::create_dir(&dir).unwrap();
    for (name, text) in [("one", b"one"), ("two", b"two")] {
        let file = File::create(dir.join(name)).unwrap();
        file.set_len(len).unwrap();
        file.write_all_at(b"start", 0).unwrap();
        file.write_all_at(text, len / 4 * 3).unwrap();
    }
}

fn archive(fixture: &Fixture, form: &str, name: &str) {
    let mut tar = Command::new("tar");
    let dir = fixture.path("sparse");
    tar.args([form, "-cSf", name, "-C"])
        .arg(dir)
        .args(["one", "two"]);
    let made = tar.current_dir(fixture.dir.path()).status().unwrap();
    assert!(made.success());
    assert!(fixture.path(name).metadata().unwrap().len() < 100_000);
}

/// Extracts an image, and checks the bytes of its files.
fn judge(fixture: &Fixture, image: &str) {
    let args = ["extract", "--limit", "total-bytes=4T", "-C", "out", image];
    let extracted = run(fixture, &args, None);
    assert_eq!(extracted.code, Some(0), "{image}: {}", extracted.stderr);
    for (name, text) in [("one", b"one"), ("two", b"two")] {
        let file = File::open(fixture.path("out").join(name)).unwrap();
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), LONG, "{image}");
        assert!(
            metadata.blocks() * 512 < 64 << 20,
            "{image}: {}",
            metadata.blocks()
        );
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"start", "{image}");
        file.read_exact_at(&mut bytes, PLACE - 1).unwrap();
        assert_eq!(bytes, [0, text[0], text[1], text[2], 0], "{image}");
    }
    fs::remove_dir_all(fixture.path("out")).unwrap();
}

#[test]
fn holes_of_directories_and_archives_cost_nothing() {
    if require::program("tar").is_none() || require::program("prlimit").is_none() {
        return;
    }
    let fixture = Fixture::tree();
    plant(&fixture, LONG);
    archive(&fixture, "--format=gnu", "gnu.tar");
    archive(&fixture, "--format=posix", "posix.tar");
    for (options, most) in [
        (&["--format", "squashfs"][..], 1 << 20),
        (&["--format", "erofs"], 20 << 20),
        (&["--format", "erofs", "--compressor", "lz4"], 20 << 20),
    ] {
        for (input, stdin) in [
            ("sparse", None),
            ("gnu.tar", None),
            ("posix.tar", None),
            ("-", Some("gnu.tar")),
            ("-", Some("posix.tar")),
        ] {
            let rest = ["--force", "--limit", "total-bytes=4T", input, "a.img"];
            let args = [&["pack"], options, &rest].concat();
            let packed = run(&fixture, &args, stdin);
            assert_eq!(packed.code, Some(0), "{args:?}: {}", packed.stderr);
            let len = fixture.path("a.img").metadata().unwrap().len();
            assert!(len < most, "{args:?}: {len}");
            if stdin.is_some() || input == "sparse" {
                judge(&fixture, "a.img");
            }
        }
    }
}

#[test]
fn holes_of_an_image_become_holes_of_another() {
    if require::program("prlimit").is_none() {
        return;
    }
    let fixture = Fixture::tree();
    plant(&fixture, LONG);
    run(&fixture, &["pack", "sparse", "a.sqsh"], None).ok();
    for (options, image) in [
        (&[][..], "a.erofs"),
        (&["--compressor", "zstd"], "b.erofs"),
        (&["--block-size", "1M"], "b.sqsh"),
    ] {
        let args = [
            &["convert", "--limit", "total-bytes=4T"],
            options,
            &["a.sqsh", image],
        ]
        .concat();
        run(&fixture, &args, None).ok();
        let len = fixture.path(image).metadata().unwrap().len();
        assert!(len < 20 << 20, "{args:?}: {len}");
        let quick = ["check", "--limit", "total-bytes=4T", image];
        run(&fixture, &quick, None).ok();
        judge(&fixture, image);
        if image.ends_with(".erofs") && require::program("fsck.erofs").is_some() {
            let checked = Command::new("fsck.erofs").arg(fixture.path(image)).output();
            assert!(checked.unwrap().status.success(), "{image}");
        }
    }
}

#[test]
fn files_longer_than_the_image_has_a_right_to_are_refused() {
    if require::program("tar").is_none() {
        return;
    }
    let fixture = Fixture::tree();
    plant(&fixture, 40 << 30);
    archive(&fixture, "--format=posix", "a.tar");
    fixture.run(&["pack", "sparse", "a.sqsh"]).ok();
    for args in [
        &["pack", "--format", "erofs", "a.tar", "x.img"][..],
        &["convert", "a.sqsh", "x.erofs"],
        &["extract", "-C", "out", "a.sqsh"],
        &["tar", "-o", "x.tar", "a.sqsh"],
    ] {
        let refused = fixture.run(args);
        assert_eq!(refused.code, Some(1), "{args:?}: {}", refused.stderr);
        for told in ["--limit total-bytes=BYTES", &(64_u64 << 30).to_string()] {
            assert!(
                refused.stderr.contains(told),
                "{args:?}: {}",
                refused.stderr
            );
        }
    }
    let raised = [
        "convert",
        "--limit",
        "total-bytes=100G",
        "a.sqsh",
        "x.erofs",
    ];
    fixture.run(&raised).ok();
}
