//! The demo, small.

use forerun_testkit::temp_dir;

use crate::common::{command, ran};

#[test]
fn shows_every_step_and_leaves_nothing() {
    let dir = temp_dir("demo");
    let path = dir.path().to_str().unwrap();
    let text = ran(command(&["demo", "--size-mb", "2", "--dir", path])
        .output()
        .unwrap())
    .ok();
    for line in [
        "   $ forerun pack --format romfs --align 4096 files demo.img",
        "   $ forerun ls -lR demo.img",
        "   $ forerun cat demo.img big.bin | md5sum",
        "   $ forerun check demo.img",
        "   $ forerun mount demo.img mnt",
    ] {
        assert!(
            text.text().lines().any(|shown| shown == line),
            "{line}\n{}",
            text.text()
        );
    }
    assert!(text.text().contains("the image itself"), "{}", text.text());
    let longest = text.text().lines().map(str::len).max();
    assert!(longest <= Some(100), "{}", text.text());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn measures_both_block_modes() {
    let dir = temp_dir("demo");
    let path = dir.path().to_str().unwrap();
    let args = ["demo", "--json", "--size-mb", "2", "--dir", path];
    let value = ran(command(&args).output().unwrap()).ok().json();
    let rows = value["rows"].as_array().unwrap();
    let requests = |id: &str| {
        let row = rows.iter().find(|row| row["id"] == id);
        let row = row.unwrap_or_else(|| panic!("no {id} in {value:#}"));
        assert!(row["seconds"].is_f64() && row["ratio"].is_f64(), "{row}");
        assert_eq!(row["extrapolated"], row["bytes_read"] != row["bytes"]);
        row["source_requests"].as_u64()
    };
    assert_eq!(requests("image"), None);
    assert!(requests("library_largeblocks") <= Some(2 + 10));
    assert!(requests("library_nolargeblocks") >= Some(2048));
    if value["mount_error"].is_null() {
        assert!(requests("mount_largeblocks") <= Some(2 + 10));
        assert!(requests("mount_nolargeblocks") >= Some(2048));
    }
}
