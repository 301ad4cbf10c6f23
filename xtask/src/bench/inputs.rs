//! The romfs images that are measured, made once and kept.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use forerun_measure::programs::find_program;
use forerun_testkit::generate;

use super::program::program_in;
use crate::process;

/// Length of the large file.
pub const BIG_LEN: u64 = 250_000_000;
/// Number of files in the other image, and about how long each is: 630 MB together.
pub const MANY: u64 = 9_600;
const MANY_MEAN: u64 = 65_600;

/// The program, and the images that it is measured with.
pub struct RomfsInputs {
    /// The program, where all users may run it.
    pub forerun: PathBuf,
    /// The large file, as it was before it went into the image.
    pub plain: PathBuf,
    /// An image with one file, `big`.
    pub big: PathBuf,
    /// An image with many files.
    pub many: PathBuf,
}

/// Makes what is missing in `dir`, and a build of the program unless one is given.
pub fn prepare(root: &Path, dir: &Path, program: Option<&Path>) -> Result<RomfsInputs> {
    let inputs = RomfsInputs {
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

/// Packs a tree with the reference writer where it is installed: its images are the ones that users have.
fn pack(inputs: &RomfsInputs, tree: &Path, image: &Path) -> Result<()> {
    let mut command = match find_program("genromfs") {
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
