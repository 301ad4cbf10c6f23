//! A crate has one program of integration tests, `tests/it/main.rs`.
//!
//! Cargo links a program for each file directly in `tests/`, and linking takes longer than most tests.
//! In one program another mistake is possible: a file that no `mod` line names is never compiled.

use super::Violation;
use super::manifest::Package;
use super::sources::SourceFile;

/// Returns the files that are programs of their own although no `[[test]]` of the crate's manifest names
/// them, and the files below `tests/it` that no module declares.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        let tests = format!("{}/tests/", package.dir);
        for file in files.iter().filter(|file| file.is_rust()) {
            let Some(path) = file.path.strip_prefix(&tests) else {
                continue;
            };
            let message = match path.strip_prefix("it/") {
                Some("main.rs") => continue,
                Some(path) => undeclared(path, &format!("{tests}it/"), files),
                None => surplus(path, package, files),
            };
            violations.extend(message.map(|message| Violation {
                place: file.path.clone(),
                line: 0,
                message,
            }));
        }
    }
    violations
}

/// Checks a file of a crate's `tests` that is not below `it`. Cargo makes a program of `name.rs` and of
/// `name/main.rs`.
fn surplus(path: &str, package: &Package, files: &[SourceFile]) -> Option<String> {
    let name = path.strip_suffix("/main.rs");
    let name = name.or_else(|| path.strip_suffix(".rs"))?;
    let manifest = format!("{}/Cargo.toml", package.dir);
    let is_named = files
        .iter()
        .find(|file| file.path == manifest)
        .is_some_and(|manifest| names_test(&manifest.text, name));
    (!name.contains('/') && !is_named).then(|| {
        "is a test program of its own: move it to tests/it/ and declare it in tests/it/main.rs; what \
         needs a process without the other tests takes a [[test]] in Cargo.toml"
            .to_string()
    })
}

/// Returns whether a `[[test]]` of the manifest has that name.
fn names_test(manifest: &str, name: &str) -> bool {
    let mut in_test = false;
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            in_test = line == "[[test]]";
        }
        let value = line.strip_prefix("name").map(str::trim_start);
        let value = value.and_then(|rest| rest.strip_prefix('='));
        in_test && value.is_some_and(|value| value.trim() == format!("\"{name}\""))
    })
}

/// Checks a file below `it`, the folder of the program.
fn undeclared(path: &str, it: &str, files: &[SourceFile]) -> Option<String> {
    let module = path.strip_suffix("/mod.rs");
    let module = module.or_else(|| path.strip_suffix(".rs"))?;
    let (parents, name) = match module.rsplit_once('/') {
        Some((above, name)) => (vec![format!("{above}.rs"), format!("{above}/mod.rs")], name),
        None => (vec!["main.rs".to_string()], module),
    };
    let is_parent = |file: &&SourceFile| {
        let below = file.path.strip_prefix(it);
        below.is_some_and(|below| parents.iter().any(|parent| parent == below))
    };
    let declares = |line: &str| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        let declared = line.strip_prefix("mod ");
        declared.and_then(|rest| rest.strip_suffix(';')) == Some(name)
    };
    let is_declared = files
        .iter()
        .filter(is_parent)
        .any(|parent| parent.text.lines().map(str::trim).any(declares));
    (!is_declared).then(|| {
        let parents = parents.join(" or ");
        format!("is never compiled: `mod {name};` is missing from tests/it/{parents}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the places of the violations in a crate whose files are these.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let packages = [Package::new("crates/a", &[])];
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile::new(&format!("crates/a/{path}"), text))
            .collect();
        let violations = check(&packages, &files);
        let shown = violations.iter().map(|violation| {
            let place = violation.place.trim_start_matches("crates/a/tests/");
            let what = violation.message.split(':').next().unwrap_or_default();
            format!("{place} {what}")
        });
        shown.collect()
    }

    #[test]
    fn a_crate_has_one_test_program() {
        let one = ("tests/it/main.rs", "//! Tests.\n\nmod some;\n");
        let some = ("tests/it/some.rs", "");
        assert_eq!(found(&[one, some]), [""; 0]);
        let more = [
            one,
            some,
            ("tests/other.rs", ""),
            ("tests/dir/main.rs", ""),
            ("tests/dir/part.rs", ""),
            ("tests/data/tree.txt", ""),
            ("src/tests/unit.rs", ""),
        ];
        assert_eq!(
            found(&more),
            [
                "tests/other.rs is a test program of its own",
                "tests/dir/main.rs is a test program of its own",
            ]
            .map(|line| line.replace("tests/", ""))
        );
    }

    #[test]
    fn a_program_that_the_manifest_names_is_wanted() {
        let alone = ("tests/alone.rs", "");
        for (manifest, sound) in [
            ("[[test]]\nname = \"alone\"\nharness = false\n", true),
            ("[[test]]\nharness=false\nname=\"alone\"\n", true),
            ("[[test]]\nname = \"another\"\n", false),
            ("[[bin]]\nname = \"alone\"\n", false),
            (
                "[[test]]\npath = \"x\"\n\n[[bin]]\nname = \"alone\"\n",
                false,
            ),
        ] {
            let found = found(&[alone, ("Cargo.toml", manifest)]);
            assert_eq!(found.is_empty(), sound, "{manifest}: {found:?}");
        }
    }

    #[test]
    fn each_file_of_the_program_is_a_module() {
        let files = [
            ("tests/it/main.rs", "mod a;\npub mod b;\n// mod lost;\n"),
            ("tests/it/a.rs", "mod inner;\nmod odd;\n"),
            ("tests/it/a/inner.rs", ""),
            ("tests/it/b/mod.rs", "pub mod deep;\n"),
            ("tests/it/b/deep/mod.rs", ""),
            ("tests/it/b/deep/lost.rs", ""),
            ("tests/it/lost.rs", ""),
            ("tests/it/odd.rs", ""),
        ];
        assert_eq!(
            found(&files),
            ["it/b/deep/lost.rs", "it/lost.rs", "it/odd.rs"]
                .map(|path| format!("{path} is never compiled"))
        );
    }
}
