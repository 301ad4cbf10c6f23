//! All benches in one report: records as JSON, charts, and the figures of documents.
//!
//! A run that something else disturbed is kept, and no document shows it.

mod blocks;
mod compare;
mod kept;
mod peers;
mod plan;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forerun_measure::noise::Look;
use serde_json::{Value, json};

use crate::bench;
use crate::figures::write_blocks;
pub use blocks::blocks;
use kept::{KeptFigures, ReportRun};
use plan::{PlannedBench, plan};

/// Time for which the machine is watched before and after each bench.
const WATCH: Duration = Duration::from_secs(3);
/// The share of the processors' time that others may use.
const DISTURBED: f64 = 0.1;

/// The benches to run, and the use of their figures.
#[derive(clap::Args)]
pub struct ReportOptions {
    /// Run only these, separated by commas: a bench, or one row of it as BENCH/ROW
    #[arg(long, value_delimiter = ',', value_name = "BENCH")]
    only: Vec<String>,
    /// Rounds; with fewer than 3 each figure counts as noisy
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Put the programs in this directory, and in its bin and sbin, before those of the system
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Keep the figures as disturbed, for this reason, although the machine seems quiet
    #[arg(long, value_name = "REASON")]
    disturbed: Option<String>,
    /// Write the figures to README.md and docs/benchmarks.md too
    #[arg(long)]
    update: bool,
    /// Compare with another report at the end: fails where a ratio differs by more than 15 % and neither
    /// report marks it as noisy
    #[arg(long, value_name = "JSON")]
    compare: Option<PathBuf>,
    /// Measure nothing: print what would be measured, and use what docs/figures has for --update and --compare
    #[arg(long)]
    kept: bool,
}

/// Measures, and keeps the figures after each bench. Fails at the end where a bench did.
pub fn run(root: &Path, options: &ReportOptions) -> Result<()> {
    if let Some(dir) = &options.peers {
        peers::put_first(dir)?;
    }
    let planned = plan(&options.only, options.rounds, options.program.as_deref())?;
    let mut kept = KeptFigures::of_tree(root)?.unwrap_or_default();
    announce(&planned, &kept, options.rounds);
    let mut failures = Vec::new();
    if !options.kept {
        ensure!(
            rustix::process::geteuid().is_root(),
            "needs root: to mount with the kernel's drivers, and to drop all caches"
        );
        for planned in &planned {
            if let Err(error) = measure(root, planned, options, &mut kept) {
                eprintln!("FAILED: {}: {error:#}", planned.name);
                failures.push(planned.name);
            }
            kept.write(root)?;
        }
        blocks::draw_charts(root, &kept)?;
    }
    if options.update {
        blocks::draw_charts(root, &kept)?;
        write_blocks(root, &blocks(root)?)?;
    }
    if let Some(other) = &options.compare {
        compare::run(&kept, &KeptFigures::read(other)?)?;
    }
    ensure!(failures.is_empty(), "failed: {}", failures.join(", "));
    Ok(())
}

/// Prints the benches, how long they take, and the programs that forerun is compared with.
fn announce(planned: &[PlannedBench], kept: &KeptFigures, rounds: u32) {
    let mut all = 0.0;
    for planned in planned {
        let seconds = planned.round_seconds(kept) * f64::from(rounds);
        all += seconds;
        println!("{}: about {:.1} minutes", planned.name, seconds / 60.0);
    }
    println!(
        "together about {:.0} minutes, and once some 10 more to build forerun and to make the images \
         that are missing",
        all / 60.0
    );
    for peer in peers::look() {
        println!("{}", peer.text());
    }
}

fn measure(
    root: &Path,
    planned: &PlannedBench,
    options: &ReportOptions,
    kept: &mut KeptFigures,
) -> Result<()> {
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let date = date.to_string();
    let before = others();
    if let Some(why) = disturbed(&[before], 0.0) {
        println!("{why}: no document will show the figures of this run");
    }
    let (look, start) = (Look::now(), Instant::now());
    let outcome = bench::measure(root, &planned.bench)?;
    let noise = look.noise();
    outcome.print(false)?;
    println!("{}: {:.0} s", planned.name, start.elapsed().as_secs_f64());
    let after = others();
    let mut machine = outcome.host.json();
    machine["cpu_caches"] = cpu_caches(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    machine["caches_before_each_run"] = json!("dropped, but where a row says otherwise");
    let mut noise_json = noise.json();
    noise_json["others_before"] = json!(before);
    noise_json["others_after"] = json!(after);
    let run = ReportRun {
        date: date.clone(),
        rounds: options.rounds,
        machine,
        tree: outcome.tree.clone(),
        peers: peers::look(),
        noise: noise_json,
        disturbed: options
            .disturbed
            .clone()
            .or_else(|| disturbed(&[before, after], noise.stolen)),
    };
    if let Some(why) = &run.disturbed {
        println!("{}: {why}: no document shows these figures", planned.name);
    }
    let verdict = outcome.verdict();
    let name = format!("{} {date}", planned.name);
    let stays = kept.merge(&name, run, outcome.records);
    if !stays.is_empty() {
        println!("kept from an undisturbed run: {}", stays.join(", "));
    }
    verdict
}

/// Returns the share of the processors' time that others use while this program sleeps.
fn others() -> f64 {
    // Pages that are written back would count.
    rustix::fs::sync();
    let look = Look::now();
    thread::sleep(WATCH);
    let noise = look.noise();
    noise.others + noise.stolen
}

fn disturbed(others: &[f64], stolen: f64) -> Option<String> {
    let most = others.iter().fold(0.0_f64, |most, share| most.max(*share));
    if most > DISTURBED {
        Some(format!(
            "others used {:.0} % of the processors",
            most * 100.0
        ))
    } else if stolen > DISTURBED {
        let stolen = stolen * 100.0;
        Some(format!(
            "the hypervisor took {stolen:.0} % of the processors"
        ))
    } else {
        None
    }
}

/// Returns the caches of a processor: level, type and size.
fn cpu_caches(dir: &Path) -> Value {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let read = |path: PathBuf| fs::read_to_string(path).context("a cache");
    let mut caches: Vec<String> = entries
        .filter_map(|entry| {
            let of = |name| read(entry.path().join(name)).ok();
            let (level, kind, size) = (of("level")?, of("type")?, of("size")?);
            Some(format!("L{} {} {}", level.trim(), kind.trim(), size.trim()))
        })
        .collect();
    caches.sort();
    json!(caches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_disturbs() {
        assert_eq!(disturbed(&[0.02, 0.05], 0.01), None);
        let busy = disturbed(&[0.02, 0.5], 0.01);
        assert_eq!(busy.as_deref(), Some("others used 50 % of the processors"));
        let stolen = disturbed(&[0.02, 0.05], 0.2).unwrap();
        assert!(stolen.contains("the hypervisor took 20 %"), "{stolen}");
    }

    #[test]
    fn caches_of_the_processor_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for (index, [level, kind, size]) in [["2", "Unified", "1M"], ["1", "Data", "32K"]]
            .iter()
            .enumerate()
        {
            let dir = dir.path().join(format!("index{index}"));
            fs::create_dir(&dir).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(dir.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(
            cpu_caches(dir.path()),
            json!(["L1 Data 32K", "L2 Unified 1M"])
        );
    }
}
