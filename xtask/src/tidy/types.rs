//! No two types of one name in one crate, so that a search for a name finds one thing.
//!
//! Private types and types in functions and inline modules count. Types of test modules do not, nor do the
//! associated types of traits.

use std::collections::BTreeMap;

use super::Violation;
use super::lexer::code_only;
use super::sources::SourceFile;

/// Finds types that have the name of another type of their crate.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let mut first: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| is_built(file)) {
        let Some((package, _)) = file.path.split_once("/src/") else {
            continue;
        };
        for (index, line) in code_only(file.shipped()).lines().enumerate() {
            let Some(name) = defined_type(line) else {
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
    file.is_rust() && !file.is_only_tests()
}

/// Returns the name of the type that a line defines. An indented `type` is an associated one.
fn defined_type(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    if let Some(public) = rest.strip_prefix("pub") {
        rest = match public.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => public,
        };
        rest = rest.strip_prefix(' ')?;
    }
    rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let (keyword, rest) = rest.split_once(' ')?;
    let is_type = match keyword {
        "type" => !line.starts_with(' '),
        keyword => ["struct", "enum", "trait", "union"].contains(&keyword),
    };
    let name = rest.split(|c: char| !is_word(c)).next();
    // A macro defines `$name`.
    name.filter(|name| is_type && !name.is_empty())
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
            ("pub struct Plan;", "struct Plan;"),
            ("enum Plan {}", "type Plan<'a> = &'a ();"),
            ("struct Plan;", "unsafe trait Plan {}"),
            ("struct Plan;", "    pub struct Plan;"),
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
    fn other_names_and_other_crates_and_tests_are_not_refused() {
        for (path, text) in [
            ("crates/vfs/src/b.rs", "pub struct Plan;"),
            ("crates/io/src/b.rs", "pub struct Planned;"),
            ("crates/io/src/b.rs", "pub fn Plan() {}"),
            ("crates/io/src/b.rs", "pub use super::a::Plan;"),
            ("crates/io/src/b.rs", "    type Plan = u8;"),
            ("crates/io/src/b.rs", "    pub struct $name;"),
            (
                "crates/io/src/b.rs",
                "// A comment\n/*\npub struct Plan;\n*/",
            ),
            (
                "crates/io/src/b.rs",
                "\n#[cfg(test)]\nmod tests {\n    struct Plan;\n}",
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
