//! Each promise of SECURITY.md names tests that exist.

use std::collections::HashSet;

use super::Violation;
use super::sources::SourceFile;

const PAGE: &str = "SECURITY.md";
/// The section whose table has a promise and its tests in each row.
const SECTION: &str = "## Promises";

/// Returns the rows without a test, and the names that no test has. A name is that of a test function or
/// of a file in a crate's `tests`; one with a space is a command.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return Vec::new();
    };
    let tests = names_of_tests(files);
    let mut violations = Vec::new();
    let mut violation = |index: usize, message: String| {
        violations.push(Violation {
            place: PAGE.to_string(),
            line: index + 1,
            message,
        });
    };
    let lines = page.text.lines().enumerate();
    let lines = lines.skip_while(|(_, line)| *line != SECTION).skip(1);
    let lines = lines.take_while(|(_, line)| !line.starts_with("## "));
    // The first two rows are the head of the table.
    for (index, row) in lines.filter(|(_, line)| line.starts_with('|')).skip(2) {
        let shown_by = row.trim_end_matches('|').rsplit('|').next();
        let named: Vec<&str> = shown_by
            .unwrap_or("")
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        if named.is_empty() {
            violation(index, "a promise without a test".to_string());
        }
        for name in named {
            if !name.contains(' ') && !tests.contains(name) {
                violation(index, format!("no test has the name {name}"));
            }
        }
    }
    violations
}

/// Returns the names of all test functions, and of the files of tests.
pub fn names_of_tests(files: &[SourceFile]) -> HashSet<&str> {
    let mut names = HashSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if file.is_test() {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            names.extend(name.strip_suffix(".rs"));
        }
        let mut is_test = false;
        for line in file.text.lines().map(str::trim) {
            if line == "#[test]" {
                is_test = true;
            } else if let Some(rest) = line.strip_prefix("fn ") {
                let name = rest.split('(').next();
                names.extend(name.filter(|_| is_test));
                is_test = false;
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_name_tests_that_exist() {
        let page = "# Security\n\n| a | `nothing` |\n\n## Promises\n\n| promise | shown by |\n|---|---|\n\
            | one | `it_holds`; crate `suite` |\n\
            | two | `it_is_gone` |\n\
            | three | trust |\n\
            | four | `helper`, `cargo xtask fuzz` |\n\n## Rest\n\n| x | `nothing` |\n";
        let code = "#[test]\nfn it_holds() {}\n\nfn helper() {}\n";
        let files = [
            SourceFile::new("SECURITY.md", page),
            SourceFile::new("crates/a/tests/suite.rs", code),
        ];
        let found: Vec<_> = check(&files)
            .into_iter()
            .map(|violation| (violation.line, violation.message))
            .collect();
        let expected = [
            (10, "no test has the name it_is_gone"),
            (11, "a promise without a test"),
            (12, "no test has the name helper"),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_string())));
    }
}
