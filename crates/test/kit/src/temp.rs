//! Temporary directories, the workspace, the binary under test; and waiting.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub use tempfile::TempDir;

/// Creates a directory for the test, which is removed when dropped.
pub fn temp_dir(name: &str) -> TempDir {
    tempfile::Builder::new()
        .prefix(&format!("forerun-{name}-"))
        .tempdir()
        .expect("a temporary directory")
}

/// Creates a directory in memory for the test, which is removed when dropped. If `/dev/shm` has
/// less than `bytes` available, creates it on disk. For tests with more files than a disk can
/// create and remove quickly, or tests that need no disk.
pub fn memory_dir(name: &str, bytes: u64) -> TempDir {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("forerun-{name}-");
    builder.prefix(&prefix);
    match memory(bytes).map(|memory| builder.tempdir_in(memory)) {
        Some(Ok(dir)) => dir,
        _ => temp_dir(name),
    }
}

/// Returns a directory for files in memory, if one has `bytes` available.
pub fn memory(bytes: u64) -> Option<&'static Path> {
    let memory = Path::new("/dev/shm");
    let has_room = rustix::fs::statvfs(memory)
        .is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) >= bytes);
    has_room.then_some(memory)
}

pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(3)
        .expect("crates/test/kit lies three levels below the workspace")
}

/// Names the `forerun` program to test, if it was built before.
pub const PROGRAM: &str = "FORERUN_PROGRAM";

/// Returns the `forerun` program: the one named by [`PROGRAM`], or one built on first use. For
/// tests outside its crate; tests in its crate have `CARGO_BIN_EXE_forerun`.
pub fn forerun_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(program) = std::env::var_os(PROGRAM) {
            let program = PathBuf::from(program);
            assert!(program.is_file(), "{PROGRAM}={}", program.display());
            return program;
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["build", "--quiet", "--package", "forerun-cli", "--bin"])
            .args(["forerun", "--message-format", "json-render-diagnostics"])
            .current_dir(workspace_root())
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "forerun does not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let messages = String::from_utf8_lossy(&output.stdout);
        let path = messages
            .split("\"executable\":\"")
            .skip(1)
            .filter_map(|rest| rest.split('"').next())
            .last();
        PathBuf::from(path.expect("cargo names the executable"))
    })
}

/// Polls `holds` until it is true, for conditions without a notification.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !holds() {
        assert!(std::time::Instant::now() < patience, "still not: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
