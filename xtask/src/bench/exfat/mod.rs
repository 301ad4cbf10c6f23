//! exFAT compared with Debian's exfat-fuse: volumes that are changed.
//!
//! Both are mounted from loop devices, since exfat-fuse takes no files, unless `--file` says otherwise of
//! forerun. Each run has a volume of its own, made by mkfs.exfat and filled by forerun, so that both find
//! the same; all caches are dropped before.
//!
//! exfat-fuse accepts `dirsync` and never flushes anything. So forerun's durable changes are compared
//! with two things: exfat-fuse as it is, which promises nothing, and exfat-fuse followed by a flush of
//! the device after each removal, which makes the same promise.

mod device;
mod measure;
mod rows;
mod volumes;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use forerun_measure::counters::Counters;
use forerun_measure::programs::find_program;
use serde_json::json;

use super::comparison::{Row as _, Shared, all_names, or_all, rounds};
use super::host::Host;
use super::outcome::BenchOutcome;
use super::program::program_in;
use super::table::Report;
use measure::ExfatInputs;
use rows::{ExfatContender, ExfatRow};

/// Where volumes are kept by default while they are measured.
const DIR: &str = "/var/tmp/forerun-bench-exfat";

/// The programs.
const PROGRAMS: &[(&str, &str)] = &[("mount.exfat-fuse", "-V"), ("mkfs.exfat", "-V")];

/// How to measure.
#[derive(clap::Args)]
pub struct ExfatOptions {
    #[command(flatten)]
    shared: Shared,
    /// Where volumes are made: a disk with 4 GB to spare, not memory
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
    /// Have forerun open the image and no loop device
    #[arg(long)]
    file: bool,
    /// Measure only these, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ROWS")]
    rows: Vec<ExfatRow>,
}

/// Counters of the device and of forerun's trace, by row and driver.
type Requests = BTreeMap<(&'static str, String), Counters>;

impl ExfatOptions {
    /// Returns whether to print JSON.
    pub const fn json(&self) -> bool {
        self.shared.json
    }
}

/// Returns the names of the rows.
pub fn row_names() -> Vec<String> {
    all_names::<ExfatRow>()
}

/// Measures. A run that fails is a part of the outcome, so that the others are not lost.
pub fn run(root: &Path, options: &ExfatOptions) -> Result<BenchOutcome> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: for loop devices, and to drop all caches"
    );
    let shared = &options.shared;
    let inputs = ExfatInputs {
        forerun: program_in(root, &options.dir, shared.program.as_deref())?.canonicalize()?,
        dir: options.dir.canonicalize()?,
        on_file: options.file,
    };
    let host = Host::look(&inputs.forerun, &[], PROGRAMS);
    let missing = |_, contender| {
        let needed = match contender {
            ExfatContender::Forerun => "mkfs.exfat",
            ExfatContender::ExfatFuse | ExfatContender::ExfatFuseFlushed => "mount.exfat-fuse",
        };
        let there = find_program(needed).is_some();
        (!there).then(|| format!("{needed} is not installed"))
    };
    let requests = RefCell::new(Requests::new());
    let measure = |row: ExfatRow, contender: ExfatContender| {
        let run = measure::measure(&inputs, row, contender)?;
        let key = (row.what(), contender.to_string());
        requests.borrow_mut().insert(key, run.counters.clone());
        Ok(run)
    };
    let series = rounds(or_all(&options.rows), shared.rounds, missing, measure);
    let requests = requests.into_inner();
    Ok(Report {
        host,
        tree: volumes::text(),
        about: match options.file {
            true => "forerun on the image, exfat-fuse on a loop device".to_string(),
            false => "both on a loop device".to_string(),
        },
        remarks: remarks(&requests),
        facts: json!({ "device_requests": facts(&requests) }),
        series,
    }
    .outcome())
}

/// The kernel's counters of the device, from the first request of the work to the end of the mount, in
/// the last round.
const COUNTED: [&str; 3] = ["device_writes", "device_written_kib", "device_flushes"];

fn remarks(requests: &Requests) -> String {
    let mut text = String::from(
        "What reached the device in the last round, unmounting included, as the kernel counts it \
         (writes, KiB, flushes); what forerun asked for, by its own trace:\n",
    );
    for ((what, contender), counters) in requests {
        let of = |name: &str| {
            let found = counters.get(name);
            found.map_or("-".to_string(), u64::to_string)
        };
        let device: Vec<String> = COUNTED.iter().map(|name| of(name)).collect();
        text += &format!("  {what}, {contender}: {}", device.join(", "));
        if counters.contains_key("writes") {
            let bytes = counters.get("written_bytes").copied().unwrap_or(0);
            let (writes, flushes) = (of("writes"), of("flushes"));
            text += &format!("; asked: {writes}, {}, {flushes}", bytes.div_ceil(1024));
        }
        text.push('\n');
    }
    text + "Linux with the patch of the seed: 13 writes and 6 KiB to remove the file of 4 GB; \
            before it 32,775 writes and 16,387 KiB."
}

fn facts(requests: &Requests) -> serde_json::Value {
    let all = requests.iter().map(|((what, contender), counters)| {
        let names = COUNTED
            .iter()
            .chain(&["writes", "written_bytes", "flushes"]);
        let named = names.filter_map(|&name| Some((name.to_string(), *counters.get(name)?)));
        json!({ "work": what, "by": contender, "requests": named.collect::<Counters>() })
    });
    all.collect()
}
