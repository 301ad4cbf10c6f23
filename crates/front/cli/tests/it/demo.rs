//! The demo with small files.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forerun_testkit::{require, temp_dir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::browser::Browser;
use crate::common::{Ran, command, ran};

const PARTS: [&str; 5] = ["romfs", "squashfs", "exfat", "link", "composefs"];
const SIZE: &str = "3M";

/// Runs the demo in a directory, which must be empty afterwards.
fn demo(dir: &Path, options: &[&str], locale: &str) -> Ran {
    let here = dir.to_str().unwrap();
    let mut args = vec!["demo", "--size", SIZE, "--directory", here];
    args.extend(options);
    let mut command = command(&args);
    let done = ran(command.env("LC_ALL", locale).output().unwrap());
    assert_nothing_left(dir);
    done
}

#[track_caller]
fn assert_nothing_left(dir: &Path) {
    let left: Vec<_> = std::fs::read_dir(dir).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!is_mounted_in(dir));
}

fn is_mounted_in(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(dir.to_str().unwrap())
}

fn part<'v>(value: &'v Value, id: &str) -> &'v Value {
    let parts = value["parts"].as_array().unwrap();
    let part = parts.iter().find(|part| part["id"] == id);
    part.unwrap_or_else(|| panic!("no {id} in {value:#}"))
}

fn row<'v>(value: &'v Value, id: &str, row: &str) -> &'v Value {
    let rows = part(value, id)["rows"].as_array().unwrap();
    let found = rows.iter().find(|found| found["id"] == row);
    found.unwrap_or_else(|| panic!("no {row} in {value:#}"))
}

fn count(value: &Value, id: &str, name: &str) -> u64 {
    row(value, id, name)["count"].as_u64().unwrap()
}

/// Asserts the counts of each part, with or without a mount.
fn assert_counters(value: &Value) {
    // A file of 3 MiB: read by 1 KiB, or by 4 MiB with the first requests of readahead.
    let small = count(value, "romfs", "nolargeblocks");
    assert!((3072..3200).contains(&small), "{small}");
    let large = count(value, "romfs", "largeblocks");
    assert!((1..=12).contains(&large), "{large}");
    assert!(row(value, "romfs", "image")["count"].is_null());

    // 4 blocks of 128 KiB, in 32 pages each. Two kernel requests may each decode a block that both
    // need.
    let once = count(value, "squashfs", "once");
    assert!((4..=8).contains(&once), "{once}");
    let each_page = count(value, "squashfs", "each_page");
    assert!((4 * 32..=4 * 32 + 8).contains(&each_page), "{each_page}");

    // 48 MiB in 384 clusters of 128 KiB: a write for each, and four more.
    assert_eq!(count(value, "exfat", "each_cluster"), 384 + 4);
    if value["mount_error"].is_null() {
        let sectors = count(value, "exfat", "each_sector");
        assert!((2..=6).contains(&sectors), "{sectors}");
    }

    // An image of slightly more than 768 KiB, from which a file of 96 KiB is read.
    let whole = count(value, "link", "whole");
    assert!((768..800).contains(&whole), "{whole}");
    let read = count(value, "link", "on_demand");
    assert!((96..=whole).contains(&read), "{read}");
    let again = count(value, "link", "cached");
    assert!(again <= read, "{again}, {read}");

    // 240 files in 16 directories, whose inodes and names take over 20 KiB.
    let needed = count(value, "composefs", "as_needed");
    let ahead = count(value, "composefs", "ahead");
    assert!(needed > 20 && ahead <= 4, "{needed}, {ahead}");

    for part in value["parts"].as_array().unwrap() {
        for row in part["rows"].as_array().unwrap() {
            assert!(row["seconds"].as_f64().unwrap() > 0.0, "{row}");
        }
        assert!(part["linux"].is_string(), "{part}");
    }
}

fn ids(value: &Value) -> Vec<&str> {
    let parts = value["parts"].as_array().unwrap();
    parts
        .iter()
        .map(|part| part["id"].as_str().unwrap())
        .collect()
}

#[test]
fn all_five_parts_count_what_they_show() {
    let dir = temp_dir("demo");
    let value = demo(dir.path(), &["--json"], "C").ok().json();
    assert_eq!(ids(&value), PARTS);
    assert_counters(&value);
    let has_mounts = value["mount_error"].is_null();
    for part in value["parts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|_| has_mounts)
    {
        let roles = [&part["rows"][0]["role"], &part["rows"][1]["role"]];
        assert_eq!(roles, ["ours", "legacy"], "{part:#}");
    }
    if require::program("unsquashfs").is_some() {
        assert!(row(&value, "squashfs", "unsquashfs")["seconds"].is_f64());
    }
    if require::root() && require::fuse() {
        assert!(value["mount_error"].is_null(), "{value:#}");
    }
}

#[test]
fn the_text_has_a_table_with_bars_for_each_part() {
    let dir = temp_dir("demo");
    for (locale, bar) in [("C.UTF-8", '\u{2588}'), ("C", '#')] {
        let ran = demo(dir.path(), &[], locale).ok();
        let text = ran.text();
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{text}");
        assert!(text.contains(bar), "{text}");
        assert_eq!(text.is_ascii(), locale == "C", "{text}");
        let (before, _) = text.split_once("\n1. ").unwrap();
        for words in [" UTC: Linux ", "forerun 0.", " caches"] {
            assert!(before.contains(words), "{words}: {text}");
        }
        for (number, words) in [
            ("1. romfs", "60 -> 22 s"),
            ("2. SquashFS", "39 -> 1.8 s"),
            ("3. exFAT", "32,775 -> 13 writes"),
            ("4. An image behind a link", "202,654 -> 407,213 KB/s"),
            ("5. composefs", "523 -> 404 ms"),
        ] {
            assert!(text.contains(&format!("\n{number}")), "{text}");
            assert!(text.contains(words), "{words}: {text}");
        }
    }
}

#[test]
fn parts_are_chosen_and_shown_in_their_order() {
    let dir = temp_dir("demo");
    let value = demo(dir.path(), &["--json", "--only", "composefs,exfat"], "C");
    assert_eq!(ids(&value.ok().json()), ["exfat", "composefs"]);
    let wrong = demo(dir.path(), &["--only", "ext4"], "C");
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong
            .stderr
            .contains("romfs, squashfs, exfat, link, composefs"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn the_page_has_the_figures_and_needs_nothing_else() {
    let (dir, other) = (temp_dir("demo"), temp_dir("demo-page"));
    let page = other.path().join("demo.html");
    let options = [
        "--json",
        "--only",
        "romfs,exfat",
        "--html",
        page.to_str().unwrap(),
    ];
    let value = demo(dir.path(), &options, "C").ok().json();
    if let Some(browser) = Browser::new() {
        let told = browser.run(
            &page,
            r#"document.body.style.width = "375px";
               const table = document.querySelector("table"), name = table.rows[1].cells[0];
               return { fits: table.offsetWidth <= 375, name: name.offsetWidth >= 90 };"#,
        );
        assert_eq!(told, json!({ "fits": true, "name": true }), "on a phone");
    }
    let page = std::fs::read_to_string(page).unwrap();
    for outside in ["http:", "https:", "url(", "@import", "src=", "stylesheet"] {
        assert!(!page.contains(outside), "{outside}: {page}");
    }
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for tag in ["table", "tr", "th", "td", "p", "div", "h2"] {
        let opened =
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        assert_eq!(
            opened,
            page.matches(&format!("</{tag}>")).count(),
            "{tag}: {page}"
        );
    }
    assert!(page.contains("prefers-color-scheme: dark"));
    let begin = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let data = &page[begin..begin + page[begin..].find("</script>").unwrap()];
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), value);
    let shown = format!(">{}<", count(&value, "exfat", "each_sector"));
    assert!(page.contains(&shown), "{shown}: {page}");
    assert!(page.contains("32,775 -&gt; 13 writes"), "{page}");
    for fact in [
        &value["date"],
        &value["machine"]["kernel"],
        &value["programs"]["forerun"],
    ] {
        let (head, _) = page.split_once("<h2>").unwrap();
        assert!(head.contains(fact.as_str().unwrap()), "{fact}: {head}");
    }
}

#[test]
fn a_page_that_cannot_be_written_fails_before_anything_is_measured() {
    let dir = temp_dir("demo");
    let nowhere = dir.path().join("missing/demo.html");
    let failed = demo(dir.path(), &["--html", nowhere.to_str().unwrap()], "C");
    assert_eq!((failed.code, failed.text()), (Some(5), ""));
    let other = temp_dir("demo-page");
    let page = other.path().join("demo.html");
    std::fs::write(&page, "mine").unwrap();
    let failed = demo(dir.path(), &["--html", page.to_str().unwrap()], "C");
    assert_eq!((failed.code, failed.text()), (Some(5), ""));
    assert_eq!(std::fs::read(page).unwrap(), b"mine");
    let failed = demo(dir.path(), &["--html", "-"], "C");
    assert_eq!((failed.code, failed.text()), (Some(2), ""));
}

#[test]
fn an_interrupt_leaves_nothing() {
    let dir = temp_dir("demo");
    let here = dir.path().to_str().unwrap();
    // The legacy mount runs for seconds.
    let args = [
        "demo",
        "--only",
        "romfs",
        "--size",
        "60M",
        "--directory",
        here,
    ];
    let mut child = command(&args).stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let is_there = || {
        if require::root() && require::fuse() {
            is_mounted_in(dir.path())
        } else {
            std::fs::read_dir(dir.path()).unwrap().next().is_some()
        }
    };
    while !is_there() {
        assert!(start.elapsed() < Duration::from_secs(120));
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    assert_nothing_left(dir.path());
}

#[test]
fn without_fuse_and_root_the_parts_say_what_they_leave_out() {
    if !require::root() || require::program("unshare").is_none() {
        return;
    }
    let dir = temp_dir("demo");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let here = dir.path().to_str().unwrap();
    let demo = command(&["demo", "--json", "--size", SIZE, "--directory", here]);
    let script = "mount --bind /dev/null /dev/fuse && exec setpriv --reuid=65534 --regid=65534 \
                  --clear-groups -- \"$@\"";
    let mut without = Command::new("unshare");
    without.args(["--mount", "sh", "-c", script, "sh"]);
    without.arg(demo.get_program()).args(demo.get_args());
    let value = ran(without.output().unwrap()).ok().json();
    assert_nothing_left(dir.path());
    assert_counters(&value);
    assert!(value["mount_error"].is_string(), "{value:#}");
    assert_eq!(value["dropped_all_caches"], false);
    for id in PARTS {
        let left_out = part(&value, id)["left_out"].to_string();
        assert_eq!(
            left_out.contains("mounts of forerun ("),
            id != "link",
            "{id}: {left_out}"
        );
    }
    let left_out = part(&value, "squashfs")["left_out"].to_string();
    assert!(
        left_out.contains("the kernel's driver needs root"),
        "{left_out}"
    );
}
