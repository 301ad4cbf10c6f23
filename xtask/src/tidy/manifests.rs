//! Each crate takes its lints from the workspace, including the ban on `unsafe`, and each
//! dependency from a registry has its reason in `docs/decisions/43-dependencies.md`. The oldest Rust
//! that the crates promise to build with is the toolchain that CI builds them with.

use std::collections::BTreeSet;

use super::tree::{Package, SourceFile, pattern};

/// The page with a table that has crates, separated by commas, in the first cell of a row and the
/// reason in the second.
const REASONS: &str = "docs/decisions/43-dependencies.md";
/// Crates with their own lints: two with unsafe code, and `fuzz`, which is in another workspace.
const OWN_LINTS: [&str; 3] = ["crates/front/c", "crates/sys", "fuzz"];

pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<String> {
    let mut violations = Vec::new();
    for package in packages
        .iter()
        .filter(|package| !OWN_LINTS.contains(&&*package.dir))
    {
        let path = format!("{}/Cargo.toml", package.dir);
        let manifest = files.iter().find(|file| file.path == path);
        if !manifest.is_some_and(|manifest| manifest.text.contains("\n[lints]\nworkspace = true\n"))
        {
            violations.push(format!("{path}: does not take [lints] from the workspace"));
        }
    }
    violations.extend(oldest_rust(files));
    let Some(page) = files.iter().find(|file| file.path == REASONS) else {
        violations.push(format!(
            "{REASONS}: is missing: the reasons for dependencies"
        ));
        return violations;
    };
    let dependencies = packages.iter().flat_map(|package| &package.dependencies);
    let external = dependencies.filter(|dependency| dependency.dir.is_none());
    let used: BTreeSet<&str> = external.map(|dependency| &*dependency.name).collect();
    let mut explained = BTreeSet::new();
    let lines = page.text.lines().zip(1..);
    for (line, number) in lines.skip_while(|(line, _)| !line.starts_with("|---")) {
        let Some((names, reason)) = line.strip_prefix("| ").and_then(|row| row.split_once('|'))
        else {
            continue;
        };
        if reason.trim_matches(['|', ' ']).is_empty() {
            violations.push(format!(
                "{REASONS}:{number}: no reason for {}",
                names.trim()
            ));
        }
        explained.extend(
            names
                .split(',')
                .map(|name| (name.trim_matches([' ', '`']), number)),
        );
    }
    for (name, number) in &explained {
        if !used.contains(name) {
            violations.push(format!(
                "{REASONS}:{number}: {name} is not a dependency any more"
            ));
        }
    }
    for name in used {
        if !explained.iter().any(|(explained, _)| *explained == name) {
            violations.push(format!("{REASONS}: the table gives no reason for {name}"));
        }
    }
    violations
}

/// Compares `rust-version` with the toolchain.
fn oldest_rust(files: &[SourceFile]) -> Option<String> {
    let number = |path: &str, key: &str| {
        let file = files.iter().find(|file| file.path == path)?;
        let found = pattern(&format!(r#"(?m)^{key} = "(\d+\.\d+)"#)).captures(&file.text)?;
        Some(found[1].to_string())
    };
    let promised = number("Cargo.toml", "rust-version")?;
    let built_with = number("rust-toolchain.toml", "channel");
    (built_with.as_ref() != Some(&promised)).then(|| {
        format!("Cargo.toml: rust-version is {promised}, which CI does not build with: rust-toolchain.toml has {built_with:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_rust_is_that_of_the_toolchain() {
        let found = |promised: &str, channel: &str| {
            let version = format!("[workspace.package]\nrust-version = \"{promised}\"\n");
            let toolchain = format!("[toolchain]\nchannel = \"{channel}\"\n");
            oldest_rust(&[
                SourceFile::new("Cargo.toml", &version),
                SourceFile::new("rust-toolchain.toml", &toolchain),
            ])
        };
        assert_eq!(found("1.95", "1.95.0"), None);
        assert!(found("1.85", "1.95.0").is_some());
        assert!(found("1.95", "stable").is_some());
    }

    const MEMBER: &str = "[package]\n\n[lints]\nworkspace = true\n";

    fn found(manifest: &str, rows: &str) -> Vec<String> {
        let packages = [Package::new(
            "crates/front/cli",
            &["clap", "crates/forerun", "dev:insta"],
        )];
        let page = format!("# Dependencies\n\nEach.\n\n| crate | for |\n|---|---|\n{rows}");
        let files = [
            SourceFile::new("crates/front/cli/Cargo.toml", manifest),
            SourceFile::new(REASONS, &page),
        ];
        check(&packages, &files)
    }

    #[test]
    fn each_dependency_has_a_reason() {
        for (rows, sound) in [
            ("| `clap` | options |\n| insta | snapshots |\n", true),
            ("| `clap`, `insta` | both |\n", true),
            ("| `clap` | options | x |\n| `insta` | tests | y |\n", true),
            ("| `clap` | options |\n", false),
            ("| `clap` | options |\n| `insta` | |\n", false),
            ("| `clap`, `insta`, `rand` | three |\n", false),
        ] {
            let found = found(MEMBER, rows);
            assert_eq!(found.is_empty(), sound, "{rows}: {found:?}");
        }
        assert!(!check(&[], &[]).is_empty(), "no page at all");
    }

    #[test]
    fn each_crate_takes_the_lints_of_the_workspace() {
        let rows = "| clap, insta | both |\n";
        let expected = ["crates/front/cli/Cargo.toml: does not take [lints] from the workspace"];
        assert_eq!(
            found("[package]\n\n[lints.rust]\nunsafe_code = \"allow\"\n", rows),
            expected
        );
        assert!(found(MEMBER, rows).is_empty());
    }
}
