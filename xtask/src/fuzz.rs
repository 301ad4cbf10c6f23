//! The fuzz targets in `fuzz/`, one after the other, by cargo-fuzz.
//!
//! A run starts with the inputs stored in the repository and with the seeds. `--minimise` turns the
//! inputs that the runs have found into the stored ones.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use forerun_testkit::require;

use crate::process;

/// The targets to fuzz, and for how long.
#[derive(clap::Args)]
pub struct FuzzOptions {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Do not fuzz; merge what was found into the inputs that the repository keeps
    #[arg(long)]
    minimise: bool,
    /// Targets; all of them where none is named
    targets: Vec<String>,
}

/// Memory limit of a target in MiB, and time limit of one input in seconds
/// (`forerun_fuzzing::TIME`).
const LIMITS: [&str; 2] = ["-rss_limit_mb=512", "-timeout=5"];
/// Directories of targets are made here, in memory, if it exists.
const SCRATCH: &str = "/dev/shm";
/// GCC promotes constant arrays of functions to globals, and then reports each use of them as a use
/// after scope. libzstd has such arrays.
const C_FLAGS: &str = "-fno-sanitize-address-use-after-scope";

/// Runs each target. A crash, a hang or excessive memory ends the run of that target, and
/// cargo-fuzz stores the input under `fuzz/artifacts`. Fails after all have run if a target had a
/// finding.
pub fn run(root: &Path, options: &FuzzOptions) -> Result<()> {
    if require::find_program("cargo-fuzz").is_none() {
        bail!("cargo-fuzz is not installed: cargo install --locked cargo-fuzz");
    }
    let targets = chosen(root, &options.targets)?;
    corpora(root, "unpack", &targets)?;
    if options.minimise {
        for target in &targets {
            println!("==> {target}");
            process::run(
                cargo_fuzz(root, target)
                    .args(["cmin", target, "--"])
                    .args(LIMITS),
            )?;
        }
        return corpora(root, "pack", &targets);
    }
    let mut findings = Vec::new();
    for target in &targets {
        println!("==> {target}: {} s", options.seconds);
        let mut run = cargo_fuzz(root, target);
        run.args(["run", target, "--", "-print_final_stats=1"])
            .args(LIMITS);
        run.arg(format!("-max_total_time={}", options.seconds));
        if let Err(error) = process::run(&mut run) {
            findings.push(format!(
                "{target}: {error:#}; {}",
                artifacts(root, target).join(" ")
            ));
        }
    }
    println!(
        "{} targets, {} with findings",
        targets.len(),
        findings.len()
    );
    ensure!(findings.is_empty(), "findings:\n{}", findings.join("\n"));
    Ok(())
}

/// Returns the named targets, or all.
fn chosen(root: &Path, named: &[String]) -> Result<Vec<String>> {
    let list = process::output(cargo_fuzz(root, "").arg("list"))?;
    let all: Vec<String> = list.lines().map(str::to_string).collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("no fuzz target {unknown}; there are: {}", all.join(", "));
    }
    Ok(if named.is_empty() {
        all
    } else {
        named.to_vec()
    })
}

/// Moves inputs between the stored archives and `fuzz/corpus`.
fn corpora(root: &Path, verb: &str, targets: &[String]) -> Result<()> {
    let mut cargo = process::cargo(root);
    cargo.args(["run", "--quiet", "--locked", "--package", "forerun-fuzzing"]);
    cargo.args(["--example", "corpora", "--", verb, "fuzz/corpus"]);
    process::run(cargo.args(targets))
}

/// Returns the files with inputs on which a target has failed, in this run or before.
fn artifacts(root: &Path, target: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join("fuzz/artifacts").join(target));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// Returns the command for cargo-fuzz. Sanitizers and coverage need a nightly compiler; a variable
/// enables them in the stable one, so no second toolchain is needed.
fn cargo_fuzz(root: &Path, target: &str) -> Command {
    let mut cargo = process::cargo(root);
    cargo.env("RUSTC_BOOTSTRAP", "1").arg("fuzz");
    cargo.env("CFLAGS", C_FLAGS);
    // LeakSanitizer reports memory that a thread owns while it starts or ends, so it only checks
    // the codecs: they are C libraries, called on one thread. AddressSanitizer by default retains
    // 256 MiB of freed memory, half of a target's limit.
    let leaks = u8::from(target.starts_with("codec_"));
    cargo.env(
        "ASAN_OPTIONS",
        format!("quarantine_size_mb=32:detect_leaks={leaks}"),
    );
    if Path::new(SCRATCH).is_dir() {
        cargo.env("TMPDIR", SCRATCH);
    }
    cargo
}
