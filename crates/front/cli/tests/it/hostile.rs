//! Malicious images, through every command that reads images. Each command ends within 10 s of CPU
//! time, stays below 256 MiB, writes nothing outside its target and does not panic.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use forerun_testkit::hostile::{self, Hostile};
use forerun_testkit::{TempDir, memory_dir, require, unmount};

use crate::common::watched::{Watched, watch};
use crate::common::{command, ran};

/// Commands with an image named `image`. They write to `jail/target`.
const COMMANDS: [&[&str]; 6] = [
    &["ls", "-lR", "image"],
    &["ls", "-R", "--json", "image"],
    &["tar", "--force", "-o", "archive", "image"],
    &["extract", "-q", "-C", "jail/target", "image"],
    &["check", "image"],
    &[
        "convert",
        "-q",
        "--force",
        "--format",
        "squashfs",
        "image",
        "converted",
    ],
];

/// Lists the tree of a mount, and reads the start of each file.
const ALL: &str = "ls -lR mnt; find mnt -xdev -type f -exec head -qc 100000 {} +";
/// Lists the root and one directory: the kernel looks up each entry separately.
const ONE: &str = "ls -f mnt; ls -l mnt/0";

struct Place {
    dir: TempDir,
    format: &'static str,
}

impl Place {
    fn new(format: &'static str) -> Self {
        // Hundreds of thousands of directories are created and removed.
        let dir = memory_dir("hostile", 2 << 30);
        for name in ["mnt", "objects", "tree"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir, format }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut all: Vec<&OsStr> = args.iter().map(OsStr::new).collect();
        let objects = self.path("objects");
        let is_mount = args[0] == "mount";
        if self.format == "composefs" && args[0] != "pack" {
            all.insert(1, "--objects".as_ref());
            all.insert(2, objects.as_os_str());
        }
        if self.format == "exfat" && is_mount {
            all.insert(1, "-r".as_ref());
        }
        let mut command = command(&all);
        command.current_dir(self.dir.path());
        command
    }

    /// Packs a tar stream, or the directory `tree`.
    fn pack(&self, input: &str, feed: impl FnOnce(&mut dyn Write) + Send) {
        let mut args = vec!["pack", "-q", "--force", "--format", self.format];
        match self.format {
            "squashfs" => args.extend(["--no-compress", "inodes"]),
            "composefs" => args.extend(["--objects", "objects"]),
            "erofs" if input == "tree" => args.extend(["--compressor", "lz4"]),
            // exFAT has no links.
            "exfat" => args.extend(["--exclude", "linkk"]),
            _ => {}
        }
        // 250,000 long names in one directory.
        args.extend(["--limit", "walk-memory=1G", input, "image"]);
        let mut packing = self.command(&args);
        let packing = packing.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = packing.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || feed(&mut pipe));
            ran(child.wait_with_output().unwrap()).ok();
        });
    }

    /// Runs all commands on the file `image`. Returns whether `check` found nothing.
    fn suffer(&self, what: &str, script: &str) -> bool {
        let mut is_clean = false;
        for args in COMMANDS {
            let _from_the_last = fs::remove_dir_all(self.path("jail"));
            fs::create_dir(self.path("jail")).unwrap();
            let out = File::create(self.path("stdout")).unwrap();
            let mut running = self.command(args);
            let watched = watch(running.stdout(out), what);
            watched.judge(what, args);
            is_clean = if args[0] == "check" {
                watched.code == Some(0)
            } else {
                is_clean
            };
            let names: Vec<_> = names(&self.path("jail"));
            assert!(
                names.iter().all(|name| name == "target"),
                "{what}: {names:?}"
            );
            assert!(!Path::new("/etc/x").exists(), "{what}");
        }
        self.archive_stays_within(what);
        if require::fuse() {
            self.mount(what, script);
        }
        is_clean
    }

    /// Checks that no name in the archive leads outside its target.
    fn archive_stays_within(&self, what: &str) {
        let Ok(archive) = File::open(self.path("archive")) else {
            return;
        };
        let mut archive = tar::Archive::new(std::io::BufReader::new(archive));
        for entry in archive.entries().unwrap() {
            // An archive that was given up ends early.
            let Ok(entry) = entry else { break };
            let path = entry.path_bytes().into_owned();
            let is_name = |name: &[u8]| !matches!(name, b".." | b".") && !name.contains(&0);
            let stays =
                path.first() != Some(&b'/') && path.split(|&byte| byte == b'/').all(is_name);
            assert!(
                stays || path == b"./",
                "{what}: {}",
                String::from_utf8_lossy(&path)
            );
        }
        drop(fs::remove_file(self.path("archive")));
    }

    /// Mounts the image, runs `script`, which reads the files of the mount, and unmounts.
    fn mount(&self, what: &str, script: &str) {
        let args = ["mount", "-f", "image", "mnt"];
        let mnt = self.path("mnt");
        let log = File::create(self.path("log")).unwrap();
        let mut serving = Watched::start(self.command(&args).stderr(log));
        let above = fs::metadata(self.dir.path()).unwrap().dev();
        let is_mounted = || fs::metadata(&mnt).map_or(true, |root| root.dev() != above);
        while serving.is_running(what) && !is_mounted() {}
        if serving.is_running(what) {
            let mut reading = Command::new("sh");
            reading.args(["-c", script]).current_dir(self.dir.path());
            reading.stdout(Stdio::null()).stderr(Stdio::null());
            watch(&mut reading, what);
            assert!(unmount(&mnt), "{what} stays mounted");
        }
        while serving.is_running(what) {}
        let mut watched = serving.ended();
        watched.stderr = fs::read_to_string(self.path("log")).unwrap();
        watched.judge(what, &args);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

/// Tests all malicious images of one format. `check` must report names that lead elsewhere.
fn lies(format: &'static str) {
    let place = Place::new(format);
    hostile::populate(&place.path("tree")).unwrap();
    place.pack("tree", |_| ());
    assert!(place.suffer("the sound image", ALL), "{format}");
    let sound = fs::read(place.path("image")).unwrap();
    let lies = hostile::lies(format, &sound);
    assert!(lies.len() > 15, "{}", lies.len());
    for lie in lies {
        let Hostile {
            what,
            image,
            must_be_found,
        } = lie;
        fs::write(place.path("image"), image).unwrap();
        let is_clean = place.suffer(&format!("{format}: {what}"), ALL);
        assert!(!is_clean || !must_be_found, "{format}: {what}");
    }
}

#[test]
fn romfs_images_that_lie() {
    lies("romfs");
}

#[test]
fn squashfs_images_that_lie() {
    lies("squashfs");
}

#[test]
fn erofs_images_that_lie() {
    lies("erofs");
}

#[test]
fn composefs_images_that_lie() {
    lies("composefs");
}

#[test]
fn exfat_volumes_that_lie() {
    lies("exfat");
}

fn add(out: &mut tar::Builder<&mut dyn Write>, name: &str, link: Option<&str>) {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let added = match link {
        Some(link) => {
            header.set_entry_type(tar::EntryType::Link);
            out.append_link(&mut header, name, link)
        }
        None => {
            let is_dir = name.ends_with('/');
            header.set_entry_type(if is_dir {
                tar::EntryType::Directory
            } else {
                tar::EntryType::Regular
            });
            out.append_data(&mut header, name, std::io::empty())
        }
    };
    added.unwrap();
}

/// Returns the formats for images with very many entries: one, because the engine walks both, or
/// both with `FORERUN_HOSTILE=full`.
fn formats(one: &'static str) -> impl Iterator<Item = &'static str> {
    let full = std::env::var_os("FORERUN_HOSTILE").is_some_and(|value| value == "full");
    let both = ["squashfs", "erofs"].into_iter();
    both.filter(move |format| full || *format == one)
}

#[test]
fn long_names_by_the_hundred_thousand() {
    for format in formats("squashfs") {
        let place = Place::new(format);
        place.pack("-", |pipe| {
            let mut out = tar::Builder::new(pipe);
            add(&mut out, "a", None);
            for n in 0..250_000 {
                add(&mut out, &format!("{n:0250}"), Some("a"));
            }
            out.finish().unwrap();
        });
        place.suffer(&format!("{format} of long names"), ONE);
    }
}

#[test]
fn directories_by_the_hundred_thousand() {
    for format in formats("erofs") {
        let place = Place::new(format);
        place.pack("-", |pipe| {
            let mut out = tar::Builder::new(pipe);
            for n in 0..150_000 {
                add(&mut out, &format!("{}/{n}/", n % 8), None);
            }
            out.finish().unwrap();
        });
        place.suffer(&format!("{format} of directories"), ONE);
    }
}

#[test]
fn many_files_with_long_paths() {
    let place = Place::new("squashfs");
    place.pack("-", |pipe| {
        let mut out = tar::Builder::new(pipe);
        let mut dir = String::new();
        for _ in 0..60 {
            dir.push_str(&"d".repeat(250));
            dir.push('/');
            add(&mut out, &dir, None);
        }
        add(&mut out, &format!("{dir}a"), None);
        for n in 0..20_000 {
            add(&mut out, &format!("{dir}{n}"), Some(&format!("{dir}a")));
        }
        out.finish().unwrap();
    });
    place.suffer("long paths", "ls -lR mnt | wc -l");
}

#[test]
fn bombs_of_holes_and_of_compressed_bytes() {
    for format in ["squashfs", "erofs"] {
        let place = Place::new(format);
        // An EROFS image without compression would contain the zeros.
        if format == "squashfs" {
            let hole = File::create(place.path("tree/hole")).unwrap();
            hole.set_len(16 << 30).unwrap();
        }
        let mut letters = File::create(place.path("tree/letters")).unwrap();
        for _ in 0..200 {
            letters.write_all(&[b'A'; 1 << 20]).unwrap();
        }
        place.pack("tree", |_| ());
        place.suffer(&format!("{format} bomb"), ALL);
        // With a limit on the extracted bytes, nothing is written.
        let bounded = [
            "extract",
            "-C",
            "jail/target",
            "--limit",
            "total-bytes=100M",
            "image",
        ];
        let refused = watch(&mut place.command(&bounded), "a bounded bomb");
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    }
}
