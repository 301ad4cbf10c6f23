//! Files whose defects nothing else would reveal: tests that are never compiled, and files with
//! paths of one developer's machine.

use super::tree::{SourceFile, pattern};

/// Private paths, in halves, because this file is searched too. `a/work/b` is another path.
const PRIVATE: &str = concat!(
    r"(?m)(^|[^[:alnum:]_\-.*}])(/wo",
    "rk/|/ro",
    "ot/|/Us",
    r"ers/|C:\\Us",
    r"ers\\|/var/lib/jen",
    "kins|/tmp/",
    "t-)"
);

pub fn check(files: &[SourceFile]) -> Vec<String> {
    let private = pattern(PRIVATE);
    let mut violations = Vec::new();
    for file in files {
        violations.extend(private.captures_iter(&file.text).filter_map(|found| {
            let place = found.get(2)?;
            Some(file.violation(
                place.start(),
                format!("names a place on one machine: {}", place.as_str()),
            ))
        }));
        if file.is_rust() && !is_compiled(file, files) {
            violations.push(format!(
                "{}: is never compiled: no `mod` line names it",
                file.path
            ));
        }
    }
    violations
}

/// Returns whether the parent of a file in a crate's `tests/it` declares it. Cargo finds all other
/// test files, which are programs.
fn is_compiled(file: &SourceFile, files: &[SourceFile]) -> bool {
    let Some((dir, path)) = file
        .path
        .split_once("/tests/it/")
        .filter(|(_, path)| *path != "main.rs")
    else {
        return true;
    };
    let module = path.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let (parent, name) = match module.rsplit_once('/') {
        Some((parent, name)) => (format!("{dir}/tests/it/{parent}"), name),
        None => (format!("{dir}/tests/it/main"), module),
    };
    let declared = pattern(&format!(r"(?m)^\s*(pub )?mod {name};"));
    let parents = [format!("{parent}.rs"), format!("{parent}/mod.rs")];
    files
        .iter()
        .any(|file| parents.contains(&file.path) && declared.is_match(&file.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_one_machine_are_found() {
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

    #[test]
    fn each_file_of_a_test_program_is_a_module() {
        let files = [
            ("main.rs", "mod a;\npub mod b;\n// mod lost;\n"),
            ("a.rs", "mod inner;\nmod odd;\n"),
            ("a/inner.rs", ""),
            ("b/mod.rs", "pub mod deep;\n"),
            ("b/deep/mod.rs", ""),
            ("b/deep/lost.rs", ""),
            ("lost.rs", ""),
            ("odd.rs", ""),
        ];
        let files = files.map(|(path, text)| SourceFile::new(&format!("a/tests/it/{path}"), text));
        let lost = ["b/deep/lost.rs", "lost.rs", "odd.rs"];
        let expected = lost
            .map(|path| format!("a/tests/it/{path}: is never compiled: no `mod` line names it"));
        assert_eq!(check(&files), expected);
    }
}
