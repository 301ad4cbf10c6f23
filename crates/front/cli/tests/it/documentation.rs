//! Help, man pages, completions and the documents: all of them, and in step with the program.

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

/// The commands that read an image, whose help fits on a terminal of 24 lines.
const READING: &[&str] = &[
    "info", "ls", "cat", "dump", "label", "scan", "status", "umount",
];

/// Lines of the help of the other commands.
const HELP_LINES: usize = 40;

/// Compares the help with the reviewed files; `FORERUN_UPDATE=1 cargo test` writes them anew.
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
        let widest = help.text().lines().map(str::len).max();
        assert!(widest <= Some(100), "{words:?}: {widest:?}");
    }
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
    assert!(unknown.stderr.contains("'ls'"), "{}", unknown.stderr);
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
            // `--option[=<VALUE>]`, and punctuation.
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

/// Returns the man pages that are in a directory.
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
        .chain(["forerun.1".to_string()])
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
    // Read by libraries.
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
        // Bash is everywhere; of the others, those that are there check their syntax.
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
