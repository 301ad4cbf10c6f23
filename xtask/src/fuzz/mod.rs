//! The fuzz targets in `fuzz/`, one after the other.

use std::path::Path;

use anyhow::{Context, Result, bail};
use forerun_testkit::require;

use crate::process;

/// What to fuzz and for how long.
#[derive(clap::Args)]
pub struct Options {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Targets; all of them where none is named
    targets: Vec<String>,
}

/// Never more memory than this, in MiB, and never longer than that over one input, in seconds.
const MEMORY_MIB: u32 = 2048;
const SECONDS_AN_INPUT: u32 = 10;

/// Makes the seeds and runs each target; the first crash, hang or excess of memory ends it and is kept by cargo-fuzz
/// under `fuzz/artifacts`.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    if require::find_program("cargo-fuzz").is_none() {
        bail!("cargo-fuzz is not installed: cargo install --locked cargo-fuzz");
    }
    // Sanitizers are a nightly feature; rustup's proxy takes the toolchain as first argument.
    let fuzz = |args: &[&str]| {
        let mut command = std::process::Command::new("cargo");
        command.current_dir(root);
        // Set by the cargo that runs this; the proxy would choose that one instead of nightly.
        command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
        command.args(["+nightly", "fuzz"]).args(args);
        command
    };
    let list = process::output(&mut fuzz(&["list"])).context("is the nightly toolchain there?")?;
    let all: Vec<&str> = list.lines().collect();
    if let Some(unknown) = options
        .targets
        .iter()
        .find(|name| !all.contains(&name.as_str()))
    {
        bail!("no fuzz target {unknown}; there are: {}", all.join(", "));
    }
    // Seeds are made by code and not kept in the tree, so that they follow the formats.
    let mut seeds = process::cargo(&root.join("fuzz"));
    process::run(seeds.args(["run", "--quiet", "--example", "make_seeds"]))?;
    for target in all {
        if !options.targets.is_empty() && !options.targets.iter().any(|name| name == target) {
            continue;
        }
        println!("==> {target}: {} s", options.seconds);
        let mut run = fuzz(&["run", target, "--"]);
        run.arg(format!("-max_total_time={}", options.seconds));
        run.arg(format!("-rss_limit_mb={MEMORY_MIB}"));
        run.arg(format!("-timeout={SECONDS_AN_INPUT}"));
        process::run(&mut run)?;
    }
    Ok(())
}
