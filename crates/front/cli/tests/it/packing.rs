//! pack and convert: manifests, changes on the way, and the options of formats.

use std::fs;
use std::process::Command;

use forerun_testkit::require;
use serde_json::Value;

use crate::common::{Fixture, big, command, in_namespace, ran};

const PACK: [&str; 3] = ["pack", "--format", "squashfs"];
const CONVERT: [&str; 3] = ["convert", "--format", "squashfs"];

fn entries(fixture: &Fixture, image: &str) -> std::collections::BTreeMap<String, Value> {
    let listing = fixture.run(&["ls", "-lR", "--json", image]).ok().json();
    let entries = listing.as_array().unwrap().iter();
    entries
        .map(|entry| (entry["path"].as_str().unwrap().to_string(), entry.clone()))
        .collect()
}

#[test]
fn a_manifest_makes_devices_without_root() {
    let fixture = Fixture::tree();
    let list = "\
dev D 5 755 0 0
dev/console C 6 600 0 5 5 1
dev/log i 666 0 0 s
etc/again l etc/passwd
etc/motd h 4644 3 4 motd
bin/tool m 4755 1 2
";
    fs::write(fixture.path("list"), list).unwrap();
    fs::write(fixture.path("motd"), "hello\n").unwrap();
    let args = [&PACK[..], &["--manifest", "list", "tree", "on.img"]].concat();
    fixture.run(&args).ok();
    fixture.run(&["check", "on.img"]).ok();
    let found = entries(&fixture, "on.img");
    let console = &found["/dev/console"];
    assert_eq!(
        (&console["major"], &console["minor"]),
        (&5.into(), &1.into())
    );
    assert_eq!(
        (&console["mode"], &console["mtime"]),
        (&"0600".into(), &6.into())
    );
    assert_eq!(found["/dev/log"]["type"], "socket");
    assert_eq!(found["/etc/again"]["node"], found["/etc/passwd"]["node"]);
    assert_eq!(found["/bin/tool"]["mode"], "4755");
    assert_eq!(
        fixture.run(&["cat", "on.img", "etc/motd"]).ok().text(),
        "hello\n"
    );
    assert!(fixture.run(&["cat", "on.img", "hard"]).ok().stdout == big());
    // A manifest alone: with the output as the only name, from standard input, and with -o.
    let alone = "a h 644 0 0 motd\nb/c c 600 0 0 1 3\n";
    fs::write(fixture.path("alone"), alone).unwrap();
    let args = [&PACK[..], &["--manifest", "alone", "alone.img"]].concat();
    fixture.run(&args).ok();
    let names: Vec<_> = entries(&fixture, "alone.img").into_keys().collect();
    assert_eq!(names, ["/a", "/b", "/b/c"]);
    let args = [&PACK[..], &["--manifest", "-", "-o", "piped.img"]].concat();
    fixture
        .run_piped(&args, b"b/c c 600 0 0 1 3\n".to_vec())
        .ok();
    let names: Vec<_> = entries(&fixture, "piped.img").into_keys().collect();
    assert_eq!(names, ["/b", "/b/c"]);
}

#[test]
fn owners_and_times_are_changed_on_the_way() {
    let fixture = Fixture::tree();
    fs::write(fixture.path("list"), "a i 600 0 5\nb i 600 7 6\n").unwrap();
    fs::write(fixture.path("uids"), "# users\n0 100000 5\n").unwrap();
    for (args, expected) in [
        (&["--owner", "0:0"][..], [(0, 0, 0), (0, 0, 0)]),
        (&["--owner", "3"], [(3, 5, 0), (3, 6, 0)]),
        (&["--owner", ":4"], [(0, 4, 0), (7, 4, 0)]),
        (
            &[
                "--uid-map",
                "7:70",
                "--gid-map",
                "5:50:2",
                "--mtime",
                "1970-01-02",
            ],
            [(0, 50, 86400), (70, 51, 86400)],
        ),
        (&["--uid-map", "@uids"], [(100_000, 5, 0), (7, 6, 0)]),
    ] {
        let args = [&PACK[..], args, &["--force", "--manifest", "list", "a.img"]].concat();
        fixture.run(&args).ok();
        let found = entries(&fixture, "a.img");
        for (path, (uid, gid, mtime)) in ["/a", "/b"].iter().zip(expected) {
            let entry = &found[*path];
            let expected: [Value; 3] = [uid.into(), gid.into(), mtime.into()];
            let found = [&entry["uid"], &entry["gid"], &entry["mtime"]].map(Clone::clone);
            assert_eq!(found, expected, "{args:?} {path}");
        }
    }
}

#[test]
fn times_are_bounded_by_the_environment() {
    let fixture = Fixture::tree();
    let pack = |name: &str, args: &[&str]| {
        let args = [&PACK[..], args, &["tree", name]].concat();
        let output = fixture
            .command(&args)
            .env("SOURCE_DATE_EPOCH", "1000")
            .output();
        assert!(output.unwrap().status.success());
        entries(&fixture, name)["/etc/passwd"]["mtime"].clone()
    };
    assert_eq!(pack("a.img", &[]), 1000);
    assert_eq!(pack("b.img", &["--mtime", "2000"]), 2000);
    assert_eq!(pack("c.img", &["--mtime-clamp", "@500"]), 500);
}

#[test]
fn patterns_come_from_files() {
    let fixture = Fixture::tree();
    fs::write(fixture.path("out"), "# what is left out\n/etc\n\n[bho]*\n").unwrap();
    let args = [&PACK[..], &["--exclude-from", "out", "tree", "a.img"]].concat();
    fixture.run(&args).ok();
    assert_eq!(fixture.run(&["ls", "a.img"]).ok().text(), "link\n");
    fs::write(fixture.path("bad"), "fine\n[\n").unwrap();
    let args = [&PACK[..], &["--exclude-from", "bad", "tree", "b.img"]].concat();
    fixture.run(&args).fails(
        2,
        "forerun: bad:2: pattern \"[\": unclosed character class; missing ']'\n  hint: quote \
         patterns so that the shell leaves them alone",
    );
}

#[test]
fn every_option_of_squashfs_gives_an_image_that_unsquashfs_reads() {
    let Some(unsquashfs) = require::program("unsquashfs") else {
        return;
    };
    let fixture = Fixture::tree();
    for (n, args) in [
        &[][..],
        &[
            "--compressor",
            "gzip",
            "--level",
            "1",
            "--compressor-options",
            "window=9",
        ],
        &[
            "--compressor-options",
            "strategy=filtered+huffman_only",
            "--block-size",
            "4K",
        ],
        &["--compressor", "lzo"],
        &["--compressor", "lz4hc"],
        &[
            "--compressor",
            "xz",
            "--compressor-options",
            "dict-size=50%,bcj=x86+arm",
        ],
        &["--compressor", "lzma"],
        &["--compressor", "zstd", "--level", "3", "--block-size", "1M"],
        &[
            "--fragments",
            "none",
            "--dedupe",
            "none",
            "--no-sparse",
            "--no-exports",
            "--no-pad",
        ],
        &[
            "--fragments",
            "tails",
            "--no-compress",
            "inodes,data,ids",
            "--mkfs-time",
            "77",
        ],
        &["--no-compress", "all", "--threads", "1", "--no-xattrs"],
    ]
    .iter()
    .enumerate()
    {
        let args = [&PACK[..], args, &["--force", "tree", "a.img"]].concat();
        fixture.run(&args).ok();
        assert!(
            fixture.run(&["cat", "a.img", "big"]).ok().stdout == big(),
            "{args:?}"
        );
        let to = fixture.path(&format!("out{n}"));
        let output = Command::new(&unsquashfs)
            .args(["-no-progress", "-d"])
            .arg(&to)
            .arg(fixture.path("a.img"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        assert!(fs::read(to.join("big")).unwrap() == big(), "{args:?}");
    }
}

#[test]
fn through_a_pipe_an_image_is_the_same() {
    let fixture = Fixture::tree();
    fixture.run(&[&PACK[..], &["tree", "a.img"]].concat()).ok();
    let piped = fixture.run(&[&PACK[..], &["tree", "-"]].concat()).ok();
    assert!(piped.stdout == fs::read(fixture.path("a.img")).unwrap());
}

#[test]
fn an_image_becomes_another() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let made = fixture
        .run(&[&CONVERT[..], &["--json", "a.img", "b.img"]].concat())
        .ok()
        .json();
    assert_eq!(made["format"], "squashfs");
    let args = [
        &CONVERT[..],
        &[
            "--compressor",
            "zstd",
            "--exclude",
            "/etc",
            "b.img",
            "-o",
            "c.img",
        ],
    ];
    fixture.run(&args.concat()).ok();
    for image in ["b.img", "c.img"] {
        fixture.run(&["check", image]).ok();
        assert!(fixture.run(&["cat", image, "big"]).ok().stdout == big());
        let found = entries(&fixture, image);
        assert_eq!(found["/big"]["node"], found["/hard"]["node"]);
        assert_eq!(found.contains_key("/etc"), image == "b.img");
    }
    // Converted back.
    fixture
        .run(&["convert", "--format", "romfs", "b.img", "d.img"])
        .ok();
    fixture.run(&["check", "d.img"]).ok();
    assert!(fixture.run(&["cat", "d.img", "hard"]).ok().stdout == big());
}

#[test]
fn erofs_images_are_made_and_read() {
    let fixture = Fixture::tree();
    fs::write(fixture.path("order"), "/hard\n").unwrap();
    let pack = ["pack", "--format", "erofs"];
    for (name, args) in [
        ("plain.img", &["--inline", "none", "--label", "name"][..]),
        (
            "lz4hc.img",
            &[
                "--compressor",
                "lz4hc",
                "--cluster-size",
                "64K",
                "--level",
                "12",
            ],
        ),
        (
            "zstd.img",
            &[
                "--compressor",
                "zstd",
                "--inline",
                "all",
                "--order",
                "order",
            ],
        ),
        ("lzma.img", &["--compressor", "lzma", "--full-indexes"]),
        (
            "deflate.img",
            &["--compressor", "deflate", "--dedupe", "extents"],
        ),
        ("chunks.img", &["--chunk-size", "4K"]),
    ] {
        let threads = ["1", "5"].map(|threads| {
            let to = format!("{threads}-{name}");
            let more = ["--threads", threads, "tree", &to];
            fixture.run(&[&pack[..], args, &more].concat()).ok();
            fs::read(fixture.path(&to)).unwrap()
        });
        assert!(threads[0] == threads[1], "{name}");
        let image = format!("1-{name}");
        fixture.run(&["check", &image]).ok();
        fixture.run(&["diff", "tree", &image]).ok();
    }
    let args = [
        "--chunk-size",
        "4K",
        "--blobdev",
        "blob",
        "tree",
        "index.img",
    ];
    fixture.run(&[&pack[..], &args].concat()).ok();
    let data_elsewhere = ["diff", "--device", "blob", "tree", "index.img"];
    fixture.run(&data_elsewhere).ok();
    assert!(fs::metadata(fixture.path("blob")).unwrap().len() > 4096);
    let args = ["convert", "--format", "erofs", "1-zstd.img", "again.img"];
    fixture.run(&args).ok();
    fixture.run(&["diff", "tree", "again.img"]).ok();
}

#[test]
fn the_suffix_of_the_output_says_the_format() {
    let fixture = Fixture::tree();
    for (name, format) in [
        ("a.sqsh", "squashfs"),
        ("a.erofs", "erofs"),
        ("a.romfs", "romfs"),
        ("a.SNAP", "squashfs"),
    ] {
        fixture.run(&["pack", "-q", "tree", name]).ok();
        let facts = fixture.run(&["info", "--json", name]).ok().json();
        assert_eq!(facts["format"], format, "{name}");
    }
    fixture.run(&["convert", "-q", "a.romfs", "b.sqfs"]).ok();
    let facts = fixture.run(&["info", "--json", "b.sqfs"]).ok().json();
    assert_eq!(facts["format"], "squashfs");
    // An explicit format takes precedence over the name.
    fixture
        .run(&["pack", "-q", "--format", "erofs", "tree", "c.sqsh"])
        .ok();
    let facts = fixture.run(&["info", "--json", "c.sqsh"]).ok().json();
    assert_eq!(facts["format"], "erofs");
    for (output, message) in [
        ("d.img", "forerun: d.img: its suffix does not name a format"),
        (
            "-",
            "forerun: standard output has no suffix that names a format",
        ),
    ] {
        for args in [&["pack", "tree", output], &["convert", "a.romfs", output]] {
            let hint = "hint: give --format NAME, or one of the suffixes .sqsh, .sqfs, .sfs, \
                        .squashfs, .snap, .erofs, .cfs, .composefs, .romfs, .exfat, .sif";
            fixture.run(args).fails(2, &format!("{message}\n  {hint}"));
        }
    }
}

#[test]
fn pack_sums_up_and_names_the_files_when_asked() {
    let fixture = Fixture::tree();
    let stderr = |args: &[&str]| {
        let output = fixture.command(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let told = stderr(&["pack", "tree", "a.sqsh"]);
    let rest = told.strip_prefix("forerun: a.sqsh: 6 files, 2.9 MiB in, 2.9 MiB out (");
    let (ratio, time) = rest
        .unwrap_or_else(|| panic!("{told}"))
        .split_once(" %), ")
        .unwrap();
    assert!(ratio.parse::<f64>().unwrap() > 90.0, "{told}");
    assert!(
        time.trim_end()
            .strip_suffix(" s")
            .unwrap()
            .parse::<f64>()
            .is_ok(),
        "{told}"
    );
    assert!(stderr(&["convert", "a.sqsh", "a.erofs"]).contains(": 6 files, 2.9 MiB in, "));
    for silent in ["--quiet", "--json"] {
        assert_eq!(
            stderr(&["pack", "--force", silent, "tree", "a.sqsh"]),
            "",
            "{silent}"
        );
        let told = stderr(&["pack", "--force", "-v", silent, "tree", "a.sqsh"]);
        assert!(!told.contains("/big") && !told.contains(" in, "), "{told}");
    }
    let told = stderr(&["pack", "--force", "-v", "tree", "a.sqsh"]);
    let names: Vec<_> = told.lines().filter(|line| line.starts_with('/')).collect();
    let expected = [
        "/big",
        "/bin",
        "/bin/tool",
        "/etc",
        "/etc/empty",
        "/etc/passwd",
        "/hard",
        "/link",
    ];
    assert_eq!(names[..8], expected);
    assert_eq!(names[8..], ["/odd\\n\\033\\377"]);
}

#[test]
fn one_file_system_takes_mountpoints_empty() {
    if !require::root() {
        return;
    }
    let dir = forerun_testkit::temp_dir("one-file-system");
    in_namespace(
        dir.path(),
        "cd mnt && mkdir -p tree/sub && echo in > tree/file && mount -t tmpfs none tree/sub && \
         echo other > tree/sub/other && \"$0\" pack -q --one-file-system tree one.sqsh && \
         \"$0\" pack -q tree all.sqsh",
    );
    let at = dir.path().join("mnt");
    let list = |image: &str| {
        let listed = command(&["ls", "-R", image]).current_dir(&at).output();
        ran(listed.unwrap()).ok().text().to_string()
    };
    assert_eq!(list("one.sqsh"), "/:\nfile\nsub\n\n/sub:\n");
    assert_eq!(list("all.sqsh"), "/:\nfile\nsub\n\n/sub:\nother\n");
}

#[test]
fn info_shows_when_an_image_was_made() {
    let fixture = Fixture::tree();
    for format in ["squashfs", "erofs"] {
        let mut pack = fixture.command(&["pack", "-q", "--force", "--format", format, "tree", "x"]);
        let packed = pack
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .output()
            .unwrap();
        ran(packed).ok();
        let info = fixture.run(&["info", "x"]).ok();
        let lines = info.text().lines();
        let created = lines.filter_map(|line| line.strip_prefix("created "));
        let created: Vec<_> = created.map(str::trim).collect();
        let json = fixture.run(&["info", "--json", "x"]).ok().json();
        let number = json["details"]["created"].as_str().unwrap();
        let number: i64 = number.parse().unwrap();
        let date = jiff::Timestamp::from_second(number).unwrap().to_string();
        assert!(date.starts_with("20") && date.ends_with('Z'), "{date}");
        assert_eq!(created, [&date], "{format}");
        assert_eq!(json["created"], date);
        assert!(
            format == "erofs" || date == "2001-09-09T01:46:40Z",
            "{date}"
        );
    }
}

#[test]
fn an_appimage_has_an_icon_for_file_managers() {
    let fixture = Fixture::tree();
    let dir = fixture.path("App.AppDir");
    fs::create_dir(&dir).unwrap();
    let desktop = "[Desktop Entry]\nType=Application\nName=App\nExec=app\nIcon=app\n";
    fs::write(dir.join("app.desktop"), desktop).unwrap();
    fs::write(dir.join("app.svg"), "<svg/>").unwrap();
    std::os::unix::fs::symlink("/bin/true", dir.join("AppRun")).unwrap();
    // A program that is no runtime, and knows no compressor.
    let pack = ["pack", "--appimage", "--runtime", "/bin/true"];
    let made = fixture.run(&[&pack[..], &["App.AppDir", "app.AppImage"]].concat());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let note = "the runtime does not seem to know zstd";
    let is_x86 = cfg!(target_arch = "x86_64");
    assert_eq!(made.stderr.contains(note), is_x86, "{}", made.stderr);
    assert_eq!(
        entries(&fixture, "app.AppImage")["/.DirIcon"]["target"],
        "app.svg"
    );
    fs::write(dir.join(".DirIcon"), "own").unwrap();
    let made = fixture.run(&[&pack[..], &["App.AppDir", "own.AppImage"]].concat());
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_eq!(
        entries(&fixture, "own.AppImage")["/.DirIcon"]["type"],
        "file"
    );
}

#[test]
fn hard_links_are_separate_files_if_asked() {
    let fixture = Fixture::tree();
    fs::hard_link(fixture.path("tree/etc/passwd"), fixture.path("tree/again")).unwrap();
    for (options, is_one) in [(&[][..], true), (&["--hard-dereference"][..], false)] {
        let args = [&PACK[..], &["--force"], options, &["tree", "on.img"]].concat();
        fixture.run(&args).ok();
        let found = entries(&fixture, "on.img");
        let is_same = found["/again"]["node"] == found["/etc/passwd"]["node"];
        assert_eq!(is_same, is_one, "{options:?}");
    }
}
