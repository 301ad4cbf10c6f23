//! The crates of the workspace and what they say they depend on, from `cargo metadata`.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::rooms::Room;
use crate::process;

/// A crate of the workspace.
#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    /// Its folder below the root.
    pub dir: String,
    /// Dependencies that its manifest names, each once.
    pub dependencies: Vec<Dependency>,
}

/// A line of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// Name of the crate.
    pub name: String,
    /// Whether only tests and benches use it.
    pub dev: bool,
    /// Its folder below the root; `None` where it comes from a registry.
    pub dir: Option<String>,
}

impl Package {
    /// Returns the room that its folder is in.
    pub fn room(&self) -> Option<Room> {
        Room::of(&self.dir).map(|(room, _)| room)
    }
}

impl Dependency {
    /// Returns whether it comes from a registry and not from the tree.
    pub const fn is_external(&self) -> bool {
        self.dir.is_none()
    }
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
        packages.extend(parse(root, &metadata));
    }
    Ok(packages)
}

fn parse(root: &Path, metadata: &Value) -> Vec<Package> {
    let below = |path: &Path| {
        let path = path.strip_prefix(root).unwrap_or(path);
        path.to_string_lossy().into_owned()
    };
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
                    dir: dependency["path"]
                        .as_str()
                        .map(|path| below(Path::new(path))),
                })
                .collect();
            dependencies.sort();
            dependencies.dedup();
            let manifest = text(package, "manifest_path");
            Package {
                name: text(package, "name"),
                dir: Path::new(&manifest).parent().map(below).unwrap_or_default(),
                dependencies,
            }
        })
        .collect()
}

#[cfg(test)]
impl Package {
    /// Creates a crate in the folder `dir` for the tests of the rules. Dependencies without a slash come
    /// from a registry; `dev:` before a name marks a dev-dependency.
    pub fn new(dir: &str, dependencies: &[&str]) -> Self {
        let name = |dir: &str| match dir.rsplit_once('/') {
            Some((_, "forerun")) => "forerun".to_string(),
            Some((_, last)) => format!("forerun-{last}"),
            None => dir.to_string(),
        };
        let dependency = |text: &&str| {
            let dir = text.trim_start_matches("dev:");
            Dependency {
                name: name(dir),
                dev: text.starts_with("dev:"),
                dir: dir.contains('/').then(|| dir.to_string()),
            }
        };
        Self {
            name: name(dir),
            dir: dir.to_string(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }
}
