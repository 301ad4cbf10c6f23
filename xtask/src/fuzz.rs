//! The fuzz targets in `fuzz/`, one after the other, by cargo-fuzz.
//!
//! A run starts with the inputs that the repository keeps and with the seeds. `--minimise` turns what
//! the runs have found into the kept inputs.

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

/// Memory for a target in MiB, and seconds for one input (`forerun_fuzzing::TIME`).
const LIMITS: [&str; 2] = ["-rss_limit_mb=512", "-timeout=5"];
/// Directories of targets are made here where it exists: in memory.
const SCRATCH: &str = "/dev/shm";
/// GCC promotes constant arrays of functions to globals and then calls each use of them a use after their
/// scope: libzstd has such arrays.
const C_FLAGS: &str = "-fno-sanitize-address-use-after-scope";

/// Runs each target. A crash, a hang or an excess of memory ends the run of that target, and cargo-fuzz
/// keeps the input under `fuzz/artifacts`.
///
/// # Errors
/// Where a target had a finding, after all have run.
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

/// Returns the targets that were named, or all.
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

/// Moves inputs between the kept archives and `fuzz/corpus`.
fn corpora(root: &Path, verb: &str, targets: &[String]) -> Result<()> {
    let mut cargo = process::cargo(root);
    cargo.args(["run", "--quiet", "--locked", "--package", "forerun-fuzzing"]);
    cargo.args(["--example", "corpora", "--", verb, "fuzz/corpus"]);
    process::run(cargo.args(targets))
}

/// Returns the files with inputs that a target has failed on, in this run or before.
fn artifacts(root: &Path, target: &str) -> Vec<String> {
    let entries = fs::read_dir(root.join("fuzz/artifacts").join(target));
    let entries = entries.into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path().display().to_string())
        .collect()
}

/// Returns the command for cargo-fuzz. Sanitizers and coverage are features of a nightly compiler, which
/// a variable makes the stable one accept: no second toolchain is needed.
fn cargo_fuzz(root: &Path, target: &str) -> Command {
    let mut cargo = process::cargo(root);
    cargo.env("RUSTC_BOOTSTRAP", "1").arg("fuzz");
    cargo.env("CFLAGS", C_FLAGS);
    // LeakSanitizer takes what a thread owns while it starts or ends for leaked, so it only judges the codecs: they are
    // libraries in C, called on one thread. AddressSanitizer holds back 256 MiB of freed memory by default, half of what
    // a target may take.
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
