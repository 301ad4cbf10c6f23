//! Programs of the system.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Directories of system programs, which the `PATH` of users may lack.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The program that links may point to under the names of other programs.
const FORERUN: &str = "forerun";

/// Finds `name` in `PATH` or the directories of system programs. Skips links to forerun, which runs
/// under the names of other programs: comparing it with itself would be meaningless.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(
        std::env::split_paths(&path).chain(SYSTEM.map(PathBuf::from)),
        name,
    )
}

fn find_in(dirs: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    dirs.map(|dir| dir.join(name))
        .find(|candidate| is_executable(candidate) && (name == FORERUN || !is_forerun(candidate)))
}

fn is_forerun(path: &Path) -> bool {
    let target = path.canonicalize();
    target.is_ok_and(|target| target.file_name().is_some_and(|name| name == FORERUN))
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no such program").is_none());
    }

    #[test]
    fn links_to_forerun_are_not_the_program_of_their_name() {
        let dir = std::env::temp_dir().join(format!("forerun-programs-{}", std::process::id()));
        let [first, second] = ["first", "second"].map(|name| dir.join(name));
        for dir in [&first, &second] {
            std::fs::create_dir_all(dir).unwrap();
        }
        for program in [first.join("forerun"), second.join("unsquashfs")] {
            std::fs::write(&program, "").unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, mode).unwrap();
        }
        std::os::unix::fs::symlink("forerun", first.join("unsquashfs")).unwrap();
        let dirs = || [first.clone(), second.clone()].into_iter();
        let found = ["unsquashfs", "forerun"].map(|name| find_in(dirs(), name));
        let alone = find_in(dirs().take(1), "unsquashfs");
        std::fs::remove_dir_all(&dir).unwrap();
        let expected = [second.join("unsquashfs"), first.join("forerun")];
        assert_eq!((found, alone), (expected.map(Some), None));
    }
}
