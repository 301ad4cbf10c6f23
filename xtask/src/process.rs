//! Running programs, with errors that say which.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs with the terminal's output. Fails unless the program succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| describe(command))?;
    ensure!(status.success(), "{}: {status}", describe(command));
    Ok(())
}

/// Runs a program and returns what it prints to standard output. Fails unless it succeeds, with its
/// standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| describe(command))?;
    ensure!(
        output.status.success(),
        "{}: {}\n{}",
        describe(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    String::from_utf8(output.stdout).with_context(|| format!("output of {}", describe(command)))
}

/// Formats the command line for people.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Returns a command for the cargo that runs this.
pub fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
}

/// Returns the same command, which makes room for others: program, arguments and directory are kept.
pub fn niced(command: &Command) -> Command {
    let mut niced = Command::new("nice");
    niced.args(["-n", "5"]).arg(command.get_program());
    niced.args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        niced.current_dir(dir);
    }
    niced
}

/// Returns where cargo builds.
pub fn target_dir(root: &Path) -> Result<PathBuf> {
    let mut metadata = cargo(root);
    metadata.args(["metadata", "--locked", "--no-deps", "--format-version=1"]);
    let told: serde_json::Value = serde_json::from_str(&output(&mut metadata)?)?;
    let dir = told["target_directory"].as_str();
    dir.map(PathBuf::from)
        .context("cargo names its target directory")
}

/// Has cargo build a program of another project and install it into `target/tools`.
///
/// A debug build takes less than half the time. What is built on the way is for the next program of the same run, as
/// half of what such programs use is the same. It leaves the CPU to the checks beside it, which have steps that
/// use one core.
pub fn install_tool(root: &Path, words: &[&str]) -> Result<()> {
    let tools = root.join("target/tools");
    let mut install = niced(&cargo(root));
    install.args(["install", "--locked", "--debug", "--quiet"]);
    install.args(words).arg("--root").arg(&tools);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0");
    install.env("CARGO_TARGET_DIR", tools.join("build"));
    run(&mut install)
}

/// Removes what the builds of tools left.
pub fn forget_builds_of_tools(root: &Path) -> Result<()> {
    let dir = root.join("target/tools/build");
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}
