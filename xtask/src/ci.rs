//! The steps of CI, in the order in which they fail fastest.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::{deny, packages, process, tidy};

/// Runs all of them; the tests come last, so that their result lines end the output.
pub fn run(root: &Path) -> Result<()> {
    step("packages", || packages::install_missing(root))?;
    step("format", || {
        process::run(process::cargo(root).args(["fmt", "--all", "--check"]))
    })?;
    step("tidy", || tidy::run(root))?;
    step("lints", || {
        let mut clippy = process::cargo(root);
        clippy.args([
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--all-features",
        ]);
        process::run(clippy.args(["--", "-D", "warnings"]))
    })?;
    step("licences", || deny::run(root))?;
    step("documentation", || {
        let mut doc = process::cargo(root);
        doc.env("RUSTDOCFLAGS", "-D warnings");
        process::run(doc.args(["doc", "--locked", "--workspace", "--no-deps", "--quiet"]))
    })?;
    step("tests", || {
        let mut test = process::cargo(root);
        process::run(test.args(["test", "--locked", "--workspace", "--all-features"]))
    })
}

fn step(name: &'static str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    run().context(name)?;
    // To standard error, so that the last lines of standard output are those of the tests.
    eprintln!("==> {name}: {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
