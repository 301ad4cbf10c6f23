//! The results as tables for people.

use comfy_table::{CellAlignment, Table, presets};

use super::plan::BenchWork;
use super::report::{BenchReport, MeasuredSeries, verdict_text};
use crate::escape::{escape, printable};
use crate::measure::machine::{Machine, filesystem_of};
use crate::size;

impl BenchReport<'_> {
    pub fn text(&self) -> String {
        let mut lines = self.header();
        lines.push(String::new());
        lines.push(self.times());
        lines.push(String::new());
        lines.push(self.counters());
        lines.push(String::new());
        lines.extend(self.footer());
        let lines = lines.iter().flat_map(|text| text.split('\n'));
        lines.map(|line| format!("{}\n", line.trim_end())).collect()
    }

    fn header(&self) -> Vec<String> {
        use std::os::unix::ffi::OsStrExt;
        let runner = self.runner;
        let survey = &runner.survey;
        let place = match runner.offset {
            0 => String::new(),
            offset => format!(" at {offset}"),
        };
        let filesystem = match filesystem_of(&runner.image) {
            Some((fstype, source)) => format!(", on {fstype} ({})", printable(&source)),
            None => String::new(),
        };
        let mut lines = vec![
            format!(
                "{}: {}{place}, {} with {}{filesystem}",
                escape(runner.image.as_os_str().as_bytes()),
                survey.format,
                size::counted(survey.files, "file", "files"),
                size::human(survey.bytes),
            ),
            Machine::look().text(),
        ];
        let programs = self.programs().into_iter();
        let programs = programs.map(|(name, version)| {
            if version.contains(name) {
                printable(&version)
            } else {
                format!("{name} {}", printable(&version))
            }
        });
        lines.push(programs.collect::<Vec<_>>().join("; "));
        for (by, why) in &self.plan.missing {
            lines.push(format!("without {by}: {why}"));
        }
        for (work, why) in &self.plan.left_out {
            lines.push(format!("without {}: {why}", work.name()));
        }
        let reads_file = |work: &BenchWork| {
            matches!(
                work,
                BenchWork::CatCold | BenchWork::CatCached | BenchWork::Random
            )
        };
        if self.plan.rows.iter().any(|(work, _)| reads_file(work)) {
            let of = if survey.cat_bytes() < survey.largest_bytes {
                format!("the first {} of it", size::human(survey.cat_bytes()))
            } else {
                size::human(survey.largest_bytes)
            };
            let path = escape(survey.largest.as_os_str().as_bytes());
            lines.push(format!("largest file, for cat and random: /{path}, {of}"));
        }
        lines
    }

    fn times(&self) -> String {
        let mut table = new_table(
            &["work", "by", "median", "spread", "ratio", "verdict"],
            2..5,
        );
        for series in &self.series {
            let comparison = self.comparison(series);
            let (median, spread) = match series.samples.summary() {
                Some(summary) => (
                    seconds(summary.median),
                    format!("{:.0} %", summary.relative_spread() * 100.0),
                ),
                None => ("failed".to_string(), "-".to_string()),
            };
            let ratio = comparison.map(|comparison| format!("{:.2}", comparison.ratio));
            let verdict = comparison.map(|comparison| verdict_text(&comparison, series.by));
            table.add_row([
                self.work_name(series.work),
                series.by.to_string(),
                median,
                spread,
                ratio.unwrap_or_default(),
                verdict.unwrap_or_default(),
            ]);
        }
        table.to_string()
    }

    fn work_name(&self, work: BenchWork) -> String {
        match work {
            BenchWork::TreeN => format!("tree-n ({})", self.runner.processes),
            work => work.name(),
        }
    }

    /// Formats forerun's counters, and the memory of all contenders.
    fn counters(&self) -> String {
        let names = [
            "work", "by", "requests", "MB read", "KiB each", "decodes", "repeats", "messages",
            "peak MiB",
        ];
        let mut table = new_table(&names, 2..9);
        let number = |value: Option<u64>| value.map_or("-".to_string(), |n| n.to_string());
        let is_shown = |series: &&MeasuredSeries| {
            !series.samples.runs.is_empty()
                && (series.by.is_ours() || series.samples.peak().is_some())
        };
        for series in self.series.iter().filter(is_shown) {
            let counter = |name| series.samples.counter(|counter| counter == name);
            let (requests, bytes) = (counter("source_requests"), counter("source_bytes"));
            let messages = series.samples.counter(|name| name.starts_with("fuse_"));
            table.add_row([
                self.work_name(series.work),
                series.by.to_string(),
                number(requests),
                number(bytes.map(|bytes| bytes / 1_000_000)),
                number(bytes.and_then(|bytes| Some(bytes.checked_div(requests?)? >> 10))),
                number(counter("decodes")),
                number(counter("repeated_decodes")),
                number(messages.filter(|&count| count > 0)),
                number(series.samples.peak().map(|bytes| bytes >> 20)),
            ]);
        }
        table.to_string()
    }

    fn footer(&self) -> Vec<String> {
        let mut lines = vec![
            format!(
                "{} rounds; the pages of the image are dropped before each cold run. spread: between the quartiles, as a share of the median. ratio: the time of \
                 forerun as a share of the other's.",
                self.rounds
            ),
            format!("noise: {}.", self.noise.text()),
        ];
        match self.problems().as_slice() {
            [] => lines.push("All contenders read the same data.".to_string()),
            problems => {
                let problems = problems.iter();
                lines.extend(problems.map(|problem| format!("PROBLEM: {}", printable(problem))));
            }
        }
        lines
    }
}

fn seconds(value: f64) -> String {
    if value < 0.1 {
        format!("{:.2} ms", value * 1e3)
    } else {
        format!("{value:.3} s")
    }
}

/// Creates a table in which the columns `numbers` are aligned to the right.
fn new_table(names: &[&str], numbers: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(names);
    for column in numbers {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
