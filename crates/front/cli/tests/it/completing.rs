//! Completions of the command line, as the shells produce them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use forerun_testkit::{TempDir, require, temp_dir};

use crate::common::{command, ran};

/// Returns bash's completions for the last word of a command line.
fn completed_by_bash(function: &str, words: &str) -> Option<String> {
    let bash = require::program("bash")?;
    let script = ran(command(&["completions", "bash"]).output().unwrap()).ok();
    let ask = format!(
        "{}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); cur=${{COMP_WORDS[COMP_CWORD]}}\n\
         {function} forerun \"$cur\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; echo ${{COMPREPLY[@]}}",
        script.text()
    );
    // The script is longer than an argument may be.
    let dir = temp_dir("completions");
    let path = dir.path().join("script");
    fs::write(&path, ask).unwrap();
    let output = Command::new(bash).arg(path).output().unwrap();
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

#[test]
fn bash_completes_commands_options_and_their_values() {
    for (words, expected) in [
        ("forerun ex", "extract"),
        ("forerun ls --recurs", "--recursive"),
        ("forerun ls --format cra", "cramfs"),
        ("forerun pack --format sq", "squashfs"),
        ("forerun mount -o default_p", "default_permissions"),
        ("forerun mount -o ro,allow", "ro,allow_other"),
        (
            "forerun mount --options ro,uid=1,partit",
            "ro,uid=1,partition=",
        ),
        ("forerun mkfs ex", "exfat"),
    ] {
        if let Some(told) = completed_by_bash("_forerun_more", words) {
            assert_eq!(told, expected, "{words}");
        }
    }
}

#[test]
fn scripts_for_other_shells_know_the_values_of_options() {
    for shell in ["zsh", "fish"] {
        let script = ran(command(&["completions", shell]).output().unwrap()).ok();
        for word in ["allow_other", "cramfs", "partition="] {
            assert!(script.text().contains(word), "{shell}: {word}");
        }
    }
}

/// An image with names that shells have to quote, and the shells' scripts.
struct Scene {
    dir: TempDir,
}

impl Scene {
    fn new() -> Option<Self> {
        let mksquashfs = require::program("mksquashfs")?;
        let dir = temp_dir("completions");
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("with space/below")).unwrap();
        fs::create_dir_all(tree.join("a:b=c")).unwrap();
        fs::write(tree.join("with space/fi'le"), "").unwrap();
        fs::write(tree.join("two\nlines"), "").unwrap();
        fs::write(tree.join("top"), "").unwrap();
        // In the shell's directory, not in the image.
        fs::write(dir.path().join("tip"), "").unwrap();
        let mut make = Command::new(mksquashfs);
        make.args(["tree", "image", "-quiet", "-no-progress"]);
        assert!(make.current_dir(dir.path()).status().unwrap().success());
        for shell in ["bash", "zsh", "fish"] {
            let script = ran(command(&["completions", shell]).output().unwrap()).ok();
            fs::write(dir.path().join(shell), &script.stdout).unwrap();
        }
        Some(Self { dir })
    }

    /// Runs a shell on `script` with the program in its path. Returns its output.
    fn run(&self, shell: PathBuf, args: &[&str], script: &str) -> String {
        let program = PathBuf::from(command(&["ls"]).get_program());
        let mut path = program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let file = self.dir.path().join("commands");
        fs::write(&file, script).unwrap();
        let mut run = Command::new("timeout");
        run.arg("60").arg(shell).args(args).arg(file);
        run.env("PATH", path).env("HOME", self.dir.path());
        let output = run.current_dir(self.dir.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[test]
fn candidates_are_the_entries_of_one_directory() {
    let Some(scene) = Scene::new() else { return };
    let complete = |words: &[&str]| {
        let mut words: Vec<_> = ["__complete", "--"].iter().chain(words).copied().collect();
        words
            .iter_mut()
            .filter(|word| **word == "image")
            .for_each(|word| *word = "./image");
        let mut run = command(&words);
        ran(run.current_dir(scene.dir.path()).output().unwrap())
    };
    for (words, expected) in [
        (&["ls", "image", ""][..], "a:b=c/\ntop\nwith space/\n"),
        (&["cat", "image", "/t"], "/top\n"),
        (&["cat", "image", "top", "w"], "with space/\n"),
        (
            &["extract", "-C", "out", "image", "with space/"],
            "with space/below/\nwith space/fi'le\n",
        ),
        (
            &[
                "tar",
                "--format",
                "squashfs",
                "image",
                "-q",
                "./with space/../to",
            ],
            "./with space/../top\n",
        ),
        (&["dump", "image", "nowhere/"], ""),
    ] {
        let told = complete(words).ok();
        assert_eq!(told.text(), expected, "{words:?}");
        assert_eq!(told.stderr, "", "{words:?}");
    }
    // After these words no path of an image follows, or the image cannot be opened.
    for words in [
        &["ls", "ima"][..],
        &["ls", "image", "--format", ""],
        &["cat", "tip", ""],
        &["cat", "-", ""],
        &["cat", "http://127.0.0.1:1/image", ""],
        &["dump", "image", "/", ""],
        &["check", "image", ""],
        &[],
    ] {
        let told = complete(words);
        assert_eq!((told.text(), told.stderr.as_str()), ("", ""), "{words:?}");
        assert_eq!(told.code, Some(2), "{words:?}");
    }
}

#[test]
fn bash_completes_paths_in_an_image() {
    let (Some(scene), Some(bash)) = (Scene::new(), require::program("bash")) else {
        return;
    };
    for (words, expected) in [
        ("forerun cat image /t", "/top"),
        // As bash splits them, with the quotes that the user typed.
        (r"forerun ls image 'with\ space/f'", "with space/fi'le"),
        ("forerun ls image \"'with space/b\"", "with space/below/"),
        ("forerun ls --format = squashfs image wi", "with space/"),
        ("forerun ls image a : b", "b=c/"),
    ] {
        let script = format!(
            "compopt() {{ :; }}; . ./bash\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
             _forerun_more forerun x y; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let told = scene.run(bash.clone(), &[], &script);
        assert_eq!(told.trim_end(), expected, "{words}");
    }
}

#[test]
fn fish_completes_paths_in_an_image() {
    let (Some(scene), Some(fish)) = (Scene::new(), require::program("fish")) else {
        return;
    };
    for (line, expected) in [
        ("forerun cat image /t", "/top"),
        (r"forerun ls image with\\ space/f", "with space/fi'le"),
        ("forerun ls --format=squashfs image w", "with space/"),
        ("forerun ls t", "tip\ntree/"),
    ] {
        let told = scene.run(
            fish.clone(),
            &["--no-config"],
            &format!("source fish; complete -C \"{line}\""),
        );
        assert_eq!(told.trim_end(), expected, "{line}");
    }
}

#[test]
fn zsh_completes_paths_in_an_image() {
    let (Some(scene), Some(zsh)) = (Scene::new(), require::program("zsh")) else {
        return;
    };
    // A shell in a pseudo-terminal. The pattern ends the wait; without a match, the time limit
    // does.
    let script = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell "autoload -Uz compinit; compinit -u -D; source ./zsh; echo loa''ded"
        zpty -r shell text '*loaded*' || exit 1
        zpty -w -n shell $'forerun ls --format=squashfs image with\\ space/f\t'
        zpty -r shell text '*with\\ space/fi\\*le*' && echo completed
    "#;
    assert_eq!(scene.run(zsh, &["-f"], script).trim_end(), "completed");
}
