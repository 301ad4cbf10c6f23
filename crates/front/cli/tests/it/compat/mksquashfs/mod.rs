//! Compares forerun's `mksquashfs` and `sqfstar` with Debian's programs of the same names.

mod lines;
mod mistakes;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use forerun_testkit::require;
use rustix::fs::XattrFlags;

use super::unsquashfs::tree_of;
use super::{BOTH, By, Names};
use crate::common::{Ran, ran};
use lines::{CALLERS, Line, NEWER};
use mistakes::MISTAKES;

fn names() -> Option<Names> {
    if !require::root() || require::program("unsquashfs").is_none() {
        return None;
    }
    let names = Names::new(&["mksquashfs", "sqfstar"])?;
    let tree = names.path("tree");
    let file = tree.join("etc/passwd");
    rustix::fs::setxattr(&file, "user.note", b"a", XattrFlags::empty()).unwrap();
    fs::write(tree.join("usr/bin/zeros"), vec![0; 300_000]).unwrap();
    fs::write(tree.join("usr/bin/same"), vec![b'x'; 300_000]).unwrap();
    fs::create_dir_all(names.path("etc")).unwrap();
    fs::create_dir(names.path("dir")).unwrap();
    fs::write(names.path("etc/x"), "x\n").unwrap();
    symlink("tree", names.path("tree-link")).unwrap();
    symlink("list", names.path("list-link")).unwrap();
    for (name, text) in [
        ("list", "# excludes\nusr/bin/*2\n\n  ... .hid*\n"),
        ("names", "usr/bin/tool\n  tree/none\n# no\netc/empty\n"),
        (
            "devices",
            "# d\ndev d 755 0 0\ndev/null c 666 0 0 1 3\nsda b 660 0 6 8 0\n",
        ),
        // The mount points that ch-convert creates if an image lacks them.
        (
            "mounts",
            "bin d 755 root root\ndev d 755 root root\nmnt d 755 root root\nmnt/0 d 755 root root\n\
             etc/hosts f 644 root root true\netc/resolv.conf f 644 root root true\n",
        ),
        ("sort", "etc/passwd 100\nusr/bin -5\n"),
        ("owners", "etc/passwd m 600 7 8\nusr/bin/tool m 2755 0 42\n"),
    ] {
        fs::write(names.path(name), text).unwrap();
    }
    names.tool(&[
        "find",
        "tree",
        "etc",
        "-exec",
        "touch",
        "-h",
        "-d",
        "2001-02-03 04:05:06Z",
        "{}",
        "+",
    ]);
    names.tool(&[
        "tar", "-C", "tree", "-cf", "tree.tar", "etc", "fifo", "AppRun", "usr",
    ]);
    names.tool(&[
        "tar",
        "-cf",
        "part.tar",
        "tree/etc/passwd",
        "tree/usr/bin/tool",
    ]);
    Some(names)
}

/// The result of a command line: its output, and unsquashfs's view of the image. Blank lines are
/// removed from the output, because the number with which the other program ends its progress bar
/// depends on time.
#[derive(Debug, PartialEq, Eq)]
struct Made {
    code: Option<i32>,
    stderr: String,
    /// Without sizes, which depend on the encoder.
    stdout: Vec<String>,
    superblock: Vec<String>,
    tree: BTreeMap<String, String>,
}

/// Replaces times of this run, which differ between the programs. These are all times later than
/// those on command lines, because a clock may be set while tests run.
fn without_now(text: &str) -> String {
    /// In the year 2025.
    const RECENT: u64 = 1_750_000_000;
    let words = text.split(' ').map(|word| match word.parse::<u64>() {
        Ok(RECENT..) => "now".to_string(),
        _ => word.to_string(),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn without_blank_lines(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| *line != "\n").collect()
}

/// Starts of lines about progress, and about sizes, which depend on the encoder.
const OF_ENCODER: &[&str] = &[
    "[",
    "Filesystem size",
    "Inode table",
    "Directory table",
    "Xattr table",
    "Number of fragments",
    "Number of duplicate",
    "No duplicate files",
];

fn run(names: &Names, by: By, line: &Line) -> (Ran, Vec<String>) {
    let words: Vec<_> = line
        .words
        .split(' ')
        .map(|word| word.replace('~', " "))
        .collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let mut command = names.command(by, ".", &words);
    if !line.stdin.is_empty() {
        command.stdin(File::open(names.path(line.stdin)).unwrap());
    }
    let ran = ran(command.output().unwrap());
    let text = String::from_utf8_lossy(&ran.stdout).replace('\r', "");
    let lines = text.lines().filter(|line| {
        let is_of_encoder = OF_ENCODER.iter().any(|start| line.starts_with(start));
        !line.is_empty() && !is_of_encoder && !line.contains("% of uncompressed")
    });
    let lines = lines.map(|line| match line.split_once(" inode 0x") {
        Some((entry, _)) => entry.to_string(),
        None => line.to_string(),
    });
    (ran, lines.collect())
}

fn made(names: &Names, by: By, line: &Line) -> Made {
    let image = names.path("OUT");
    let _not_there = fs::remove_file(&image);
    let (ran, stdout) = run(names, by, line);
    let mut result = Made {
        code: ran.code,
        stderr: without_blank_lines(&ran.stderr),
        stdout,
        superblock: Vec::new(),
        tree: BTreeMap::new(),
    };
    if image.exists() {
        let offset = line.words.split_once(" -offset ");
        let offset = offset.map_or("0", |(_, rest)| rest.split(' ').next().unwrap());
        let tell = |words: &[&str]| {
            let mut tool = Command::new("unsquashfs");
            tool.args(["-o", offset]).args(words).arg(&image);
            let output = tool.current_dir(names.path(".")).output().unwrap();
            assert!(output.status.success(), "{} {output:?}", line.words);
            String::from_utf8(output.stdout).unwrap()
        };
        let is_of_encoder = |text: &&str| {
            let starts = [
                "Found a",
                "Filesystem size",
                "Number of fragments",
                "Creation",
            ];
            !starts.iter().any(|start| text.starts_with(start))
        };
        result.superblock = tell(&["-s"])
            .lines()
            .filter(is_of_encoder)
            .map(str::to_string)
            .collect();
        result
            .superblock
            .push(without_now(tell(&["-mkfs-time"]).trim()));
        let out = names.path("unpacked");
        let _not_there = fs::remove_dir_all(&out);
        tell(&["-quiet", "-no-progress", "-force", "-dest", "unpacked"]);
        let tree = tree_of(&out).into_iter();
        result.tree = tree
            .map(|(name, text)| (name, without_now(&text)))
            .collect();
        let root = tell(&["-lln", "-max-depth", "1"]);
        let root = root.lines().next().unwrap();
        let root: Vec<_> = root.split_ascii_whitespace().take(2).collect();
        result.superblock.push(root.join(" "));
    }
    result
}

/// Returns the lines that only one of the two has.
fn difference(other: &Made, ours: &Made) -> String {
    let [other, ours] = [other, ours].map(|made| format!("{made:#?}"));
    let only = |sign: &str, of: &str, without: &str| {
        let without: Vec<_> = without.lines().collect();
        let lines = of.lines().filter(|line| !without.contains(line));
        lines
            .map(|line| format!("{sign}{line}\n"))
            .collect::<String>()
    };
    only("-", &other, &ours) + &only("+", &ours, &other)
}

#[test]
fn callers_get_the_same_image_output_and_exit_code() {
    let Some(names) = names() else {
        return;
    };
    let mut different = Vec::new();
    for line in CALLERS {
        let [other, mut ours] = BOTH.map(|by| made(&names, by, line));
        assert_eq!(other.code, Some(0), "{}: {}", line.words, other.stderr);
        if line.words.contains("-info") {
            // The order differs, and duplicates are reported.
            ours.stdout.clone_from(&other.stdout);
        }
        if other != ours {
            different.push(format!(
                "{}: {}
{}",
                line.caller,
                line.words,
                difference(&other, &ours)
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Makes the trees that some options of newer versions make of `tree`.
fn add_changed_trees(names: &Names) {
    let find = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        names.tool(&[&["find"], words.as_slice()].concat());
    };
    for name in ["modes", "added"] {
        names.tool(&["cp", "-a", "tree", name]);
    }
    find("modes -type d -exec chmod 750 {} +");
    find("modes ! -type d ! -type l -exec chmod 640 {} +");
    let attribute = "-exec setfattr -n user.note -v added {} +";
    find(&format!("added -type d {attribute}"));
    find(&format!("added -type f {attribute}"));
    find("modes added -exec touch -h -d 2001-02-03T04:05:06Z {} +");
}

#[test]
fn callers_of_newer_versions_get_the_same_image() {
    let Some(names) = names() else {
        return;
    };
    if require::program("setfattr").is_none() {
        return;
    }
    add_changed_trees(&names);
    let (version, _) = run(&names, By::Other, &lines::line("", "mksquashfs -version"));
    let is_old = version.text().contains("version 4.5");
    let mut different = Vec::new();
    for line in NEWER {
        // Only OpenWrt builds the program with this option.
        let is_known = !is_old && !line.words.contains("-Xpreset");
        let older = Line {
            words: if is_known { line.words } else { line.older },
            ..*line
        };
        let [other, ours] = [(By::Other, &older), (By::Forerun, line)].map(|(by, line)| {
            let mut made = made(&names, by, line);
            made.stdout.clear();
            // The older line leaves out attributes that the newer one selects by name.
            let is_of_xattrs = |line: &String| line.to_lowercase().contains("xattr");
            made.superblock.retain(|line| !is_of_xattrs(line));
            made
        });
        assert_eq!(other.code, Some(0), "{}: {}", older.words, other.stderr);
        if other != ours {
            different.push(format!(
                "{}: {}\n{}",
                line.caller,
                line.words,
                difference(&other, &ours)
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
    let listed = fs::read_to_string(names.path("info")).unwrap();
    assert!(listed.contains("directory /etc/empty"), "{listed}");
}

#[test]
fn mistakes_have_the_same_text_and_exit_code() {
    let Some(names) = names() else {
        return;
    };
    for line in MISTAKES {
        let [other, ours] = BOTH.map(|by| made(&names, by, line));
        assert_eq!(other.code, Some(1), "{}", line.words);
        assert_eq!(ours.code, Some(1), "{}", line.words);
        // Threads of the other program may report consequences of the mistake, with thread names.
        let told = other.stderr.lines().filter(|line| !line.contains("_thrd"));
        let told: Vec<_> = told.collect();
        let ours_told: Vec<_> = ours.stderr.lines().collect();
        assert_eq!(ours_told, told, "{}", line.words);
        assert_eq!(ours.tree, BTreeMap::new(), "{}", line.words);
    }
}

#[test]
fn other_options_are_refused_by_name() {
    let Some(names) = names() else {
        return;
    };
    for (words, expected) in [
        ("mksquashfs tree OUT -bogus", "invalid option -bogus"),
        (
            "mksquashfs tree OUT -action prune@empty",
            "-action prune: only these are known: fragment, ",
        ),
        (
            "mksquashfs tree OUT -root-becomes old",
            "invalid option -root-becomes",
        ),
        ("mksquashfs - OUT -cpiostyle", "invalid option -cpiostyle"),
        ("mksquashfs tree OUT -comp xz -Xbcj ia64", "ia64"),
        (
            "mksquashfs tree OUT -comp lzo -Xalgorithm lzo1x_1",
            "only algorithm lzo1x_999 at level 8 is supported",
        ),
        (
            "mksquashfs tree OUT -p a~f~644~0~0~date",
            "forerun runs no commands",
        ),
        (
            "mksquashfs tree OUT -p a~d~999~0~0",
            "pseudo file definition \"a d 999 0 0\"",
        ),
        (
            "mksquashfs tree OUT -wildcards -e x!(a)",
            "only known as a whole name",
        ),
        ("sqfstar -noappend OUT", "invalid option -noappend"),
        ("sqfstar", "SYNTAX:sqfstar"),
        ("mksquashfs tree", "SYNTAX:mksquashfs"),
        ("mksquashfs tree a.sqsh", "forerun appends to no image"),
        ("mksquashfs tree list", "will not overwrite - ABORTING!"),
    ] {
        let line = lines::line("", words);
        let before = fs::read(names.path("a.sqsh")).unwrap();
        let (ran, _) = run(&names, By::Forerun, &line);
        assert_eq!(ran.code, Some(1), "{words}");
        assert!(ran.stderr.contains(expected), "{words}: {}", ran.stderr);
        assert!(!names.path("OUT").exists(), "{words}");
        assert_eq!(fs::read(names.path("a.sqsh")).unwrap(), before, "{words}");
    }
    for (words, expected) in [
        ("mksquashfs -version", "mksquashfs version 4.6.1 "),
        ("mksquashfs -help", "SYNTAX:mksquashfs "),
        ("sqfstar -h", "SYNTAX:sqfstar "),
    ] {
        let line = lines::line("", words);
        let (ran, lines) = run(&names, By::Forerun, &line);
        assert_eq!(ran.code, Some(0), "{words}");
        assert!(lines[0].starts_with(expected), "{words}: {lines:?}");
    }
}

/// A failure keeps the old image; success replaces it.
#[test]
fn images_are_replaced_whole() {
    let Some(names) = names() else {
        return;
    };
    let line = |words| lines::line("", words);
    let old = fs::read(names.path("a.sqsh")).unwrap();
    let (failed, _) = run(
        &names,
        By::Forerun,
        &line("mksquashfs tree a.sqsh -noappend -p x~q"),
    );
    assert_eq!(
        (failed.code, fs::read(names.path("a.sqsh")).unwrap()),
        (Some(1), old)
    );
    let (done, _) = run(
        &names,
        By::Forerun,
        &line("mksquashfs etc a.sqsh -noappend -quiet"),
    );
    assert_eq!((done.code, done.text()), (Some(0), ""));
    let [other, ours] = BOTH.map(|by| {
        let epoch = |words: &str| {
            let words: Vec<_> = words.split(' ').collect();
            let mut command = names.command(by, ".", &words);
            ran(command.env("SOURCE_DATE_EPOCH", "1000").output().unwrap())
        };
        let clash = epoch("mksquashfs tree a.sqsh -noappend -mkfs-time 5");
        let done = epoch("mksquashfs tree a.sqsh -noappend -quiet -no-progress");
        let mut listing = Command::new("unsquashfs");
        let listing = listing
            .args(["-lln"])
            .arg(names.path("a.sqsh"))
            .output()
            .unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        assert!(
            listing.lines().all(|line| line.contains(" 1970-01-01 ")),
            "{listing}"
        );
        (clash.code, clash.stderr, done.code)
    });
    assert_eq!(other, ours);
}

/// Users without root make the same image. Files they cannot read are omitted, where Debian's
/// program stores an empty file.
#[test]
fn users_leave_out_what_they_cannot_read() {
    let Some(names) = names() else {
        return;
    };
    if require::program("setpriv").is_none() {
        return;
    }
    let secret = names.path("tree/etc/.hidden");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(names.path("."), open.clone()).unwrap();
    fs::set_permissions(names.path("dir"), open).unwrap();
    let program = names.path("bin/mksquashfs");
    let as_user = |options: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command
            .arg(&program)
            .args(["tree/etc", "dir/o", "-quiet", "-noappend"])
            .args(options);
        ran(command.current_dir(names.path(".")).output().unwrap())
    };
    let done = as_user(&[]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("Failed to read tree/etc/.hidden"),
        "{}",
        done.stderr
    );
    let listing = Command::new("unsquashfs")
        .arg("-l")
        .arg(names.path("dir/o"))
        .output()
        .unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    assert!(
        listing.contains("passwd") && !listing.contains(".hidden"),
        "{listing}"
    );
    assert_eq!(as_user(&["-exit-on-error"]).code, Some(1));
}

#[test]
fn archives_come_through_a_pipe() {
    let Some(names) = names() else {
        return;
    };
    let archive = fs::read(names.path("tree.tar")).unwrap();
    let mut command = names.command(By::Forerun, ".", &["sqfstar", "-quiet", "OUT"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(child.wait().unwrap().success());
    let line = Line {
        stdin: "tree.tar",
        ..lines::line("", "sqfstar -quiet b")
    };
    assert_eq!(run(&names, By::Forerun, &line).0.code, Some(0));
    let [piped, file] = ["OUT", "b"].map(|name| {
        let mut listing = Command::new("unsquashfs");
        listing
            .arg("-lln")
            .arg(names.path(name))
            .output()
            .unwrap()
            .stdout
    });
    let [piped, file] = [piped, file].map(|text| {
        let text = String::from_utf8(text).unwrap();
        text.lines().skip(1).map(str::to_string).collect::<Vec<_>>()
    });
    assert_eq!(piped, file);
}

#[test]
fn mount_points_are_empty_or_left_out() {
    let Some(names) = names() else {
        return;
    };
    let script = "mount -t tmpfs tmpfs tree/etc/empty && touch tree/etc/empty/inside && \
                  bin/mksquashfs tree OUT -noappend -quiet $1";
    for (option, is_there) in [("-one-file-system", true), ("-one-file-system-x", false)] {
        names.tool(&["unshare", "--mount", "sh", "-c", script, "sh", option]);
        let listing = Command::new("unsquashfs")
            .arg("-l")
            .arg(names.path("OUT"))
            .output()
            .unwrap();
        let listing = String::from_utf8(listing.stdout).unwrap();
        assert_eq!(listing.contains("/etc/empty"), is_there, "{listing}");
        assert!(!listing.contains("inside"), "{listing}");
    }
}
