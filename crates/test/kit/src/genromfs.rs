//! The reference writer of romfs images.

use std::path::Path;
use std::process::Command;

use crate::{children, require};

/// Makes `image` from `dir` with genromfs. `options`, such as `["-a", "4096", "-V", "name"]`, come
/// first. Returns false without genromfs.
pub fn genromfs(dir: &Path, image: &Path, options: &[&str]) -> bool {
    let Some(program) = require::program("genromfs") else {
        return false;
    };
    let mut command = Command::new(program);
    command
        .args(options)
        .arg("-d")
        .arg(dir)
        .arg("-f")
        .arg(image);
    let output = children::output(&mut command).expect("genromfs starts");
    assert!(
        output.status.success(),
        "genromfs {options:?} of {}: {}\n{}",
        dir.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    true
}
