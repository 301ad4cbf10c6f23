//! Each invariant of `ARCHITECTURE.md` names what checks it: a rule of `tidy`, or tests that exist.
//!
//! An invariant ends with the names in brackets: "(checked by `arrows`, `imports`)". A rule is a module of
//! `xtask/src/tidy`; any other name is that of a test function, or of a file of tests.

use super::Violation;
use super::promises::names_of_tests;
use super::sources::SourceFile;

const MAP: &str = "ARCHITECTURE.md";
/// The section whose list has an invariant in each point.
const SECTION: &str = "## Invariants, stated as absences";
/// The words before the names.
const CHECKED: &str = "(checked by ";
/// The folder with a file for each rule.
const RULES: &str = "xtask/src/tidy/";

/// Returns the invariants that name no check, and the names that neither a rule nor a test has.
pub fn check(files: &[SourceFile]) -> Vec<Violation> {
    let Some(map) = files.iter().find(|file| file.path == MAP) else {
        return Vec::new();
    };
    let tests = names_of_tests(files);
    let is_rule = |name: &str| {
        files
            .iter()
            .any(|file| file.path == format!("{RULES}{name}.rs"))
    };
    let mut violations = Vec::new();
    for (line, text) in points(&map.text) {
        let mut violation = |message: String| {
            violations.push(Violation {
                place: MAP.to_string(),
                line,
                message,
            });
        };
        let checks = text.rsplit_once(CHECKED).map_or("", |(_, checks)| checks);
        let names: Vec<&str> = checks.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            violation("an invariant without \"(checked by `RULE OR TEST`)\"".to_string());
        }
        for name in names {
            if !is_rule(name) && !tests.contains(name) {
                violation(format!(
                    "neither a rule of tidy nor a test has the name {name}"
                ));
            }
        }
    }
    violations
}

/// Returns the points of the list, each with the number of its first line.
fn points(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().zip(1..);
    let section = lines.skip_while(|(line, _)| *line != SECTION).skip(1);
    let mut points: Vec<(usize, String)> = Vec::new();
    for (line, number) in section.take_while(|(line, _)| !line.starts_with("## ")) {
        match (line.strip_prefix("- "), points.last_mut()) {
            (Some(point), _) => points.push((number, point.to_string())),
            (None, Some((_, point))) if line.starts_with("  ") => *point += line,
            _ => {}
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invariants_name_rules_and_tests_that_exist() {
        let map = "# Map\n\n- A list.\n\n## Invariants, stated as absences\n\nThese:\n\n\
            - None of one (checked by `rule`).\n\
            - None of two, which takes\n  two lines (checked by `it_holds`,\n  `rule`).\n\
            - None of three.\n\
            - None of `rule` (checked by `it_is_gone`).\n\n## Rest\n\n- No more.\n";
        let files = [
            SourceFile::new("ARCHITECTURE.md", map),
            SourceFile::new("xtask/src/tidy/rule.rs", "//! A rule.\n"),
            SourceFile::new("crates/a/tests/it/a.rs", "#[test]\nfn it_holds() {}\n"),
        ];
        let found: Vec<_> = check(&files)
            .into_iter()
            .map(|violation| (violation.line, violation.message))
            .collect();
        let expected = [
            (13, "an invariant without \"(checked by `RULE OR TEST`)\""),
            (
                14,
                "neither a rule of tidy nor a test has the name it_is_gone",
            ),
        ];
        assert_eq!(found, expected.map(|(line, text)| (line, text.to_string())));
    }
}
