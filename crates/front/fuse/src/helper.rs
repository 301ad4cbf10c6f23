//! Finds fusermount3, which mounts and unmounts for unprivileged users.

use std::path::{Path, PathBuf};

/// Finds fusermount3, or fusermount on older systems.
pub fn find_helper() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].map(PathBuf::from);
    let dirs: Vec<_> = std::env::split_paths(&path).chain(usual).collect();
    ["fusermount3", "fusermount"]
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)))
        .find(|program| program.is_absolute() && program.is_file())
}

/// Removes the program's name from the front of its message, because the error includes it anyway.
pub fn without_name(program: &Path, message: String) -> String {
    let name = program.display().to_string();
    let rest = message
        .strip_prefix(&name)
        .and_then(|rest| rest.strip_prefix(": "));
    match rest {
        Some(rest) => rest.to_string(),
        None => message,
    }
}
