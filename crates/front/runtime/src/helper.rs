//! Finds the setuid program that mounts and unmounts for users.

use std::env;
use std::path::PathBuf;

use crate::failure::Failure;

/// Returns the path of fusermount3, or of fusermount on older systems.
pub fn find_fusermount() -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let dirs: Vec<_> = env::split_paths(&path).chain(usual).collect();
    let mut all = ["fusermount3", "fusermount"]
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    let found = all.find(|program| program.is_absolute() && program.is_file());
    found.ok_or_else(|| Failure::new("fusermount3 is not installed (Debian package fuse3)"))
}
