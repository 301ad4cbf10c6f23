//! diff: its output and exit codes.

use std::fs;

use forerun_testkit::require;
use serde_json::json;

use crate::common::Fixture;

fn fixture() -> Option<Fixture> {
    let fixture = Fixture::new()?;
    let tree = fixture.path("tree");
    fs::write(tree.join("etc/passwd"), "root:x:1:0\n").unwrap();
    fs::write(tree.join("new"), "new").unwrap();
    fs::remove_dir(tree.join("etc/empty")).unwrap();
    Some(fixture)
}

const NOTE: &str =
    "forerun: owners, times and permissions were not compared: one side keeps none\n";

#[test]
fn the_same_is_the_same() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for (left, right) in [("a.img", "a.img"), ("a.img", "tree"), ("tree", "a.img")] {
        let same = fixture.run(&["diff", left, right]);
        assert_eq!(
            (same.code, same.text(), same.stderr.as_str()),
            (Some(0), "", NOTE)
        );
    }
    fixture.run(&["diff", "-q", "tree", "tree"]).ok();
}

#[test]
fn each_difference_is_a_line() {
    let Some(fixture) = fixture() else {
        return;
    };
    let lines = fixture.run(&["diff", "-q", "a.img", "tree"]);
    assert_eq!((lines.code, lines.stderr.as_str()), (Some(1), ""));
    assert_eq!(
        lines.text(),
        "removed: /etc/empty: directory\nchanged: /etc/passwd: content from byte 7 on\n\
         added: /new: file\n"
    );
    let brief = fixture.run(&["diff", "-q", "--brief", "tree", "a.img"]);
    assert_eq!(
        (brief.code, brief.text()),
        (
            Some(1),
            "added: /etc/empty\nchanged: /etc/passwd\nremoved: /new\n"
        )
    );
    let args = [
        "diff",
        "-q",
        "--exclude",
        "/etc",
        "--exclude",
        "new",
        "tree",
        "a.img",
    ];
    fixture.run(&args).ok();
    let args = [
        "diff",
        "-q",
        "--include",
        "pass*",
        "--brief",
        "tree",
        "a.img",
    ];
    assert_eq!(fixture.run(&args).text(), "changed: /etc/passwd\n");
}

#[test]
fn json_holds_both_values() {
    let Some(fixture) = fixture() else {
        return;
    };
    let found = fixture.run(&["diff", "--json", "a.img", "tree"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(1), ""));
    let value = found.json();
    assert_eq!(
        (&value["left"], &value["right"]),
        (&json!("a.img"), &json!("tree"))
    );
    assert_eq!(
        (&value["same"], &value["without_owners"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        value["differences"],
        json!([
            {"path": "/etc/empty", "change": "removed", "left": "directory", "right": null},
            {"path": "/etc/passwd", "change": "content", "offset": 7},
            {"path": "/new", "change": "added", "left": null, "right": "file"},
        ])
    );
    let brief = fixture
        .run(&["diff", "--json", "--brief", "a.img", "tree"])
        .json();
    assert_eq!(
        brief["differences"][1],
        json!({"path": "/etc/passwd", "change": "changed"})
    );
}

#[test]
fn images_in_firmware_are_found_and_differences_of_rights_come_first() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::tree();
    let pack = |name: &str| {
        let args = ["-q", "pack", "--mtime", "2026-01-31", "tree", name];
        fixture.run(&args).ok();
        fs::read(fixture.path(name)).unwrap()
    };
    let small = {
        fixture
            .run(&["-q", "pack", "--format", "romfs", "tree/etc", "small"])
            .ok();
        fs::read(fixture.path("small")).unwrap()
    };
    let old = pack("old.sqsh");
    fs::write(fixture.path("tree/aaa"), "new").unwrap();
    fs::write(fixture.path("tree/zzz"), "new").unwrap();
    let mode = fs::Permissions::from_mode(0o4755);
    fs::set_permissions(fixture.path("tree/zzz"), mode).unwrap();
    let new = pack("new.sqsh");
    let noise = &crate::common::big()[..5001];
    fs::write(
        fixture.path("old.bin"),
        [noise, &small, noise, &old].concat(),
    )
    .unwrap();
    fs::write(fixture.path("new.bin"), [&noise[..77], &new].concat()).unwrap();
    let ran = fixture.run(&["diff", "--ignore", "mtime", "old.bin", "new.bin"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let expected = "added: /zzz: file (set-user-ID)\nadded: /aaa: file\n";
    assert!(ran.text().starts_with(expected), "{}", ran.text());
    let offset = 5001 + small.len() + 5001;
    let note = format!("forerun: old.bin: the squashfs image at offset {offset} is compared\n");
    assert!(ran.stderr.contains(&note), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("FILE@OFFSET names: @5001\n"),
        "{}",
        ran.stderr
    );
    let named = format!("old.bin@{offset}");
    let same = fixture.run(&["diff", "-q", &named, "old.sqsh"]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
    let same = fixture.run(&["diff", "-q", "old.bin@5001", "small"]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
    fs::write(fixture.path("disk.img"), crate::hints::disk_of(&old)).unwrap();
    let same = fixture.run(&["diff", "-q", "disk.img@p1", "old.sqsh"]);
    assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
    let wrong = fixture.run(&["diff", "old.bin@pp", "old.sqsh"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
    let json = fixture
        .run(&["diff", "--json", "old.bin", "new.bin"])
        .json();
    let differences = json["differences"].as_array().unwrap();
    let zzz = differences.iter().find(|it| it["path"] == "/zzz").unwrap();
    assert_eq!(zzz["privilege"], "set-user-ID");
    fixture
        .run(&["-q", "pack", "--mtime", "2026-02-01", "tree", "later.sqsh"])
        .ok();
    let times = fixture.run(&["diff", "-q", "new.sqsh", "later.sqsh"]);
    let date = "mtime 2026-01-31T00:00:00Z -> 2026-02-01T00:00:00Z";
    let times = String::from_utf8_lossy(&times.stdout);
    assert!(times.contains(date), "{times}");
}

#[test]
fn trouble_is_no_difference() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.path("text"), "no image").unwrap();
    let image = fs::read(fixture.path("a.img")).unwrap();
    fs::write(fixture.path("short.img"), &image[..1000]).unwrap();
    for (args, code, expected) in [
        (
            &["diff", "a.img", "nope"][..],
            4,
            "forerun: nope: No such file",
        ),
        (
            &["diff", "text", "a.img"],
            3,
            "forerun: text: not an image ",
        ),
        (
            &["diff", "a.img", "short.img"],
            6,
            "forerun: short.img: damaged",
        ),
        (
            &["diff", "--ignore", "size", "a.img", "a.img"],
            2,
            "forerun: --ignore size: ",
        ),
        (&["diff", "a.img"], 2, "forerun: missing "),
    ] {
        let ran = fixture.run(args);
        assert_eq!(ran.code, Some(code), "{args:?} {}", ran.stderr);
        assert!(ran.stderr.starts_with(expected), "{args:?} {}", ran.stderr);
    }
}

#[test]
fn times_are_not_compared_with_a_format_that_keeps_none() {
    let (Some(fixture), Some(mkfs)) = (Fixture::new(), require::program("mkfs.cramfs")) else {
        return;
    };
    let mut made = std::process::Command::new(mkfs);
    made.args(["tree", "a.cramfs"])
        .current_dir(fixture.dir.path());
    assert!(made.output().unwrap().status.success());
    let same = fixture.run(&["diff", "--ignore", "links", "a.cramfs", "tree"]);
    let note = "forerun: times were not compared: one side keeps none\n";
    assert_eq!(
        (same.code, same.text(), same.stderr.as_str()),
        (Some(0), "", note)
    );
    let info = fixture.run(&["info", "a.cramfs"]).ok();
    assert!(
        info.text()
            .contains("keeps         owners and modes\nlacks         times\n")
    );
}
