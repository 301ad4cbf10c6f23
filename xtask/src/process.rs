//! Runs programs, with errors that name them.

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

/// Runs a program and returns its standard output. If it fails, the error contains its standard
/// error.
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

pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Returns a command for the cargo that runs this program.
pub fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
}

/// Returns the same command with a low priority. Program, arguments and directory are kept.
pub fn niced(command: &Command) -> Command {
    let mut niced = Command::new("nice");
    niced.args(["-n", "5"]).arg(command.get_program());
    niced.args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        niced.current_dir(dir);
    }
    niced
}

pub fn target_dir(root: &Path) -> Result<PathBuf> {
    let mut metadata = cargo(root);
    metadata.args(["metadata", "--locked", "--no-deps", "--format-version=1"]);
    let told: serde_json::Value = serde_json::from_str(&output(&mut metadata)?)?;
    let dir = told["target_directory"].as_str();
    dir.map(PathBuf::from)
        .context("cargo names its target directory")
}

/// Builds a program of another project with cargo and installs it into `target/tools`.
///
/// A debug build takes less than half the time. Its intermediate files are shared with the next
/// program, because half of the dependencies of such programs are the same. It runs at low priority
/// beside the checks, some of which use only one core.
pub fn install_tool(root: &Path, words: &[&str]) -> Result<()> {
    let tools = root.join("target/tools");
    let mut install = niced(&cargo(root));
    install.args(["install", "--locked", "--debug", "--quiet"]);
    install.args(words).arg("--root").arg(&tools);
    install.env("CARGO_PROFILE_DEV_DEBUG", "0");
    install.env("CARGO_TARGET_DIR", tools.join("build"));
    run(&mut install)
}

/// Removes the build directories of tools.
pub fn forget_builds_of_tools(root: &Path) -> Result<()> {
    let dir = root.join("target/tools/build");
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| dir.display().to_string())
        }
        _ => Ok(()),
    }
}
