//! The steps of CI, in the order in which they fail fastest.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use forerun_testkit::{PROGRAM, require};

use crate::{deny, features, packages, process, tidy};

/// The time limit of the tests in CI, building them included: several times what they take.
const TESTS_LIMIT: &str = "60m";

/// The number of tests that run side by side in a test program; the user's value counts.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Runs all of them, up to the first that fails.
pub fn run(root: &Path) -> Result<()> {
    step("packages", || packages::install(root))?;
    step("format", || {
        each_workspace(root, |cargo| cargo.args(["fmt", "--all", "--check"]))
    })?;
    step("tidy", || tidy::run(root))?;
    step("lints", || {
        each_workspace(root, |cargo| {
            // The fuzz targets are only looked at: libFuzzer, in C++, is not built for that.
            cargo.env("CUSTOM_LIBFUZZER_PATH", "/nonexistent/libfuzzer.a");
            cargo.args(["clippy", "--locked", "--workspace", "--all-targets"]);
            cargo.args(["--all-features", "--", "-D", "warnings"])
        })
    })?;
    step("features", || features::check(root))?;
    step("licences", || deny::run(root))?;
    step("documentation", || {
        let mut doc = process::cargo(root);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        process::run(doc.args(["doc", "--locked", "--workspace", "--no-deps", "--quiet"]))
    })?;
    // Last and without another word after it, so that the output ends with the tests' own results.
    println!("==> tests");
    let cargo = process::cargo(root);
    let mut test = match require::in_ci() {
        // A test that hangs would end the run without a word of which one it was. Not for a person,
        // whose Ctrl-C would not get through.
        true => {
            let mut test = Command::new("timeout");
            test.args(["--verbose", "--kill-after=30s", TESTS_LIMIT]);
            test.arg(cargo.get_program()).current_dir(root);
            test
        }
        false => cargo,
    };
    test.args(["test", "--locked", "--workspace", "--all-features"]);
    test.arg("--no-fail-fast");
    // Many tests wait: for servers, mounts and time limits. Twice as many as there are cores keep these
    // busy.
    if std::env::var_os(TEST_THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        test.env(TEST_THREADS, (2 * cores).to_string());
    }
    // The tests of the command line have it built; with other crates' features it would be built anew.
    test.env(PROGRAM, target_dir(root)?.join("debug/forerun"));
    process::run(&mut test).context("tests")
}

/// Returns where cargo builds.
fn target_dir(root: &Path) -> Result<PathBuf> {
    let mut metadata = process::cargo(root);
    metadata.args(["metadata", "--locked", "--no-deps", "--format-version=1"]);
    let told: serde_json::Value = serde_json::from_str(&process::output(&mut metadata)?)?;
    let dir = told["target_directory"].as_str();
    dir.map(PathBuf::from)
        .context("cargo names its target directory")
}

/// Runs cargo for the main workspace, and for `fuzz/`, which is a workspace of its own.
fn each_workspace(root: &Path, add_args: impl Fn(&mut Command) -> &mut Command) -> Result<()> {
    for dir in [root.to_path_buf(), root.join("fuzz")] {
        if dir.join("Cargo.toml").exists() {
            process::run(add_args(&mut process::cargo(&dir)))?;
        }
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
