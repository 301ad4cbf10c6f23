//! The rules of the source tree that no compiler checks.
//!
//! Each rule is a function from the parsed tree to violations, so that its tests can pass a tree
//! that violates it. [`check`] reads the real tree and applies all rules.

mod arrows;
mod cycles;
mod files;
mod links;
mod manifests;
mod names;
mod tree;
mod words;

use std::path::Path;

use anyhow::{Result, bail};

pub fn run(root: &Path) -> Result<()> {
    let violations = check(root)?;
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => Ok(()),
        n => bail!("{n} violations of the rules of the tree"),
    }
}

/// Finds all violations in the tree at `root`, each with its location, and how to correct it.
fn check(root: &Path) -> Result<Vec<String>> {
    let packages = tree::packages(root)?;
    let files = tree::files(root)?;
    let mut violations = arrows::check(&packages);
    violations.extend(words::check(&packages, &files));
    violations.extend(manifests::check(&packages, &files));
    violations.extend(names::check(&files));
    violations.extend(files::check(&files));
    violations.extend(links::check(&files));
    violations.extend(cycles::check(&files));
    violations.sort();
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_front_end_that_depends_on_a_driver_fails() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let manifest = |name: &str, dependencies: &str| {
            let head = "[package]\nname = \"NAME\"\nedition = \"2024\"\n\n[lints]\nworkspace = true\n\n[dependencies]\n";
            head.replace("NAME", name) + dependencies
        };
        write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*/*\"]\n\n[workspace.lints.clippy]\nall = \"warn\"\n",
        );
        write("docs/decisions/43-dependencies.md", "# Dependencies\n");
        write(
            "crates/formats/romfs/Cargo.toml",
            &manifest("forerun-romfs", ""),
        );
        write("crates/formats/romfs/src/lib.rs", "//! A driver.\n");
        write(
            "crates/front/show/Cargo.toml",
            &manifest("forerun-show", ""),
        );
        write("crates/front/show/src/lib.rs", "//! A front end.\n");
        assert!(
            Command::new("git")
                .args(["init", "--quiet"])
                .arg(dir.path())
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(check(dir.path()).unwrap(), [""; 0]);
        run(dir.path()).unwrap();

        let driver = "romfs = { package = \"forerun-romfs\", path = \"../../formats/romfs\" }\n";
        write(
            "crates/front/show/Cargo.toml",
            &manifest("forerun-show", driver),
        );
        let expected = "forerun-show: depends on forerun-romfs: a front end knows no driver; go through the crate forerun";
        assert_eq!(check(dir.path()).unwrap(), [expected]);
        assert!(run(dir.path()).is_err());
    }
}
