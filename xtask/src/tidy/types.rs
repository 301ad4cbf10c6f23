//! No two types of one name in one crate, so that a name means one thing wherever a module imports it.
//!
//! Types that only their own module sees do not count: a private `State` cannot be taken for another. Nor do
//! types of test modules.

use std::collections::BTreeMap;

use super::Violation;
use super::lexer::code_only;
use super::sources::SourceFile;

/// Finds types that another module of the crate could take for one of the same name.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut first: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| is_built(file)) {
        let Some((package, _)) = file.path.split_once("/src/") else {
            continue;
        };
        for (index, line) in code_only(&file.text).lines().enumerate() {
            let Some(name) = visible_type(line) else {
                continue;
            };
            let place = format!("{}:{}", file.path, index + 1);
            let Some(other) = first.get(&(package, name.to_string())) else {
                first.insert((package, name.to_string()), place);
                continue;
            };
            violations.push(Violation {
                place: file.path.clone(),
                line: index + 1,
                message: format!("a second type {name}; the first is at {other}: rename one"),
            });
        }
    }
    violations
}

/// Returns whether a file is Rust that is built for users: no test.
fn is_built(file: &SourceFile) -> bool {
    file.is_rust() && !file.is_test() && !file.path.ends_with("/tests.rs")
}

/// Returns the name of the type that a line defines for other modules. Rustfmt starts the line of such a type
/// with `pub`; the types of inline modules are indented, and have the module's name before theirs.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let mut words = rest.strip_prefix(' ')?.split(|c: char| !is_word(c));
    let mut keyword = words.next()?;
    if keyword == "unsafe" {
        keyword = words.next()?;
    }
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&keyword);
    is_type.then(|| words.next()).flatten()
}

const fn is_word(c: char) -> bool {
    c == '_' || c.is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile::new(path, text))
            .collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_second_type_of_a_name_is_refused() {
        for (first, second) in [
            ("pub struct Plan<'t> {}", "pub struct Plan;"),
            ("pub enum Plan {}", "pub(super) trait Plan: Copy {"),
            (
                "pub(in crate::a) type Plan = ();",
                "pub(crate) struct Plan(u8);",
            ),
        ] {
            let files = [
                ("crates/io/src/a.rs", first),
                ("crates/io/src/b/mod.rs", second),
            ];
            let message = "crates/io/src/b/mod.rs:1: a second type Plan; the first is at \
                           crates/io/src/a.rs:1: rename one";
            assert_eq!(found(&files), [message], "{second}");
        }
    }

    #[test]
    fn types_that_cannot_be_confused_are_not_refused() {
        for (path, text) in [
            ("crates/vfs/src/b.rs", "pub struct Plan;"),
            ("crates/io/src/b.rs", "struct Plan;"),
            ("crates/io/src/b.rs", "pub struct Planned;"),
            ("crates/io/src/b.rs", "pub fn Plan() {}"),
            ("crates/io/src/b.rs", "pub use super::a::Plan;"),
            (
                "crates/io/src/b.rs",
                "// A comment\n/*\npub struct Plan;\n*/",
            ),
            (
                "crates/io/src/b.rs",
                "pub mod kind {\n    pub struct Plan;\n}",
            ),
            ("crates/io/src/b/tests.rs", "pub struct Plan;"),
            ("crates/io/tests/it/main.rs", "pub struct Plan;"),
            ("crates/io/src/b.md", "pub struct Plan;"),
        ] {
            let files = [("crates/io/src/a.rs", "pub struct Plan;"), (path, text)];
            assert_eq!(found(&files), Vec::<String>::new(), "{path}: {text}");
        }
    }
}
