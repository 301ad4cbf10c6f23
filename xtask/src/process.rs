//! Running programs, with errors that say which.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub use forerun_measure::process::{describe, output, run};

/// Returns a command for the cargo that runs this.
pub fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
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

/// Starts a command line of apt-get that asks nothing.
pub fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    // A fresh machine may be installing something at its first boot: wait for that.
    apt.args(["-q", "-o", "DPkg::Lock::Timeout=300"]);
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt
}
