//! The images that are measured, made once and kept.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use forerun_testkit::{generate, require};

use crate::process;

/// Length of the large file.
pub const BIG_LEN: u64 = 250_000_000;
/// Number of files in the other image, and about how long each is: 630 MB together.
pub const MANY: u64 = 9_600;
const MANY_MEAN: u64 = 65_600;

/// What is measured and with what.
pub struct Inputs {
    /// The program, where anybody may run it.
    pub forerun: PathBuf,
    /// The large file, as it was before it went into the image.
    pub plain: PathBuf,
    /// An image with one file, `big`.
    pub big: PathBuf,
    /// An image with many files.
    pub many: PathBuf,
}

/// Makes what is missing in `dir`, and a release build of the program unless one is given.
pub fn prepare(root: &Path, dir: &Path, program: Option<&Path>) -> Result<Inputs> {
    let inputs = Inputs {
        forerun: program_in(root, dir, program)?,
        plain: dir.join("big/big"),
        big: dir.join("big.romfs"),
        many: dir.join("many.romfs"),
    };
    if !inputs.plain.exists() || !inputs.big.exists() {
        eprintln!("making {}", inputs.big.display());
        fs::create_dir_all(dir.join("big"))?;
        generate::big_file(&inputs.plain, BIG_LEN)?;
        pack(&inputs, &dir.join("big"), &inputs.big)?;
    }
    if !inputs.many.exists() {
        eprintln!("making {}", inputs.many.display());
        let tree = dir.join("many");
        generate::spread(&tree, MANY, MANY_MEAN)?;
        pack(&inputs, &tree, &inputs.many)?;
        fs::remove_dir_all(&tree)?;
    }
    Ok(inputs)
}

/// Makes `dir`, and puts the program there: `program`, or a release build of the tree.
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

fn build(root: &Path) -> Result<PathBuf> {
    let mut build = process::cargo(root);
    build.args(["build", "--release", "--locked", "--package", "forerun-cli"]);
    build.args(["--bin", "forerun"]);
    process::run(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(target.join("release/forerun"))
}

/// With the reference writer where it is there: its images are those that users have.
fn pack(inputs: &Inputs, tree: &Path, image: &Path) -> Result<()> {
    let mut command = match require::find_program("genromfs") {
        Some(genromfs) => {
            let mut command = Command::new(genromfs);
            command.arg("-d").arg(tree).arg("-f").arg(image);
            command
        }
        None => {
            let mut command = Command::new(&inputs.forerun);
            command
                .args(["pack", "--format", "romfs"])
                .arg(tree)
                .arg(image);
            command
        }
    };
    process::run(&mut command)?;
    fs::set_permissions(image, Permissions::from_mode(0o644))?;
    Ok(())
}
