//! Pages with pictures, opened in a browser: their figures are those of `--json`, and they can be used.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use forerun_testkit::{TempDir, require, temp_dir};
use forerun_testkit_servers::Nginx;
use serde_json::{Value, json};

use crate::common::browser::Browser;
use crate::common::place::Place;
use crate::common::{self, Ran};

/// A directory with a tree of which images are made.
struct Tree(TempDir);

/// Names that a page must not take for markup, nor a browser for a script.
const ODD_NAMES: [&[u8]; 4] = [
    b"<script>alert(1)<" as &[u8],
    b"a\"'&b",
    b"\x1b[31m\n\xff",
    "\u{202e}gpj.<img src=x onerror=alert(1)>".as_bytes(),
];

impl Tree {
    fn new() -> Self {
        let tree = Self(temp_dir("pictures"));
        fs::create_dir_all(tree.path("tree/sub/deep")).unwrap();
        fs::create_dir_all(tree.path("tree/text")).unwrap();
        fs::write(tree.path("tree/sub/big"), common::big()).unwrap();
        fs::write(tree.path("tree/sub/twin"), common::big()).unwrap();
        fs::write(tree.path("tree/sub/deep/zeros"), vec![0; 1 << 20]).unwrap();
        for n in 0..40 {
            fs::write(
                tree.path(&format!("tree/text/{n}")),
                format!("{n}\n").repeat(300 * n),
            )
            .unwrap();
        }
        tree
    }

    fn with_odd_names() -> Self {
        let tree = Self::new();
        for name in ODD_NAMES {
            let file = tree.path("tree/text").join(OsStr::from_bytes(name));
            fs::write(file, vec![b'x'; 100_000]).unwrap();
        }
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Ran {
        let mut command = common::command(args);
        command.current_dir(self.0.path());
        common::ran(command.output().unwrap())
    }
}

/// Makes an image of each format that this machine has a writer for.
fn images(tree: &Tree) -> Vec<&'static str> {
    for (format, image) in [
        ("romfs", "a.romfs"),
        ("squashfs", "a.squashfs"),
        ("erofs", "a.erofs"),
        ("exfat", "a.exfat"),
    ] {
        tree.run(&["pack", "-q", "--format", format, "tree", image])
            .ok();
    }
    let line = "pack -q --format composefs --objects store tree a.composefs";
    tree.run(&line.split(' ').collect::<Vec<_>>()).ok();
    let line = "pack -q --format erofs --compressor zstd --fragments=all tree packed.erofs";
    tree.run(&line.split(' ').collect::<Vec<_>>()).ok();
    let mut images = vec![
        "a.romfs",
        "a.squashfs",
        "a.erofs",
        "packed.erofs",
        "a.exfat",
        "a.composefs",
    ];
    if let Some(mkfs) = require::program("mkfs.cramfs") {
        let (tree, image) = (tree.path("tree"), tree.path("a.cramfs"));
        let made = Command::new(mkfs).arg(tree).arg(image).output().unwrap();
        assert!(made.status.success());
        images.push("a.cramfs");
    }
    images
}

/// The metadata that maps name where it lies between the data.
const METADATA: &[(&str, &[&str])] = &[
    ("a.romfs", &["superblock", "headers"]),
    ("a.erofs", &["superblock", "inodes", "directories"]),
    ("packed.erofs", &["inodes", "indexes", "directories"]),
    (
        "a.composefs",
        &["inodes", "extended attributes", "directories"],
    ),
];

#[test]
fn a_map_of_every_format_counts_each_byte_once_and_reads_no_data() {
    let tree = Tree::new();
    for image in images(&tree) {
        let map = tree.run(&["map", "--json", "--stats", image]);
        assert_eq!(map.code, Some(0), "{image}: {}", map.stderr);
        let stats: Value = serde_json::from_str(&map.stderr).unwrap();
        let count = |name: &str| stats["stats"][name].as_u64().unwrap();
        assert_eq!(count("decodes"), count("metadata_decodes"), "{image}");
        assert_eq!(
            count("source_requests"),
            count("metadata_requests"),
            "{image}"
        );
        assert_eq!(
            (count("cache_misses"), count("served_bytes")),
            (0, 0),
            "{image}"
        );
        let map = map.json();
        let kinds = map["kinds"].as_array().unwrap().iter();
        let sum: u64 = kinds.map(|kind| kind["bytes"].as_u64().unwrap()).sum();
        assert_eq!(map["image_bytes"], sum, "{image}");
        let info = tree.run(&["info", "--json", image]).ok().json();
        assert_eq!(map["image_bytes"], info["image_bytes"], "{image}");
        assert_eq!(map["total"]["files"], 43, "{image}: {map}");
        let bytes = 2 * common::BIG
            + (1 << 20)
            + (0..40)
                .map(|n: usize| format!("{n}\n").len() * 300 * n)
                .sum::<usize>();
        assert_eq!(map["total"]["bytes"], bytes, "{image}");
        assert_eq!(map["exact"], true, "{image}");
        let files = map["directories"].as_array().unwrap().iter();
        let files: u64 = files.map(|dir| dir["files"].as_u64().unwrap()).sum();
        assert_eq!(files, 43, "{image}");
        let named = map["metadata"].as_array().unwrap();
        let expected = METADATA.iter().find(|(of, _)| *of == image);
        for name in expected.map_or(&[][..], |(_, names)| names) {
            let mut with_name = named.iter().filter(|part| part["name"] == *name);
            let bytes = with_name.next().and_then(|part| part["bytes"].as_u64());
            assert!(bytes > Some(0), "{image}: {name}: {map}");
        }
        let text = tree.run(&["map", image]).ok();
        for words in ["metadata", "43 files", "/sub", "/text"] {
            assert!(text.text().contains(words), "{image}: {}", text.text());
        }
    }
}

#[test]
fn the_map_of_a_volume_has_its_free_space() {
    let tree = Tree::new();
    tree.run(&[
        "pack",
        "-q",
        "--format",
        "exfat",
        "--volume-size",
        "64M",
        "tree",
        "a.img",
    ])
    .ok();
    let map = tree.run(&["map", "--json", "a.img"]).ok().json();
    let dump = tree.run(&["dump", "a.img"]).ok();
    let kind = |name: &str| {
        let mut kinds = map["kinds"].as_array().unwrap().iter();
        kinds.find(|kind| kind["kind"] == name).unwrap()["bytes"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(map["free"]["runs"], 1, "{}", dump.text());
    assert_eq!(map["free"]["longest_bytes"], kind("free"));
    // Files, directories, FAT, bitmap and up-case table take the rest.
    let used = (64 << 20) - kind("free");
    assert!((7_737_076..10_500_000).contains(&used), "{used}");
    assert_eq!(kind("data"), map["total"]["stored_bytes"]);
    let names = map["metadata"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["bitmap", "boot", "fat"]);
}

#[test]
fn twins_are_shared_and_holes_are_none() {
    let tree = Tree::new();
    tree.run(&["pack", "-q", "--format", "squashfs", "tree", "a.img"])
        .ok();
    let map = tree.run(&["map", "--json", "a.img"]).ok().json();
    assert_eq!(map["total"]["hole_bytes"], 1 << 20);
    let shared = map["shared_bytes"].as_u64().unwrap();
    assert!((2_900_000..=3_000_000).contains(&shared), "{shared}");
    let ratio = map["total"]["stored_bytes"].as_u64().unwrap();
    assert!(ratio < 6_300_000, "{ratio}");
}

/// Uses a page with a map: zooms, moves, points, goes into a directory and out of it.
const MAP_SCRIPT: &str = r##"
        const told = { title: document.querySelector("h1").textContent, figures: rows("figures"), sums: rows("sums"),
          directories: rows("directories"), before: viewNow(), images: document.images.length };
        wheel("layout", 0.5, 0.3, -100, false); told.wheel = viewNow();
        key("layout", "+"); told.plus = viewNow();
        key("layout", "ArrowLeft"); told.left = viewNow();
        key("layout", "0"); told.all = viewNow();
        point("layout", 0.5, 0.3); told.layoutTip = tipText();
        point("tree", 0.02, 0.1); told.treeTip = tipText();
        send("tree", new PointerEvent("pointerleave", {})); told.noTip = tipText();
        key("tree", "ArrowDown"); told.chosen = document.getElementById("chosen").textContent;
        key("tree", "Enter"); told.place = document.documentElement.dataset.place;
        told.crumbs = document.getElementById("crumbs").textContent.trim();
        key("tree", "Escape"); told.root = document.documentElement.dataset.place;
        send("tree", new MouseEvent("click", at("tree", 0.02, 0.5))); told.clicked = document.documentElement.dataset.place;
        key("tree", "0");
        const stored = document.querySelector("input[value=stored]"); stored.checked = true;
        stored.dispatchEvent(new Event("change")); told.tiles = Number(document.getElementById("tree").dataset.tiles);
        told.names = data.nodes.map((node) => node[1]);
        return told;"##;

#[test]
fn a_page_with_a_map_can_be_used_whatever_the_names() {
    let Some(browser) = Browser::new() else {
        return;
    };
    let tree = Tree::with_odd_names();
    tree.run(&["pack", "-q", "--format", "squashfs", "tree", "<a>&.img"])
        .ok();
    let page = tree.path("map.html");
    tree.run(&["map", "--html", "map.html", "<a>&.img"]).ok();
    assert!(page.metadata().unwrap().len() < 2_000_000);
    let again = tree.run(&["map", "--html", "map.html", "<a>&.img"]);
    assert_eq!(again.code, Some(5), "{}", again.stderr);
    let map = tree.run(&["map", "--json", "<a>&.img"]).ok().json();
    let told = browser.run(&page, MAP_SCRIPT);
    assert_eq!(told["title"], "Map of <a>&.img");
    assert_eq!(told["images"], 0);
    for kind in map["kinds"].as_array().unwrap() {
        let name = kind["kind"].as_str().unwrap();
        assert_eq!(told["figures"][name][1], kind["bytes"], "{name}");
    }
    assert_eq!(told["figures"]["shared"][1], map["shared_bytes"]);
    for (name, value) in map["total"].as_object().unwrap() {
        assert_eq!(told["sums"][name][1], *value, "{name}");
    }
    for dir in map["directories"].as_array().unwrap() {
        let row = &told["directories"][dir["path"].as_str().unwrap()];
        assert_eq!(
            (&row[1], &row[2], &row[3]),
            (&dir["files"], &dir["bytes"], &dir["stored_bytes"])
        );
    }
    let span =
        |name: &str| told[name]["to"].as_f64().unwrap() - told[name]["from"].as_f64().unwrap();
    assert!((span("wheel") - span("before") * 0.8).abs() < 1.0, "{told}");
    assert!((span("plus") - span("wheel") / 2.0).abs() < 1.0, "{told}");
    assert!(
        told["left"]["from"].as_f64() < told["plus"]["from"].as_f64(),
        "{told}"
    );
    assert_eq!(told["all"], told["before"]);
    assert!(
        told["layoutTip"].as_str().unwrap().starts_with("From "),
        "{told}"
    );
    assert!(
        told["treeTip"].as_str().unwrap().starts_with("/sub"),
        "{told}"
    );
    assert_eq!(told["noTip"], "");
    assert!(
        told["chosen"].as_str().unwrap().starts_with("/sub: "),
        "{told}"
    );
    assert_eq!(told["crumbs"], "/ sub");
    assert_ne!(told["place"], "0");
    assert_eq!(
        (&told["root"], &told["clicked"]),
        (&json!("0"), &told["place"])
    );
    assert!(told["tiles"].as_u64().unwrap() > 1, "{told}");
    let names = told["names"].as_array().unwrap();
    for name in [r"\033[31m\012\377", "a\"'&b", "<script>alert(1)<"] {
        assert!(names.contains(&json!(name)), "{name}: {told}");
    }
}

#[test]
fn a_picture_for_documents_is_valid() {
    let Some(browser) = Browser::new() else {
        return;
    };
    let tree = Tree::with_odd_names();
    tree.run(&[
        "pack",
        "-q",
        "--format",
        "exfat",
        "--volume-size",
        "32M",
        "tree/sub",
        "a.img",
    ])
    .ok();
    tree.run(&["map", "--svg", "map.svg", "a.img"]).ok();
    let svg = fs::read_to_string(tree.path("map.svg")).unwrap();
    let frame = tree.path("frame.html");
    fs::write(&frame, format!("<!DOCTYPE html><body>{svg}</body>")).unwrap();
    let told = browser.run(
        &frame,
        r#"const parsed = new DOMParser().parseFromString(document.querySelector("svg").outerHTML, "image/svg+xml");
        return { broken: parsed.querySelectorAll("parsererror").length, rects: document.querySelectorAll("rect").length,
          scripts: document.querySelectorAll("svg script, svg image, svg use").length };"#,
    );
    assert_eq!((&told["broken"], &told["scripts"]), (&json!(0), &json!(0)));
    assert!(told["rects"].as_u64().unwrap() > 100, "{told}");
}

/// Mounts with a trace, runs `work`, unmounts, and returns once the trace is complete.
fn traced(place: &Place, image: &str, work: impl FnOnce()) {
    let mounted = place.mount(&["--trace", "trace"], image);
    work();
    mounted.end();
}

/// Uses a page with a trace: zooms, moves, points, goes through requests, leaves classes out.
const TRACE_SCRIPT: &str = r##"
        const told = { figures: rows("figures"), slowest: rows("slowest"), before: viewNow(),
          drawn: Number(document.getElementById("seek").dataset.drawn), legend: document.getElementById("classes").textContent };
        wheel("seek", 0.5, 0.5, -100, false); told.wheel = viewNow();
        wheel("seek", 0.5, 0.5, -100, true); told.shifted = viewNow();
        key("flight", "+"); told.plus = viewNow();
        key("seek", "ArrowRight"); told.right = viewNow();
        key("seek", "0"); told.all = viewNow();
        key("seek", "n"); told.first = document.getElementById("chosen").textContent;
        key("seek", "n"); told.second = document.getElementById("chosen").textContent;
        const box = document.getElementById("seek").getBoundingClientRect();
        const [start, , offset, len] = sorted[1].point, x = scaleX(box.width)(start), y = scaleY(400)(offset + len / 2);
        point("seek", x / box.width, y / box.height); told.tip = tipText();
        point("waterfall", 0.5, 0.1); told.file = tipText();
        point("flight", 0.5, 0.5); told.flight = tipText();
        point("cache", 0.5, 0.5); told.cache = tipText();
        const boxes = document.querySelectorAll("#classes input"); boxes.forEach((box) => { box.checked = false;
          box.dispatchEvent(new Event("change")); });
        told.none = Number(document.getElementById("seek").dataset.drawn);
        return told;"##;

#[test]
fn a_page_with_a_trace_of_a_fetched_image() {
    let Some(browser) = Browser::new() else {
        return;
    };
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place::new();
    let line = "pack -q --format squashfs --force tree image";
    place.run(&line.split(' ').collect::<Vec<_>>()).ok();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    traced(&place, &nginx.url_of("image"), || {
        for name in ["big", "sub/other", "small", "big"] {
            fs::read(place.path("mnt").join(name)).unwrap();
        }
    });
    place.run(&["trace", "--html", "trace.html", "trace"]).ok();
    let sums = place.run(&["trace", "--json", "trace"]).ok().json();
    let picture = &sums["picture"];
    let told = browser.run(&place.path("trace.html"), TRACE_SCRIPT);
    let mut drawn = 0;
    for class in picture["classes"].as_array().unwrap() {
        let name = class["class"].as_str().unwrap();
        let row = &told["figures"][name];
        assert_eq!(
            (&row[1], &row[2], &row[3]),
            (&class["count"], &class["bytes"], &class["failed"])
        );
        assert_eq!(row[5], class["count"], "{name}");
        drawn += class["count"].as_u64().unwrap();
        let is_used = class["count"] != 0;
        assert_eq!(
            told["legend"].as_str().unwrap().contains(name),
            is_used,
            "{name}"
        );
        assert_eq!(is_used, name != "write", "{name}: {picture}");
    }
    assert_eq!(told["drawn"], drawn);
    assert_eq!(told["none"], 0);
    for (name, value) in picture["cache"].as_object().unwrap() {
        assert_eq!(told["figures"][name][1], *value, "{name}");
    }
    assert_files(&told, picture);
    assert_moved(&told);
}

/// Asserts that the page has the files of the figures.
fn assert_files(told: &Value, picture: &Value) {
    let files = picture["slowest_files"].as_array().unwrap();
    let paths: Vec<_> = files
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    for path in ["/big", "/sub/other", "/small"] {
        assert!(paths.contains(&path), "{paths:?}");
    }
    for file in files {
        let row = &told["slowest"][file["node"].to_string()];
        assert_eq!(
            (&row[0], &row[1], &row[3]),
            (&file["path"], &file["reads"], &file["bytes"])
        );
    }
}

/// Asserts that the page did what the script did.
fn assert_moved(told: &Value) {
    let span = |name: &str, axis: &str| {
        let edge = |n: &str| told[name][format!("{axis}{n}")].as_f64().unwrap();
        edge("1") - edge("0")
    };
    assert!(span("wheel", "t") < span("before", "t") * 0.81, "{told}");
    assert_eq!(told["wheel"]["y0"], told["before"]["y0"]);
    assert!(span("shifted", "y") < span("before", "y") * 0.81, "{told}");
    assert!(span("plus", "t") < span("shifted", "t") * 0.51, "{told}");
    assert!(
        told["right"]["t0"].as_f64() > told["plus"]["t0"].as_f64(),
        "{told}"
    );
    assert_eq!(told["all"], told["before"]);
    assert_ne!(told["first"], told["second"]);
    assert!(
        told["first"].as_str().unwrap().contains(" bytes from "),
        "{told}"
    );
    assert!(told["tip"].as_str().unwrap().contains(", took "), "{told}");
    assert!(
        told["file"].as_str().unwrap().contains(" reads, "),
        "{told}"
    );
    assert!(
        told["flight"].as_str().unwrap().contains("of servers"),
        "{told}"
    );
    assert!(
        told["cache"].as_str().unwrap().contains(" hits, "),
        "{told}"
    );
}

#[test]
fn a_page_with_a_hostile_trace() {
    let Some(browser) = Browser::new() else {
        return;
    };
    let dir = temp_dir("hostile-trace");
    let path = |name: &str| dir.path().join(name);
    let mut text =
        String::from("# forerun trace 1: of an older version\n# name\t5\t5\t%3c/script%3e%1b%ff\n");
    let most = u64::MAX;
    for kind in [
        "source_read",
        "decode",
        "write",
        "fetch",
        "cache_hit",
        "flush",
    ] {
        text += &format!(
            "{most}\t{kind}\tdata\treadahead\tfailed\t4294967295\t{most}\t{most}\t{most}\t-\n"
        );
        text += &format!("0\t{kind}\tdata\tmetadata\tok\t0\t0\t0\n");
    }
    text += &format!("{most}\tfile_read\tdata\t-\tok\t0\t{most}\t{most}\t{most}\t5\n");
    for n in 0..20_000 {
        text += &format!("{n}\tsource_read\tdata\tdemand\tok\t0\t{n}\t512\n");
    }
    fs::write(path("trace"), text).unwrap();
    let run = |args: &[&str]| {
        let mut command = common::command(args);
        common::ran(command.current_dir(dir.path()).output().unwrap())
    };
    run(&["trace", "--html", "trace.html", "trace"]).ok();
    let told = browser.run(
        &path("trace.html"),
        r##"
        const told = { figures: rows("figures"), thinned: document.getElementById("thinned").textContent,
          slowest: rows("slowest") };
        for (const pressed of ["+", "+", "]", "ArrowUp", "n", "p", "-", "0"]) key("seek", pressed);
        wheel("cache", 0.9, 0.5, -100, false);
        for (const id of ["seek", "flight", "cache", "waterfall"]) point(id, 0.5, 0.5);
        return told;"##,
    );
    assert_eq!(told["figures"]["data"][1], 20_000);
    assert_eq!(told["figures"]["data"][2], 20_000 * 512);
    assert!(
        told["thinned"].as_str().unwrap().contains("1 of 16 data"),
        "{told}"
    );
    let name = told["slowest"]["5"][0].as_str().unwrap();
    assert!(name.contains(r"/</script>\033\377/<"), "{name}");
    let same = run(&["trace", "--html", "./trace", "trace"]);
    assert_eq!(same.code, Some(2), "{}", same.stderr);
    fs::write(path("trace"), vec![b'1'; 1 << 20]).unwrap();
    assert_eq!(run(&["trace", "trace"]).code, Some(4));
}
