//! The tree and the large file that images are made of, made once and kept.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use forerun_measure::process::remove;

use super::generated;
use crate::process;

/// Length of the large file.
pub const BIG_LEN: u64 = 250_000_000;

/// A tree, as it was before it went into an image.
pub struct Tree {
    /// Its root.
    pub path: PathBuf,
    /// Regular files in it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tree {
    /// Finds the tree at `given`. By default this is the newest of Debian's kernel sources, unpacked, or
    /// a generated tree of such a shape: in the first of `homes` that has it, made in the last.
    pub fn find(root: &Path, given: Option<&Path>, homes: &[&Path]) -> Result<Self> {
        let path = match given {
            Some(tree) => tree
                .canonicalize()
                .with_context(|| tree.display().to_string())?,
            None => default_tree(root, homes)?,
        };
        let (files, bytes) = count(&path)?;
        ensure!(bytes > 0, "{}: no bytes in it", path.display());
        Ok(Self { path, files, bytes })
    }

    /// Returns what reading or extracting all of it must find.
    pub fn found(&self) -> String {
        format!("{} {}", self.files, self.bytes)
    }

    /// Describes the tree for people.
    pub fn text(&self) -> String {
        let path = self.path.display();
        format!("{path}: {} files, {} bytes", self.files, self.bytes)
    }
}

/// Forgets images of another tree, which are what has one of `extensions` in `dir`, and the large
/// file: what is measured for this tree must be made of it.
pub fn forget_other_tree(dir: &Path, tree: &Path, extensions: &[&str]) -> Result<()> {
    if is_of(dir, tree) {
        return Ok(());
    }
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if extension.is_some_and(|extension| extensions.contains(&extension)) {
            remove(&path)?;
        }
    }
    remove(&dir.join("big/file"))?;
    let note = note(dir);
    fs::write(&note, tree.as_os_str().as_encoded_bytes())
        .with_context(|| note.display().to_string())
}

/// Returns whether what is kept in `dir` was made of `tree`.
fn is_of(dir: &Path, tree: &Path) -> bool {
    fs::read(note(dir)).is_ok_and(|was| was == tree.as_os_str().as_encoded_bytes())
}

fn note(dir: &Path) -> PathBuf {
    dir.join("tree-path")
}

/// Returns where the large file is, or is to be: alone in a directory, in the first of `homes` that has
/// it made of `tree`, else the last.
pub fn big_file(homes: &[&Path], tree: &Path) -> Result<PathBuf> {
    let in_home = |home: &Path| home.join("big/file");
    let there = homes
        .iter()
        .find(|home| is_of(home, tree) && in_home(home).exists());
    let home = there.or(homes.last()).context("no place for it")?;
    Ok(in_home(home))
}

/// Makes it where it is not there.
pub fn make_big_file(plain: &Path, tree: &Path) -> Result<()> {
    if plain.exists() {
        return Ok(());
    }
    eprintln!("making {}", plain.display());
    let dir = plain.parent().context("no directory")?;
    fs::create_dir_all(dir)?;
    // Not in the directory itself, all of which goes into images.
    let part = dir.with_extension("part");
    concatenate(tree, &part)?;
    Ok(fs::rename(&part, plain)?)
}

fn default_tree(root: &Path, homes: &[&Path]) -> Result<PathBuf> {
    let tarball = newest_source();
    let name = match &tarball {
        Some(tarball) => {
            let name = tarball.file_name().context("a file name")?;
            let name = name.to_string_lossy();
            name.split(".tar").next().unwrap_or("tree").to_string()
        }
        None => "generated".to_string(),
    };
    let there = homes.iter().find(|home| home.join(&name).exists());
    let home = there.or(homes.last()).context("no place for it")?;
    let tree = home.join(name);
    once(&tree, |part| match &tarball {
        Some(tarball) => {
            let mut tar = Command::new("tar");
            tar.arg("-xf").arg(tarball).arg("-C").arg(part);
            tar.arg("--strip-components=1");
            process::run(&mut tar)
        }
        None => generated::tree(root, part),
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

/// Extracts the numbers in a name, so that 6.10 is newer than 6.9.
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

/// Counts the regular files of a tree, and their bytes.
pub fn count(tree: &Path) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    files(tree, &mut |_, len| {
        count += 1;
        bytes += len;
        Ok(true)
    })?;
    Ok((count, bytes))
}

/// Concatenates the files of the tree, again from the first where they do not suffice.
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
        let store = dir.path().join("tree.objects");
        let forget = |tree| {
            forget_other_tree(dir.path(), Path::new(tree), &["sqsh", "objects"]).unwrap();
        };
        forget("/one");
        fs::write(&image, b"").unwrap();
        fs::create_dir_all(store.join("00")).unwrap();
        forget("/one");
        assert!(image.exists() && store.exists());
        forget("/other");
        assert!(!image.exists() && !store.exists());
    }

    #[test]
    fn the_large_file_is_shared_if_it_is_of_the_same_tree() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let homes = [one.path(), other.path()];
        fs::create_dir(one.path().join("big")).unwrap();
        fs::write(one.path().join("big/file"), b"x").unwrap();
        fs::write(one.path().join("tree-path"), b"/a").unwrap();
        let of = |tree| big_file(&homes, Path::new(tree)).unwrap();
        assert!(of("/a").starts_with(one.path()));
        assert!(of("/b").starts_with(other.path()));
    }
}
