//! `--appimage-extract` reproduces the tree in the image, and extract-and-run removes it again.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::fs::getxattr;

use crate::common::{ATTRIBUTE, Fixture, errors, text};

/// Fails if two trees differ in names, contents, permissions, times or links.
fn same(a: &Path, b: &Path) {
    let list = |dir: &Path| {
        let find = "find . -mindepth 1 -printf '%P %M %T@ %s %n %l\\n' | sed 's/^\\([^ ]* d[^ ]* [^ ]* \\)[0-9]* [0-9]*/\\1/' | sort; find . -type f -exec md5sum {} + | sort";
        let output = Command::new("sh")
            .args(["-c", find])
            .current_dir(dir)
            .output();
        text(&output.unwrap())
    };
    // SquashFS stores whole seconds.
    let whole = |text: String| {
        let cut = |word: &str| match word.split_once('.') {
            Some((seconds, rest)) if rest.len() == 10 => seconds.to_string(),
            _ => word.to_string(),
        };
        let line = |line: &str| line.split(' ').map(cut).collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect::<Vec<_>>()
    };
    assert_eq!(whole(list(a)), whole(list(b)));
}

#[test]
fn the_tree_is_extracted_whole_and_again() {
    let Some(fixture) = Fixture::new("xz") else {
        return;
    };
    let extract = |argument: Option<&str>| {
        let mut command = fixture.command(true);
        command.arg("--appimage-extract").args(argument);
        command.output().unwrap()
    };
    let root = fixture.temp.path().join("squashfs-root");
    for _ in 0..2 {
        let output = extract(None);
        assert!(output.status.success(), "{}", errors(&output));
        assert!(text(&output).contains("squashfs-root/usr/bin/zeros\n"));
        same(&fixture.tree, &root);
    }
    let attribute = |name: &str, attribute: &str| {
        let mut value = [0; 64];
        let len = getxattr(root.join(name), attribute, &mut value).ok()?;
        Some(value[..len].to_vec())
    };
    for name in ["x.desktop", "usr/empty"] {
        assert_eq!(
            attribute(name, "user.origin"),
            Some(ATTRIBUTE.to_vec()),
            "{name}"
        );
    }
    // Capabilities grant rights, so they are not extracted.
    assert_eq!(attribute("AppRun", "security.capability"), None);
    for (pattern, expected) in [
        ("*.desktop", &["x.desktop"][..]),
        (
            "usr/bin",
            &["usr", "usr/bin", "usr/bin/blob", "usr/bin/zeros"],
        ),
        ("usr/*/bl?b", &["usr", "usr/bin", "usr/bin/blob"]),
        ("link", &["link"]),
    ] {
        fs::remove_dir_all(&root).unwrap();
        let output = extract(Some(pattern));
        assert!(output.status.success(), "{}", errors(&output));
        let find = ["squashfs-root", "-mindepth", "1", "-printf", "%P\\n"];
        let mut find_all = Command::new("find");
        find_all.args(find).current_dir(fixture.temp.path());
        let found = text(&find_all.output().unwrap());
        let mut found: Vec<_> = found.lines().map(String::from).collect();
        found.sort();
        assert_eq!(found, expected, "{pattern}");
    }
    let none = extract(Some("nothing"));
    assert_eq!(none.status.code(), Some(125));
    assert!(errors(&none).contains("no file of the image matches nothing"));
}

#[test]
fn links_that_were_there_before_lead_nowhere() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let at = |name: &str| fixture.temp.path().join(name);
    fs::create_dir_all(at("elsewhere")).unwrap();
    fs::create_dir_all(at("squashfs-root")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", at("squashfs-root/usr")).unwrap();
    std::os::unix::fs::symlink("../elsewhere/file", at("squashfs-root/x.desktop")).unwrap();
    let output = fixture
        .command(true)
        .arg("--appimage-extract")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(fs::read_dir(at("elsewhere")).unwrap().count(), 0);
    same(&fixture.tree, &at("squashfs-root"));
}

#[test]
fn extract_and_run_leaves_nothing() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    for is_root in [true, false] {
        let output = fixture
            .command(is_root)
            .args(["--appimage-extract-and-run", "print", "--appimage-help"])
            .output()
            .unwrap();
        assert_eq!(text(&output), "--appimage-help\n", "{}", errors(&output));
        assert!(fixture.is_clean(), "removed before the end");
        let mut command = fixture.command(is_root);
        command.env("APPIMAGE_EXTRACT_AND_RUN", "1");
        let status = command.args(["status", "9"]).status().unwrap();
        assert_eq!(status.code(), Some(9));
        let status = command.args(["kill", "KILL"]).status().unwrap();
        assert_eq!(status.code(), Some(9), "the first word counts");
        assert!(fixture.is_clean());
    }
    let killed = ["--appimage-extract-and-run", "kill", "KILL"];
    let status = fixture.command(true).args(killed).status().unwrap();
    assert_eq!(status.code(), Some(137));
    let mut command = fixture.command(true);
    command
        .env("NO_CLEANUP", "1")
        .arg("--appimage-extract-and-run");
    assert!(command.arg("print").status().unwrap().success());
    let mut kept = fs::read_dir(fixture.temp.path().join("tmp")).unwrap();
    same(&fixture.tree, &kept.next().unwrap().unwrap().path());
}

#[test]
fn without_fuse_it_is_extracted_and_the_reason_is_told() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    // Simulate a machine without `/dev/fuse`.
    let hide = "mount --bind /dev/null /dev/fuse && exec setpriv --reuid=65534 --regid=65534 \
                --clear-groups \"$0\" status 21";
    let output = fixture
        .command_of("unshare".as_ref(), true)
        .args(["-m", "sh", "-c", hide])
        .arg(&fixture.image)
        .output()
        .unwrap();
    let errors = errors(&output);
    assert_eq!(output.status.code(), Some(21), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    for part in ["is extracted", "user namespace: ", "fusermount: "] {
        assert!(errors.contains(part), "{errors}");
    }
    fixture.becomes_clean("no FUSE");
}
