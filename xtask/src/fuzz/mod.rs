//! The fuzz targets in `fuzz/`, one after the other, by cargo-fuzz.
//!
//! A run starts with the inputs that the repository keeps and with the seeds. `--minimise` turns what
//! the runs have found into the kept inputs.

mod outcome;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use comfy_table::Table;
use forerun_testkit::require;

use crate::process;
use outcome::Outcome;

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

/// Memory that a target may take, in MiB.
const MEMORY_MIB: u32 = 512;
/// Time for one input, in seconds: `forerun_fuzzing::TIME`.
const SECONDS_AN_INPUT: u32 = 5;

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
        return minimise(root, &targets);
    }
    let mut outcomes = Vec::new();
    for target in targets {
        println!("==> {target}: {} s", options.seconds);
        let outcome = fuzz(root, &target, options.seconds)?;
        outcomes.push((target, outcome));
    }
    println!("{}", table(&outcomes));
    let found = outcomes.iter().filter(|(_, outcome)| !outcome.is_sound());
    let names: Vec<&str> = found.map(|(name, _)| &name[..]).collect();
    ensure!(names.is_empty(), "findings: {}", names.join(", "));
    Ok(())
}

/// Returns the targets that were named, or all.
fn chosen(root: &Path, named: &[String]) -> Result<Vec<String>> {
    let list = process::output(cargo_fuzz(root).arg("list"))?;
    let all: Vec<String> = list.lines().map(str::to_string).collect();
    if let Some(unknown) = named.iter().find(|name| !all.contains(name)) {
        bail!("no fuzz target {unknown}; there are: {}", all.join(", "));
    }
    match named {
        [] => Ok(all),
        named => Ok(named.to_vec()),
    }
}

/// Moves inputs between the kept archives and `fuzz/corpus`.
fn corpora(root: &Path, verb: &str, targets: &[String]) -> Result<()> {
    let mut cargo = process::cargo(root);
    cargo.args(["run", "--quiet", "--locked", "--package", "forerun-fuzzing"]);
    cargo.args(["--example", "corpora", "--", verb, "fuzz/corpus"]);
    process::run(cargo.args(targets))
}

/// Replaces the corpus of each target by the smallest one with the same coverage, and keeps of that what
/// the bounds of the repository allow.
fn minimise(root: &Path, targets: &[String]) -> Result<()> {
    for target in targets {
        println!("==> {target}");
        let mut minimise = cargo_fuzz(root);
        minimise.env("ASAN_OPTIONS", sanitizer(target));
        minimise.args(["cmin", target, "--"]).args(limits());
        process::run(&mut minimise)?;
    }
    corpora(root, "pack", targets)
}

/// Runs one target, and shows what libFuzzer prints.
fn fuzz(root: &Path, target: &str, seconds: u32) -> Result<Outcome> {
    let mut run = cargo_fuzz(root);
    run.args(["run", target, "--", "-print_final_stats=1"]);
    run.env("ASAN_OPTIONS", sanitizer(target));
    run.args(limits()).arg(format!("-max_total_time={seconds}"));
    let text = process::describe(&run);
    let mut child = run.stderr(Stdio::piped()).spawn().context(text)?;
    let stderr = child.stderr.take().context("a pipe from cargo-fuzz")?;
    let mut outcome = Outcome::default();
    for line in BufReader::new(stderr).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        eprintln!("{line}");
        outcome.note(&line);
    }
    outcome.ended(child.wait()?.success());
    Ok(outcome)
}

fn limits() -> [String; 2] {
    [
        format!("-rss_limit_mb={MEMORY_MIB}"),
        format!("-timeout={SECONDS_AN_INPUT}"),
    ]
}

/// Returns the options of the sanitizer for a target. LeakSanitizer takes what a thread owns while it
/// starts or ends for leaked, so it only judges the codecs: they are libraries in C, called on one thread.
fn sanitizer(target: &str) -> String {
    let leaks = u8::from(target.starts_with("codec_"));
    format!("{SANITIZER}:detect_leaks={leaks}")
}

/// Directories of targets are made here where it exists: in memory.
const SCRATCH: &str = "/dev/shm";

/// GCC promotes constant arrays of functions to globals and then calls each use of them a use after their
/// scope: libzstd has such arrays.
const C_FLAGS: &str = "-fno-sanitize-address-use-after-scope";
/// Freed memory that AddressSanitizer holds back. By default it is 256 MiB, half of what a target may take.
const SANITIZER: &str = "quarantine_size_mb=32";

/// Returns the command for cargo-fuzz. Sanitizers and coverage are features of a nightly compiler, which
/// a variable makes the stable one accept: no second toolchain is needed.
fn cargo_fuzz(root: &Path) -> Command {
    let mut cargo = process::cargo(root);
    cargo.env("RUSTC_BOOTSTRAP", "1").arg("fuzz");
    cargo.env("CFLAGS", C_FLAGS);
    if Path::new(SCRATCH).is_dir() {
        cargo.env("TMPDIR", SCRATCH);
    }
    cargo
}

fn table(outcomes: &[(String, Outcome)]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["target", "executions", "findings"]);
    for (name, outcome) in outcomes {
        let executions = outcome.executions.to_string();
        table.add_row([&name[..], &executions, &outcome.findings()]);
    }
    table
}
