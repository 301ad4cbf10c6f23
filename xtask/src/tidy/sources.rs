//! The text files of the tree.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path below the root, with slashes.
    pub path: String,
    /// Its text. Bytes that are not UTF-8 appear as replacement characters.
    pub text: String,
}

impl SourceFile {
    /// Returns whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether it is a test or bench on its own, and not part of what is built for users.
    pub fn is_test(&self) -> bool {
        self.path
            .split('/')
            .any(|part| part == "tests" || part == "benches")
    }

    /// Returns whether it holds tests and nothing else: of a crate, or of one module.
    pub fn is_only_tests(&self) -> bool {
        self.is_test() || self.path.ends_with("/tests.rs")
    }

    /// Returns the text up to the module of unit tests.
    pub fn shipped(&self) -> &str {
        let starts = self.text.match_indices("\n#[cfg(test)]\n");
        let mut modules = starts.filter(|(at, attribute)| {
            let mut rest = self.text[at + attribute.len()..].lines();
            rest.find(|line| !line.starts_with("#["))
                .is_some_and(|item| item.starts_with("mod ") && item.ends_with('{'))
        });
        let end = modules.next();
        end.map_or(&self.text, |(end, _)| &self.text[..end])
    }
}

/// Reads all text files that are tracked, or would be when added. What holds a NUL byte is not text.
pub fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for path in paths(root)? {
        let host = root.join(&path);
        // A file that was deleted but is still in the index, and a link, hold no text of their own.
        if !host
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file())
        {
            continue;
        }
        let bytes = fs::read(&host).with_context(|| path.clone())?;
        if !bytes.contains(&0) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            files.push(SourceFile { path, text });
        }
    }
    Ok(files)
}

fn paths(root: &Path) -> Result<Vec<String>> {
    if !root.join(".git").exists() {
        let mut paths = Vec::new();
        walk(root, "", &mut paths)?;
        return Ok(paths);
    }
    let mut git = Command::new("git");
    git.current_dir(root);
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let list = process::output(&mut git)?;
    Ok(list.split_terminator('\0').map(str::to_string).collect())
}

/// Lists an unpacked archive of the sources, which has no index: everything but what builds leave behind.
fn walk(root: &Path, dir: &str, paths: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(dir))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = match dir {
            "" => name.clone(),
            dir => format!("{dir}/{name}"),
        };
        if !entry.file_type()?.is_dir() {
            paths.push(path);
        } else if name != "target" && name != ".git" {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

#[cfg(test)]
impl SourceFile {
    /// Creates a file for the tests of the rules.
    pub fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_string(),
            text: text.to_string(),
        }
    }
}
