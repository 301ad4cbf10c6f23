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
];

/// Compares the help with the reviewed files; `FORERUN_UPDATE=1 cargo test` writes them anew.
#[test]
fn help_is_as_reviewed() {
    let dir = workspace_root().join("crates/front/cli/tests/help");
    let update = std::env::var_os("FORERUN_UPDATE").is_some();
    for name in ["forerun"].iter().chain(COMMANDS) {
        let args: &[&str] = if *name == "forerun" {
            &["--help"]
        } else {
            &[name, "--help"]
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
fn the_manual_names_every_command_and_option() {
    let cli = fs::read_to_string(workspace_root().join("docs/cli.md")).unwrap();
    for name in COMMANDS {
        assert!(
            cli.contains(&format!("`forerun {name}")),
            "docs/cli.md lacks {name}"
        );
        let help = ran(command(&[name, "--help"]).output().unwrap()).ok();
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
