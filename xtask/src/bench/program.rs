//! The program that is measured: a build of the tree as it is installed, or the one that was named.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// Makes `dir`, and puts the program there: `program`, or a build of the tree as it is installed.
pub fn program_in(root: &Path, dir: &Path, program: Option<&Path>) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    // Another user measures the mounts without root.
    fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    let program = program.map_or_else(|| build(root), |program| Ok(program.to_path_buf()))?;
    let copy = dir.join("forerun");
    // A new file: the old one may be running.
    let new = copy.with_extension("new");
    fs::copy(&program, &new).with_context(|| program.display().to_string())?;
    fs::rename(&new, &copy)?;
    Ok(copy)
}

/// Builds by `make`, whose flags are those of the program that users install: a build with others would throw this one away.
fn build(root: &Path) -> Result<PathBuf> {
    process::run(Command::new("make").arg("release").current_dir(root))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("dist/stripped/forerun"))
}
