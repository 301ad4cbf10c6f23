//! The results: comparisons, contents that differ, and JSON.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value, json};

use super::plan::{BenchWork, Contender, Contents, Plan};
use super::runner::Runner;
use crate::json::put_bytes;
use crate::measure::machine::{Machine, filesystem_of};
use crate::measure::noise::Noise;
use crate::measure::peers::Peer;
use crate::measure::statistics::{Comparison, LEAST_ROUNDS, Samples, Verdict};

pub struct MeasuredSeries {
    pub work: BenchWork,
    pub by: Contender,
    pub samples: Samples,
}

pub struct Checked {
    pub contents: Contents,
    pub by: Contender,
    /// The contender, and how it read the contents.
    pub name: String,
    pub digest: crate::measure::Result<String>,
}

pub struct BenchReport<'r> {
    pub runner: &'r Runner,
    pub plan: &'r Plan,
    pub rounds: u32,
    pub checked: Vec<Checked>,
    pub series: Vec<MeasuredSeries>,
    pub noise: Noise,
}

impl BenchReport<'_> {
    /// Returns forerun's series of a workload: the mount's if there is one.
    pub fn ours(&self, work: BenchWork) -> Option<&MeasuredSeries> {
        let mut of_work = self.series.iter().filter(|series| series.work == work);
        let first = of_work
            .clone()
            .find(|series| series.by == Contender::Forerun);
        first.or_else(|| of_work.find(|series| series.by.is_ours()))
    }

    pub fn comparison(&self, series: &MeasuredSeries) -> Option<Comparison> {
        let ours = self.ours(series.work)?;
        if ours.by == series.by {
            return None;
        }
        Some(Comparison::of(
            &ours.samples.summary()?,
            &series.samples.summary()?,
        ))
    }

    /// Returns a sentence for each contender that failed, or that read something different from
    /// forerun.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for series in &self.series {
            if let Some(error) = series.samples.failures.first() {
                let count = series.samples.failures.len();
                problems.push(format!("{count} of {} runs failed: {error:#}", self.rounds));
            }
        }
        for checked in &self.checked {
            if let Err(error) = &checked.digest {
                problems.push(format!("{error:#}"));
            }
        }
        problems.extend(self.differences());
        problems
    }

    fn differences(&self) -> Vec<String> {
        let mut differences = Vec::new();
        for contents in [Contents::File, Contents::Pages, Contents::Tree] {
            let digests = self.digests(contents);
            let Some(first) = digests.clone().find(|(checked, _)| checked.by.is_ours()) else {
                continue;
            };
            differences.extend(digests.filter(|read| read.1 != first.1).map(|(read, _)| {
                let (what, by, first) = (contents.name(), &read.name, &first.0.name);
                format!("{by} read a different {what} than {first}")
            }));
        }
        for series in &self.series {
            let (work, by) = (series.work.name(), series.by);
            let ours = self.ours(series.work).and_then(|ours| ours.samples.found());
            match (ours, series.samples.found()) {
                // The digests of extracted trees are compared with the others.
                _ if series.work == BenchWork::Extract || series.samples.runs.is_empty() => {}
                (Some(ours), Some(found)) => {
                    if !ours.is_empty() && !found.is_empty() && ours != found {
                        differences.push(format!("{work}: {by} found {found} instead of {ours}"));
                    }
                }
                _ => differences.push(format!("{work}: {by} found different results in its runs")),
            }
        }
        differences.dedup();
        differences
    }

    /// Adds the digests of extracted trees to the digests of the contents that were read.
    pub fn check_extracted(&mut self) {
        for series in self
            .series
            .iter()
            .filter(|series| series.work == BenchWork::Extract)
        {
            let mut digests: Vec<&String> =
                series.samples.runs.iter().map(|run| &run.found).collect();
            digests.dedup();
            self.checked
                .extend(digests.into_iter().map(|digest| Checked {
                    contents: Contents::Tree,
                    by: series.by,
                    name: format!("{}, extracted", series.by),
                    digest: Ok(digest.clone()),
                }));
        }
    }

    fn digests(&self, contents: Contents) -> impl Iterator<Item = (&Checked, &String)> + Clone {
        let of_contents = self
            .checked
            .iter()
            .filter(move |checked| checked.contents == contents);
        of_contents.filter_map(|checked| Some((checked, checked.digest.as_ref().ok()?)))
    }

    /// Returns whether nothing failed and no contents differ.
    pub fn is_sound(&self) -> bool {
        self.problems().is_empty()
    }

    pub fn programs(&self) -> Vec<(&'static str, String)> {
        let mut programs = vec![("forerun", env!("CARGO_PKG_VERSION").to_string())];
        for (_, contenders) in &self.plan.rows {
            for contender in contenders {
                let Contender::Peer(peer) = contender else {
                    continue;
                };
                if !programs.iter().any(|(name, _)| *name == peer.name()) {
                    programs.extend(peer.version().map(|version| (peer.name(), version)));
                }
            }
        }
        programs
    }

    pub fn json(&self) -> Value {
        let runner = self.runner;
        let survey = &runner.survey;
        let mut cat = Map::new();
        put_bytes(&mut cat, "path", survey.largest.as_os_str().as_bytes());
        cat.insert("bytes".into(), survey.cat_bytes().into());
        cat.insert("file_bytes".into(), survey.largest_bytes.into());
        let programs = self.programs().into_iter();
        let programs = programs.map(|(name, version)| (name.to_string(), version.into()));
        let missing = self.plan.missing.iter();
        let missing = missing.map(|(by, why)| json!({ "contender": by.name(), "why": why }));
        let left_out = self.plan.left_out.iter();
        let left_out = left_out.map(|(work, why)| json!({ "work": work.name(), "why": why }));
        let works = self.plan.rows.iter().map(|(work, _)| {
            let of_work = self.series.iter().filter(|series| series.work == *work);
            let contenders: Vec<Value> = of_work.map(|series| self.series_json(series)).collect();
            json!({ "work": work.name(), "contenders": contenders })
        });
        let mut report = Map::new();
        put_bytes(&mut report, "image", runner.image.as_os_str().as_bytes());
        for (key, value) in [
            ("format", json!(survey.format)),
            ("offset", json!(runner.offset)),
            ("files", json!(survey.files)),
            ("bytes", json!(survey.bytes)),
            (
                "filesystem",
                json!(filesystem_of(&runner.image).map(|(fstype, _)| fstype)),
            ),
            ("cat", cat.into()),
            ("rounds", json!(self.rounds)),
            ("processes", json!(runner.processes)),
            // Bench once emptied the caches of the whole machine.
            ("dropped_all_caches", json!(false)),
            ("machine", Machine::look().json()),
            ("programs", Value::Object(programs.collect())),
            ("missing", missing.collect()),
            ("left_out", left_out.collect()),
            ("works", works.collect()),
            ("contents", self.contents_json()),
            ("noise", self.noise.json()),
            ("problems", self.problems().into()),
        ] {
            report.insert(key.to_string(), value);
        }
        report.into()
    }

    fn series_json(&self, series: &MeasuredSeries) -> Value {
        let runs = &series.samples.runs;
        let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
        let summary = series.samples.summary();
        let counters: Vec<&_> = runs.iter().map(|run| &run.counters).collect();
        let has_counters = series.by.is_ours();
        let comparison = self.comparison(series);
        let failures = series.samples.failures.iter();
        let failures: Vec<String> = failures.map(|error| format!("{error:#}")).collect();
        json!({
            "contender": series.by.name(),
            "seconds": seconds,
            "seconds_median": summary.map(|summary| summary.median),
            "seconds_spread": summary.map(|summary| summary.spread),
            "found": series.samples.found(),
            "peak_memory": series.samples.peak(),
            "counters": has_counters.then_some(counters),
            "comparison": comparison.map(|comparison| json!({
                "ratio": comparison.ratio,
                "difference": comparison.difference,
                "spread": comparison.spread,
                "verdict": comparison.verdict.name(),
                "text": verdict_text(&comparison, series.by),
            })),
            "failures": failures,
        })
    }

    fn contents_json(&self) -> Value {
        let mut all = Map::new();
        for contents in [Contents::File, Contents::Pages, Contents::Tree] {
            let digests = self.digests(contents);
            let digests: Vec<Value> = digests
                .map(|(read, digest)| json!({ "by": read.name, "digest": digest }))
                .collect();
            if !digests.is_empty() {
                all.insert(contents.name().to_string(), digests.into());
            }
        }
        all.into()
    }
}

pub fn verdict_text(comparison: &Comparison, with: Contender) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    match comparison.verdict {
        Verdict::Faster | Verdict::Slower => {
            let of = match with {
                Contender::Peer(Peer::Kernel) => "the kernel's driver".to_string(),
                with => with.to_string(),
            };
            format!("{:.2} of {of}", comparison.ratio)
        }
        Verdict::Undecided => format!(
            "undecided: the spread ({}) is larger than the difference ({})",
            percent(comparison.spread),
            percent(comparison.difference)
        ),
        Verdict::TooFew => format!("undecided: at least {LEAST_ROUNDS} rounds are needed"),
    }
}
