//! Three tests: the image itself, the one large file in it, and a walk over many files.
//!
//! Each compares work that users wait for: `md5sum IMAGE` with `md5sum MOUNT/FILE`, with large blocks and
//! with the legacy ones, and `find`. Page cache, dentries and inodes are dropped before each; each mount
//! is fresh, so that its daemon's cache is empty too. Runs are interleaved, so that a slow minute of the
//! machine affects all of them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use forerun_measure::caches::drop_caches;
use forerun_measure::counters::Counters;
use forerun_measure::mount::{Access, Mounted};
use forerun_measure::programs::find_program;

use super::host::Host;
use super::inputs::{self, RomfsInputs};
use super::outcome::BenchOutcome;
use super::report::{RomfsReport, RomfsSeries, Sample};
use super::work::worker;
use crate::process;

/// The program that makes the images.
const PROGRAMS: &[(&str, &str)] = &[("genromfs", "-h")];

/// How to measure.
#[derive(clap::Args)]
pub struct RomfsOptions {
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where the images are kept between runs: a disk, not memory, and readable by others
    #[arg(long, default_value = "/var/tmp/forerun-bench")]
    dir: PathBuf,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Print JSON and no table
    #[arg(long)]
    json: bool,
}

impl RomfsOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.json
    }
}

/// Measures.
pub fn run(root: &Path, options: &RomfsOptions) -> Result<BenchOutcome> {
    let inputs = inputs::prepare(root, &options.dir, options.program.as_deref())?;
    let is_root = rustix::process::geteuid().is_root();
    let accesses = accesses(is_root);
    let mut image = RomfsSeries::new("1", "md5sum IMAGE", "no mount".to_string());
    let mut file: Vec<RomfsSeries> = series("2", "md5sum MOUNT/FILE", &accesses);
    let large = |access: &Access| access.large_blocks;
    let in_memory: Vec<Access> = accesses.iter().copied().filter(large).collect();
    let mut limit: Vec<RomfsSeries> = in_memory
        .iter()
        .map(|access| RomfsSeries::in_memory(access.user()))
        .collect();
    let mut walk: Vec<RomfsSeries> = series("3", "find MOUNT", &accesses);
    let expected = md5sum(Command::new("md5sum"), &inputs.plain)?;
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        image.push(read_image(&inputs)?);
        for (access, series) in accesses.iter().zip(&mut file) {
            series.push(read_file(&inputs, *access, &expected)?);
        }
        for (access, series) in in_memory.iter().zip(&mut limit) {
            series.push(read_in_memory(&inputs, *access, &expected)?);
        }
        for (access, series) in accesses.iter().zip(&mut walk) {
            series.push(walk_all(&inputs, *access)?);
        }
    }
    let image_len = fs::metadata(&inputs.big)?.len();
    let mut all = vec![image];
    all.extend(file);
    all.extend(limit);
    all.extend(walk);
    let host = Host::look(&inputs.forerun, &[], PROGRAMS);
    Ok(RomfsReport::new(image_len, is_root, all).outcome(host))
}

fn accesses(is_root: bool) -> Vec<Access> {
    let rootless = find_program("fusermount3").is_some();
    let mut accesses = Vec::new();
    for (user_is_there, rootless) in [(is_root, false), (rootless, true)] {
        if !user_is_there {
            let contender = if rootless { "rootless" } else { "root" };
            eprintln!("SKIP: no {contender} mounts: needs root, or fusermount3 for the others");
            continue;
        }
        accesses.extend([true, false].map(|large_blocks| Access {
            rootless,
            large_blocks,
        }));
    }
    accesses
}

fn series(test: &'static str, what: &'static str, accesses: &[Access]) -> Vec<RomfsSeries> {
    accesses
        .iter()
        .map(|access| RomfsSeries::new(test, what, access.name()))
        .collect()
}

fn read_image(inputs: &RomfsInputs) -> Result<Sample> {
    let begin = Instant::now();
    drop_caches(&inputs.big, inputs.big.metadata()?.len(), &worker()?)?;
    let start = Instant::now();
    md5sum(Command::new("md5sum"), &inputs.big)?;
    Ok(Sample {
        seconds: start.elapsed().as_secs_f64(),
        took: begin.elapsed().as_secs_f64(),
        counters: Counters::new(),
    })
}

fn read_file(inputs: &RomfsInputs, access: Access, expected: &str) -> Result<Sample> {
    let nothing = || Ok(());
    measure(inputs, &inputs.big, access, nothing, |path| {
        sum_file(path, access, expected)
    })
}

/// Reads the file while the image is in the page cache: what the way through FUSE takes, without the disk.
fn read_in_memory(inputs: &RomfsInputs, access: Access, expected: &str) -> Result<Sample> {
    let read_all = || {
        io::copy(&mut File::open(&inputs.big)?, &mut io::sink())?;
        Ok(())
    };
    measure(inputs, &inputs.big, access, read_all, |path| {
        sum_file(path, access, expected)
    })
}

fn sum_file(mount: &Path, access: Access, expected: &str) -> Result<()> {
    let got = md5sum(access.command(Path::new("md5sum")), &mount.join("big"))?;
    ensure!(got == expected, "{}: other contents: {got}", access.name());
    Ok(())
}

fn walk_all(inputs: &RomfsInputs, access: Access) -> Result<Sample> {
    let nothing = || Ok(());
    measure(inputs, &inputs.many, access, nothing, |path| {
        let found = process::output(access.command(Path::new("find")).arg(path))?;
        let files = found.lines().filter(|line| line.contains("/file-")).count();
        let files = u64::try_from(files)?;
        ensure!(files == inputs::MANY, "{}: {files} files", access.name());
        Ok(())
    })
}

fn measure(
    inputs: &RomfsInputs,
    image: &Path,
    access: Access,
    prepare: impl FnOnce() -> Result<()>,
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<Sample> {
    let begin = Instant::now();
    let mounted = Mounted::new(&inputs.forerun, image, access)?;
    drop_caches(image, image.metadata()?.len(), &worker()?)?;
    prepare()?;
    let start = Instant::now();
    work(&mounted.path())?;
    let seconds = start.elapsed().as_secs_f64();
    let counters = mounted.finish()?;
    Ok(Sample {
        seconds,
        took: begin.elapsed().as_secs_f64(),
        counters,
    })
}

fn md5sum(mut command: Command, path: &Path) -> Result<String> {
    let output = process::output(command.arg(path).stdin(Stdio::null()))?;
    let sum = output.split_whitespace().next();
    Ok(sum.context("md5sum printed nothing")?.to_string())
}
