//! Extractions that end early: their reports, the remaining files, and how the next extraction
//! continues.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{Keeps, TempDir, TreeModel, eventually, require, temp_dir};
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::place::noise;
use crate::common::volume::{Small, as_nobody};
use crate::common::{Ran, command, ran};

const DIRS: usize = 12;
/// Entries: in each directory a file of 1 MiB and a small one, and also a hard link and a symbolic
/// link.
const ENTRIES: usize = DIRS * 3 + 3;

fn image() -> TempDir {
    let dir = temp_dir("resuming");
    let tree = dir.path().join("tree");
    for n in 0..DIRS {
        let sub = tree.join(format!("d{n:02}"));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join("large"), noise((1 << 20) + n)).unwrap();
        fs::write(sub.join("small"), format!("{n}")).unwrap();
    }
    fs::write(tree.join("empty"), "").unwrap();
    symlink("d00/small", tree.join("link")).unwrap();
    fs::hard_link(tree.join("d03/large"), tree.join("hard")).unwrap();
    for n in 0..DIRS {
        let locked = fs::Permissions::from_mode(0o555);
        fs::set_permissions(tree.join(format!("d{n:02}")), locked).unwrap();
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let packed = in_dir(
        dir.path(),
        command(&["pack", "-q", "--format", "erofs", "tree", "image"]),
    );
    packed.ok();
    dir
}

fn in_dir(dir: &Path, mut command: Command) -> Ran {
    let cache = dir.join("cache");
    let command = command.current_dir(dir).env("XDG_CACHE_HOME", cache);
    ran(command.output().unwrap())
}

fn forerun(args: &[&str]) -> Command {
    let mut run = as_nobody(command(args).get_program());
    run.args(args).env("TZ", "UTC");
    run
}

/// Asserts that a target has the whole tree. An existing target directory keeps its own mode and
/// time.
#[track_caller]
fn assert_whole(tree: &Path, out: &Path) {
    let [expected, actual] = [tree, out].map(|root| {
        let mut model = TreeModel::of_host(root).unwrap();
        model.nodes.remove(&b""[..]);
        model
    });
    expected.assert_same(&actual, &Keeps::EVERYTHING.without_owners());
}

fn entries(dir: &Path) -> usize {
    TreeModel::of_host(dir).unwrap().nodes.len() - 1
}

#[test]
fn an_extraction_that_filled_the_disk_says_what_is_missing_and_is_resumed() {
    if !require::root() || require::program("setpriv").is_none() {
        return;
    }
    let dir = image();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("disk")).unwrap();
    let disk = at("disk");
    let tmpfs = Small::on(&disk);
    let extract = ["extract", "-C", "disk/out", "--owner", "caller", "image"];
    let full = in_dir(dir.path(), forerun(&extract));
    assert_eq!(full.code, Some(6), "{}", full.stderr);
    let missing = ENTRIES - entries(&at("disk/out"));
    let told = format!(", {missing} entries are missing\n  hint: ");
    assert!(full.stderr.contains(&told), "{told}: {}", full.stderr);
    assert!(full.stderr.contains("No space left"), "{}", full.stderr);
    for entry in fs::read_dir(at("disk/out")).unwrap() {
        let found = entry.unwrap().metadata().unwrap();
        assert!(
            !found.is_dir() || found.mode() & 0o700 == 0o700,
            "{found:?}"
        );
    }

    // Without the option, existing files are in the way.
    let again = in_dir(dir.path(), forerun(&extract));
    assert!(again.stderr.contains("File exists"), "{}", again.stderr);
    tmpfs.resize("64M");
    let resume = [&extract[..], &["--skip-existing"]].concat();
    let resumed = in_dir(dir.path(), forerun(&resume));
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert!(
        resumed.stderr.contains("were there already\n"),
        "{}",
        resumed.stderr
    );
    assert_whole(&at("tree"), &at("disk/out"));

    // Everything is restored, even in directories that are now closed to their owner.
    fs::remove_file(at("disk/out/d05/small")).unwrap();
    let once_more = in_dir(dir.path(), forerun(&[&resume[..], &["--json"]].concat()));
    let report = once_more.ok().json();
    assert_eq!(
        (&report["files"], &report["missing"]),
        (&1.into(), &0.into())
    );
    assert_eq!(report["skipped"], ENTRIES - DIRS - 1);
    assert_whole(&at("tree"), &at("disk/out"));
}

#[test]
fn an_extraction_that_is_interrupted_leaves_whole_files_and_is_resumed() {
    let dir = image();
    let at = |name: &str| dir.path().join(name);
    let Some(nginx) = Nginx::serve(dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    proxy.set_link(Link {
        bytes_per_second: Some(4 << 20),
        ..Link::default()
    });
    let url = proxy.url_of("image");
    let extract = ["extract", "-C", "out", &url];
    for (signal, number) in [(Signal::INT, 2), (Signal::TERM, 15)] {
        let mut child = command(&extract);
        child
            .current_dir(dir.path())
            .env("XDG_CACHE_HOME", at("cache"));
        let child = child.stderr(Stdio::piped()).spawn().unwrap();
        eventually("a file is written", || at("out/d00/large").exists());
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr).into_owned();
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(ended.status.signal(), Some(number), "{told}");
        let found = entries(&at("out"));
        let expected = format!("{} entries are missing\n  hint: ", ENTRIES - found);
        assert!(told.contains("interrupted: "), "{told}");
        assert!(told.contains(&expected), "{expected}: {told}");
        for n in 0..DIRS {
            let [made, whole] = ["out", "tree"].map(|top| at(&format!("{top}/d{n:02}/large")));
            if made.exists() {
                assert!(fs::read(made).unwrap() == fs::read(whole).unwrap(), "{n}");
            }
        }
        if number == 2 {
            fs::remove_dir_all(at("out")).unwrap();
            fs::remove_dir_all(at("cache")).unwrap();
        }
    }
    proxy.set_link(Link::default());
    let resumed = in_dir(
        dir.path(),
        command(&[&extract[..], &["--skip-existing"]].concat()),
    );
    assert_eq!(resumed.code, Some(0), "{}", resumed.stderr);
    assert_whole(&at("tree"), &at("out"));
}
