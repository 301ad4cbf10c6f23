//! `cargo xtask bench by-hand`: the work of `forerun bench`, done again by a shell, to check its ratios.
//!
//! Mounts, cold caches and clocks are those of a user. A shell of its own starts each reader. Of the measuring library,
//! that side uses the reader of trees, and what has memory at hand, so that both find the machine in one state. Both
//! sides take turns with each piece of work, and every second round begins by hand, so that a slow minute of the machine
//! meets both. Machines differ in how quiet they are, so a difference is a failure only where it is larger than what the
//! rounds differ by among themselves. The last rows of the table have all rounds of a contender together.

mod agreement;
mod images;
mod rounds;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use super::program_in;
use crate::process;
use agreement::{Agreement, Compared};
use rounds::{Ratios, RoundsFile};

const SCRIPT: &str = include_str!("run.sh");
/// The work that both sides do.
const WORKS: &str = "cat-cold,ls,tree,extract";

/// How to compare.
#[derive(clap::Args)]
pub struct ByHandOptions {
    /// Rounds; each measures everything once on both sides
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(3..=1000))]
    rounds: u32,
    /// Where images are kept between runs: a disk with 2 GB to spare, not memory
    #[arg(long, default_value = "/var/tmp/forerun-bench-by-hand")]
    dir: PathBuf,
    /// Measure this program and not the tree as it is installed
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Measure only with these images, separated by commas: squashfs-gzip, squashfs-zstd, erofs, erofs-lz4, exfat
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = images::NAMES)]
    images: Vec<String>,
    /// Do only this work, separated by commas
    #[arg(long, default_value = WORKS, value_name = "WORK")]
    only: String,
    /// Count the rounds that this file has from earlier runs, and add those of this run to it: one file for each
    /// program that is measured
    #[arg(long, value_name = "FILE")]
    add_to: Option<PathBuf>,
}

/// A comparison: image, work, contender.
type Key = (String, String, String);

/// The seconds of one round, by image, work and contender.
type Seconds = BTreeMap<Key, f64>;

/// The measurements of `forerun bench`.
struct Told {
    seconds: Seconds,
    /// The contenders in the order in which they were measured.
    order: Vec<Key>,
    /// Bytes of all files of the image.
    contents: u64,
}

/// A piece of work on an image.
#[derive(Clone, Copy)]
struct Turn<'a> {
    name: &'a str,
    image: &'a Path,
    work: &'a str,
}

/// The program that is measured, and where.
struct Sides<'a> {
    program: &'a Path,
    dir: &'a Path,
}

/// Measures on both sides, and prints how far they agree. Fails where they do not.
pub fn run(root: &Path, options: &ByHandOptions) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "needs root: to mount with the kernel's drivers, and to drop all caches"
    );
    let mut compared = Comparisons::default();
    let mut file = None;
    if let Some(path) = &options.add_to {
        let (opened, known) = RoundsFile::open(path)?;
        known.iter().for_each(|ratios| compared.push(ratios));
        file = Some(opened);
    }
    let program = program_in(root, &options.dir, options.program.as_deref())?;
    let all = images::make(root, &program, &options.dir)?;
    let is_wanted =
        |name: &str| options.images.is_empty() || options.images.iter().any(|of| of == name);
    let images: Vec<_> = all
        .into_iter()
        .filter(|(name, _)| is_wanted(name))
        .collect();
    let sides = Sides {
        program: &program,
        dir: &options.dir,
    };
    let mut known: BTreeMap<(&str, &str), Told> = BTreeMap::new();
    for round in 1..=options.rounds {
        for (name, image) in &images {
            eprintln!("round {round} of {}: {name}", options.rounds);
            for work in options.only.split(',') {
                let turn = Turn { name, image, work };
                // The contenders are known once forerun bench has named them.
                let last = known.remove(&(*name, work));
                let (bench, hand) = match last.filter(|_| round % 2 == 0) {
                    Some(last) => {
                        let hand = sides.by_hand(turn, &last)?;
                        (sides.by_bench(turn)?, hand)
                    }
                    None => {
                        let bench = sides.by_bench(turn)?;
                        let hand = sides.by_hand(turn, &bench)?;
                        (bench, hand)
                    }
                };
                tell(&bench.seconds, &hand);
                for ratios in ratios(&bench.seconds, &hand) {
                    compared.push(&ratios);
                    if let Some(file) = &mut file {
                        file.add(&ratios)?;
                    }
                }
                known.insert((*name, work), bench);
            }
        }
    }
    ensure!(
        !compared.each.is_empty(),
        "no other driver or program took part"
    );
    let rows = || compared.each.iter().chain(&compared.together);
    println!("{}", table(rows()));
    let differ: Vec<String> = rows()
        .filter(|(_, of)| of.agreement() == Agreement::Differs)
        .map(|((image, work, by), _)| format!("{image} {work} {by}"))
        .collect();
    ensure!(
        differ.is_empty(),
        "forerun bench tells other ratios: {}",
        differ.join(", ")
    );
    Ok(())
}

/// The comparisons so far.
#[derive(Default)]
struct Comparisons {
    each: BTreeMap<Key, Compared>,
    /// With all rounds of all rows of a contender, a lean shows that is lost in the noise of each row.
    together: BTreeMap<Key, Compared>,
}

impl Comparisons {
    fn push(&mut self, ratios: &Ratios) {
        let (bench, hand) = (ratios.bench, ratios.hand);
        let all = || "all".to_string();
        let together = self
            .together
            .entry((all(), all(), ratios.against.clone()))
            .or_default();
        together.push(bench / hand.max(1e-9), 1.0);
        self.each.entry(ratios.key()).or_default().push(bench, hand);
    }
}

/// Prints the seconds of one round, so that a run that ends early was not for nothing.
fn tell(bench: &Seconds, hand: &Seconds) {
    for (key, bench) in bench {
        let (_, work, by) = key;
        if let Some(hand) = hand.get(key) {
            eprintln!("  {work} {by}: {bench:.3} s, by hand {hand:.3} s");
        }
    }
}

/// Returns the ratios of one round, forerun to each other contender: of `forerun bench`, and by hand.
fn ratios(bench: &Seconds, hand: &Seconds) -> Vec<Ratios> {
    let ratio = |side: &Seconds, key: &Key| {
        let (image, work, _) = key;
        let ours = side.get(&(image.clone(), work.clone(), "forerun".to_string()))?;
        Some(ours / side.get(key)?.max(1e-9))
    };
    let others = bench.keys().filter(|(_, _, by)| by != "forerun");
    others
        .filter_map(|key| {
            let (image, work, against) = key.clone();
            Some(Ratios {
                image,
                work,
                against,
                bench: ratio(bench, key)?,
                hand: ratio(hand, key)?,
            })
        })
        .collect()
}

impl Sides<'_> {
    /// Measures with `forerun bench`.
    fn by_bench(&self, turn: Turn<'_>) -> Result<Told> {
        let Turn { name, image, work } = turn;
        let mut command = Command::new(self.program);
        command.args([
            "bench", "--json", "--quiet", "--rounds", "1", "--only", work,
        ]);
        command.arg("--dir").arg(self.dir).arg(image);
        let told: Value = serde_json::from_str(&process::output(&mut command)?)?;
        let contents = told["bytes"].as_u64().context("bytes of all files")?;
        let mut seconds = Seconds::new();
        let mut order = Vec::new();
        for work in told["works"].as_array().into_iter().flatten() {
            for contender in work["contenders"].as_array().into_iter().flatten() {
                let text = |of: &Value| of.as_str().map(str::to_string);
                let names = text(&work["work"]).zip(text(&contender["contender"]));
                let (work, by) = names.context("a work and a contender")?;
                let median = contender["seconds_median"].as_f64();
                let median = median.with_context(|| format!("{name}: {work} by {by} failed"))?;
                let key = (name.to_string(), work, by);
                order.push(key.clone());
                seconds.insert(key, median);
            }
        }
        Ok(Told {
            seconds,
            order,
            contents,
        })
    }

    /// Does by hand what `forerun bench` did, in this round or the last, and in its order, so that each run follows the
    /// same one on both sides.
    fn by_hand(&self, turn: Turn<'_>, known: &Told) -> Result<Seconds> {
        let mut seconds = Seconds::new();
        for key in &known.order {
            let (_, work, by) = key;
            let place = self.dir.join("by-hand");
            fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
            let mut command = Command::new("bash");
            command.args(["-c", SCRIPT, "bash", work, by]);
            command.arg(self.program).arg(turn.image).arg(&place);
            command.args([images::LARGEST, &known.contents.to_string()]);
            let told = process::output(&mut command)?;
            let microseconds: f64 = told
                .trim()
                .parse()
                .with_context(|| format!("{}: {told:?}", turn.name))?;
            seconds.insert(key.clone(), microseconds / 1e6);
        }
        Ok(seconds)
    }
}

/// Formats the comparisons. Those of all images and works have the quotients of both ratios, and 1 by hand.
fn table<'a>(rows: impl Iterator<Item = (&'a Key, &'a Compared)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "image",
        "work",
        "against",
        "forerun bench",
        "by hand",
        "difference",
        "noise",
        "more/less",
        "",
    ]);
    for column in 3..=7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for ((image, work, by), of) in rows {
        let (bench, hand) = of.medians();
        let (more, less) = of.more_and_less();
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        table.add_row([
            image.clone(),
            work.clone(),
            by.clone(),
            format!("{bench:.3}"),
            format!("{hand:.3}"),
            percent(of.difference()),
            percent(of.noise()),
            format!("{more}/{less}"),
            of.agreement().text().to_string(),
        ]);
    }
    table.to_string()
}

impl ByHandOptions {
    /// Refuses work that a shell does not do here.
    pub fn check(&self) -> Result<()> {
        for work in self.only.split(',') {
            if !WORKS.split(',').any(|known| known == work) {
                bail!("{work}: by hand there are {WORKS}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_to_each_other_contender_of_both_sides() {
        let seconds = |ours: f64, kernel: f64| {
            let key = |by: &str| ("a".to_string(), "ls".to_string(), by.to_string());
            Seconds::from([(key("forerun"), ours), (key("kernel"), kernel)])
        };
        let found = ratios(&seconds(1.0, 4.0), &seconds(3.0, 6.0));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].bench, found[0].hand), (0.25, 0.5));
        assert_eq!(ratios(&seconds(1.0, 4.0), &Seconds::new()), []);
    }
}
