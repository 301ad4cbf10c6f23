//! A module with modules below it is `name/mod.rs`, so that its files are in one folder.
//!
//! Rust also allows `name.rs` beside `name/`. With both styles in one tree a reader looks twice.

use std::collections::BTreeSet;

use super::Violation;
use super::sources::SourceFile;

/// Returns the files `name.rs` beside a folder `name` of Rust files.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let rust = files.iter().filter(|file| file.is_rust());
    let folders: BTreeSet<&str> = rust
        .clone()
        .filter_map(|file| file.path.rsplit_once('/'))
        .map(|(folder, _)| folder)
        .collect();
    let beside = rust.filter_map(|file| {
        let module = file.path.strip_suffix(".rs")?;
        folders.contains(module).then(|| Violation {
            place: file.path.clone(),
            line: 0,
            message: format!("has modules in {module}/: move it to {module}/mod.rs"),
        })
    });
    beside.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_in_the_folder_of_its_modules() {
        let files = [
            "a/src/lib.rs",
            "a/src/read.rs",
            "a/src/read/part.rs",
            "a/src/write/mod.rs",
        ];
        let mut files: Vec<_> = files.map(|path| SourceFile::new(path, "")).into();
        files.push(SourceFile::new("a/src/write/notes.md", ""));
        files.push(SourceFile::new("a/src/write.md", ""));
        let found: Vec<_> = check(&files)
            .into_iter()
            .map(|found| found.to_string())
            .collect();
        assert_eq!(
            found,
            ["a/src/read.rs: has modules in a/src/read/: move it to a/src/read/mod.rs"]
        );
    }
}
