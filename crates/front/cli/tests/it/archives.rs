//! Compressed archives through the program: decoded once, indexed once, read in every command.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use forerun_testkit::{TempDir, memory_dir, require};

use crate::common::{Ran, command, ran};

/// Programs, and the suffix of their output.
const PROGRAMS: [(&str, &str); 4] = [
    ("gzip", "gz"),
    ("zstd", "zst"),
    ("xz", "xz"),
    ("bzip2", "bz2"),
];

/// A tree of 3,000 files, its archive, and a cache directory.
struct Place(TempDir);

impl Place {
    /// Makes the archive and compresses it with `program`. Returns `None` if the program is not
    /// installed.
    fn new(program: &str) -> Option<Self> {
        let place = Self(memory_dir("archives", 2 << 30));
        let tree = place.path().join("tree");
        fs::create_dir_all(tree.join("dir/below")).unwrap();
        for number in 0..3000 {
            let line = format!("{number} {} of this file\n", number * 7919);
            fs::write(
                tree.join(format!("dir/{number}")),
                line.repeat(number % 200),
            )
            .unwrap();
        }
        fs::write(tree.join("dir/below/last"), "the last one").unwrap();
        place.host("tar", &["-cf", "a.tar", "-C", "tree", "."])?;
        place.host(program, &["-k", "a.tar"])?;
        Some(place)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn host(&self, program: &str, arguments: &[&str]) -> Option<()> {
        let program = require::program(program)?;
        let mut command = Command::new(program);
        let output = command.args(arguments).current_dir(self.path()).output();
        assert!(output.unwrap().status.success(), "{arguments:?}");
        Some(())
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = command(arguments);
        command
            .current_dir(self.path())
            .env("XDG_CACHE_HOME", self.path().join("cache"));
        ran(command.output().unwrap())
    }

    fn indexes(&self) -> usize {
        let indexes = fs::read_dir(self.path().join("cache/forerun/v1/indexes"));
        indexes.map_or(0, Iterator::count)
    }

    /// Returns how many bytes of the archive a command reads.
    fn bytes_read(&self, arguments: &[&str]) -> u64 {
        let ran = self.run(&[arguments, &["--stats", "--json"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let stats: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
        stats["stats"]["source_bytes"]
            .as_u64()
            .unwrap_or_else(|| panic!("{stats}"))
    }
}

#[test]
fn every_command_reads_archives_of_every_compression() {
    for (program, suffix) in PROGRAMS {
        let Some(place) = Place::new(program) else {
            return;
        };
        let archive = format!("a.tar.{suffix}");
        let name = archive.as_str();
        let info = place.run(&["info", "--json", name]).ok().json();
        assert_eq!(
            (
                info["format"].as_str(),
                info["details"]["compression"].as_str()
            ),
            (Some("tar"), Some(program))
        );
        let last = place.run(&["cat", name, "dir/below/last"]).ok();
        assert_eq!(last.text(), "the last one");
        place.run(&["check", name]).ok();
        place.run(&["diff", name, "tree"]).ok();
        assert_eq!(place.run(&["extract", "-C", "out", name]).code, Some(0));
        assert!(place.host("diff", &["-r", "tree", "out"]).is_some());
        for command in ["pack", "convert"] {
            let image = format!("{command}.sqsh");
            place.run(&[command, "-q", "--force", name, &image]).ok();
        }
        let made = |image| fs::read(place.path().join(image)).unwrap();
        assert!(made("pack.sqsh") == made("convert.sqsh"), "{program}");
        fs::remove_dir_all(place.path().join("out")).unwrap();
        let listed = place.run(&["ls", "-R", name]).ok();
        assert_eq!(
            listed.stdout,
            place.run(&["ls", "-R", "a.tar"]).ok().stdout,
            "{program}"
        );
    }
}

#[test]
fn the_index_of_an_archive_is_made_once_and_kept() {
    for (program, suffix) in &PROGRAMS[..2] {
        let Some(place) = Place::new(program) else {
            return;
        };
        let archive = format!("a.tar.{suffix}");
        let name = archive.as_str();
        let len = fs::metadata(place.path().join(name)).unwrap().len();
        assert!(place.bytes_read(&["cat", name, "dir/below/last"]) >= len);
        // An index is kept although the archive is only one frame, because the frame is shorter
        // than 16 MiB.
        assert_eq!(place.indexes(), 1, "{program}");
        let index = fs::read_dir(place.path().join("cache/forerun/v1/indexes")).unwrap();
        let index = index.flatten().next().unwrap().path();
        let listed = place.run(&["ls", "-lR", name]).ok().stdout;
        assert!(place.bytes_read(&["ls", "-lR", name]) <= 4096, "{program}");
        assert_eq!(place.indexes(), 1, "{program}");
        // A changed archive gets a new index, and a damaged index is made again.
        fs::write(&index, b"damaged").unwrap();
        assert_eq!(place.run(&["ls", "-lR", name]).ok().stdout, listed);
        assert!(place.bytes_read(&["ls", name]) <= 4096, "{program}");
        place.host("touch", &[name]).unwrap();
        assert!(place.bytes_read(&["ls", name]) >= len);
        assert_eq!(place.indexes(), 2, "{program}");
    }
}

#[test]
fn an_archive_that_decodes_to_too_much_is_refused_with_advice() {
    let Some(place) = Place::new("gzip") else {
        return;
    };
    let zeros = place.path().join("zeros");
    let file = fs::File::create(&zeros).unwrap();
    file.set_len(40 << 20).unwrap();
    place
        .host("tar", &["-czf", "bomb.tar.gz", "zeros"])
        .unwrap();
    let ran = place.run(&["ls", "--limit", "decoded=1M", "bomb.tar.gz"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("--limit decoded=BYTES"),
        "{}",
        ran.stderr
    );
    place
        .run(&["ls", "--limit", "decoded=100M", "bomb.tar.gz"])
        .ok();
}

#[test]
fn a_temporary_file_that_cannot_be_made_is_named_with_advice() {
    let Some(place) = Place::new("xz") else {
        return;
    };
    let mut command = command(&["ls", "a.tar.xz"]);
    let nowhere = place.path().join("nowhere");
    command.current_dir(place.path()).env("TMPDIR", nowhere);
    let ran = ran(command.output().unwrap());
    assert!(ran.stderr.contains("temporary file"), "{}", ran.stderr);
    assert!(ran.stderr.contains("set TMPDIR"), "{}", ran.stderr);
}

impl Place {
    fn empty() -> Self {
        Self(memory_dir("archives", 2 << 30))
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path().join(name), bytes).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path().join(name)).unwrap()
    }

    #[track_caller]
    fn same(&self, tree: &str, other: &str) {
        self.host("diff", &["-r", tree, other]).unwrap();
        fs::remove_dir_all(self.path().join(other)).unwrap();
    }
}

#[test]
fn a_compressed_image_is_opened_as_what_it_holds() {
    let place = Place::empty();
    fs::create_dir_all(place.path().join("tree/etc")).unwrap();
    let text = b"not only zeros ".repeat(9000);
    place.write("tree/etc/version", &text);
    for format in ["erofs", "squashfs", "romfs", "exfat", "tar"] {
        match format {
            "tar" => place
                .host("tar", &["-cf", "image", "-C", "tree", "."])
                .unwrap(),
            _ => {
                let args = ["pack", "-q", "--force", "--format", format, "tree", "image"];
                place.run(&args).ok();
            }
        }
        for (program, suffix) in PROGRAMS.into_iter().chain([("lz4", "lz4")]) {
            let name = format!("image.{suffix}");
            let _ = fs::remove_file(place.path().join(&name));
            let args = ["-q", "-k", "image", &name];
            let count = if program == "lz4" { 4 } else { 3 };
            if place.host(program, &args[..count]).is_none() {
                return;
            }
            place.run(&["extract", "-q", "-C", "out", &name]).ok();
            place.same("tree", "out");
            let ran = place.run(&["info", "--json", &name]).ok();
            assert_eq!(ran.json()["format"], format, "{name}");
            let args = ["convert", "-q", "--force", &name, "converted.sqsh"];
            place.run(&args).ok();
            place
                .run(&["extract", "-q", "-C", "out", "converted.sqsh"])
                .ok();
            place.same("tree", "out");
        }
    }
    // An archive without entries is still an archive, but zeros before other bytes are not.
    place.write("zeros", &[0; 10240]);
    place.write("other", &[&[0; 10240][..], b"x"].concat());
    place.write("late", &[vec![0; 3 << 20], b"x".to_vec()].concat());
    for name in ["zeros", "other", "late"] {
        place.host("gzip", &[name]).unwrap();
        let ran = place.run(&["ls", &format!("{name}.gz")]);
        let expected = if name == "zeros" { 0 } else { 3 };
        assert_eq!(ran.code, Some(expected), "{name}: {}", ran.stderr);
    }
    place.write("plain", &[&[0; 10240][..], b"x"].concat());
    let ran = place.run(&["ls", "--format", "tar", "plain"]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
}

/// Makes an archive of a stored member `a`, a deflated one `b`, and a stored one `c`.
fn zip(place: &Place) -> Option<Vec<u8>> {
    let contents = b"contents of it\n".repeat(100);
    for name in ["a", "b", "c"] {
        place.write(name, &contents);
    }
    place.host("zip", &["-q", "-0", "-X", "x.zip", "a", "c"])?;
    place.host("zip", &["-q", "-9", "-X", "x.zip", "b"])?;
    Some(place.read("x.zip"))
}

#[test]
fn a_member_with_a_wrong_crc_is_refused_by_whatever_reads_it_whole() {
    let place = Place::empty();
    let Some(whole) = zip(&place) else {
        return;
    };
    for (name, wrong) in [("a", b"contents".as_slice()), ("b", b"")] {
        let mut bytes = whole.clone();
        match wrong {
            // The CRC-32 of the deflated member, in both headers.
            b"" => {
                let crc = crc32(&place.read("b"));
                let places: Vec<_> = (0..bytes.len() - 46)
                    .filter(|&at| {
                        let local = bytes[at..].starts_with(b"PK\x03\x04") && bytes[at + 8] == 8;
                        let central = bytes[at..].starts_with(b"PK\x01\x02") && bytes[at + 10] == 8;
                        local || central
                    })
                    .collect();
                assert_eq!(places.len(), 2);
                for at in places {
                    let field = if bytes[at + 2] == 3 { at + 14 } else { at + 16 };
                    assert_eq!(bytes[field..field + 4], crc);
                    bytes[field] ^= 1;
                }
            }
            wrong => {
                let at = bytes
                    .windows(wrong.len())
                    .position(|it| it == wrong)
                    .unwrap();
                bytes[at] ^= 1;
            }
        }
        place.write("bad.zip", &bytes);
        for args in [
            &["cat", "bad.zip", name][..],
            &["extract", "-q", "-C", "out", "bad.zip"],
            &["extract", "--to-stdout", "bad.zip"],
            &["tar", "--force", "-o", "bad.tar", "bad.zip"],
            &["convert", "-q", "--force", "bad.zip", "bad.sqsh"],
            &["check", "bad.zip"],
        ] {
            let ran = place.run(args);
            assert_ne!(ran.code, Some(0), "{args:?}");
            let told = format!("{}{}", ran.stderr, String::from_utf8_lossy(&ran.stdout));
            assert!(told.contains("CRC-32"), "{args:?}: {told}");
        }
        let left = place.path().join("out").join(name);
        assert!(!left.exists(), "a file that is wrong is not left");
        fs::remove_dir_all(place.path().join("out")).unwrap();
    }
    place.run(&["extract", "-q", "-C", "out", "x.zip"]).ok();
    place.run(&["tar", "-o", "good.tar", "x.zip"]).ok();
    place.run(&["convert", "-q", "x.zip", "good.sqsh"]).ok();
}

/// Computes a CRC-32 in the form that zip stores.
fn crc32(bytes: &[u8]) -> [u8; 4] {
    let table = |byte: u32| {
        (0..8).fold(byte, |crc, _| match crc & 1 {
            1 => crc >> 1 ^ 0xedb8_8320,
            _ => crc >> 1,
        })
    };
    let step = |crc: u32, byte: &u8| table((crc ^ u32::from(*byte)) & 0xff) ^ crc >> 8;
    (!bytes.iter().fold(!0, step)).to_le_bytes()
}

#[test]
fn a_local_header_that_names_another_member_is_an_error_of_check() {
    let place = Place::empty();
    let Some(mut bytes) = zip(&place) else {
        return;
    };
    let at = bytes.windows(4).position(|it| it == b"PK\x03\x04").unwrap();
    assert_eq!(bytes[at + 30], b'a');
    bytes[at + 30] = b'z';
    place.write("bad.zip", &bytes);
    let ran = place.run(&["check", "bad.zip"]);
    assert_eq!(ran.code, Some(1), "{}", ran.text());
    let expected = "the local file header names \"z\", the central directory \"a\"";
    assert!(ran.text().contains(expected), "{}", ran.text());
    place.run(&["check", "-q", "x.zip"]).ok();
}

#[test]
fn members_that_are_left_out_end_with_status_6() {
    let place = Place::empty();
    let script = r#"
import io, tarfile, zipfile
archive = tarfile.open('x.tar', 'w')
def add(name, **fields):
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    archive.addfile(member, io.BytesIO(b'x' * member.size))
add('good', size=1)
add('../bad', size=1)
add('link', type=tarfile.SYMTYPE, linkname='/etc')
add('link/below', size=1)
archive.close()
with zipfile.ZipFile('x.zip', 'w') as archive:
    archive.writestr('good', 'x')
    archive.writestr('../bad', 'x')
"#;
    if place.host("python3", &["-c", script]).is_none() {
        return;
    }
    for (name, count) in [("x.tar", "2 entries"), ("x.zip", "1 entry")] {
        for args in [
            &["extract", "-q", "-C", "out", name][..],
            &["extract", "-q", "--to-stdout", name],
            &["tar", "-q", "--force", "-o", "out.tar", name],
            &["convert", "-q", "--force", name, "out.sqsh"],
            &["pack", "-q", "--force", name, "out.sqsh"],
        ] {
            if args[0] == "pack" && name == "x.zip" {
                continue;
            }
            let ran = place.run(args);
            assert_eq!(ran.code, Some(6), "{args:?}: {}", ran.stderr);
            let expected = format!("forerun: {name}: left out: {count}\n");
            assert!(ran.stderr.contains(&expected), "{args:?}: {}", ran.stderr);
        }
        place
            .run(&["extract", "-q", "-C", "one", name, "good"])
            .ok();
        assert!(place.path().join("out/good").exists());
        for name in ["out", "one"] {
            fs::remove_dir_all(place.path().join(name)).unwrap();
        }
    }
}

#[test]
fn an_archive_keeps_the_root_and_access_control_lists_for_other_programs() {
    let place = Place::empty();
    fs::create_dir_all(place.path().join("tree/dir")).unwrap();
    place.write("tree/file", b"x");
    let rules = [
        ("u:12345:rwx,g:54321:r,m::rx", "tree/file"),
        ("d:u:12345:rx,d:m::rx", "tree/dir"),
    ];
    for (rules, name) in rules {
        if place.host("setfacl", &["-m", rules, name]).is_none() {
            return;
        }
    }
    place.host("setfattr", &["-n", "user.of", "-v", "root", "tree"]);
    place.host("chmod", &["751", "tree"]).unwrap();
    place.host("touch", &["-d", "@1000000000", "tree"]).unwrap();
    place.run(&["pack", "-q", "tree", "image.erofs"]).ok();
    place.run(&["tar", "-o", "made.tar", "image.erofs"]).ok();
    let acls = |dir: &str| {
        let args = "getfacl -n -R -p --absolute-names . | cat";
        let mut command = Command::new("sh");
        let dir = place.path().join(dir);
        let output = command
            .args(["-c", args])
            .current_dir(dir)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = acls("tree");
    assert!(expected.contains("user:12345:rwx") && expected.contains("default:user:12345:r-x"));
    for (name, program, args) in [
        (
            "by-bsdtar",
            "bsdtar",
            &["-xpf", "made.tar", "--numeric-owner", "-C", "by-bsdtar"][..],
        ),
        (
            "by-tar",
            "tar",
            &[
                "-xpf",
                "made.tar",
                "--numeric-owner",
                "--acls",
                "-C",
                "by-tar",
            ],
        ),
        (
            "by-both",
            "tar",
            &[
                "-xpf",
                "made.tar",
                "--acls",
                "--xattrs",
                "--xattrs-include=*",
                "-C",
                "by-both",
            ],
        ),
    ] {
        fs::create_dir(place.path().join(name)).unwrap();
        if place.host(program, args).is_none() {
            return;
        }
        assert_eq!(acls(name), expected, "{name}");
        let root = fs::metadata(place.path().join(name)).unwrap();
        assert_eq!(root.mode() & 0o7777, 0o751, "{name}");
        // bsdtar does not set the time of the target directory, not even from its own archives.
        if program == "tar" {
            assert_eq!(root.mtime(), 1_000_000_000, "{name}");
        }
    }
    let args = ["extract", "-q", "-C", "by-us", "made.tar"];
    place.run(&args).ok();
    assert_eq!(acls("by-us"), expected);
}
