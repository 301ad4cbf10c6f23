//! Compressed archives through the program: decoded once, indexed once, read in every command.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun_testkit::{TempDir, memory_dir, require};

use crate::common::{Ran, command, ran};

/// Programs and the suffix of what they write.
const PROGRAMS: [(&str, &str); 4] = [
    ("gzip", "gz"),
    ("zstd", "zst"),
    ("xz", "xz"),
    ("bzip2", "bz2"),
];

/// A tree of 3,000 files, its archive, and a cache directory of its own.
struct Place(TempDir);

impl Place {
    /// Makes the archive and compresses it with `program`. Returns nothing if it is not installed.
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
        // A frame of more than 16 MiB would not be kept: this one is shorter.
        assert_eq!(place.indexes(), 1, "{program}");
        let index = fs::read_dir(place.path().join("cache/forerun/v1/indexes")).unwrap();
        let index = index.flatten().next().unwrap().path();
        let listed = place.run(&["ls", "-lR", name]).ok().stdout;
        assert!(place.bytes_read(&["ls", "-lR", name]) <= 4096, "{program}");
        assert_eq!(place.indexes(), 1, "{program}");
        // Another one belongs to a file that was changed, and one that was damaged is made again.
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
    let ran = place.run(&["ls", "--max-decoded", "1M", "bomb.tar.gz"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("raise --max-decoded"), "{}", ran.stderr);
    place
        .run(&["ls", "--max-decoded", "100M", "bomb.tar.gz"])
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
