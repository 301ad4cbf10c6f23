//! The trees and images that are measured, made once and kept.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use forerun_testkit::require;

use super::generated;
use super::rows::{Compressor, Row};
use crate::bench::inputs::program_in;
use crate::process;

/// Length of the large file.
pub const BIG_LEN: u64 = 250_000_000;
/// Block size of all images.
pub const BLOCK: u64 = 128 << 10;

/// What is measured and with what.
pub struct Inputs {
    /// Where everything is kept.
    pub dir: PathBuf,
    /// The program.
    pub forerun: PathBuf,
    /// The tree, as it was before it went into an image.
    pub tree: PathBuf,
    /// The large file likewise.
    pub plain: PathBuf,
    /// Regular files of the tree.
    pub tree_files: u64,
    /// Their bytes.
    pub tree_bytes: u64,
}

impl Inputs {
    /// The image of a row.
    pub fn image(&self, row: Row) -> PathBuf {
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
    rows: &[Row],
) -> Result<Inputs> {
    let forerun = program_in(root, dir, program)?;
    let dir = dir.canonicalize()?;
    let tree = match tree {
        Some(tree) => tree
            .canonicalize()
            .with_context(|| tree.display().to_string())?,
        None => default_tree(root, &dir)?,
    };
    forget_other_tree(&dir, &tree)?;
    let (tree_files, tree_bytes) = count(&tree)?;
    ensure!(tree_bytes > 0, "{}: no bytes in it", tree.display());
    let inputs = Inputs {
        plain: dir.join("big/file"),
        forerun: dir.join(forerun.file_name().context("a file name")?),
        dir,
        tree,
        tree_files,
        tree_bytes,
    };
    for row in rows {
        make_image(&inputs, row.is_big(), row.compressor())?;
    }
    Ok(inputs)
}

/// Images of another tree are not measured for this one.
fn forget_other_tree(dir: &Path, tree: &Path) -> Result<()> {
    let note = dir.join("tree-path");
    let is = tree.as_os_str().as_encoded_bytes();
    if fs::read(&note).is_ok_and(|was| was == is) {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "sqsh")
        {
            fs::remove_file(&path)?;
        }
    }
    let big = dir.join("big/file");
    if big.exists() {
        fs::remove_file(big)?;
    }
    fs::write(&note, is).with_context(|| note.display().to_string())
}

fn make_image(inputs: &Inputs, big: bool, compressor: Compressor) -> Result<()> {
    let image = inputs.image_of(big, compressor);
    if big && !inputs.plain.exists() {
        eprintln!("making {}", inputs.plain.display());
        fs::create_dir_all(inputs.dir.join("big"))?;
        let part = inputs.dir.join("big-part");
        concatenate(&inputs.tree, &part)?;
        fs::rename(&part, &inputs.plain)?;
    }
    if image.exists() {
        return Ok(());
    }
    eprintln!("making {}", image.display());
    let mksquashfs = require::find_program("mksquashfs");
    let mksquashfs = mksquashfs.context("mksquashfs makes the images: install squashfs-tools")?;
    let source = match big {
        true => inputs.dir.join("big"),
        false => inputs.tree.clone(),
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

/// The newest of Debian's kernel sources, unpacked; or a generated tree of such a shape.
fn default_tree(root: &Path, dir: &Path) -> Result<PathBuf> {
    let Some(tarball) = newest_source() else {
        let tree = dir.join("generated");
        return once(&tree, |part| generated::tree(root, part)).map(|()| tree);
    };
    let name = tarball
        .file_name()
        .context("a file name")?
        .to_string_lossy();
    let name = name.split(".tar").next().unwrap_or("tree");
    let tree = dir.join(name);
    once(&tree, |part| {
        let mut tar = Command::new("tar");
        tar.arg("-xf").arg(&tarball).arg("-C").arg(part);
        tar.arg("--strip-components=1");
        process::run(&mut tar)
    })?;
    Ok(tree)
}

/// Makes the directory `path` under another name first, so that it is whole or not there.
fn once(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    eprintln!("making {}", path.display());
    let part = path.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    fs::create_dir_all(&part)?;
    make(&part)?;
    Ok(fs::rename(&part, path)?)
}

fn newest_source() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/src").ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let newest = names
        .filter(|name| name.starts_with("linux-source-") && name.contains(".tar."))
        .max_by_key(|name| version(name))?;
    Some(Path::new("/usr/src").join(newest))
}

/// The numbers in a name, so that 6.10 is newer than 6.9.
fn version(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// Visits the regular files of a tree, in the order of their names.
fn files(tree: &Path, visit: &mut dyn FnMut(&Path, u64) -> Result<bool>) -> Result<()> {
    let mut left = vec![tree.to_path_buf()];
    while let Some(path) = left.pop() {
        let metadata = path
            .symlink_metadata()
            .with_context(|| path.display().to_string())?;
        if metadata.is_dir() {
            let entries = fs::read_dir(&path)?.map(|entry| entry.map(|entry| entry.path()));
            let mut entries: Vec<PathBuf> = entries.collect::<io::Result<_>>()?;
            entries.sort_unstable_by(|one, other| other.cmp(one));
            left.append(&mut entries);
        } else if metadata.is_file() && !visit(&path, metadata.len())? {
            return Ok(());
        }
    }
    Ok(())
}

/// Regular files of a tree, and their bytes.
pub fn count(tree: &Path) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    files(tree, &mut |_, len| {
        count += 1;
        bytes += len;
        Ok(true)
    })?;
    Ok((count, bytes))
}

/// The files of the tree one after the other, again from the start where they do not suffice.
fn concatenate(tree: &Path, to: &Path) -> Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(to)?);
    let mut left = BIG_LEN;
    while left > 0 {
        files(tree, &mut |path, _| {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            left -= io::copy(&mut file.take(left), &mut out)?;
            Ok(left > 0)
        })?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert!(version("linux-source-6.10.tar.xz") > version("linux-source-6.9.tar.xz"));
        assert!(version("linux-source-7.0.tar.xz") > version("linux-source-6.10.tar.xz"));
    }

    #[test]
    fn images_of_another_tree_go() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("tree-gzip.sqsh");
        forget_other_tree(dir.path(), Path::new("/one")).unwrap();
        fs::write(&image, b"").unwrap();
        forget_other_tree(dir.path(), Path::new("/one")).unwrap();
        assert!(image.exists());
        forget_other_tree(dir.path(), Path::new("/other")).unwrap();
        assert!(!image.exists());
    }
}
