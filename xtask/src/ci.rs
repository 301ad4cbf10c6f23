//! The steps of CI, in the order in which they fail fastest.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{deny, features, packages, process, test_programs, tidy};

/// Runs the steps, up to the first failure.
pub fn run(root: &Path) -> Result<()> {
    step("packages", || packages::install_for_machine(root))?;
    step("format", || {
        each_workspace(root, |cargo| cargo.args(["fmt", "--all", "--check"]))
    })?;
    step("tidy", || tidy::run(root))?;
    thread::scope(|scope| {
        // Programs of other projects are downloaded and built while the compiler leaves a core
        // idle, because each crate of the tree waits for its dependencies.
        let beside = scope.spawn(|| {
            step("tools", || packages::install_for_tree(root))?;
            step("site", || {
                process::run(&mut Command::new(root.join("tools/site.py")))
            })?;
            step("licences", || deny::run(root))
        });
        let checked = check(root);
        let beside = beside.join();
        checked.and(beside.unwrap_or_else(|_| bail!("a thread that installs tools panicked")))
    })?;
    step("tests of bench/", || {
        let mut test = process::cargo(&root.join("bench"));
        test.env("CARGO_TARGET_DIR", process::target_dir(root)?);
        process::run(test.args(["test", "--locked", "--quiet"]))
    })?;
    // Runs last and prints nothing afterwards, so that the output ends with the tests' own results.
    println!("==> tests");
    test_programs::run(root).context("tests")
}

fn check(root: &Path) -> Result<()> {
    step("lints", || {
        each_workspace(root, |cargo| {
            // The fuzz targets are only checked, which does not need a build of libFuzzer, in C++.
            cargo.env("CUSTOM_LIBFUZZER_PATH", "/nonexistent/libfuzzer.a");
            cargo.args(["clippy", "--locked", "--workspace", "--all-targets"]);
            cargo.args(["--all-features", "--", "-D", "warnings"])
        })
    })?;
    step("features", || {
        features::check(root)?;
        features::check_shared(root)
    })?;
    step("documentation", || {
        let mut doc = process::cargo(root);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        // With the features of the lints, whose checks of other crates it reuses.
        doc.args(["doc", "--locked", "--workspace", "--all-features"]);
        process::run(doc.args(["--no-deps", "--quiet"]))
    })
}

/// Runs cargo for the main workspace, and for the separate workspaces `bench/` and `fuzz/`. All
/// build in one directory, so that shared dependencies are checked once.
fn each_workspace(root: &Path, add_args: impl Fn(&mut Command) -> &mut Command) -> Result<()> {
    let target = process::target_dir(root)?;
    for dir in [root.to_path_buf(), root.join("bench"), root.join("fuzz")] {
        let mut cargo = process::cargo(&dir);
        cargo.env("CARGO_TARGET_DIR", &target);
        process::run(add_args(&mut cargo))?;
    }
    Ok(())
}

fn step(name: &'static str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    run().context(name)?;
    println!("==> {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
