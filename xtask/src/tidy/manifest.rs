//! The crates of the workspace and what they say they depend on, from `cargo metadata`.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process;

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// What its manifest names, each once.
    pub dependencies: Vec<Dependency>,
}

/// A line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// Name of the crate.
    pub name: String,
    /// Whether only tests and benches use it.
    pub dev: bool,
    /// Whether it comes from a registry and not from the tree.
    pub external: bool,
}

/// Reads the workspace at `root`, and `fuzz/` beside it, which is a workspace of its own.
pub fn read(root: &Path) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        if !root.join(manifest).exists() {
            continue;
        }
        let mut command = process::cargo(root);
        command.args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ]);
        let json = process::output(command.args(["--manifest-path", manifest]))?;
        let metadata: Value = serde_json::from_str(&json).context("output of cargo metadata")?;
        packages.extend(parse(&metadata));
    }
    Ok(packages)
}

fn parse(metadata: &Value) -> Vec<Package> {
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_string();
    list(metadata, "packages")
        .iter()
        .map(|package| {
            let mut dependencies: Vec<Dependency> = list(package, "dependencies")
                .iter()
                .map(|dependency| Dependency {
                    name: text(dependency, "name"),
                    dev: dependency["kind"] == "dev",
                    external: dependency["path"].is_null(),
                })
                .collect();
            dependencies.sort();
            dependencies.dedup();
            Package {
                name: text(package, "name"),
                dependencies,
            }
        })
        .collect()
}

#[cfg(test)]
impl Package {
    /// For the tests of the rules: `dev:` before a name marks a dev-dependency.
    pub fn new(name: &str, dependencies: &[&str]) -> Self {
        let dependency = |name: &&str| Dependency {
            name: name.trim_start_matches("dev:").to_string(),
            dev: name.starts_with("dev:"),
            external: !name.contains("forerun"),
        };
        Self {
            name: name.to_string(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }
}
