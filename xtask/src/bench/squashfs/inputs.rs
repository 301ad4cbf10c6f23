//! The trees and images that are measured, made once and kept.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use forerun_measure::programs::find_program;

use super::appimage::AppImages;
use super::modules::Modules;
use super::rows::{Compressor, SquashfsRow};
use crate::bench::program::program_in;
use crate::bench::tree::{Tree, big_file, forget_other_tree, make_big_file};
use crate::process;

/// Block size of all images.
pub const BLOCK: u64 = 128 << 10;

/// The program, and the files that it is measured with.
pub struct SquashfsInputs {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    /// The tree.
    pub tree: Tree,
    /// The large file, as it was before it went into an image.
    pub plain: PathBuf,
    /// The AppImages, where they are measured.
    pub appimages: Option<AppImages>,
    /// The modules, where they are measured.
    pub modules: Option<Modules>,
}

impl SquashfsInputs {
    /// Returns the image of a row.
    pub fn image(&self, row: SquashfsRow) -> PathBuf {
        self.image_of(row.is_big(), row.compressor())
    }

    fn image_of(&self, big: bool, compressor: Compressor) -> PathBuf {
        let name = if big { "big" } else { "tree" };
        self.dir.join(format!("{name}-{}.sqsh", compressor.name()))
    }
}

/// Makes what is missing of what `rows` need.
pub fn prepare(
    root: &Path,
    dir: &Path,
    tree: Option<&Path>,
    program: Option<&Path>,
    runtime: Option<&Path>,
    rows: &[SquashfsRow],
) -> Result<SquashfsInputs> {
    let forerun = program_in(root, dir, program)?;
    let dir = dir.canonicalize()?;
    let tree = Tree::find(root, tree, &[&dir])?;
    forget_other_tree(&dir, &tree.path, &["sqsh"])?;
    let is_started = rows.contains(&SquashfsRow::AppImage);
    let appimages = is_started.then(|| AppImages::prepare(root, &dir, runtime));
    let is_imported = rows.iter().any(|row| row.is_import());
    let modules = is_imported.then(|| Modules::prepare(&dir));
    let inputs = SquashfsInputs {
        appimages: appimages.transpose()?,
        modules: modules.transpose()?,
        plain: big_file(&[&dir], &tree.path)?,
        forerun: dir.join(forerun.file_name().context("a file name")?),
        dir,
        tree,
    };
    let has_own = |row: &SquashfsRow| *row == SquashfsRow::AppImage || row.is_import();
    let others = rows.iter().filter(|row| !has_own(row));
    for row in others {
        make_image(&inputs, row.is_big(), row.compressor())?;
    }
    Ok(inputs)
}

fn make_image(inputs: &SquashfsInputs, big: bool, compressor: Compressor) -> Result<()> {
    let image = inputs.image_of(big, compressor);
    if big {
        make_big_file(&inputs.plain, &inputs.tree.path)?;
    }
    if image.exists() {
        return Ok(());
    }
    eprintln!("making {}", image.display());
    let mksquashfs = find_program("mksquashfs");
    let mksquashfs = mksquashfs.context("mksquashfs makes the images: install squashfs-tools")?;
    let source = match big {
        true => inputs.dir.join("big"),
        false => inputs.tree.path.clone(),
    };
    let part = image.with_extension("part");
    let mut command = Command::new(mksquashfs);
    command.arg(source).arg(&part).args(MKSQUASHFS);
    command.args(["-comp", compressor.name()]);
    process::output(&mut command)?;
    fs::set_permissions(&part, Permissions::from_mode(0o644))?;
    Ok(fs::rename(&part, &image)?)
}

/// How mksquashfs is called, compressor aside.
pub const MKSQUASHFS: &[&str] = &["-noappend", "-no-progress", "-quiet", "-b", "131072"];
