//! The pages of `docs/tutorials`, as a reader follows them. One shell runs all `sh` blocks of a
//! page in an empty directory. A `text` block after one is its output, in which `...` stands for
//! any text.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun_testkit::{require, temp_dir, workspace_root};
use forerun_testkit_servers::free_port;

use crate::common::ran;

/// Printed before and after each block.
const MARK: &str = "--- block of a tutorial ---";

struct Block {
    language: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            continue;
        };
        let text = lines.by_ref().take_while(|line| *line != "```");
        blocks.push(Block {
            language: language.into(),
            text: text.map(|line| format!("{line}\n")).collect(),
        });
    }
    blocks
}

/// Returns whether the text is the expected one, where `...` matches anything.
fn matches(text: &str, expected: &str) -> bool {
    let (first, rest) = expected.split_once("...").unwrap_or((expected, ""));
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    if first == expected {
        return text.is_empty();
    }
    let pieces: Vec<_> = rest.split("...").collect();
    let (last, between) = pieces.split_last().unwrap();
    for piece in between {
        let Some((_, after)) = text.split_once(piece) else {
            return false;
        };
        text = after;
    }
    text.ends_with(last)
}

#[test]
fn dots_stand_for_any_text() {
    for (text, expected, same) in [
        ("a\n", "a\n", true),
        ("a\nb\n", "a\n", false),
        ("a 1 b 2 c\n", "a ... b ... c\n", true),
        ("a 1 c\n", "a ... b ... c\n", false),
        ("1\n2\nend\n", "...\nend\n", true),
        ("a 1\n", "a ...\n", true),
        ("b 1\n", "a ...\n", false),
    ] {
        assert_eq!(matches(text, expected), same, "{text:?} {expected:?}");
    }
}

/// Runs a page. The port in it is replaced by a free one; `environment` is what the reader has
/// installed.
fn follow(name: &str, port: &str, environment: &[(&str, &Path)]) {
    let page = fs::read_to_string(workspace_root().join("docs/tutorials").join(name)).unwrap();
    let page = page.replace(port, &format!("127.0.0.1:{}", free_port()));
    let blocks = blocks(&page);
    let dir = temp_dir("tutorial");
    let installed = dir.path().join("installed");
    let work = dir.path().join("work");
    fs::create_dir_all(installed.join("bin")).unwrap();
    fs::create_dir_all(installed.join("lib/forerun")).unwrap();
    fs::create_dir(&work).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_forerun"));
    fs::copy(program, installed.join("bin/forerun")).unwrap();
    let runtime = format!("lib/forerun/runtime-{}", std::env::consts::ARCH);
    let built = program.with_file_name("forerun-runtime");
    if built.exists() {
        fs::copy(built, installed.join(runtime)).unwrap();
    }

    // A page that fails in the middle leaves servers and a mount.
    let mut script = String::from(
        "set -eu\nexec 2>&1\n\
         trap 'kill $(jobs -p) || true; forerun umount mnt || true' EXIT\n",
    );
    let commands: Vec<_> = (0..blocks.len())
        .filter(|&index| blocks[index].language == "sh")
        .collect();
    assert!(commands.len() > 2, "{name}: {} blocks", commands.len());
    for &index in &commands {
        script += &format!("echo '{MARK}'\n{}", blocks[index].text);
    }
    script += &format!("echo '{MARK}'\n");
    let path = format!(
        "{}:{}",
        installed.join("bin").display(),
        std::env::var("PATH").unwrap()
    );
    // A page that waits for a server forever fails.
    let mut shell = Command::new("timeout");
    shell.args(["120", "bash", "-c", &script]);
    shell.current_dir(&work);
    shell.env("HOME", dir.path()).env("PATH", path);
    shell.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    shell
        .env_remove("SOURCE_DATE_EPOCH")
        .env_remove("XDG_CACHE_HOME");
    shell.envs(environment.iter().copied());
    let ran = ran(shell.output().unwrap());
    assert_eq!(ran.code, Some(0), "{name}: {}{}", ran.text(), ran.stderr);

    let printed: Vec<_> = ran.text().split(&format!("{MARK}\n")).skip(1).collect();
    for (&index, printed) in commands.iter().zip(printed) {
        let shown = blocks.get(index + 1);
        let expected = match shown.filter(|block| block.language == "text") {
            Some(block) => &block.text,
            None => "",
        };
        assert!(
            matches(printed, expected),
            "{name} shows\n{expected}\nand its commands print\n{printed}"
        );
    }
}

/// Returns whether the programs that a page needs besides `forerun` are installed.
fn has(programs: &[&str]) -> bool {
    programs.iter().all(|name| require::program(name).is_some())
}

#[test]
fn tools_on_a_cluster() {
    let runtime = Path::new(env!("CARGO_BIN_EXE_forerun")).with_file_name("forerun-runtime");
    if has(&["busybox"])
        && require::fuse_for_users()
        && require::kernel_filesystem("overlay")
        && require::that(
            runtime.exists(),
            "forerun-runtime (cargo build -p forerun-runtime)",
        )
    {
        follow("hpc.md", "none", &[]);
    }
}

#[test]
fn look_into_firmware() {
    follow("firmware.md", "none", &[]);
}

#[test]
fn containers_without_pulling() {
    if has(&["busybox", "umoci", "skopeo", "docker-registry"]) && require::fuse() {
        follow("containers.md", "127.0.0.1:5000", &[]);
    }
}

#[test]
fn build_images() {
    if has(&["unsquashfs", "fsck.erofs"]) {
        follow("images.md", "none", &[]);
    }
}

#[test]
fn a_dataset_as_one_file() {
    let library = Path::new(env!("CARGO_BIN_EXE_forerun"))
        .with_file_name("deps")
        .join("libforerun_python.so");
    if !has(&["busybox", "python3"])
        || !require::fuse()
        || !require::that(
            library.exists(),
            "libforerun_python.so (cargo build -p forerun-python)",
        )
    {
        return;
    }
    let site = temp_dir("tutorial-python");
    let package = site.path().join("forerun");
    fs::create_dir(&package).unwrap();
    for entry in fs::read_dir(workspace_root().join("python/forerun")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|suffix| suffix == "py") {
            fs::copy(&path, package.join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::copy(library, package.join("_forerun.abi3.so")).unwrap();
    let environment = [("PYTHONPATH", site.path())];
    follow("data.md", "127.0.0.1:8000", &environment);
}
