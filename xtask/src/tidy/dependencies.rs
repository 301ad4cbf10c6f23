//! Every crate from a registry has its reason in `docs/decisions/43-dependencies.md`, and no reason outlives its
//! crate.
//!
//! The table stands under the heading "Dependencies": the first cell of a row names crates, with
//! commas between them, the second says what for.

use std::collections::BTreeSet;

use super::Violation;
use super::manifest::Package;
use super::sources::SourceFile;

const MAP: &str = "docs/decisions/43-dependencies.md";

/// Finds all dependencies without a reason and reasons without a dependency.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let violation = |line, message| Violation {
        place: MAP.to_string(),
        line,
        message,
    };
    let Some(map) = files.iter().find(|file| file.path == MAP) else {
        return vec![violation(
            0,
            "is missing: the reasons for dependencies".to_string(),
        )];
    };
    let used: BTreeSet<&str> = packages
        .iter()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.is_external())
        .map(|dependency| dependency.name.as_str())
        .collect();
    let rows = rows(&map.text);
    let mut violations = Vec::new();
    let mut explained = BTreeSet::new();
    for (line, names, reason) in rows {
        for name in names {
            if reason.is_empty() {
                violations.push(violation(line, format!("no reason for {name}")));
            }
            if !used.contains(name) {
                violations.push(violation(
                    line,
                    format!("{name} is not a dependency any more"),
                ));
            }
            explained.insert(name);
        }
    }
    for name in used.difference(&explained) {
        let message = format!("the table under \"Dependencies\" gives no reason for {name}");
        violations.push(violation(0, message));
    }
    violations
}

/// Parses line, crates and reason of each row.
fn rows(text: &str) -> Vec<(usize, Vec<&str>, &str)> {
    let mut rows = Vec::new();
    let mut inside = false;
    let mut in_body = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') {
            inside = line.trim_start_matches('#').trim() == "Dependencies";
        }
        let Some(cells) = line.trim().strip_prefix('|') else {
            in_body = false;
            continue;
        };
        // The head of a table ends with a line of dashes.
        if cells.trim_start_matches([' ', ':']).starts_with("---") {
            in_body = true;
        } else if inside && in_body {
            let mut cells = cells.split('|').map(str::trim);
            let names = cells.next().unwrap_or_default().split(',');
            let names = names.map(|name| name.trim_matches([' ', '`'])).collect();
            rows.push((index + 1, names, cells.next().unwrap_or_default()));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let packages = [Package::new(
            "crates/front/cli",
            &["clap", "crates/forerun", "dev:insta"],
        )];
        let head = "# Map\n\n## Dependencies\n\n| crate | why |\n|---|---|\n";
        for (rows, sound) in [
            ("| `clap` | options |\n| `insta` | snapshots |\n", true),
            ("| `clap`, `insta` | both |\n", true),
            (
                "| `clap` | cli | options |\n| `insta` | tests | snapshots |\n",
                true,
            ),
            ("| `clap` | options |\n", false),
            ("| `clap` | options |\n| `insta` | |\n", false),
            ("| `clap`, `insta`, `rand` | three |\n", false),
            ("| `clap` | x |\n\n## Other\n\n| `insta` | y |\n", false),
        ] {
            let map = SourceFile::new(MAP, &format!("{head}{rows}"));
            let found = check(&packages, &[map]);
            assert_eq!(found.is_empty(), sound, "{rows}: {found:?}");
        }
        assert!(!check(&packages, &[]).is_empty(), "no map at all");
    }
}
