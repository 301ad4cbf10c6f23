//! The results: comparisons, contents that differ, and JSON.

use std::os::unix::ffi::OsStrExt;

use crate::measure::machine::{Machine, filesystem_of};
use crate::measure::noise::Noise;
use crate::measure::peers::Peer;
use crate::measure::samples::Samples;
use crate::measure::statistics::{Comparison, Verdict};
use serde_json::{Map, Value, json};

use super::plan::{BenchWork, Contender, Contents, Plan};
use super::runner::Runner;
use crate::json::put_bytes;

/// The runs of one piece of work by one contender.
pub struct MeasuredSeries {
    pub work: BenchWork,
    pub by: Contender,
    pub samples: Samples,
}

/// The digest of what a contender reads.
pub struct Checked {
    pub contents: Contents,
    pub by: Contender,
    /// The digest, or why there is none.
    pub digest: crate::measure::Result<String>,
}

/// A digest, and how it came about.
#[derive(PartialEq, Eq)]
struct DigestOf<'r> {
    by: Contender,
    is_extracted: bool,
    digest: &'r str,
}

impl DigestOf<'_> {
    fn name(&self) -> String {
        if self.is_extracted {
            format!("{}, extracted", self.by)
        } else {
            self.by.to_string()
        }
    }
}

pub struct BenchReport<'r> {
    /// The image and the program.
    pub runner: &'r Runner,
    pub plan: &'r Plan,
    pub rounds: u32,
    pub checked: Vec<Checked>,
    pub series: Vec<MeasuredSeries>,
    /// Other work of the machine meanwhile.
    pub noise: Noise,
}

impl BenchReport<'_> {
    /// Returns our series of a work: that of the mount where there is one.
    pub fn ours(&self, work: BenchWork) -> Option<&MeasuredSeries> {
        let mut of_work = self.series.iter().filter(|series| series.work == work);
        let first = of_work
            .clone()
            .find(|series| series.by == Contender::Forerun);
        first.or_else(|| of_work.find(|series| series.by.is_ours()))
    }

    /// Compares ours with another series of the same work.
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

    /// Returns a sentence for each contender that failed, and for each that read something else than the
    /// first of this program.
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
            let Some(first) = digests.iter().find(|read| read.by.is_ours()) else {
                continue;
            };
            for read in digests.iter().filter(|read| read.digest != first.digest) {
                let (what, by, first) = (contents.name(), read.name(), first.name());
                differences.push(format!("{by} read another {what} than {first}"));
            }
        }
        for series in &self.series {
            let Some(ours) = self.ours(series.work) else {
                continue;
            };
            let (Some(ours), Some(found)) = (ours.samples.found(), series.samples.found()) else {
                if !series.samples.runs.is_empty() {
                    let (work, by) = (series.work.name(), series.by);
                    differences.push(format!("{work}: {by} found something else in each run"));
                }
                continue;
            };
            let is_known = ours.is_empty() || found.is_empty();
            let has_digest = series.work == BenchWork::Extract;
            if !is_known && !has_digest && ours != found {
                let (work, by) = (series.work.name(), series.by);
                differences.push(format!("{work}: {by} found {found}, and not {ours}"));
            }
        }
        differences.dedup();
        differences
    }

    /// Lists the digests of some contents, those of extracted trees among them.
    fn digests(&self, contents: Contents) -> Vec<DigestOf<'_>> {
        let read = self.checked.iter().filter_map(|checked| {
            let digest = checked.digest.as_ref().ok()?;
            (checked.contents == contents).then_some(DigestOf {
                by: checked.by,
                is_extracted: false,
                digest,
            })
        });
        let mut digests: Vec<DigestOf<'_>> = read.collect();
        let is_extraction = |series: &&MeasuredSeries| {
            series.work == BenchWork::Extract && contents == Contents::Tree
        };
        for series in self.series.iter().filter(is_extraction) {
            for run in &series.samples.runs {
                let extracted = DigestOf {
                    by: series.by,
                    is_extracted: true,
                    digest: &run.found,
                };
                if !digests.contains(&extracted) {
                    digests.push(extracted);
                }
            }
        }
        digests
    }

    /// Returns whether nothing failed and nothing differs.
    pub fn is_sound(&self) -> bool {
        self.problems().is_empty()
    }

    /// Lists the programs that take part, with their versions.
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

    /// Returns whether all caches are emptied before each run, and not only the pages of the image.
    pub fn drops_all(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    /// Returns the result for programs.
    pub fn json(&self) -> Value {
        let runner = self.runner;
        let mut report = Map::new();
        put_bytes(&mut report, "image", runner.image.as_os_str().as_bytes());
        report.insert("format".into(), runner.survey.format.clone().into());
        report.insert("offset".into(), runner.offset.into());
        report.insert("files".into(), runner.survey.files.into());
        report.insert("bytes".into(), runner.survey.bytes.into());
        let filesystem = filesystem_of(&runner.image).map(|(fstype, _)| fstype);
        report.insert("filesystem".into(), filesystem.into());
        let mut cat = Map::new();
        put_bytes(
            &mut cat,
            "path",
            runner.survey.largest.as_os_str().as_bytes(),
        );
        cat.insert("bytes".into(), runner.survey.cat_bytes().into());
        cat.insert("file_bytes".into(), runner.survey.largest_bytes.into());
        report.insert("cat".into(), cat.into());
        report.insert("rounds".into(), self.rounds.into());
        report.insert("processes".into(), runner.processes.into());
        report.insert("dropped_all_caches".into(), self.drops_all().into());
        report.insert("machine".into(), Machine::look().json());
        let programs = self.programs().into_iter();
        let programs: Map<_, _> = programs
            .map(|(name, version)| (name.to_string(), version.into()))
            .collect();
        report.insert("programs".into(), programs.into());
        let missing = self.plan.missing.iter();
        let missing: Vec<Value> = missing
            .map(|(by, why)| json!({ "contender": by.name(), "why": why }))
            .collect();
        report.insert("missing".into(), missing.into());
        let left_out = self.plan.left_out.iter();
        let left_out: Vec<Value> = left_out
            .map(|(work, why)| json!({ "work": work.name(), "why": why }))
            .collect();
        report.insert("left_out".into(), left_out.into());
        let works: Vec<Value> = self
            .plan
            .rows
            .iter()
            .map(|(work, _)| self.work_json(*work))
            .collect();
        report.insert("works".into(), works.into());
        report.insert("contents".into(), self.contents_json());
        report.insert("noise".into(), self.noise.json());
        report.insert("problems".into(), self.problems().into());
        report.into()
    }

    fn work_json(&self, work: BenchWork) -> Value {
        let of_work = self.series.iter().filter(|series| series.work == work);
        let contenders: Vec<Value> = of_work.map(|series| self.series_json(series)).collect();
        json!({ "work": work.name(), "contenders": contenders })
    }

    fn series_json(&self, series: &MeasuredSeries) -> Value {
        let runs = &series.samples.runs;
        let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
        let summary = series.samples.summary();
        let counters: Vec<&_> = runs.iter().map(|run| &run.counters).collect();
        let has_counters = series.by.is_ours();
        let comparison = self.comparison(series);
        let failures: Vec<String> = series.samples.errors();
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
            let digests = self.digests(contents).into_iter();
            let digests: Vec<Value> = digests
                .map(|read| json!({ "by": read.name(), "digest": read.digest }))
                .collect();
            if !digests.is_empty() {
                all.insert(contents.name().to_string(), digests.into());
            }
        }
        all.into()
    }
}

/// Formats the verdict of a comparison of ours with a contender.
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
        Verdict::TooFew => format!(
            "undecided: {} rounds are needed",
            crate::measure::statistics::LEAST_ROUNDS
        ),
    }
}
