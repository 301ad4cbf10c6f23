//! EROFS on the command line: made from archives and manifests, packed tightly, mounted without
//! privileges, and refused if external devices are missing.

use std::fs;
use std::process::Command;

use forerun_testkit::require;

use crate::common::{Fixture, big, in_namespace};

const PACK: [&str; 3] = ["pack", "--format", "erofs"];

/// Every compressor, with every place for the tails of files.
const OPTIONS: [(&str, &[&str]); 6] = [
    ("plain", &[]),
    ("lz4", &["--compressor", "lz4", "--inline", "all"]),
    ("lz4hc", &["--compressor", "lz4hc", "--cluster-size", "64K"]),
    (
        "deflate",
        &["--compressor", "deflate", "--fragments", "tails"],
    ),
    (
        "zstd",
        &[
            "--compressor",
            "zstd",
            "--fragments",
            "all",
            "--dedupe",
            "extents",
        ],
    ),
    ("lzma", &["--compressor", "lzma", "--full-indexes"]),
];

#[test]
fn a_user_without_privileges_mounts_walks_and_reads() {
    let programs = ["setpriv", "unshare"].map(require::program);
    if !require::root() || !require::fuse_for_users() || programs.contains(&None) {
        return;
    }
    let fixture = Fixture::tree();
    for n in 0..200 {
        let text = format!("file {n}\n").repeat(n);
        fs::write(fixture.path("tree/etc").join(n.to_string()), text).unwrap();
    }
    for (name, options) in OPTIONS {
        let to = ["tree", name];
        fixture.run(&[&PACK[..], options, &to].concat()).ok();
        let script = format!(
            "set -e; \"$0\" mount {name} mnt; ls -lR mnt > listing; test $(wc -l < listing) -gt 200; \
             diff -r --no-dereference mnt tree; \"$0\" umount mnt"
        );
        in_namespace(fixture.dir.path(), &script);
    }
}

#[test]
fn an_archive_makes_the_image_that_its_directory_makes() {
    let fixture = Fixture::tree();
    let tar = Command::new("tar")
        .args([
            "-C",
            "tree",
            "--sort=name",
            "--numeric-owner",
            "-cf",
            "tree.tar",
            ".",
        ])
        .current_dir(fixture.dir.path())
        .status()
        .unwrap();
    assert!(tar.success());
    for (name, options) in OPTIONS {
        // Archives store whole seconds.
        let whole = ["--mtime", "1600000000", "--force"];
        let pack = |input, to| [&PACK[..], options, &whole, &[input, to]].concat();
        fixture.run(&pack("tree", name)).ok();
        fixture.run(&pack("tree.tar", "from-tar")).ok();
        let piped = fs::read(fixture.path("tree.tar")).unwrap();
        let packed = fixture.run_piped(&pack("-", "piped"), piped);
        assert_eq!(packed.code, Some(0), "{}", packed.stderr);
        let expected = fs::read(fixture.path(name)).unwrap();
        assert!(
            fs::read(fixture.path("from-tar")).unwrap() == expected,
            "{name}"
        );
        assert!(
            fs::read(fixture.path("piped")).unwrap() == expected,
            "{name}"
        );
        assert!(fixture.run(&["cat", "from-tar", "hard"]).ok().stdout == big());
    }
}

#[test]
fn a_manifest_adds_what_the_directory_has_not() {
    let fixture = Fixture::tree();
    let list = "\
dev D 5 755 0 0
dev/console C 6 600 0 5 5 1
dev/log i 666 0 0 s
etc/again l etc/passwd
etc/motd h 4644 3 4 motd
bin/tool m 4755 1 2
bin/tool x user.note=0x6869
";
    fs::write(fixture.path("list"), list).unwrap();
    fs::write(fixture.path("motd"), "hello\n").unwrap();
    for (name, options) in OPTIONS {
        let more = ["--manifest", "list", "tree", name];
        fixture.run(&[&PACK[..], options, &more].concat()).ok();
        fixture.run(&["check", name]).ok();
        let listing = fixture.run(&["ls", "-lR", "--json", name]).ok().json();
        let entry = |path: &str| {
            let mut entries = listing.as_array().unwrap().iter();
            let found = entries.find(|entry| entry["path"] == path);
            found.unwrap_or_else(|| panic!("{path}: {listing}")).clone()
        };
        let console = entry("/dev/console");
        assert_eq!(
            (&console["major"], &console["minor"]),
            (&5.into(), &1.into())
        );
        assert_eq!(console["mode"], "0600");
        assert_eq!(entry("/dev/log")["type"], "socket");
        assert_eq!(entry("/etc/again")["node"], entry("/etc/passwd")["node"]);
        assert_eq!(entry("/bin/tool")["mode"], "4755");
        assert_eq!(
            fixture.run(&["cat", name, "etc/motd"]).ok().text(),
            "hello\n"
        );
    }
    // A manifest alone, with the output as the only name.
    fs::write(
        fixture.path("alone"),
        "a h 644 0 0 motd\nb/c c 600 0 0 1 3\n",
    )
    .unwrap();
    let args = [&PACK[..], &["--manifest", "alone", "alone.img"]].concat();
    fixture.run(&args).ok();
    assert_eq!(
        fixture.run(&["cat", "alone.img", "a"]).ok().text(),
        "hello\n"
    );
}

#[test]
fn fragments_need_a_compressor_and_no_other_home() {
    let fixture = Fixture::tree();
    let pack = |args: &[&str]| fixture.run(&[&PACK[..], args, &["tree", "new.img"]].concat());
    pack(&["--fragments", "tails"])
        .fails(2, "forerun: --fragments has no effect without a compressor");
    let both = pack(&[
        "--compressor",
        "lz4",
        "--fragments",
        "tails",
        "--inline",
        "all",
    ]);
    assert_eq!(both.code, Some(2));
    assert!(
        both.stderr
            .contains("both after their inodes and in the packed inode"),
        "{}",
        both.stderr
    );
}

#[test]
fn a_device_that_the_image_has_not_is_refused() {
    let fixture = Fixture::tree();
    fixture
        .run(&[&PACK[..], &["tree", "plain.img"]].concat())
        .ok();
    let chunks = [
        "--chunk-size",
        "4K",
        "--blobdev",
        "blob",
        "tree",
        "index.img",
    ];
    fixture.run(&[&PACK[..], &chunks].concat()).ok();
    let with = |devices: &[&str], image| {
        let devices = devices.iter().flat_map(|device| ["--device", device]);
        let args = ["cat"]
            .into_iter()
            .chain(devices)
            .chain([image, "etc/passwd"]);
        fixture.run(&args.collect::<Vec<_>>())
    };
    with(&["blob"], "index.img").ok();
    let refused = with(&["blob"], "plain.img");
    assert_ne!(refused.code, Some(0));
    let told = "device 1: blob: the image has no data on other devices";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
    let refused = with(&["blob", "plain.img"], "index.img");
    let told = "device 2: plain.img: the image keeps data on one other device";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
}
