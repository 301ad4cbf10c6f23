//! The rules of the source tree that no compiler checks.
//!
//! Each rule is a function from what was read to violations, so that its tests can hand it a tree
//! that breaks it. [`check`] reads the real tree and asks them all.

mod arrows;
mod casts;
mod cycles;
mod dependencies;
mod errno;
mod escapes;
mod formats;
mod imports;
mod invariants;
mod lexer;
mod links;
mod manifest;
mod modules;
mod places;
mod programs;
mod promises;
mod rooms;
mod sources;
mod threads;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

/// A rule broken somewhere.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Path below the root, or a crate's name.
    pub place: String,
    /// Line, counted from 1; 0 where it is about the whole.
    pub line: usize,
    /// The mistake, and how to correct it.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.place, self.message),
            line => write!(f, "{}:{line}: {}", self.place, self.message),
        }
    }
}

/// Prints all violations. Fails if there is one.
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

/// Finds all violations in the tree at `root`, in the order of the places.
fn check(root: &Path) -> Result<Vec<Violation>> {
    let packages = manifest::read(root)?;
    let files = sources::read(root)?;
    let mut violations = arrows::check(&packages);
    violations.extend(imports::check(&packages, &files));
    violations.extend(escapes::check(&files));
    violations.extend(errno::check(&files));
    violations.extend(formats::check(&packages, &files));
    violations.extend(casts::check(&packages, &files));
    violations.extend(threads::check(&packages, &files));
    violations.extend(invariants::check(&files));
    violations.extend(dependencies::check(&packages, &files));
    violations.extend(places::check(&files));
    violations.extend(links::check(&files));
    violations.extend(promises::check(&files));
    violations.extend(programs::check(&packages, &files));
    violations.extend(modules::check(&files));
    violations.extend(cycles::check(&files));
    violations.sort();
    Ok(violations)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Creates a workspace on disk with a front end, which may depend on a driver and import it.
    fn workspace(imports_driver: bool) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "Cargo.toml",
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/*/*\"]\n",
        );
        write("ARCHITECTURE.md", "# Map\n");
        write("docs/decisions/43-dependencies.md", "# Dependencies\n");
        let manifest = |name: &str, dependencies: &str| {
            format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
                 [lints.clippy]\nas_conversions = \"warn\"\n\n[dependencies]\n{dependencies}"
            )
        };
        write(
            "crates/formats/romfs/Cargo.toml",
            &manifest("forerun-romfs", ""),
        );
        write("crates/formats/romfs/src/lib.rs", "//! A driver.\n");
        let dependency = if imports_driver {
            "forerun-romfs = { path = \"../../formats/romfs\" }\n"
        } else {
            ""
        };
        write(
            "crates/front/show/Cargo.toml",
            &manifest("forerun-show", dependency),
        );
        let body = if imports_driver {
            "//! A front end.\n\npub use forerun_romfs as driver;\n"
        } else {
            "//! A front end.\n"
        };
        write("crates/front/show/src/lib.rs", body);
        dir
    }

    #[test]
    fn a_front_end_that_imports_a_driver_fails() {
        let sound = workspace(false);
        assert_eq!(check(sound.path()).unwrap(), []);
        assert!(run(sound.path()).is_ok());

        let broken = workspace(true);
        let found = check(broken.path()).unwrap();
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert!(
            shown[0].starts_with("crates/front/show/src/lib.rs:3: "),
            "{shown:?}"
        );
        assert!(
            shown[1].starts_with("forerun-show: depends on forerun-romfs"),
            "{shown:?}"
        );
        assert!(run(broken.path()).is_err());
    }
}
