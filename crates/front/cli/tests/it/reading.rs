//! info, ls, cat, check and dump on an image made by genromfs.

use forerun_testkit::{LoopDevice, require};
use serde_json::json;
use std::fs;

use crate::common::{BIG, Fixture, big};

#[test]
fn info_tells_what_it_is() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let text = fixture.run(&["info", "a.img"]).ok();
    for line in [
        "image         a.img",
        "format        romfs",
        "label         vol",
    ] {
        assert!(text.text().contains(line), "{}", text.text());
    }
    let value = fixture.run(&["info", "--json", "a.img"]).ok().json();
    assert_eq!(value["image"], "a.img");
    assert_eq!(value["format"], "romfs");
    assert_eq!(value["label"], "vol");
    assert_eq!(value["block_size"], 1024);
    assert_eq!(value["has_owners"], false);
    assert!(value["image_bytes"].as_u64().unwrap() > BIG.try_into().unwrap());
    assert!(value["source_bytes"].as_u64() >= value["image_bytes"].as_u64());
    assert!(value["details"].is_object());
}

#[test]
fn format_is_found_by_content_and_never_by_name() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::rename(fixture.path("a.img"), fixture.path("a.tar.gz")).unwrap();
    let value = fixture.run(&["info", "--json", "a.tar.gz"]).ok().json();
    assert_eq!(value["format"], "romfs");
}

#[test]
fn ls_sorts_and_writes_names_raw_into_a_pipe() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let names = fixture.run(&["ls", "a.img"]).ok().stdout;
    assert_eq!(names, b"big\nbin\netc\nhard\nlink\nodd\n\x1b\xff\n");
    let names = fixture.run(&["ls", "-a1", "a.img", "etc"]).ok();
    assert_eq!(names.text(), "empty\npasswd\n");
    let names = fixture.run(&["ls", "-d", "a.img", "etc", "link"]).ok();
    assert_eq!(names.text(), "etc\nlink\n");
    let names = fixture.run(&["ls", "a.img", "etc", "link", "bin"]).ok();
    assert_eq!(
        names.text(),
        "link\n\n/bin:\ntool\n\n/etc:\nempty\npasswd\n"
    );
}

#[test]
fn ls_long_is_aligned() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let text = fixture
        .run(&["ls", "-l", "a.img", "bin/tool", "big", "link", "etc"])
        .ok();
    let expected = "\
-rw-r--r-- 1 0 0 3000000 1970-01-01 00:00 big
-rwxr-xr-x 1 0 0      10 1970-01-01 00:00 bin/tool
lrwxrwxrwx 1 0 0      10 1970-01-01 00:00 link -> etc/passwd

/etc:
";
    let (listed, etc) = text.text().split_at(expected.len());
    assert_eq!(listed, expected);
    assert!(etc.starts_with("drwxr-xr-x "), "{etc}");
    assert!(etc.ends_with(" 1970-01-01 00:00 passwd\n"), "{etc}");
    let human = fixture.run(&["ls", "-lh", "a.img", "big"]).ok();
    assert_eq!(
        human.text(),
        "-rw-r--r-- 1 0 0 2.9 MiB 1970-01-01 00:00 big\n"
    );
}

#[test]
fn ls_recursive_has_a_section_for_each_directory() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let text = fixture.run(&["ls", "-R", "a.img", "/etc", "/bin"]).ok();
    assert_eq!(
        text.text(),
        "/bin:\ntool\n\n/etc:\nempty\npasswd\n\n/etc/empty:\n"
    );
}

#[test]
fn ls_json_holds_every_name_exactly() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let list = fixture.run(&["ls", "-R", "--json", "a.img"]).ok().json();
    let paths: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["path"])
        .collect();
    assert_eq!(
        json!(paths),
        json!([
            "/big",
            "/bin",
            "/etc",
            "/hard",
            "/link",
            "/odd\n\u{1b}\u{fffd}",
            "/bin/tool",
            "/etc/empty",
            "/etc/passwd"
        ])
    );
    assert_eq!(list[5]["path_hex"], "2f6f64640a1bff");
    let (big, hard) = (&list[0], &list[3]);
    assert_eq!(big["node"], hard["node"]);
    assert_eq!(big["path_hex"], json!(null));
    assert_eq!(big["type"], "file");
    assert_eq!(big["mode"], "0644");
    assert_eq!(big["size"], BIG);
    for field in ["nlink", "uid", "gid", "mtime", "mtime_nanoseconds"] {
        assert!(big[field].is_u64(), "{field}");
    }
    assert_eq!(list[4]["target"], "etc/passwd");
    let empty = fixture.run(&["ls", "--json", "a.img", "/etc/empty"]).ok();
    assert_eq!(empty.text(), "[]\n");
}

#[test]
fn cat_gives_files_one_after_the_other() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    assert!(fixture.run(&["cat", "a.img", "big"]).ok().stdout == big());
    let text = fixture.run(&["cat", "a.img", "/link", "./bin//tool"]).ok();
    assert_eq!(text.text(), "root:x:0:0\n#!/bin/sh\n");
    // A missing file does not prevent the output of the others.
    let some = fixture.run(&["cat", "a.img", "nope", "etc/passwd"]);
    assert_eq!(some.text(), "root:x:0:0\n");
    some.fails(
        1,
        "forerun: a.img: nope: no such file or directory\n  hint: forerun ls -R a.img lists every path",
    );
}

#[test]
fn options_change_how_and_not_what_is_read() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut shifted = vec![0xff; 4096];
    shifted.extend(fs::read(fixture.path("a.img")).unwrap());
    fs::write(fixture.path("b.img"), shifted).unwrap();
    for options in [
        &[
            "a.img",
            "--readahead",
            "0",
            "--threads",
            "1",
            "--cache",
            "1M",
        ][..],
        &["a.img", "--format", "romfs"],
        &["b.img", "--offset", "4K"],
    ] {
        let args = [&["cat"], options, &["big"]].concat();
        assert!(fixture.run(&args).ok().stdout == big(), "{options:?}");
    }
}

#[test]
fn stats_show_what_a_command_costs() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let ran = fixture.run(&["cat", "--stats", "--json", "a.img", "big"]);
    assert_eq!(ran.code, Some(0));
    let stats: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(stats["stats"]["served_bytes"], BIG);
    assert!(stats["stats"]["source_requests"].as_u64().unwrap() <= 3 + 10);
    let text = fixture.run(&["info", "--stats", "a.img"]).stderr;
    assert!(text.starts_with("source_requests  "), "{text}");
}

#[test]
fn check_finds_nothing_in_a_sound_image() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let text = fixture.run(&["check", "a.img"]).ok();
    assert_eq!(
        text.text(),
        "a.img: no problems (10 entries, 4 files, 2.9 MiB read; without checksums: all contents (stored))\n"
    );
    assert_eq!(fixture.run(&["check", "-q", "a.img"]).ok().text(), "");
    let value = fixture
        .run(&["check", "--quick", "--json", "a.img"])
        .ok()
        .json();
    assert_eq!(value["findings"], json!([]));
    assert_eq!(value["quick"], true);
    assert_eq!(
        (&value["errors"], &value["warnings"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(
        (&value["entries"], &value["files"]),
        (&json!(10), &json!(4))
    );
}

#[test]
fn check_names_what_is_damaged() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let list = fixture.run(&["ls", "-R", "--json", "a.img"]).ok().json();
    // The last file, because the first 512 bytes have a checksum without which nothing opens.
    let nodes = list.as_array().unwrap().iter();
    let offset = nodes.map(|entry| entry["node"].as_u64().unwrap()).max();
    let offset = usize::try_from(offset.unwrap()).unwrap();
    let mut image = fs::read(fixture.path("a.img")).unwrap();
    image[offset + 12] ^= 1; // the checksum of its header
    fs::write(fixture.path("bad.img"), image).unwrap();
    let value = fixture.run(&["check", "--json", "bad.img"]).json();
    let findings = value["findings"].as_array().unwrap();
    let one = findings
        .iter()
        .find(|finding| finding["node"] == offset)
        .unwrap_or_else(|| panic!("{value:#}"));
    assert_eq!(one["kind"], "corrupt");
    assert!(one["message"].as_str().unwrap().contains("add up"), "{one}");
    assert!(
        one["offset"].is_u64() && one["severity"].is_string(),
        "{one}"
    );
    let text = fixture.run(&["check", "bad.img"]);
    let expected = if value["errors"] == 0 { 0 } else { 1 };
    assert_eq!(text.code, Some(expected));
    assert!(text.text().contains("add up"), "{}", text.text());
}

#[test]
fn dump_is_the_same_each_time() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let first = fixture.run(&["dump", "a.img"]).ok();
    assert_eq!(first.stdout, fixture.run(&["dump", "a.img"]).ok().stdout);
    assert!(
        first.text().starts_with("image\n  full_size: "),
        "{}",
        first.text()
    );
    assert!(
        first.text().contains("\n/odd\\n\\033\\377 node "),
        "{}",
        first.text()
    );
    let value = fixture
        .run(&["dump", "--json", "a.img", "/etc/passwd"])
        .ok()
        .json();
    assert_eq!(value.as_array().unwrap().len(), 2);
    assert!(value[0]["fields"].is_object() && value[0]["path"].is_null());
    assert_eq!(value[1]["path"], "/etc/passwd");
    assert!(value[1]["node"].is_u64() && value[1]["fields"].is_object());
}

/// Truncates the file of a loop device, so that reads past the cut fail.
#[test]
fn cat_writes_what_is_readable_before_a_bad_place() {
    if !require::root() || require::program("losetup").is_none() {
        return;
    }
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let one = fixture.path("one");
    fs::create_dir(&one).unwrap();
    fs::copy(fixture.path("tree/big"), one.join("big")).unwrap();
    let image = fixture.path("one.img");
    assert!(forerun_testkit::genromfs(&one, &image, &[]));
    let device = LoopDevice::new(&image, &["--read-only"]);
    // At a page boundary: for a truncated sector, Linux returns the remaining bytes or fails,
    // depending on how requests are merged.
    let cut = 488 * 4096;
    fs::File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(cut)
        .unwrap();
    let ran = fixture.run(&["cat", device.0.to_str().unwrap(), "big"]);
    drop(device);
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let place = format!("(byte {} of the file)", ran.stdout.len());
    assert!(ran.stderr.contains(&place), "{}", ran.stderr);
    assert!(ran.stderr.contains("Input/output error"), "{}", ran.stderr);
    assert!(ran.stdout.len() < BIG);
    let sound = ran.stdout.len();
    assert!(
        sound >= 1 << 20 && ran.stdout[..] == big()[..sound],
        "{sound}"
    );
}

/// Checks output that only a terminal gets: columns and escaped names.
#[test]
fn a_terminal_gets_columns_and_escaped_names() {
    let Some(script) = require::program("script") else {
        return;
    };
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let shown = |arguments: &str| {
        let program = env!("CARGO_BIN_EXE_forerun");
        let line = format!("stty cols 39; {program} {arguments}");
        let output = std::process::Command::new(&script)
            .args(["--quiet", "--command", &line, "/dev/null"])
            .stdin(std::process::Stdio::null())
            .current_dir(fixture.dir.path())
            .output()
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .replace("\r\n", "\n")
    };
    assert_eq!(
        shown("ls a.img"),
        "big  etc   link\nbin  hard  odd\\n\\033\\377\n"
    );
    assert_eq!(
        shown("tar a.img"),
        "forerun: standard output is a terminal, and an archive is not text\n  hint: name a \
         file, or redirect: ... > FILE\n"
    );
    let logged = shown("info -vv a.img");
    let line = logged.lines().find(|line| line.contains(" debug: "));
    let line = line.unwrap_or_else(|| panic!("no line of a log: {logged}"));
    assert!(line.starts_with("forerun: "), "{line}");
    let logged = fixture.run(&["info", "-vv", "a.img"]).stderr;
    assert!(logged.starts_with("forerun: "), "{logged}");
}

#[test]
fn wildcards_stand_for_what_is_there_and_a_literal_name_counts_first() {
    let fixture = Fixture::tree();
    for (name, text) in [
        ("a.conf", "a"),
        ("b.conf", "b"),
        ("c.txt", "c"),
        ("[x].conf", "x"),
        ("x.conf", "y"),
    ] {
        fs::write(fixture.path("tree/etc").join(name), text).unwrap();
    }
    fs::write(fixture.path("tree/etc/empty/d.conf"), "d").unwrap();
    fixture.run(&["pack", "tree", "a.sqsh"]).ok();
    for (pattern, expected) in [
        ("/etc/?.conf", "aby"),
        ("etc//*.conf", "xaby"),
        ("/etc/[x].conf", "x"),
        ("/etc/[ab].conf", "ab"),
        ("/etc/{a,c}.*", "ac"),
        ("/**/[a-d].conf", "abd"),
        ("/*/empty/*", "d"),
    ] {
        let told = fixture.run(&["cat", "a.sqsh", pattern]).ok();
        assert_eq!(told.text(), expected, "{pattern}");
    }
    let missing = "no such file or directory\n  hint: forerun ls -R a.sqsh lists every path";
    for command in [
        &["cat", "a.sqsh"][..],
        &["ls", "a.sqsh"],
        &["extract", "-C", "none", "a.sqsh"],
    ] {
        let told = fixture.run(&[command, &["/etc/*.none"]].concat());
        told.fails(1, &format!("forerun: a.sqsh: /etc/*.none: {missing}"));
    }
    fixture
        .run(&["extract", "-q", "-C", "out", "a.sqsh", "/etc/[ab].conf"])
        .ok();
    let mut names: Vec<_> = fs::read_dir(fixture.path("out/etc"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["a.conf", "b.conf"]);
    let archive = fixture.run(&["tar", "a.sqsh", "/etc/c*"]).ok();
    assert!(archive.stdout.windows(9).any(|bytes| bytes == b"etc/c.txt"));
    assert_eq!(
        fixture.run(&["ls", "a.sqsh", "/etc/[ab].*"]).ok().text(),
        "/etc/a.conf\n/etc/b.conf\n"
    );
}

#[test]
fn ls_shows_only_what_include_matches() {
    let fixture = Fixture::tree();
    fs::write(fixture.path("tree/etc/a.conf"), "a").unwrap();
    fixture.run(&["pack", "tree", "a.sqsh"]).ok();
    let ls = |args: &[&str]| {
        fixture
            .run(&[&["ls", "a.sqsh"], args].concat())
            .ok()
            .text()
            .to_string()
    };
    assert_eq!(ls(&["-R", "--include", "*.conf"]), "/etc:\na.conf\n");
    assert_eq!(ls(&["-R", "--include", "/bin"]), "/:\nbin\n\n/bin:\ntool\n");
    assert_eq!(ls(&["--include", "b*"]), "big\nbin\n");
    assert_eq!(
        ls(&["--include", "*.conf", "/etc/passwd", "/etc/a.conf"]),
        "/etc/a.conf\n"
    );
    assert_eq!(ls(&["--include", "none"]), "");
    let json = fixture
        .run(&["ls", "-R", "--json", "--include", "*.conf", "a.sqsh"])
        .ok()
        .json();
    assert_eq!(json.as_array().unwrap().len(), 1);
}
