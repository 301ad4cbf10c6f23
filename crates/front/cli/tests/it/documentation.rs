//! Help, man pages, completions and the documents: all of them, and in step with the program.

use std::fs;
use std::process::Command;

use forerun_testkit::{require, temp_dir, workspace_root};

use crate::common::{command, ran};

const COMMANDS: &[&str] = &[
    "scan",
    "info",
    "label",
    "ls",
    "cat",
    "extract",
    "tar",
    "mount",
    "umount",
    "status",
    "restart",
    "pack",
    "convert",
    "push",
    "pull",
    "cache",
    "check",
    "diff",
    "dump",
    "gc",
    "trace",
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
        let most = match READING.contains(&words[0]) {
            true => 24,
            false => HELP_LINES,
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
    for name in ["forerun"].iter().chain(COMMANDS) {
        let file = match *name {
            "forerun" => "forerun.1".to_string(),
            name => format!("forerun-{name}.1"),
        };
        let page = dir.path().join(file);
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
        let text = fs::read_to_string(&page).unwrap();
        assert!(
            text.contains("EXIT STATUS") || *name != "forerun",
            "{}",
            page.display()
        );
    }
    assert!(
        !dir.path().join("forerun-man.1").exists(),
        "hidden commands have no page"
    );
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

#[test]
fn bash_completes_commands() {
    let Some(bash) = require::program("bash") else {
        return;
    };
    let script = ran(command(&["completions", "bash"]).output().unwrap()).ok();
    let ask = format!(
        "{}\nCOMP_WORDS=(forerun ex); COMP_CWORD=1; _forerun forerun ex forerun; echo ${{COMPREPLY[@]}}",
        script.text()
    );
    let output = Command::new(bash).args(["-c", &ask]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "extract");
}
