//! Forbids cycles among the modules of a crate: code that two modules need is in a third one.
//!
//! Modules are those that `lib.rs` names; a directory counts as one. Paths are found anywhere in
//! the code, so a type that is named without an import counts too. Tests may use everything.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{SourceFile, code_only, pattern};

/// The modules that each module names, with a file and line of each.
type Graph<'f> = BTreeMap<&'f str, BTreeMap<&'f str, (&'f str, usize)>>;

/// Finds one cycle in each crate that has any.
pub fn check(files: &[SourceFile]) -> Vec<String> {
    let sources = files.iter().filter(|file| file.is_rust());
    let crates = sources.filter_map(|file| file.path.split_once("/src/"));
    let crates: BTreeSet<&str> = crates.map(|(dir, _)| dir).collect();
    let found = crates.into_iter().filter_map(|dir| circle(dir, files));
    found.collect()
}

fn circle(dir: &str, files: &[SourceFile]) -> Option<String> {
    let mut graph = graph(dir, files);
    // Modules that name none of the remaining ones are in no cycle.
    while let Some(leaf) = graph.iter().find(|(_, named)| named.is_empty()) {
        let leaf = *leaf.0;
        graph.remove(leaf);
        graph.values_mut().for_each(|named| _ = named.remove(leaf));
    }
    let mut path = vec![*graph.keys().next()?];
    loop {
        let (next, (file, line)) = graph.get(path.last()?)?.first_key_value()?;
        let start = path.iter().position(|module| module == next);
        path.push(next);
        if let Some(start) = start {
            let circle = path.get(start..)?.join(" -> ");
            return Some(format!(
                "{file}:{line}: modules import each other: {circle}; move what both need to a file of its own"
            ));
        }
    }
}

fn graph<'f>(dir: &str, files: &'f [SourceFile]) -> Graph<'f> {
    let source = format!("{dir}/src/");
    let shipped = files
        .iter()
        .filter(|file| file.is_rust() && !file.is_test());
    let inside: Vec<_> = shipped
        .filter_map(|file| Some((file, file.path.strip_prefix(&source)?)))
        .collect();
    let module_of = |path: &'f str| path.split(['/', '.']).next().unwrap_or(path);
    let mut graph: Graph<'f> = inside
        .iter()
        .map(|(_, path)| (module_of(path), BTreeMap::new()))
        .filter(|(module, _)| !["lib", "main"].contains(module))
        .collect();
    let modules: BTreeSet<&'f str> = graph.keys().copied().collect();
    let mut exported = BTreeMap::new();
    for (file, _) in inside.iter().filter(|(_, path)| *path == "lib.rs") {
        let code = code_only(&file.text);
        for import in code.split("use ").skip(1) {
            let mut words = words(import.split(';').next().unwrap_or_default());
            if let Some(module) = words.next().and_then(|first| modules.get(first)) {
                exported.extend(words.map(|word| (word.to_string(), *module)));
            }
        }
    }
    for (file, path) in &inside {
        let Some(named) = graph.get_mut(module_of(path)) else {
            continue;
        };
        let code = code_only(file.shipped());
        let roots = ["crate::".to_string(), "super::".repeat(depth(path))];
        for (at, root) in roots
            .iter()
            .flat_map(|root| code.match_indices(root.as_str()))
        {
            for first in first_words(&code[at + root.len()..]) {
                let module = modules.get(&*first).or_else(|| exported.get(&first));
                if let Some(module) = module.filter(|module| **module != module_of(path)) {
                    let line = code[..at].matches('\n').count() + 1;
                    named.entry(module).or_insert((&file.path, line));
                }
            }
        }
    }
    graph
}

/// Returns how far below the root of its crate the module of a file is.
fn depth(path: &str) -> usize {
    path.split('/').filter(|part| *part != "mod.rs").count()
}

/// Returns the first word of a path, or of each path in the braced list of an import.
fn first_words(path: &str) -> Vec<String> {
    let Some(list) = path.strip_prefix('{') else {
        return words(path).take(1).map(str::to_string).collect();
    };
    let mut list = list.split(';').next().unwrap_or_default().to_string();
    // Nested lists contain the ends of the paths.
    let inner = pattern(r"\{[^{}]*\}");
    while inner.is_match(&list) {
        list = inner.replace_all(&list, "").into_owned();
    }
    let paths = list.split(',').filter_map(|path| words(path).next());
    paths.map(str::to_string).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_found_in_folders_and_in_any_crate() {
        for (path, text, found) in [
            ("a/mod.rs", "use super::b::X;", true),
            ("a/c.rs", "use super::super::b::X;", true),
            ("a/c.rs", "use super::b::X;", false),
            ("a/c/mod.rs", "use super::super::b::X;", true),
            ("a/c/d.rs", "use super::super::b::X;", false),
        ] {
            let files = [
                ("lib.rs", "mod a;\nmod b;"),
                (path, text),
                ("b.rs", "use crate::a;"),
            ];
            let files = files.map(|(name, text)| SourceFile::new(&format!("new/src/{name}"), text));
            assert_eq!(!check(&files).is_empty(), found, "{path} {text}");
        }
    }

    #[test]
    fn circles_are_found_by_any_path() {
        const LIB: &str = "mod a;\nmod b;\npub use b::{One, Two};\n";
        for (a, b, found) in [
            ("use crate::b::X;", "\nuse crate::a::Y;", Some(2)),
            (
                "use crate::{\n    c::{b, d},\n    Two,\n};",
                "fn f(_: crate::a::Y) {}",
                Some(1),
            ),
            ("use super::One;", "use super::a;", Some(1)),
            (
                "use crate::b::X;",
                "// crate::a\n#[cfg(test)]\nmod tests {\n use crate::a;\n}",
                None,
            ),
            ("use crate::{c::b, std::b};", "use crate::a;", None),
            ("use crate::a::Y;", "use crate::a::Y;", None),
        ] {
            let files = [("lib", LIB), ("a", a), ("b", b)];
            let files = files
                .map(|(name, text)| SourceFile::new(&format!("crates/io/src/{name}.rs"), text));
            let violation = check(&files).pop();
            let expected = found.map(|line| {
                format!(
                    "crates/io/src/b.rs:{line}: modules import each other: a -> b -> a; \
                     move what both need to a file of its own"
                )
            });
            assert_eq!(violation, expected, "{a} {b}");
        }
    }
}
