//! The file of figures: rows, and the runs that measured them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::programs::{first_line, output};

#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Figures {
    pub runs: Vec<Run>,
    pub rows: Vec<Row>,
}

/// When and where rows were measured.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub date: String,
    pub machine: String,
    pub rounds: usize,
    pub programs: Vec<String>,
}

/// The times or sizes of one workload for forerun and another program.
#[derive(Clone, Serialize, Deserialize)]
pub struct Row {
    /// The chart that shows it: images, exfat or servers.
    pub group: String,
    pub work: String,
    pub against: String,
    /// `s`, or `MB` for the length of the output.
    pub unit: String,
    pub run: String,
    /// The values of each round, of forerun and of the other program.
    pub ours: Vec<f64>,
    pub theirs: Vec<f64>,
}

/// The compared programs, and the option with which each prints its version.
const PROGRAMS: [(&str, &str); 9] = [
    ("squashfuse_ll", "--help"),
    ("unsquashfs", "-version"),
    ("mksquashfs", "-version"),
    ("mkfs.erofs", "-V"),
    ("fsck.erofs", "-V"),
    ("erofsfuse", "--help"),
    ("mount.exfat-fuse", "-V"),
    ("skopeo", "--version"),
    ("docker-registry", "--version"),
];

impl Run {
    /// Records date, machine and versions.
    pub fn begin(program: &Path, rounds: usize) -> Result<Self> {
        let date = output(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))?;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let cpus = std::thread::available_parallelism()?;
        let info = fs::read_to_string("/proc/cpuinfo")?;
        let model = info.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split(": ").nth(1));
        let versions = PROGRAMS.iter().filter_map(|(name, argument)| {
            let said = first_line(Command::new(name).arg(argument))?;
            Some(if said.contains(name) {
                said
            } else {
                format!("{name}: {said}")
            })
        });
        let ours = first_line(Command::new(program).arg("--version"));
        Ok(Self {
            date: date.trim().to_string(),
            machine: format!(
                "Linux {}, {cpus} CPUs of {}",
                kernel.trim(),
                model.unwrap_or("?")
            ),
            rounds,
            programs: ours.into_iter().chain(versions).collect(),
        })
    }
}

impl Row {
    /// Makes a row. [`Figures::add`] sets its run.
    pub fn new(group: &str, work: &str, against: &str, [ours, theirs]: [Vec<f64>; 2]) -> Self {
        Self {
            group: group.to_string(),
            work: work.to_string(),
            against: against.to_string(),
            unit: "s".to_string(),
            run: String::new(),
            ours,
            theirs,
        }
    }

    /// Returns the ratio of the medians, and the lowest and highest ratio of a round. A slow minute
    /// of the machine affects both programs of a round.
    pub fn ratio(&self) -> [f64; 3] {
        let ratio = median(&self.ours) / median(&self.theirs).max(1e-9);
        let rounds = self.ours.iter().zip(&self.theirs);
        let rounds = rounds.map(|(ours, theirs)| ours / theirs.max(1e-9));
        let low = rounds.clone().fold(ratio, f64::min);
        [ratio, low, rounds.fold(ratio, f64::max)]
    }

    /// Returns whether the rounds differ by more than 15 %, or are fewer than three.
    pub fn is_noisy(&self) -> bool {
        let [_, low, high] = self.ratio();
        // Lengths of outputs have no rounds.
        high > low * 1.15 || self.unit == "s" && self.ours.len().min(self.theirs.len()) < 3
    }
}

impl Figures {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        serde_json::from_str(&text).with_context(|| path.display().to_string())
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(path, text).with_context(|| path.display().to_string())
    }

    /// Adds the rows of a run. They replace all earlier rows of the same groups. Runs without rows
    /// are removed.
    pub fn add(&mut self, run: Run, rows: Vec<Row>) {
        let is_new = |row: &Row| rows.iter().any(|new| new.group == row.group);
        self.rows.retain(|row| !is_new(row));
        self.rows.extend(rows.into_iter().map(|row| Row {
            run: run.date.clone(),
            ..row
        }));
        self.runs.push(run);
        let is_used = |run: &Run| self.rows.iter().any(|row| row.run == run.date);
        self.runs.retain(is_used);
    }
}

/// Returns the middle value, or the mean of the two middle ones. Returns NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (
        sorted.get(sorted.len().saturating_sub(1) / 2),
        sorted.get(sorted.len() / 2),
    );
    match (low, high) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: &[f64], theirs: &[f64]) -> Row {
        Row::new("images", "read", "kernel", [ours.to_vec(), theirs.to_vec()])
    }

    #[test]
    fn ratios_are_those_of_the_rounds() {
        // Both are slow in the second round, which is not noise.
        let steady = row(&[1.0, 3.0, 1.05], &[2.0, 6.0, 2.0]);
        assert_eq!(
            (steady.ratio(), steady.is_noisy()),
            ([0.525, 0.5, 0.525], false)
        );
        assert!(row(&[1.0, 1.0, 1.2], &[2.0, 2.0, 2.0]).is_noisy());
        assert!(row(&[1.0, 1.0], &[2.0, 2.0]).is_noisy());
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn groups_that_are_not_measured_again_stay() {
        let run = |date: &str| Run {
            date: date.to_string(),
            machine: String::new(),
            rounds: 3,
            programs: Vec::new(),
        };
        let of = |group: &str| Row {
            group: group.to_string(),
            ..row(&[1.0], &[1.0])
        };
        let mut figures = Figures::default();
        figures.add(run("one"), vec![of("images"), of("images"), of("exfat")]);
        figures.add(run("two"), vec![of("images")]);
        let rows = figures
            .rows
            .iter()
            .map(|row| (row.group.as_str(), row.run.as_str()));
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [("exfat", "one"), ("images", "two")]
        );
        figures.add(run("three"), figures.rows.clone());
        assert_eq!(figures.runs.len(), 1);
    }
}
