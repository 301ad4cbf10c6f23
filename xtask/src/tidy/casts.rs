//! A bare `as` needs a comment that says why nothing can be lost.
//!
//! The compiler's lint finds the casts themselves: `as_conversions`, on in every crate. This rule looks at
//! the places that switch it off, and at the manifests. Tests are left out.

use super::Violation;
use super::manifest::Package;
use super::sources::SourceFile;

const LINT: &str = "as_conversions";

/// Finds crates without the lint, and code that switches it off without a reason.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let manifest = |dir: &str| {
        let path = format!("{dir}/Cargo.toml");
        files
            .iter()
            .find(|file| file.path == path.trim_start_matches('/'))
    };
    let workspace = manifest("").is_some_and(|root| warns(&root.text));
    for package in packages {
        let Some(file) = manifest(&package.dir) else {
            continue;
        };
        let inherits = workspace && inherits_lints(&file.text);
        if !inherits && !warns(&file.text) {
            violations.push(Violation {
                place: file.path.clone(),
                line: 0,
                message: format!(
                    "does not turn on the lint {LINT}: take [lints] from the workspace"
                ),
            });
        }
    }
    for file in files
        .iter()
        .filter(|file| file.is_rust() && !file.is_only_tests())
    {
        violations.extend(without_reason(file.shipped()).map(|line| Violation {
            place: file.path.clone(),
            line,
            message: "allows `as` without a comment that says why nothing can be lost".to_string(),
        }));
    }
    violations
}

/// Returns whether a manifest turns the lint on.
fn warns(manifest: &str) -> bool {
    let mut values = manifest.lines().filter_map(|line| line.split_once('='));
    values.any(|(name, level)| {
        name.trim() == LINT
            && ["warn", "deny", "forbid"]
                .iter()
                .any(|on| level.contains(on))
    })
}

/// Returns whether a manifest takes its lints from the workspace.
fn inherits_lints(manifest: &str) -> bool {
    let mut lines = manifest.lines().map(str::trim);
    lines.any(|line| line == "[lints]") && lines.next() == Some("workspace = true")
}

/// Returns the numbers of the lines that switch the lint off, without a comment there or directly above.
fn without_reason(text: &str) -> impl Iterator<Item = usize> + '_ {
    let mut before = "";
    text.lines().enumerate().filter_map(move |(index, line)| {
        let (code, comment) = line.split_once("//").unwrap_or((line, ""));
        let is_explained = !comment.trim().is_empty()
            || before.trim_start().starts_with("// ")
            || code.contains("reason =");
        before = line;
        (code.contains(&format!("clippy::{LINT}")) && !is_explained).then_some(index + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.lints.clippy]\nas_conversions = \"warn\"\n";
    const MEMBER: &str = "[package]\n\n[lints]\nworkspace = true\n";

    fn found(root: &str, member: &str, code: &str) -> Vec<String> {
        let files = [
            SourceFile::new("Cargo.toml", root),
            SourceFile::new("crates/a/Cargo.toml", member),
            SourceFile::new("crates/a/src/a.rs", code),
            SourceFile::new(
                "crates/a/tests/it/main.rs",
                "#![allow(clippy::as_conversions)]\n",
            ),
        ];
        let packages = [Package::new("crates/a", &[])];
        let found = check(&packages, &files);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn casts_are_explained() {
        for (code, line) in [
            ("fn f() {}\n", None),
            ("#[allow(clippy::as_conversions)] // 32 bits fit.\n", None),
            ("// 32 bits fit.\n#[allow(clippy::as_conversions)]\n", None),
            (
                "#[expect(clippy::as_conversions, reason = \"fits\")]\n",
                None,
            ),
            (
                "\n#[cfg(test)]\n#[allow(clippy::as_conversions)]\nmod tests {\n",
                None,
            ),
            ("#[allow(clippy::as_conversions)]\n", Some(1)),
            ("/// A sum.\n#[allow(clippy::as_conversions)]\n", Some(2)),
            ("#[allow(clippy::as_conversions)] //\n", Some(1)),
        ] {
            let expected: Vec<_> = line
                .map(|line| {
                    format!(
                        "crates/a/src/a.rs:{line}: allows `as` without a comment that says why \
                         nothing can be lost"
                    )
                })
                .into_iter()
                .collect();
            assert_eq!(found(ROOT, MEMBER, code), expected, "{code}");
        }
    }

    #[test]
    fn every_crate_has_the_lint() {
        let own = "[lints.clippy]\nas_conversions = \"deny\"\n";
        for (root, member, sound) in [
            (ROOT, MEMBER, true),
            ("", own, true),
            ("", MEMBER, false),
            (ROOT, "[package]\n", false),
            (
                "[workspace.lints.clippy]\nas_conversions = \"allow\"\n",
                "[package]\n",
                false,
            ),
        ] {
            assert_eq!(found(root, member, "").is_empty(), sound, "{root}{member}");
        }
    }
}
