//! Errno stays at the edge: `forerun-fuse` answers with it, and code that calls the system compares it.
//!
//! Codecs, the seam, the engine and drivers have typed errors, so they know no errno at all. Their only way
//! to one is the table of `forerun-fuse`, and no other crate has such a table: a match arm whose value is an
//! errno. But for the runtime of AppImages, which answers the kernel without that crate. Tests are left out; they make
//! the errors that a disk would give.

use super::Violation;
use super::imports::has_word;
use super::lexer::code_only;
use super::rooms::Room;
use super::sources::SourceFile;

/// The crates with a table: each speaks FUSE.
const FUSE: [&str; 2] = ["crates/front/fuse", "crates/front/runtime"];
/// Names by which code gets at an errno.
const WORDS: [&str; 4] = ["Errno", "errno", "from_raw_os_error", "raw_os_error"];
/// Beginnings of an errno's name, in the crates that have them.
const NUMBERS: [&str; 5] = [
    "Errno::",
    "libc::E",
    "nix::Error::E",
    "nix::errno::Errno::",
    "rustix::io::Errno::",
];

/// Finds all uses of errno in crates that have typed errors only, and all tables beside that of
/// `forerun-fuse`.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some((room, dir)) = Room::of(&file.path).filter(|_| !file.is_only_tests()) else {
            continue;
        };
        let is_typed = matches!(room, Room::Codec | Room::Vfs | Room::Engine | Room::Format);
        for (index, line) in code_only(file.shipped()).lines().enumerate() {
            let message = if is_typed && WORDS.iter().any(|word| has_word(line, word)) {
                "knows errno: use the kind of the io::Error, or a typed error"
            } else if !FUSE.contains(&dir) && answers(line) {
                "answers with an errno: only forerun-fuse has a table of them"
            } else {
                continue;
            };
            violations.push(Violation {
                place: file.path.clone(),
                line: index + 1,
                message: message.to_string(),
            });
        }
    }
    violations
}

/// Returns whether a line has a match arm whose value is an errno.
fn answers(line: &str) -> bool {
    line.match_indices("=>").any(|(at, _)| {
        let value = line[at + 2..].trim_start();
        NUMBERS.iter().any(|number| value.starts_with(number))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (path, text, sound) in [
            ("crates/engine/src/a.rs", "// as errno says", true),
            (
                "crates/engine/src/a.rs",
                "let error = io::ErrorKind::NotFound;",
                true,
            ),
            ("crates/engine/src/a.rs", "fn without_errno() {}", true),
            (
                "crates/vfs/tests/it/a.rs",
                "io::Error::from_raw_os_error(5)",
                true,
            ),
            (
                "crates/vfs/src/a.rs",
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    use rustix::io::Errno;\n}\n",
                true,
            ),
            (
                "crates/front/fuse/src/errno.rs",
                "Error::Exists => Errno::EEXIST,",
                true,
            ),
            ("crates/io/src/a.rs", "Err(Errno::INTR) => {}", true),
            (
                "crates/front/export/src/a.rs",
                "Err(Errno::NXIO) => Ok(size),",
                true,
            ),
            (
                "crates/formats/romfs/src/a.rs",
                "use rustix::io::Errno;",
                false,
            ),
            ("crates/vfs/src/a.rs", "error.raw_os_error()", false),
            (
                "crates/codec/src/a.rs",
                "io::Error::from_raw_os_error(5)",
                false,
            ),
            ("crates/engine/src/a.rs", "pub mod errno;", false),
            (
                "crates/forerun/src/a.rs",
                "Error::Exists => Errno::EXIST,",
                false,
            ),
            (
                "crates/front/cli/src/a.rs",
                "Error::Exists => libc::EEXIST,",
                false,
            ),
            (
                "crates/front/export/src/a.rs",
                "_ =>  rustix::io::Errno::IO,",
                false,
            ),
        ] {
            let found = check(&[SourceFile::new(path, text)]);
            assert_eq!(found.is_empty(), sound, "{path}: {text}: {found:?}");
        }
    }
}
