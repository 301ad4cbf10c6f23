//! A tree of the shape of a kernel's sources, where there is none to unpack: 78,000 files in 5,000
//! directories, 1.2 GB.
//!
//! Contents are runs of lines of this project's own sources and documents, so they are text and
//! code; they repeat more than a real tree's do. Seeded: every machine gets the same names and sizes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use forerun_testkit::rng::Rng;

const DIRS: u64 = 5_000;
const FILES: u64 = 78_000;
/// Longest run of lines taken at once.
const RUN: u64 = 12;

/// Makes it in `dir`, with the sources at `root` to take lines from.
pub fn tree(root: &Path, dir: &Path) -> Result<()> {
    populate(root, dir, DIRS, FILES)
}

/// Makes a smaller or larger one.
pub fn populate(root: &Path, dir: &Path, dirs: u64, files: u64) -> Result<()> {
    let text = corpus(root)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    ensure!(!lines.is_empty(), "{}: no sources", root.display());
    let mut rng = Rng::new(1);
    let mut parents = vec![dir.to_path_buf()];
    for n in 0..dirs {
        let parent = pick(&mut rng, &parents)?;
        let path = parent.join(format!("dir-{n}"));
        fs::create_dir(&path)?;
        parents.push(path);
    }
    for n in 0..files {
        let path = pick(&mut rng, &parents)?.join(format!("file-{n}.c"));
        fs::write(path, contents(&mut rng, &lines))?;
    }
    Ok(())
}

/// Generates contents that are mostly short, now and then long: 16 KB in the mean.
fn contents(rng: &mut Rng, lines: &[&str]) -> String {
    let bound = 256 << rng.below(10);
    let len = usize::try_from(bound / 2 + rng.below(bound / 2)).unwrap_or(0);
    let mut out = String::with_capacity(len + 256);
    while out.len() < len {
        let count = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        let start = usize::try_from(rng.below(count)).unwrap_or(0);
        let run = usize::try_from(1 + rng.below(RUN)).unwrap_or(1);
        lines[start..]
            .iter()
            .take(run)
            .for_each(|line| out.push_str(line));
    }
    out
}

fn pick<'p>(rng: &mut Rng, of: &'p [PathBuf]) -> Result<&'p PathBuf> {
    let index = usize::try_from(rng.below(u64::try_from(of.len())?))?;
    of.get(index).context("no directory")
}

/// Reads all sources and documents, one after the other in the order of their names.
fn corpus(root: &Path) -> Result<String> {
    let mut text = String::new();
    let mut left = ["crates", "docs", "xtask"]
        .map(|name| root.join(name))
        .to_vec();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let mut entries: Vec<PathBuf> = fs::read_dir(&path)?
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<Result<_, _>>()?;
            entries.sort();
            left.append(&mut entries);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "md") {
            text.push_str(&fs::read_to_string(&path)?);
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape() {
        let dir = tempfile::tempdir().unwrap();
        populate(forerun_testkit::workspace_root(), dir.path(), 20, 300).unwrap();
        let (files, bytes) = super::super::tree::count(dir.path()).unwrap();
        assert_eq!(files, 300);
        let mean = bytes / files;
        assert!((8_000..32_000).contains(&mean), "{mean}");
    }
}
