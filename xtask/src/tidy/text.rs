//! Length, heads and characters of files.

use super::Violation;
use super::sources::SourceFile;

/// Lines of a Rust file, its tests aside.
const MAX_LINES: usize = 500;

/// Finds all files that are too long, lack their head, or hold other characters than ASCII.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        if file.is_rust() {
            violations.extend(head(file));
            violations.extend(length(file));
        }
        violations.extend(characters(file));
    }
    violations
}

fn head(file: &SourceFile) -> Option<Violation> {
    if file.text.starts_with("//! ") {
        return None;
    }
    Some(Violation {
        place: file.path.clone(),
        line: 1,
        message: "does not begin with `//!`: what it is, why this way, what it does not do".into(),
    })
}

fn length(file: &SourceFile) -> Option<Violation> {
    let lines = file
        .text
        .lines()
        .take_while(|line| line.trim() != "#[cfg(test)]" || file.is_test())
        .count();
    if file.is_test() || lines <= MAX_LINES {
        return None;
    }
    Some(Violation {
        place: file.path.clone(),
        line: 0,
        message: format!("{lines} lines without its tests; split it before {MAX_LINES}"),
    })
}

fn characters(file: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        let odd = line
            .chars()
            .find(|&c| !c.is_ascii() || (c.is_ascii_control() && c != '\t'));
        if let Some(odd) = odd {
            violations.push(Violation {
                place: file.path.clone(),
                line: index + 1,
                message: format!(
                    "character {:?} (U+{:04X}); text is ASCII",
                    odd,
                    u32::from(odd)
                ),
            });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let long = |lines: usize, tests: &str| {
            format!("//! Head.\n{}{tests}", "fn f() {}\n".repeat(lines - 1))
        };
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(300));
        for (path, text, sound) in [
            ("crates/a/src/a.rs", "//! Head.\n".to_string(), true),
            ("crates/a/src/a.rs", long(500, ""), true),
            ("crates/a/src/a.rs", long(500, &tests), true),
            ("crates/a/tests/a.rs", long(501, ""), true),
            ("README.md", "tab\tand ~ \r\n".replace('\r', ""), true),
            ("crates/a/src/a.rs", "use std;\n".to_string(), false),
            ("crates/a/src/a.rs", String::new(), false),
            ("crates/a/src/a.rs", "//!\n".to_string(), false),
            ("crates/a/src/a.rs", long(501, ""), false),
            ("crates/a/src/a.rs", long(501, &tests), false),
            ("README.md", "an em dash \u{2014} here\n".to_string(), false),
            ("README.md", "caf\u{e9}\n".to_string(), false),
            ("tools/x.sh", "a\u{7}b\n".to_string(), false),
        ] {
            let found = check(&[SourceFile::new(path, &text)]);
            assert_eq!(found.is_empty(), sound, "{path}: {:.40}: {found:?}", text);
        }
    }

    #[test]
    fn the_line_is_named() {
        let found = check(&[SourceFile::new("a.md", "one\ntw\u{f6}\n")]);
        assert_eq!(found[0].line, 2);
        assert!(found[0].message.contains("U+00F6"), "{found:?}");
    }
}
