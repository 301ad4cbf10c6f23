//! Paths of a developer's machine have no place in the tree.

use super::Violation;
use super::sources::SourceFile;

/// Parts of private paths. Written in halves, as this file is searched too.
const PRIVATE: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("C:\\Us", "ers\\"),
    concat!("/var/lib/jen", "kins"),
    concat!("/tmp/", "t-"),
];

/// Finds all lines that name such a place.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let found = PRIVATE.iter().find(|private| names(line, private));
            if let Some(private) = found {
                violations.push(Violation {
                    place: file.path.clone(),
                    line: index + 1,
                    message: format!("names a place on one machine: {private}"),
                });
            }
        }
    }
    violations
}

/// Returns whether the path starts here: `a/work/b` is some other path.
fn names(line: &str, private: &str) -> bool {
    line.match_indices(private).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric() || "_-.*}".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (text, sound) in [
            ("a frame/work/shop", true),
            ("/tmp/dir and /home/user", true),
            (concat!("see /wo", "rk/main"), false),
            (concat!("\"/ro", "ot/.cargo\""), false),
            (concat!("=/Us", "ers/me/x"), false),
        ] {
            let found = check(&[SourceFile::new("a.md", text)]);
            assert_eq!(found.is_empty(), sound, "{text}: {found:?}");
        }
    }
}
