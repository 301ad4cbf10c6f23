//! Each invariant of `ARCHITECTURE.md` and each promise of `SECURITY.md` names its check: a rule of
//! tidy, or existing tests.
//!
//! An invariant ends with the names: "(checked by `arrows`, `words`)". A promise has them in the
//! last cell of its row. A rule is a module of `xtask/src/tidy`; any other name is a test function
//! or a file of tests. A name with a space is a command.

use std::collections::HashSet;

use super::tree::SourceFile;

const INVARIANTS: (&str, &str) = ("ARCHITECTURE.md", "## Invariants, stated as absences");
const PROMISES: (&str, &str) = ("SECURITY.md", "## Promises");
/// The words before the names of an invariant.
const CHECKED: &str = "(checked by ";
const RULES: &str = "xtask/src/tidy/";

/// Returns the invariants and promises that name no check, and the names that are neither a rule
/// nor a test.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let mut known = tests(files);
    let rules = files
        .iter()
        .filter_map(|file| file.path.strip_prefix(RULES)?.strip_suffix(".rs"));
    known.extend(rules);
    let mut violations = Vec::new();
    for (page, section) in [INVARIANTS, PROMISES] {
        let Some(file) = files.iter().find(|file| file.path == page) else {
            continue;
        };
        for (number, claim) in claims(&file.text, section) {
            let checks = match claim.strip_suffix('|') {
                Some(row) => row.rsplit('|').next(),
                None => claim.rsplit_once(CHECKED).map(|(_, checks)| checks),
            };
            let names: Vec<&str> = checks
                .unwrap_or_default()
                .split('`')
                .skip(1)
                .step_by(2)
                .collect();
            if names.is_empty() {
                violations.push(format!("{page}:{number}: names no rule and no test"));
            }
            let unknown = names
                .into_iter()
                .filter(|name| !name.contains(' ') && !known.contains(name));
            violations.extend(
                unknown.map(|name| {
                    format!("{page}:{number}: no rule and no test has the name {name}")
                }),
            );
        }
    }
    violations
}

/// Returns the points of a section's list, and the rows of its table without the two header lines,
/// each with the number of its first line.
fn claims(text: &str, section: &str) -> Vec<(usize, String)> {
    let lines = text
        .lines()
        .zip(1..)
        .skip_while(|(line, _)| *line != section)
        .skip(1);
    let mut claims: Vec<(usize, String)> = Vec::new();
    let mut rows = 0;
    for (line, number) in lines.take_while(|(line, _)| !line.starts_with("## ")) {
        if line.starts_with('|') {
            rows += 1;
            if rows > 2 {
                claims.push((number, line.to_string()));
            }
        } else if line.starts_with("- ") {
            claims.push((number, line.to_string()));
        } else if let Some((_, point)) = claims.last_mut().filter(|_| line.starts_with("  ")) {
            *point += line;
        }
    }
    claims
}

/// Returns the names of all test functions, and of the files of tests.
fn tests(files: &[SourceFile]) -> HashSet<&str> {
    let mut names = HashSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if file.is_test() {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            names.extend(name.strip_suffix(".rs"));
        }
        for test in file.text.split("#[test]\n").skip(1) {
            let head = test.split_once("fn ").map(|(_, name)| name);
            names.extend(head.and_then(|name| name.split('(').next()));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariants_and_promises_name_checks_that_exist() {
        let map = "# Map\n\n- A list.\n\n## Invariants, stated as absences\n\nThese:\n\n\
            - None of one (checked by `rule`).\n\
            - None of two, which takes\n  two lines (checked by `it_holds`,\n  `rule`).\n\
            - None of three.\n\
            - None of `rule` (checked by `it_is_gone`).\n\n## Rest\n\n- No more.\n";
        let page = "# Security\n\n| a | `nothing` |\n\n## Promises\n\n| promise | shown by |\n|---|---|\n\
            | one | `it_holds`; crate `suite` |\n\
            | two | `it_is_gone` |\n\
            | three | trust |\n\
            | four | `helper`, `cargo xtask fuzz` |\n\n## Rest\n\n| x | `nothing` |\n";
        let code = "#[test]\n#[ignore]\nfn it_holds() {}\n\nfn helper() {}\n";
        let files = [
            SourceFile::new("ARCHITECTURE.md", map),
            SourceFile::new("SECURITY.md", page),
            SourceFile::new("xtask/src/tidy/rule.rs", "//! A rule.\n"),
            SourceFile::new("crates/a/tests/suite.rs", code),
        ];
        let expected = [
            "ARCHITECTURE.md:13: names no rule and no test",
            "ARCHITECTURE.md:14: no rule and no test has the name it_is_gone",
            "SECURITY.md:10: no rule and no test has the name it_is_gone",
            "SECURITY.md:11: names no rule and no test",
            "SECURITY.md:12: no rule and no test has the name helper",
        ];
        assert_eq!(check(&files), expected);
    }
}
