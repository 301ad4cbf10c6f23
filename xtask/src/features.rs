//! The library with some of its features only: it builds without a warning, and brings no more than it
//! must.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::process;

/// Sets of features that a user of the library may ask for: to read, to make, to change, and a format
/// that builds on another.
const SETS: [&str; 5] = ["squashfs", "squashfs,write", "exfat", "composefs", "remote"];
/// Crates that a library which reads local images must not bring: a runtime, TLS, HTTP.
const NETWORK: [&str; 5] = ["tokio", "reqwest", "rustls", "hyper", "ring"];

/// Checks each set, and what the smallest depends on.
///
/// # Errors
/// Where a set does not build cleanly, or a crate of the network is among the dependencies.
pub fn check(root: &Path) -> Result<()> {
    for set in SETS {
        let mut clippy = process::cargo(root);
        clippy.args(["clippy", "--locked", "--quiet", "--package", "forerun"]);
        clippy.args(["--no-default-features", "--features", set]);
        process::run(clippy.args(["--", "-D", "warnings"]))?;
    }
    let mut tree = process::cargo(root);
    tree.args([
        "tree",
        "--locked",
        "--package",
        "forerun",
        "--edges",
        "normal",
    ]);
    tree.args(["--no-default-features", "--features", "squashfs,write"]);
    let tree = process::output(tree.args(["--prefix", "none"]))?;
    let found = network_crates(&tree);
    ensure!(
        found.is_empty(),
        "forerun with only squashfs depends on {}",
        found.join(", ")
    );
    Ok(())
}

/// Returns the crates of the network in what `cargo tree` prints.
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
}
