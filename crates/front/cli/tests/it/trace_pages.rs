//! Pages with traces in a browser: their figures equal those of the trace.

use std::fs;

use forerun_testkit::{require, temp_dir};
use forerun_testkit_servers::Nginx;
use serde_json::{Value, json};

use crate::common;
use crate::common::browser::{Browser, TOUCHING_LABELS};
use crate::common::place::Place;

/// Mounts with a trace, runs `work`, and unmounts. Returns once the trace is complete.
fn traced(place: &Place, image: &str, work: impl FnOnce()) {
    let mounted = place.mount(&["--trace", "trace"], image);
    work();
    mounted.end();
}

/// Uses a page with a trace: zooms, scrolls, points, steps through requests, hides classes.
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
        const pen = surface(document.getElementById("waterfall")).pen;
        told.labels = ["/sub/other", "/very/deep".repeat(50) + "/end"].map((path) => fitted(pen, path, "  " + millis(1500)));
        told.fits = told.labels.every((label) => pen.measureText(label).width <= LEFT - 10);
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
    let told = browser.run(&place.path("trace.html"), TOUCHING_LABELS);
    assert_eq!(told, json!({ "touching": [], "drawn": true }));
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
        let times = [&row[4], &row[5]].map(|time| time.as_str().unwrap());
        assert!(times.iter().all(|time| time.ends_with(" ms")), "{row}");
    }
    assert_eq!(told["labels"][0], "/sub/other  1.50 ms");
    let deep = told["labels"][1].as_str().unwrap();
    assert!(
        deep.starts_with('\u{2026}') && deep.ends_with("/end  1.50 ms"),
        "{deep}"
    );
    assert_eq!(told["fits"], true);
}

/// Asserts that the page followed the script's actions.
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
