//! The images that are measured, made once and kept.
//!
//! The tree and the large file are those of `bench squashfs` where it has been run. Images that
//! forerun makes are made again when the program is another one: it may lay them out differently.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use forerun_measure::process::remove;
use forerun_measure::programs::find_program;

use super::rows::ErofsImage;
use crate::bench::program::program_in;
use crate::bench::squashfs;
use crate::bench::tree::{Tree, big_file, forget_other_tree, make_big_file};
use crate::process;

/// How mkfs.erofs is called, compressor aside.
pub const MKFS: &[&str] = &["-T0", "-U", "00000000-0000-0000-0000-000000000000"];
/// Its compressor for these images, and the level that is the default of both.
pub const MKFS_LZ4HC: &str = "-zlz4hc,9";

/// The program, and the files that it is measured with.
pub struct ErofsInputs {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    /// The tree.
    pub tree: Tree,
    /// The large file, as it was before it went into an image.
    plain: PathBuf,
    /// Whether this program made the tree, so that nothing else changes it: objects may then be links
    /// to its files.
    is_own_tree: bool,
}

impl ErofsInputs {
    /// Returns the path of an image.
    pub fn image(&self, image: ErofsImage) -> PathBuf {
        self.dir.join(image.name())
    }

    /// Returns the store of an image that needs one.
    pub fn store(&self, image: ErofsImage) -> Option<PathBuf> {
        image.store().map(|name| self.dir.join(name))
    }

    /// Finds the large file as an object, which is alone in its store.
    pub fn big_object(&self) -> Result<PathBuf> {
        let store = self.store(ErofsImage::BigComposefs).context("a store")?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&store).with_context(|| store.display().to_string())? {
            for entry in fs::read_dir(entry?.path())? {
                found.push(entry?.path());
            }
        }
        ensure!(
            found.len() == 1,
            "{}: {} objects, not one",
            store.display(),
            found.len()
        );
        found.pop().context("no object")
    }
}

/// Makes what is missing of `images`.
pub fn prepare(
    root: &Path,
    dir: &Path,
    tree: Option<&Path>,
    program: Option<&Path>,
    images: &[ErofsImage],
) -> Result<ErofsInputs> {
    let forerun = program_in(root, dir, program)?;
    let dir = dir.canonicalize()?;
    let homes = [Path::new(squashfs::DIR), &dir];
    let is_own_tree = tree.is_none();
    let tree = Tree::find(root, tree, &homes)?;
    forget_other_tree(&dir, &tree.path, &["erofs", "cfs", "objects"])?;
    let inputs = ErofsInputs {
        plain: big_file(&homes, &tree.path)?,
        forerun: dir.join(forerun.file_name().context("a file name")?),
        dir,
        tree,
        is_own_tree,
    };
    forget_other_program(&inputs)?;
    for image in images {
        make(&inputs, *image)
            .with_context(|| format!("making {}", inputs.image(*image).display()))?;
    }
    Ok(inputs)
}

/// Forgets images that another program made.
fn forget_other_program(inputs: &ErofsInputs) -> Result<()> {
    let note = inputs.dir.join("made-by");
    let is = process::output(Command::new("sha256sum").arg(&inputs.forerun))?;
    if fs::read_to_string(&note).is_ok_and(|was| was == is) {
        return Ok(());
    }
    for image in ErofsImage::OURS {
        remove(&inputs.image(image))?;
        // The objects of the tree are the same from every program.
        if let (true, Some(store)) = (image.is_big(), inputs.store(image)) {
            remove(&store)?;
        }
    }
    fs::write(&note, is).with_context(|| note.display().to_string())
}

fn make(inputs: &ErofsInputs, image: ErofsImage) -> Result<()> {
    let path = inputs.image(image);
    let source = match image.is_big() {
        true => {
            make_big_file(&inputs.plain, &inputs.tree.path)?;
            inputs.plain.parent().context("no directory")?
        }
        false => &inputs.tree.path,
    };
    if path.exists() {
        return Ok(());
    }
    eprintln!("making {}", path.display());
    let part = path.with_extension("part");
    remove(&part)?;
    let mut command = match image.by_forerun() {
        Some(options) => by_forerun(inputs, image, options, source, &part),
        None => by_mkfs(image, source, &part)?,
    };
    process::output(&mut command)?;
    fs::set_permissions(&part, Permissions::from_mode(0o644))?;
    Ok(fs::rename(&part, &path)?)
}

fn by_forerun(
    inputs: &ErofsInputs,
    image: ErofsImage,
    options: &[&str],
    source: &Path,
    to: &Path,
) -> Command {
    let mut command = Command::new(&inputs.forerun);
    command.args(["pack", "--quiet"]).args(options);
    if let Some(store) = inputs.store(image) {
        command.arg("--objects").arg(store);
        // It saves the room of the tree once more; where links cannot be made, it copies.
        if image.is_big() || inputs.is_own_tree {
            command.arg("--link-objects");
        }
    }
    command.arg(source).arg(to);
    command
}

fn by_mkfs(image: ErofsImage, source: &Path, to: &Path) -> Result<Command> {
    let mkfs = find_program("mkfs.erofs");
    let mkfs = mkfs.context("mkfs.erofs makes the images: install erofs-utils")?;
    let mut command = Command::new(mkfs);
    command.arg("--quiet").args(MKFS);
    if matches!(image, ErofsImage::TreeLz4hc | ErofsImage::BigLz4hc) {
        command.arg(MKFS_LZ4HC);
    }
    command.arg(to).arg(source);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(dir: &Path) -> ErofsInputs {
        ErofsInputs {
            dir: dir.to_path_buf(),
            forerun: dir.join("forerun"),
            tree: Tree {
                path: dir.join("tree"),
                files: 1,
                bytes: 1,
            },
            plain: dir.join("big/file"),
            is_own_tree: false,
        }
    }

    #[test]
    fn images_of_another_program_go_and_those_of_mkfs_stay() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = inputs(dir.path());
        fs::write(&inputs.forerun, b"one").unwrap();
        forget_other_program(&inputs).unwrap();
        let (ours, theirs) = (
            inputs.image(ErofsImage::Ours),
            inputs.image(ErofsImage::Tree),
        );
        fs::write(&ours, b"").unwrap();
        fs::write(&theirs, b"").unwrap();
        forget_other_program(&inputs).unwrap();
        assert!(ours.exists());
        fs::write(&inputs.forerun, b"two").unwrap();
        forget_other_program(&inputs).unwrap();
        assert!(!ours.exists() && theirs.exists());
    }

    #[test]
    fn only_a_tree_of_our_own_is_linked_to() {
        let dir = tempfile::tempdir().unwrap();
        let mut inputs = inputs(dir.path());
        let links = |inputs: &ErofsInputs| {
            let command = by_forerun(
                inputs,
                ErofsImage::Composefs,
                &[],
                Path::new("a"),
                Path::new("b"),
            );
            command.get_args().any(|word| word == "--link-objects")
        };
        assert!(!links(&inputs));
        inputs.is_own_tree = true;
        assert!(links(&inputs));
    }

    #[test]
    fn the_large_object_is_the_only_one() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = inputs(dir.path());
        let store = inputs.store(ErofsImage::BigComposefs).unwrap();
        fs::create_dir_all(store.join("ab")).unwrap();
        assert!(inputs.big_object().is_err());
        fs::write(store.join("ab/cd"), b"").unwrap();
        assert_eq!(inputs.big_object().unwrap(), store.join("ab/cd"));
    }
}
