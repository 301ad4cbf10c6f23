//! `unsafe` appears only in `forerun-sys`, which calls the system where no crate wraps it, and in the library for C, which
//! follows pointers. No other file allows it: the compiler's lint can be switched off in any file, this cannot.

use super::Violation;
use super::lexer::code_only;
use super::sources::SourceFile;

/// The crates with unsafe code. A lint of clippy demands a reason for each block of theirs.
const ALLOWED: [&str; 2] = ["crates/front/c/src/", "crates/sys/src/"];

/// Finds all lines that use or allow unsafe code.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let others = |file: &&SourceFile| {
        file.is_rust() && !ALLOWED.iter().any(|dir| file.path.starts_with(dir))
    };
    for file in files.iter().filter(others) {
        for (index, line) in code_only(&file.text).lines().enumerate() {
            let mut words = line.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
            if words.any(|word| word == "unsafe" || word == "unsafe_code") {
                violations.push(Violation {
                    place: file.path.clone(),
                    line: index + 1,
                    message: "unsafe code; it belongs in crates/sys".to_string(),
                });
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (text, sound) in [
            ("// unsafe is denied", true),
            ("let name = \"unsafe\";", true),
            ("fn unsafely() {}", true),
            ("unsafe { f() }", false),
            ("#![allow(unsafe_code)]", false),
            ("pub unsafe fn f()", false),
        ] {
            let found = check(&[SourceFile::new("crates/a/src/a.rs", text)]);
            assert_eq!(found.is_empty(), sound, "{text}: {found:?}");
        }
    }
}
