//! Threads that may be started while a request is answered are started by `forerun_sys::threads`.
//!
//! The thread that answers may be pinned to the reader's CPU, and a thread that it starts in another way
//! inherits that. The rule holds for the FUSE front end and all crates that it depends on. Tests are left
//! out.

use std::collections::BTreeSet;

use super::Violation;
use super::lexer::code_only;
use super::manifest::Package;
use super::rooms::Room;
use super::sources::SourceFile;

/// The crate whose threads are pinned.
const ANSWERS: &str = "crates/front/fuse";
/// The file that starts threads.
const STARTS: &str = "crates/sys/src/threads.rs";
/// Ways to start a thread in the standard library, with what may stand before.
const WAYS: [(&str, &str); 4] = [
    ("thread::spawn", ""),
    ("thread::Builder", ""),
    ("scope.spawn", ""),
    ("spawn_scoped", "threads::"),
];
/// A runtime that starts threads itself, and what makes that right.
const RUNTIME: &str = "new_multi_thread";
const HOOK: &str = ".on_thread_start(threads::on_start())";

/// Finds all other starts of threads in those crates.
pub fn check(packages: &[Package], files: &[SourceFile]) -> Vec<Violation> {
    let dirs = below(packages);
    let mut violations = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let is_below = Room::of(&file.path).is_some_and(|(_, dir)| dirs.contains(dir));
        if !is_below || file.is_only_tests() || file.path == STARTS {
            continue;
        }
        let code = code_only(file.shipped());
        for (index, line) in code.lines().enumerate() {
            let message = if WAYS.iter().any(|way| starts(line, *way)) {
                "starts a thread that inherits the reader's CPU: use forerun_sys::threads"
                    .to_string()
            } else if line.contains(RUNTIME) && !code.contains(HOOK) {
                format!("starts threads that inherit the reader's CPU: add {HOOK}")
            } else {
                continue;
            };
            violations.push(Violation {
                place: file.path.clone(),
                line: index + 1,
                message,
            });
        }
    }
    violations
}

/// Returns the folders of the crate that answers and of all crates that it depends on.
fn below(packages: &[Package]) -> BTreeSet<&str> {
    let mut dirs = BTreeSet::new();
    let mut left = vec![ANSWERS];
    while let Some(dir) = left.pop() {
        let package = packages.iter().find(|package| package.dir == dir);
        if let Some(package) = package.filter(|_| dirs.insert(dir)) {
            let used = package.dependencies.iter().filter(|used| !used.dev);
            left.extend(used.filter_map(|used| used.dir.as_deref()));
        }
    }
    dirs
}

fn starts(line: &str, (way, allowed): (&str, &str)) -> bool {
    line.match_indices(way).any(|(at, _)| {
        let before = &line[..at];
        allowed.is_empty() || !before.ends_with(allowed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        let packages = [
            Package::new(
                "crates/front/fuse",
                &["crates/engine", "dev:crates/test/kit"],
            ),
            Package::new("crates/engine", &["crates/io"]),
            Package::new("crates/io", &[]),
            Package::new("crates/test/kit", &[]),
            Package::new("crates/front/cli", &["crates/front/fuse"]),
        ];
        let engine = "crates/engine/src/a.rs";
        for (path, text, sound) in [
            (engine, "threads::spawn(\"a\", work)", true),
            (engine, "threads::spawn_scoped(scope, \"a\", work)", true),
            (engine, "std::thread::scope(|scope| work(scope))", true),
            (engine, "// as thread::spawn does", true),
            (
                engine,
                "fn f() {}\n#[cfg(test)]\nmod tests {\n    thread::spawn(f);\n}\n",
                true,
            ),
            (engine, "Command::new(program).spawn()", true),
            (engine, "std::thread::spawn(work)", false),
            (engine, "std::thread::Builder::new()", false),
            (engine, "scope.spawn(work)", false),
            (engine, "builder.spawn_scoped(scope, work)", false),
            (engine, "Builder::new_multi_thread().build()", false),
            (
                engine,
                "Builder::new_multi_thread().on_thread_start(threads::on_start()).build()",
                true,
            ),
            ("crates/io/src/a.rs", "std::thread::spawn(work)", false),
            (STARTS, "std::thread::Builder::new()", true),
            ("crates/front/fuse/src/a.rs", "thread::spawn(work)", false),
            (
                "crates/front/fuse/tests/it/a.rs",
                "thread::spawn(work)",
                true,
            ),
            ("crates/test/kit/src/a.rs", "thread::spawn(work)", true),
            ("crates/front/cli/src/a.rs", "thread::spawn(work)", true),
        ] {
            let found = check(&packages, &[SourceFile::new(path, text)]);
            assert_eq!(found.is_empty(), sound, "{path}: {text}: {found:?}");
        }
    }
}
