//! The steps of CI, in the order in which they fail fastest.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{deny, packages, process, tidy};

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
    step("licences", || deny::run(root))?;
    step("documentation", || {
        let mut doc = process::cargo(root);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        process::run(doc.args(["doc", "--locked", "--workspace", "--no-deps", "--quiet"]))
    })?;
    // Last and without another word after it, so that the output ends with the tests' own results.
    println!("==> tests");
    let mut test = process::cargo(root);
    test.args([
        "test",
        "--locked",
        "--workspace",
        "--all-features",
        "--no-fail-fast",
    ]);
    process::run(&mut test).context("tests")
}

/// The main workspace, and `fuzz/`, which is one of its own.
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
