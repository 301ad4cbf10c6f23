//! The library with some of its features: it builds without a warning, and has no unnecessary
//! dependencies.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Result, ensure};

use crate::process;

/// Sets of features that a user of the library may select: to read, to make, to change, and a
/// format that builds on another.
const SETS: [&str; 5] = ["squashfs", "squashfs,write", "exfat", "composefs", "remote"];
/// Packages that must not depend on the network, with the arguments for their features.
const LOCAL: [(&str, &[&str]); 2] = [
    ("forerun", &["--features", "squashfs,write"]),
    // forerun-lite.
    ("forerun-cli", &[]),
];
/// Crates that a library for local images must not depend on: a runtime, TLS, HTTP.
const NETWORK: [&str; 5] = ["tokio", "reqwest", "rustls", "hyper", "ring"];

/// Checks that each set and forerun-lite build without warnings, and that the smallest do not
/// depend on network crates.
pub fn check(root: &Path) -> Result<()> {
    for set in SETS {
        let mut clippy = process::cargo(root);
        clippy.args(["clippy", "--locked", "--quiet", "--package", "forerun"]);
        clippy.args(["--no-default-features", "--features", set]);
        process::run(clippy.args(["--", "-D", "warnings"]))?;
    }
    let mut clippy = process::cargo(root);
    clippy.args(["clippy", "--locked", "--quiet", "--package", "forerun-cli"]);
    process::run(clippy.args(["--no-default-features", "--", "-D", "warnings"]))?;
    check_left_out(root)?;
    for (package, features) in LOCAL {
        let mut tree = process::cargo(root);
        tree.args(["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
        tree.args(["--package", package, "--no-default-features"]);
        let tree = process::output(tree.args(features))?;
        let found = network_crates(&tree);
        let found = found.join(", ");
        ensure!(
            found.is_empty(),
            "{package} without a network depends on {found}"
        );
    }
    Ok(())
}

/// Checks that forerun-lite names a command that it lacks, and the program that has it.
fn check_left_out(root: &Path) -> Result<()> {
    let mut lite = process::cargo(root);
    lite.args(["run", "--locked", "--quiet", "--package", "forerun-cli"]);
    lite.args(["--bin", "forerun", "--no-default-features", "--"]);
    let output = lite.args(["pull", "oci://host/image"]).output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    let expected = "forerun: this program was built without the command pull\n  \
                    hint: the full forerun has it\n";
    ensure!(
        output.status.code() == Some(2) && told == expected,
        "forerun-lite pull: {told}"
    );
    Ok(())
}

/// Checks that the tests use the same features as xtask in `make test`. Otherwise each dependency
/// of xtask, and everything that depends on it, would be built twice. The error names the crates
/// whose features differ; those of `xtask/Cargo.toml` make them equal.
pub fn check_shared(root: &Path) -> Result<()> {
    let tree = |arguments: &[&str]| {
        let mut tree = process::cargo(root);
        tree.args(["tree", "--locked", "--prefix", "none"]);
        tree.args(["--format", "{p}|{f}"]);
        process::output(tree.args(arguments))
    };
    let of_xtask = tree(&["--package", "xtask", "--edges", "no-dev"])?;
    let before = tree(&["--workspace", "--all-features", "--edges", "no-dev"])?;
    let tests = tree(&["--workspace", "--all-features"])?;
    let found = built_twice(&of_xtask, &before, &tests);
    ensure!(
        found.is_empty(),
        "built for xtask and again for the tests, which ask for other features: {}",
        found.join(", ")
    );
    Ok(())
}

/// Returns the packages of the first tree with features that they have in the second tree but not
/// in the third.
fn built_twice(of_xtask: &str, before: &str, tests: &str) -> Vec<String> {
    let packages: HashSet<&str> = lines(of_xtask).map(|(package, _)| package).collect();
    let tests: HashSet<(&str, &str)> = lines(tests).collect();
    let mut found: Vec<String> = lines(before)
        .filter(|line| packages.contains(line.0) && !tests.contains(line))
        .map(|(package, features)| format!("{package} ({features})"))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Returns the packages of a tree with their features.
fn lines(tree: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = tree.lines().filter_map(|line| line.split_once('|'));
    // Repeated packages are marked.
    lines.map(|(package, features)| (package, features.trim_end_matches(" (*)")))
}

/// Returns the network crates in the output of `cargo tree`.
fn network_crates(tree: &str) -> Vec<&str> {
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.filter(|name| NETWORK.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_network_are_found_by_name() {
        let tree = "forerun v0.1.0 (/a)\ntokio v1.48.0\ntokio-macros v2.0.0\nrustls v0.23.0 (*)\n";
        assert_eq!(network_crates(tree), ["tokio", "rustls"]);
        assert!(network_crates("forerun v0.1.0\ntar v0.4.0\n").is_empty());
    }

    #[test]
    fn packages_with_other_features_in_the_tests_are_built_twice() {
        let of_xtask = "xtask v0.0.0|\nserde v1.0.229|std\nregex v1.13.1|\n";
        let before = "serde v1.0.229|std\nregex v1.13.1|std\nregex v1.13.1|std (*)\ntar v0.4.0|\n";
        let same = "serde v1.0.229|std (*)\nregex v1.13.1|std\ntar v0.4.0|xattr\n";
        assert!(built_twice(of_xtask, before, same).is_empty());
        let other = "serde v1.0.229|std\nregex v1.13.1|std,unicode\ntar v0.4.0|\n";
        let found = built_twice(of_xtask, before, other);
        assert_eq!(found, ["regex v1.13.1 (std)"]);
    }
}
