//! `status --watch` with output to a file.

use std::fs;
use std::process::{Child, Stdio};

use forerun_testkit::{eventually, require};
use serde_json::Value;

use crate::common::place::Place;

/// A child process, which is killed at the end of the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // The child may have ended.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn status_is_watched() {
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place::new();
    let mounted = place.mount(&[], "image");
    let watching = |args: &[&str], out: &str| {
        let line = [&["status", "--watch", "0.2"], args].concat();
        let file = fs::File::create(place.path(out)).unwrap();
        Killed(
            place
                .command(&line)
                .stdout(file)
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    };
    let children = [watching(&[], "lines"), watching(&["--json"], "objects")];
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    let objects = || -> Vec<Value> {
        let text = read("objects");
        let whole = text
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'));
        whole
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    eventually("a first interval has passed", || {
        !objects().is_empty() && !read("lines").is_empty()
    });
    fs::read(place.path("mnt/big")).unwrap();
    let rate =
        |object: &Value, name: &str| object["mounts"][0]["rates"][name].as_f64().unwrap_or(0.0);
    eventually("the read is seen", || {
        objects()
            .iter()
            .any(|object| rate(object, "served_bytes") > 0.0)
    });
    let all = objects();
    let of_read: f64 = all.iter().map(|object| rate(object, "source_bytes")).sum();
    assert!(of_read > 0.0, "{all:?}");
    let sums = all.iter().map(|object| &object["mounts"][0]);
    for mount in sums.filter(|mount| !mount.is_null()) {
        let (cached, most) = (
            mount["cached_bytes"].as_u64(),
            mount["cache_bytes"].as_u64(),
        );
        assert!(cached.is_some() && cached <= most, "{mount}");
    }
    eventually("a line is there too", || {
        read("lines").contains("  1 mount  ")
    });
    for line in read("lines").lines() {
        assert!(line.contains("/s  served "), "{line}");
    }
    drop(children);
    let wrong = place.run(&["status", "--watch", "0"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    mounted.end();
}
