//! Maps, and their pages in a browser: the figures equal those of `--json`, and the controls work.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use forerun_testkit::{TempDir, require, temp_dir};
use serde_json::{Value, json};

use crate::common::browser::{Browser, TOUCHING_LABELS};
use crate::common::{self, Ran};

struct Tree(TempDir);

/// Names that a page must not treat as markup, nor a browser as a script.
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

/// The metadata that maps list by name where it lies between data.
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
    let bytes = |value: &Value| value.as_u64().unwrap();
    assert!(bytes(&map["total"]["in_image_bytes"]) <= bytes(&map["image_bytes"]));
    let shared = map["shared_bytes"].as_u64().unwrap();
    assert!((2_900_000..=3_000_000).contains(&shared), "{shared}");
    let ratio = map["total"]["stored_bytes"].as_u64().unwrap();
    assert!(ratio < 6_300_000, "{ratio}");
}

#[test]
fn a_map_of_an_empty_volume_has_no_blank_box() {
    let Some(browser) = Browser::new() else {
        return;
    };
    let tree = Tree::new();
    tree.run(&["mkfs", "exfat", "--size", "8M", "empty.img"])
        .ok();
    tree.run(&["map", "--html", "map.html", "empty.img"]).ok();
    let told = browser.run(
        &tree.path("map.html"),
        r#"const isShown = (id) => byId(id).offsetHeight > 0;
           return { tree: isShown("tree"), words: isShown("empty"), directories: isShown("directories-part") };"#,
    );
    assert_eq!(
        told,
        json!({ "tree": false, "words": true, "directories": false })
    );
    let text = tree.run(&["map", "empty.img"]).ok();
    assert!(!text.text().contains("directory"), "{}", text.text());
    tree.run(&["map", "--svg", "map.svg", "empty.img"]).ok();
    let svg = fs::read_to_string(tree.path("map.svg")).unwrap();
    assert!(svg.contains("No file takes any room"), "{svg}");
}

#[test]
fn labels_of_a_narrow_map_do_not_touch() {
    let Some(browser) = Browser::new() else {
        return;
    };
    let tree = Tree::new();
    tree.run(&["mkfs", "exfat", "--size", "64M", "x.img"]).ok();
    tree.run(&["map", "--html", "map.html", "x.img"]).ok();
    let script = TOUCHING_LABELS.replace("draw();", "drawLayout();");
    let told = browser.run(&tree.path("map.html"), &script);
    assert_eq!(told, json!({ "touching": [], "drawn": true }));
}

/// Uses a page with a map: zooms, scrolls, points, enters a directory and leaves it.
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
