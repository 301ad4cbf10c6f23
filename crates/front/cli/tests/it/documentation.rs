//! Help, man pages, completions and documents are complete and match the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use forerun_testkit::{require, temp_dir, workspace_root};

use crate::common::{command, ran};

const COMMANDS: &[&str] = &[
    "scan",
    "info",
    "label",
    "ls",
    "map",
    "cat",
    "extract",
    "tar",
    "mount",
    "run",
    "umount",
    "status",
    "restart",
    "pack",
    "convert",
    "mkfs",
    "push",
    "pull",
    "index",
    "cache",
    "check",
    "salvage",
    "diff",
    "dump",
    "gc",
    "snapshotter",
    "trace",
    "bench",
    "demo",
    "completions",
    "help",
];

/// Commands that read an image. Their help fits on a terminal of 24 lines.
const READING: &[&str] = &[
    "info", "ls", "cat", "dump", "label", "scan", "status", "umount",
];

/// Lines of the help of the other commands.
const HELP_LINES: usize = 48;

/// Columns of the help and of all other output for people.
const COLUMNS: usize = 80;

/// Compares the help with the reviewed files. `FORERUN_UPDATE=1 cargo test` rewrites them.
#[test]
fn help_is_as_reviewed() {
    compare_help("--help-all", "crates/front/cli/tests/help");
    compare_help("--help", "crates/front/cli/tests/help/short");
}

fn compare_help(option: &str, dir: &str) {
    let dir = workspace_root().join(dir);
    let update = std::env::var_os("FORERUN_UPDATE").is_some();
    for name in ["forerun"].iter().chain(COMMANDS) {
        let args: &[&str] = if *name == "forerun" {
            &[option]
        } else {
            &[name, option]
        };
        let text = ran(command(args).output().unwrap()).ok().stdout;
        let path = dir.join(format!("{name}.txt"));
        if update {
            fs::create_dir_all(&dir).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let expected = fs::read(&path).unwrap_or_default();
        assert_eq!(
            String::from_utf8(text).unwrap(),
            String::from_utf8(expected).unwrap(),
            "{} differs; FORERUN_UPDATE=1 writes it anew",
            path.display()
        );
    }
}

#[test]
fn the_short_help_fits_on_a_screen_and_ends_with_examples() {
    let nested = ["ls", "gc", "verify", "prefetch"].map(|name| vec!["cache", name]);
    let commands = COMMANDS.iter().map(|name| vec![*name]).chain(nested);
    for words in commands {
        let line = [words.as_slice(), &["--help"]].concat();
        let help = ran(command(&line).env("COLUMNS", "80").output().unwrap()).ok();
        let (_, examples) = help
            .text()
            .split_once("\nExamples:\n")
            .unwrap_or_else(|| panic!("{words:?}: no examples"));
        let is_example = |line: &&str| line.contains(&format!("forerun {}", words.join(" ")));
        let count = examples.lines().filter(is_example).count();
        assert!(count >= 1, "{words:?}: {examples}");
        let lines = help.text().lines().count();
        let most = if READING.contains(&words[0]) {
            24
        } else {
            HELP_LINES
        };
        assert!(lines <= most, "{words:?}: {lines} lines\n{}", help.text());
    }
}

#[test]
fn help_has_80_columns() {
    let nested = ["ls", "gc", "verify", "prefetch"].map(|name| vec!["cache", name]);
    let commands = COMMANDS.iter().map(|name| vec![*name]).chain(nested);
    for words in commands.chain([vec![]]) {
        for option in ["--help", "--help-all"] {
            let line = [words.as_slice(), &[option]].concat();
            let help = ran(command(&line).output().unwrap()).ok();
            for line in help.text().lines() {
                assert!(line.chars().count() <= COLUMNS, "{words:?}: {line}");
            }
            // A wider example would be wrapped and continue at the start of a line.
            let (_, examples) = help.text().split_once("\nExamples:\n").unwrap();
            let examples = examples.split("\n\n").next().unwrap();
            for line in examples.lines() {
                assert!(line.starts_with("  "), "{words:?}: {line}");
            }
        }
    }
}

#[test]
fn every_entry_of_the_man_pages_has_a_text() {
    let dir = temp_dir("man");
    ran(command(&["man".as_ref(), dir.path().as_os_str()])
        .output()
        .unwrap())
    .ok();
    let (mut entries, mut without) = (0, Vec::new());
    for page in man_pages(dir.path()) {
        let text = fs::read_to_string(&page).unwrap();
        for entry in text.split("\n.TP\n").skip(1) {
            let mut lines = entry.lines();
            let name = lines.next().unwrap();
            entries += 1;
            if lines
                .next()
                .is_none_or(|line| line.is_empty() || line.starts_with('.'))
            {
                without.push(format!("{}: {name}", page.display()));
            }
        }
    }
    assert!(entries > 1000, "{entries} entries");
    assert!(
        without.is_empty(),
        "{}:\n{}",
        without.len(),
        without.join("\n")
    );
}

/// Words of examples that are not run, because they need a network, a device, root, a mount,
/// containerd, a damaged volume, or minutes. Other tests check that these command lines parse.
const NOT_RUN: [&str; 18] = [
    "://",
    "sudo",
    "/dev/",
    "mount",
    "forerun run",
    "trace",
    "ctr",
    "snapshotter",
    "bench",
    "demo",
    "restart",
    "--watch",
    "--undo",
    "cache verify",
    "cache prefetch",
    ".index",
    "oci-layout",
    "App.AppDir",
];

/// Starts each example with a fresh copy of the prepared files.
const ANEW: &str =
    "set -e -o pipefail; rm -rf ../work; cp -a . ../work; cd ../work; export HOME=$PWD/home";

#[test]
fn the_examples_of_the_help_work() {
    if require::program("jq").is_none() {
        return;
    }
    let dir = temp_dir("examples");
    let at = &dir.path().join("made");
    for path in ["dir/etc/ssl", "dir/usr/bin", "dir/boot", "rootfs/dev"] {
        fs::create_dir_all(at.join(path)).unwrap();
    }
    for (path, text) in [
        ("dir/etc/passwd", "root\n"),
        ("dir/etc/a.conf", "a = 1\n"),
        ("dir/usr/bin/tool", "#!/bin/sh\n"),
        ("dir/boot.log", "error\n"),
        ("dir/data.db", "data\n"),
        ("devices.txt", "dev/null c 666 0 0 1 3\n"),
        ("tool.def", "Bootstrap: scratch\n"),
    ] {
        fs::write(at.join(path), text).unwrap();
    }
    let prepare = "gzip -k dir/etc/a.conf && mv dir/etc/a.conf.gz dir/boot/config.gz && \
        for image in firmware.img cut.sqsh system.sqsh old.sqsh new.sqsh root.sqsh a.sqsh rootfs.sqsh \
            gzip.img firmware.bin; do forerun -q pack --format squashfs dir $image; done && \
        forerun -q pack --format romfs dir b.img && forerun -q pack dir old.romfs && \
        cp a.sqsh old.img && cp a.sqsh new.img && \
        head -c 2097152 /dev/zero > router.bin && cat a.sqsh >> router.bin && \
        cp router.bin router-1.0.bin && cp router.bin router-1.1.bin && \
        forerun -q pack --format composefs --objects store dir a.cfs && \
        forerun mkfs exfat --size 64M card.img && \
        mkdir -p home/.local/share/bash-completion/completions home/.zfunc home/.config/fish/completions";
    let program = PathBuf::from(command(&["help"]).get_program());
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let shell = |script: &str| {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).current_dir(at);
        shell.env("PATH", &path);
        ran(shell.output().unwrap())
    };
    shell(prepare).ok();
    // A disk whose second partition begins at sector 8.
    let image = fs::read(at.join("a.sqsh")).unwrap();
    let mut disk = vec![0; 8 * 512];
    disk[446 + 16 + 4] = 0x83;
    disk[446 + 16 + 8] = 8;
    disk[446 + 16 + 12] = u8::try_from(image.len() / 512).unwrap();
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    fs::write(at.join("disk.img"), [disk, image].concat()).unwrap();
    let mut run = 0;
    for name in COMMANDS {
        let help = ran(command(&[name, "--help-all"]).output().unwrap()).ok();
        let (_, examples) = help.text().split_once("\nExamples:\n").unwrap();
        for line in examples.split("\n\n").next().unwrap().lines() {
            // Three blanks start a comment.
            let line = line
                .strip_prefix("  ")
                .unwrap()
                .split("   ")
                .next()
                .unwrap();
            if line.is_empty() || NOT_RUN.iter().any(|word| line.contains(word)) {
                continue;
            }
            let output = match line.split(' ').nth(1) {
                Some("mkfs") => "rm card.img;",
                _ if line.contains("forerun pack") || line.contains("convert") => "rm new.*;",
                _ => "",
            };
            let ran = shell(&format!("{ANEW}; {output} {line}"));
            let is_difference = line.starts_with("forerun diff") && ran.code == Some(1);
            assert!(
                ran.code == Some(0) || is_difference,
                "{line}: {:?} {}",
                ran.code,
                ran.stderr
            );
            run += 1;
        }
    }
    assert!(run > 40, "{run}");
}

#[test]
fn help_of_a_command_is_that_of_its_option() {
    let run = |line: &[&str]| ran(command(line).output().unwrap());
    for words in COMMANDS
        .iter()
        .map(|name| vec![*name])
        .chain([vec![], vec!["cache", "gc"]])
    {
        let option = run(&[words.as_slice(), &["--help"]].concat()).ok();
        let command = run(&[&["help"], words.as_slice()].concat()).ok();
        assert_eq!(option.text(), command.text(), "{words:?}");
        if words != ["ls"] {
            assert_eq!(
                option.text(),
                run(&[words.as_slice(), &["-h"]].concat()).ok().text()
            );
        }
    }
    let unknown = run(&["help", "lss"]);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("did you mean ls?"),
        "{}",
        unknown.stderr
    );
}

#[test]
fn the_manual_names_every_command_and_option() {
    let cli = fs::read_to_string(workspace_root().join("docs/cli.md")).unwrap();
    for name in COMMANDS {
        assert!(
            cli.contains(&format!("`forerun {name}")),
            "docs/cli.md lacks {name}"
        );
        let help = ran(command(&[name, "--help-all"]).output().unwrap()).ok();
        let words = help.text().split_whitespace();
        for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
            // Removes `[=<VALUE>]` and punctuation.
            let option = option.split(['[', '=']).next().unwrap();
            let option = option.trim_end_matches(|char: char| !char.is_ascii_alphabetic());
            assert!(cli.contains(option), "docs/cli.md lacks {option} of {name}");
        }
    }
}

#[test]
fn man_pages_render_without_complaint() {
    let dir = temp_dir("man");
    ran(command(&["man".as_ref(), dir.path().as_os_str()])
        .output()
        .unwrap())
    .ok();
    let Some(groff) = require::program("man") else {
        return;
    };
    for page in man_pages(dir.path()) {
        let output = Command::new(&groff)
            .args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"])
            .arg(&page)
            .env("MANWIDTH", "80")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && stderr.is_empty(),
            "{}: {stderr}",
            page.display()
        );
    }
    assert!(
        !dir.path().join("forerun-man.1").exists(),
        "hidden commands have no page"
    );
}

fn man_pages(dir: &Path) -> Vec<PathBuf> {
    let pages = fs::read_dir(dir).unwrap();
    let mut pages: Vec<_> = pages.map(|page| page.unwrap().path()).collect();
    pages.sort();
    pages
}

#[test]
fn every_command_has_a_man_page_with_all_sections() {
    let dir = temp_dir("man");
    let man1 = dir.path().join("man1");
    ran(command(&["man".as_ref(), man1.as_os_str()])
        .output()
        .unwrap())
    .ok();
    let helper = dir.path().join("man8/mount.fuse.forerun.8");
    let nested = ["cache-ls", "cache-gc", "cache-verify", "cache-prefetch"];
    let commands = COMMANDS
        .iter()
        .chain(&nested)
        .map(|name| format!("forerun-{name}.1"));
    let expected: Vec<_> = commands
        .chain(["forerun.1".to_string(), "forerun-compat.1".to_string()])
        .map(|name| man1.join(name))
        .collect();
    let pages = man_pages(&man1);
    assert_eq!(
        BTreeSet::from_iter(expected),
        pages.iter().cloned().collect()
    );
    let name = |page: &Path| {
        let stem = page.file_stem().unwrap().to_str().unwrap();
        format!("{stem}({})", page.extension().unwrap().to_str().unwrap())
    };
    let others = ["mount(8)", "fstab(5)"].map(str::to_string);
    let exist: BTreeSet<_> = pages
        .iter()
        .chain([&helper])
        .map(|page| name(page))
        .chain(others)
        .collect();
    for page in pages.iter().chain([&helper]) {
        let text = fs::read_to_string(page).unwrap();
        let text = text.replace("\\-", "-");
        for heading in ["\"EXIT STATUS\"", "EXAMPLES", "\"SEE ALSO\""] {
            assert!(
                text.contains(&format!(".SH {heading}\n")),
                "{}: {heading}",
                page.display()
            );
        }
        let (_, also) = text.rsplit_once(".SH \"SEE ALSO\"\n").unwrap();
        for other in also.trim().split(", ") {
            assert!(
                exist.contains(other) && other != name(page),
                "{}: {other}",
                page.display()
            );
        }
    }
}

#[test]
fn the_man_page_names_only_variables_that_the_program_reads() {
    // Variables that libraries read.
    const LIBRARIES: [&str; 6] = [
        "NO_COLOR",
        "TZ",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
    ];
    let dir = temp_dir("man");
    ran(command(&["man".as_ref(), dir.path().as_os_str()])
        .output()
        .unwrap())
    .ok();
    let text = fs::read_to_string(dir.path().join("forerun.1")).unwrap();
    let (_, section) = text.split_once(".SH ENVIRONMENT\n").unwrap();
    let (section, _) = section.split_once("\n.SH").unwrap();
    let terms = section.lines().filter_map(|line| line.strip_prefix("\\fB"));
    let terms = terms.map(|line| line.trim_end_matches("\\fR"));
    let names: Vec<_> = terms.flat_map(|term| term.split(", ")).collect();
    assert!(names.len() > 15, "{names:?}");
    let mut sources = String::new();
    for dir in [
        "crates/build",
        "crates/forerun",
        "crates/front/cli/src/mount",
        "crates/front/cli/src/socket",
        "crates/front/console",
        "crates/store/remote",
    ] {
        read_sources(&workspace_root().join(dir), &mut sources);
    }
    for name in names.iter().filter(|name| !LIBRARIES.contains(name)) {
        assert!(
            sources.contains(&format!("\"{name}\"")),
            "{name} is read nowhere"
        );
    }
}

fn read_sources(dir: &Path, sources: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|end| end == "rs") {
            sources.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn completions_know_the_commands() {
    for (shell, checker) in [("bash", "bash"), ("zsh", "zsh"), ("fish", "fish")] {
        let script = ran(command(&["completions", shell]).output().unwrap()).ok();
        for name in COMMANDS {
            assert!(script.text().contains(name), "{shell}: {name}");
        }
        // bash is always installed. Other shells check their syntax if they are installed.
        let program = match shell {
            "bash" => require::program(checker),
            _ => require::find_program(checker),
        };
        if let Some(program) = program {
            let dir = temp_dir("completions");
            let path = dir.path().join("script");
            fs::write(&path, &script.stdout).unwrap();
            let status = Command::new(program).arg("-n").arg(path).status().unwrap();
            assert!(status.success(), "{shell}");
        }
    }
}
