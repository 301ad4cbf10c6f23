//! `unsquashfs`, compared with Debian's program.

mod lines;

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use forerun_testkit::require;
use rustix::fs::XattrFlags;

use super::{BOTH, By, Names};
use crate::common::{Ran, ran};
use lines::{CALLERS, MISTAKES};

const OTHER_USER: u32 = 65534;

fn names() -> Option<Names> {
    if !require::root() {
        return None;
    }
    let names = Names::new(&["unsquashfs"])?;
    let tree = names.path("tree");
    for (name, value) in [("user.note", "a"), ("trusted.note", "b")] {
        let file = tree.join("etc/passwd");
        rustix::fs::setxattr(&file, name, value.as_bytes(), XattrFlags::empty()).unwrap();
    }
    chown(tree.join("etc/.hidden"), Some(4_000_000_000), Some(7)).unwrap();
    names.tool(&["mknod", "tree/null", "c", "1", "3"]);
    names.tool(&["mknod", "tree/disk", "b", "8", "17"]);
    names.tool(&[
        "touch",
        "-h",
        "-d",
        "2001-02-03 04:05:06",
        "tree/dangling",
        "tree/etc/empty",
        "tree/fifo",
    ]);
    names.tool(&[
        "mksquashfs",
        "tree",
        "a.sqsh",
        "-noappend",
        "-quiet",
        "-no-progress",
    ]);
    let image = fs::read(names.path("a.sqsh")).unwrap();
    fs::write(names.path("b.AppImage"), [vec![0; 4096], image].concat()).unwrap();
    fs::write(names.path("text"), "no image\n".repeat(1000)).unwrap();
    fs::write(
        names.path("list"),
        "# some of it\nusr/bin/tool\n\n  etc/e*\n",
    )
    .unwrap();
    Some(names)
}

/// Returns each entry below a directory with everything that an extraction sets.
pub fn tree_of(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(next) = left.pop() {
        let metadata = fs::symlink_metadata(&next).unwrap();
        let name = next.strip_prefix(dir).unwrap().display().to_string();
        let mut text = format!(
            "{:o} {} {}",
            metadata.mode(),
            metadata.uid(),
            metadata.gid()
        );
        // The outermost directory belongs to the test.
        if !name.is_empty() {
            text.push_str(&format!(" {}", metadata.mtime()));
        }
        if metadata.is_dir() {
            let entries = fs::read_dir(&next).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        } else {
            text.push_str(&format!(" {} {:x}", metadata.nlink(), metadata.rdev()));
        }
        if metadata.is_file() {
            text.push_str(&format!(" {:?}", contents(&next)));
        }
        if let Ok(target) = fs::read_link(&next) {
            text.push_str(&format!(" {}", target.display()));
        }
        for name in ["user.note", "trusted.note"] {
            let mut value = [0; 9];
            if let Ok(len) = rustix::fs::lgetxattr(&next, name, &mut value) {
                text.push_str(&format!(" {name} {:?}", &value[..len]));
            }
        }
        found.insert(name, text);
    }
    found
}

fn contents(file: &Path) -> (usize, u64) {
    let bytes = fs::read(file).unwrap();
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    (bytes.len(), hasher.finish())
}

/// Runs a command line in an empty directory. Returns the resulting tree, and the output without
/// the progress bar and blank lines, because the number with which the other program ends a bar
/// depends on time.
fn run(
    names: &Names,
    by: By,
    line: &[&str],
    user: bool,
) -> (Ran, String, BTreeMap<String, String>) {
    let dir = names.path("work");
    let _not_there = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let line = [&["unsquashfs"], line].concat();
    let mut command = names.command(by, "work", &line);
    if user {
        chown(&dir, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
        let mut as_user = Command::new("setpriv");
        as_user.args([
            format!("--reuid={OTHER_USER}"),
            format!("--regid={OTHER_USER}"),
        ]);
        as_user.args(["--clear-groups", "--"]);
        as_user.arg(command.get_program()).args(command.get_args());
        as_user.current_dir(&dir).env("TZ", "UTC");
        command = as_user;
    }
    let mut ran = ran(command.output().unwrap());
    let program = names.path("bin/unsquashfs").display().to_string();
    ran.stderr = ran.stderr.replace(&program, "unsquashfs");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| !line.ends_with("%\n") && *line != "\n");
    let told = lines.collect();
    (ran, told, tree_of(&dir))
}

#[test]
fn callers_get_the_same_output_exit_code_and_tree() {
    let Some(names) = names() else {
        return;
    };
    let mut different = Vec::new();
    for (caller, line) in CALLERS {
        let [other, ours] = BOTH.map(|by| run(&names, by, line, false));
        let all =
            |(ran, told, tree): (Ran, String, BTreeMap<_, _>)| (ran.code, ran.stderr, told, tree);
        let (other, ours) = (all(other), all(ours));
        if other != ours {
            different.push(format!("{caller}: {line:?}\n{other:#?}\n{ours:#?}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Follows links for which Debian's program reports a directory loop.
#[test]
fn symbolic_links_are_followed() {
    let Some(names) = names() else {
        return;
    };
    let line = ["-n", "-follow", "-d", "out", "../a.sqsh", "AppRun"];
    let (told, _, tree) = run(&names, By::Forerun, &line, false);
    assert_eq!((told.code, told.stderr.as_str()), (Some(0), ""));
    assert!(tree.contains_key("out/AppRun") && tree.contains_key("out/usr/bin/tool"));
    assert!(!tree.contains_key("out/usr/bin/tool2"));
    let (told, _, _) = run(&names, By::Forerun, &["-cat", "../a.sqsh", "AppRun"], false);
    assert_eq!((told.code, told.stdout.len()), (Some(0), 300_000));
}

#[test]
fn users_without_root_get_the_same_tree() {
    let Some(names) = names() else {
        return;
    };
    if require::program("setpriv").is_none() {
        return;
    }
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(names.path("a.sqsh"), mode).unwrap();
    for (line, code) in [
        (&["-n", "-d", "out", "../a.sqsh"][..], 2),
        (&["-n", "-user-xattrs", "-d", "out", "../a.sqsh"], 2),
        (&["-n", "-no-exit", "-d", "out", "../a.sqsh"], 0),
        (&["-n", "-d", "out", "../a.sqsh", "usr", "etc/empty"], 0),
        (&["-n", "-no-xattrs", "-d", "out", "../a.sqsh", "etc"], 0),
    ] {
        let [other, ours] = BOTH.map(|by| run(&names, by, line, true));
        assert_eq!(
            (other.0.code, ours.0.code),
            (Some(code), Some(code)),
            "{line:?}"
        );
        assert_eq!(other.1, ours.1, "{line:?}");
        assert_eq!(other.2, ours.2, "{line:?}");
    }
    let (strict, _, _) = run(
        &names,
        By::Forerun,
        &["-n", "-st", "-d", "out", "../a.sqsh"],
        true,
    );
    assert_eq!(strict.code, Some(1));
}

#[test]
fn callers_of_newer_versions_get_the_same_tree() {
    let Some(names) = names() else {
        return;
    };
    let extract = |by, options: &str| {
        let line = format!("-n -d out {options} ../a.sqsh").replace("  ", " ");
        let words: Vec<_> = line.split(' ').collect();
        let (ran, _, tree) = run(&names, by, &words, false);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        tree
    };
    for (newer, older) in [
        ("-xattrs-exclude ^trusted[.]", "-user-xattrs"),
        ("-xattrs-include ^user.", "-user-xattrs"),
        ("-xattrs-include note -xattrs-exclude .", "-no-xattrs"),
        ("-mem 1G -percentage -max-files 100 -mem-percent 20", ""),
    ] {
        let (ours, other) = (extract(By::Forerun, newer), extract(By::Other, older));
        assert_eq!(ours, other, "{newer}");
    }
    for time in ["86400", "1970-01-02 00:00:00"] {
        let words = ["-n", "-d", "out", "-all-time", time, "../a.sqsh"];
        let (ran, _, tree) = run(&names, By::Forerun, &words, false);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        // The outermost directory belongs to the test.
        for (path, text) in tree.iter().filter(|(path, _)| !path.is_empty()) {
            assert_eq!(text.split(' ').nth(3), Some("86400"), "{path}: {text}");
        }
    }
    for line in [
        &["-all-time", "never", "../a.sqsh"][..],
        &["-xattrs-include", "(", "../a.sqsh"],
        &["-xattrs-exclude"],
    ] {
        let (ran, _, _) = run(&names, By::Forerun, line, false);
        assert_eq!(ran.code, Some(1), "{line:?}: {}", ran.stderr);
    }
}

#[test]
fn mistakes_have_the_same_text_and_exit_code() {
    let Some(names) = names() else {
        return;
    };
    for line in MISTAKES {
        let [other, ours] = BOTH.map(|by| run(&names, by, line, false));
        assert_eq!(other.0.code, ours.0.code, "{line:?}: {}", ours.0.stderr);
        assert_eq!(other.1, ours.1, "{line:?}");
        assert_eq!(other.2, ours.2, "{line:?}");
        assert_eq!(other.0.stderr, ours.0.stderr, "{line:?}");
    }
    for (line, code) in [
        (&[][..], 1),
        (&["-pf", "-", "../a.sqsh"], 1),
        (&["-h"], 0),
        (&["-help"], 0),
        (&["-v"], 1),
    ] {
        let (ours, told, _) = run(&names, By::Forerun, line, false);
        assert_eq!(ours.code, Some(code), "{line:?}");
        assert_eq!(line == ["-h"] || line == ["-help"], told.contains("SYNTAX"));
    }
    let (refused, _, _) = run(&names, By::Forerun, &["-pf", "-", "../a.sqsh"], false);
    assert!(
        refused
            .stderr
            .starts_with("unsquashfs: unknown option -pf\n")
    );
    let (version, _, _) = run(&names, By::Forerun, &["-v"], false);
    assert!(version.text().starts_with("unsquashfs version 4.5.1 "));
    // A command line of snapd's tests prints the version and then extracts.
    let line = ["-no-progress", "-v", "../a.sqsh", "etc/empty"];
    let (version, _, tree) = run(&names, By::Forerun, &line, false);
    assert!(version.text().starts_with("unsquashfs version 4.5.1 "));
    assert!(tree.contains_key("squashfs-root/etc/empty"), "{tree:?}");
}

#[test]
fn the_superblock_is_described_in_the_same_words() {
    let Some(names) = names() else {
        return;
    };
    for options in [
        "-comp gzip -Xcompression-level 3 -Xwindow-size 10 -Xstrategy filtered,fixed",
        "-comp xz -Xbcj x86,arm -Xdict-size 8192 -b 64K",
        "-comp xz -Xdict-size 8192",
        "-comp lzo -Xalgorithm lzo1x_1_15",
        "-comp lzo -Xcompression-level 3",
        "-comp lz4 -Xhc -noI -noD -noX -noF -always-use-fragments -no-duplicates",
        "-comp zstd -Xcompression-level 5 -no-xattrs -no-fragments -no-exports",
        "-comp lzma -mkfs-time 981173106",
    ] {
        let words: Vec<_> = options.split(' ').collect();
        let make = [
            "mksquashfs",
            "tree",
            "s.sqsh",
            "-noappend",
            "-quiet",
            "-no-progress",
        ];
        names.tool(&[&make, words.as_slice()].concat());
        let [other, ours] = BOTH.map(|by| run(&names, by, &["-s", "../s.sqsh"], false));
        assert_eq!(other.1, ours.1, "{options}");
        assert_eq!((other.0.code, ours.0.code), (Some(0), Some(0)), "{options}");
    }
}

#[test]
fn directories_that_are_there_need_force() {
    let Some(names) = names() else {
        return;
    };
    let extract = |by, options: &[&str]| {
        let _not_there = fs::remove_dir_all(names.path("there"));
        fs::create_dir_all(names.path("there/etc")).unwrap();
        fs::write(names.path("there/etc/old"), "old").unwrap();
        // Both runs find the same times, even if a second ends between them.
        let old = fs::File::options()
            .write(true)
            .open(names.path("there/etc/old"));
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        old.unwrap().set_modified(time).unwrap();
        fs::write(names.path("there/app.desktop"), "").unwrap();
        let line = [&["unsquashfs", "-n"], options, &["-d", "there", "a.sqsh"]].concat();
        let ran = names.run(by, ".", &line);
        (ran.code, ran.stderr, tree_of(&names.path("there")))
    };
    let [other, ours] = BOTH.map(|by| extract(by, &["-f"]));
    assert_eq!(other, ours);
    assert!(ours.2.contains_key("etc/old"));
    let [other, ours] = BOTH.map(|by| extract(by, &[]));
    assert_eq!((other.0, &other.1), (ours.0, &ours.1));
    assert_eq!(ours.0, Some(1));
    // Nothing was written, where Debian's program has already begun.
    assert!(!ours.2.contains_key("AppRun"));
}
