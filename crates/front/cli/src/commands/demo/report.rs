//! The results of the demo: measured lines and remarks, as text, JSON and a web page.

use std::fmt::Write as _;

use forerun_pictures::{html_page, markup};
use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use super::parts::{PartName, said};
use crate::measure::machine::Machine;
use crate::measure::peers::{Peer, Place};
use crate::measure::run::Run;

/// Columns of the text, and of a bar.
const WIDTH: usize = 100;
const BAR: usize = 14;
const INDENT: &str = "   ";

/// The role of a line: forerun, the legacy way, or another program or limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Ours,
    Legacy,
    Reference,
}

impl Role {
    /// Returns the name in JSON, and the colour of the bar in a page.
    const fn name_and_colour(self) -> (&'static str, &'static str) {
        match self {
            Self::Ours => ("ours", "readahead"),
            Self::Legacy => ("legacy", "write"),
            Self::Reference => ("reference", "other"),
        }
    }
}

pub struct Row {
    pub id: &'static str,
    pub role: Role,
    pub what: &'static str,
    /// Seconds for the whole workload.
    pub seconds: f64,
    /// The count for the whole workload. `None` if nothing is counted.
    pub count: Option<u64>,
    /// Whether only a part of the workload was run and the figures are extrapolated.
    pub is_extrapolated: bool,
}

impl Row {
    fn figures(&self) -> [String; 2] {
        let mark = if self.is_extrapolated { " *" } else { "" };
        let time = match self.seconds {
            0.0..0.01 => format!("{:.4} s{mark}", self.seconds),
            _ => format!("{:.2} s{mark}", self.seconds),
        };
        let count = self
            .count
            .map(|count| format!("{}{mark}", HumanCount(count)));
        [time, count.unwrap_or_else(|| "-".to_string())]
    }
}

pub struct Part {
    pub name: PartName,
    /// The workload, in a sentence.
    pub what: String,
    pub rows: Vec<Row>,
    /// Workloads that this machine or user cannot run.
    pub left_out: Vec<String>,
}

impl Part {
    pub fn new(name: PartName, what: String) -> Self {
        Self {
            name,
            what,
            rows: Vec::new(),
            left_out: Vec::new(),
        }
    }

    fn add(&mut self, id: &'static str, role: Role, what: &'static str, run: &Run) {
        self.rows.push(Row {
            id,
            role,
            what,
            seconds: run.seconds,
            count: run.counters.get(self.name.facts().counter).copied(),
            is_extrapolated: false,
        });
    }

    pub fn add_ours(&mut self, run: &Run) {
        self.add(self.name.facts().ours, Role::Ours, "forerun", run);
    }

    /// Adds a run of the legacy way that did `done` of `all`, and extrapolates to all of it.
    pub fn add_legacy(&mut self, run: &Run, done: u64, all: u64) {
        let facts = self.name.facts();
        self.add(facts.legacy, Role::Legacy, facts.legacy_way, run);
        if let Some(row) = self.rows.last_mut().filter(|_| done < all) {
            row.seconds *= ratio(all, done);
            row.count = row.count.map(|count| count * all / done.max(1));
            row.is_extrapolated = true;
        }
    }

    /// Adds a run of another program, in which nothing is counted.
    pub fn add_reference(&mut self, id: &'static str, what: &'static str, run: &Run) {
        self.add(id, Role::Reference, what, run);
    }

    /// Adds the run of another program, or why there is none. A container, for example, has no loop
    /// devices.
    pub fn add_peer(
        &mut self,
        peer: Peer,
        place: &Place<'_>,
        run: impl FnOnce() -> anyhow::Result<Run>,
    ) {
        let what = match peer {
            Peer::Kernel => "Linux's own driver",
            other => other.name(),
        };
        let run = match peer.missing(place) {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => run(),
        };
        match run {
            Ok(run) => self.add_reference(peer.name(), what, &run),
            Err(error) => self.left_out.push(said(&error)),
        }
    }

    fn summary(&self) -> Option<String> {
        let (ours, others) = self.rows.split_first()?;
        let faster = others.iter().map(|other| {
            let times = other.seconds / ours.seconds.max(1e-9);
            let digits = match times {
                10.0.. => 0,
                1.0.. => 1,
                _ => 2,
            };
            match other.role {
                Role::Legacy => format!("{times:.digits$} times as fast as the legacy way"),
                _ => format!("{times:.digits$} as {}", other.what),
            }
        });
        let mut text = format!("forerun: {}", faster.collect::<Vec<_>>().join(", "));
        if let (Some(before), Some(after)) = (others.first()?.count, ours.count) {
            let (before, after) = (HumanCount(before), HumanCount(after));
            let counts = self.name.facts().counts;
            let _ = write!(text, "; {after} {counts} in place of {before}");
        }
        Some(text)
    }

    fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> = self.summary().into_iter().collect();
        remarks.push(format!("Linux: {}", self.name.facts().linux));
        remarks.push(self.name.facts().note.to_string());
        if self.rows.iter().any(|row| row.is_extrapolated) {
            remarks.push("* extrapolated: a part of the work was measured".to_string());
        }
        remarks.extend(self.left_out.iter().map(|what| format!("Left out: {what}")));
        remarks
    }

    /// Returns the length of a row's bar, as a share of the slowest row.
    fn share(&self, row: &Row) -> f64 {
        let slowest = self.rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
        row.seconds / slowest.max(f64::MIN_POSITIVE)
    }

    #[allow(clippy::as_conversions)] // From 0 to 14: nothing is lost but the fraction.
    pub fn text(&self, bar: &str) -> String {
        let counts = self.name.facts().counts;
        let mut lines = vec![format!("{INDENT}{:47} {:>14} {:>16}", "", "time", counts)];
        for row in &self.rows {
            let [time, count] = row.figures();
            // A figure other than 0 gets a visible bar.
            let columns = (self.share(row) * BAR as f64).round().max(1.0) as usize;
            let bar = bar.repeat(columns);
            lines.push(format!(
                "{INDENT}{:33}{bar:BAR$} {time:>14} {count:>16}",
                row.what
            ));
        }
        lines.push(String::new());
        for remark in self.remarks() {
            lines.push(wrapped(&remark));
        }
        lines.join("\n")
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            json!({
                "id": row.id, "role": row.role.name_and_colour().0, "what": row.what, "seconds": row.seconds,
                "count": row.count, "extrapolated": row.is_extrapolated,
            })
        });
        let facts = self.name.facts();
        json!({
            "id": facts.id, "title": facts.title, "what": self.what, "counts": facts.counts,
            "rows": rows.collect::<Vec<_>>(), "linux": facts.linux, "note": facts.note,
            "left_out": self.left_out,
        })
    }

    fn page(&self) -> String {
        let facts = self.name.facts();
        let mut page = format!(
            "<h2>{}</h2>\n<p>{}</p>\n<table>\n<tr><th></th><th>time</th><th></th><th>{}</th></tr>\n",
            markup(facts.title),
            markup(&self.what),
            markup(facts.counts)
        );
        for row in &self.rows {
            let (percent, colour) = (self.share(row) * 100.0, row.role.name_and_colour().1);
            let [time, count] = row.figures();
            let _ = writeln!(
                page,
                "<tr><td>{}</td><td>{time}</td><td style=\"width:14rem\"><div style=\"min-width:2px;height:.9rem;\
                 width:{percent:.2}%;background:var(--c-{colour})\"></div></td><td>{count}</td></tr>",
                markup(row.what)
            );
        }
        page += "</table>\n";
        for remark in self.remarks() {
            let _ = writeln!(page, "<p class=\"note\">{}</p>", markup(&remark));
        }
        page
    }
}

pub struct DemoReport {
    /// When the run began, in UTC.
    pub date: String,
    pub parts: Vec<Part>,
    /// Why nothing was mounted, if so.
    pub no_mount: Option<String>,
    pub seconds: f64,
}

impl DemoReport {
    /// Describes when, where and with which programs the demo measures, and how it affects the
    /// machine.
    pub fn head(&self) -> String {
        self.circumstances().map(|text| wrapped(&text)).join("\n")
    }

    fn circumstances(&self) -> [String; 3] {
        let programs = programs().map(|(name, version)| match version.as_str() {
            Some(version) if version.contains(&name) => version.to_string(),
            version => format!("{name} {}", version.unwrap_or_default()),
        });
        let programs = programs.collect::<Vec<_>>().join("; ");
        let caches = "The caches of the images are dropped before each measurement.";
        let machine = format!("{}: {}", self.date, Machine::look().text());
        [machine, programs, caches.to_string()]
    }

    /// Returns the results as JSON, as docs/json.md describes them.
    pub fn json(&self) -> Value {
        json!({
            "date": self.date,
            "parts": self.parts.iter().map(Part::json).collect::<Vec<_>>(),
            "mount_error": self.no_mount,
            // Demo once emptied the caches of the whole machine.
            "dropped_all_caches": false,
            "machine": Machine::look().json(),
            "programs": programs().collect::<Map<_, _>>(),
            "seconds": self.seconds,
        })
    }

    /// Makes a self-contained page: no script, font or picture is loaded from elsewhere.
    pub fn page(&self) -> String {
        let circumstances = self.circumstances();
        let head = circumstances.map(|text| format!("<p class=\"note\">{}</p>\n", markup(&text)));
        let parts = self.parts.iter().map(Part::page);
        let body: String = head.into_iter().chain(parts).collect();
        html_page("forerun demo", &body, &self.json(), "")
    }
}

fn programs() -> impl Iterator<Item = (String, Value)> {
    let peers = Peer::ALL.into_iter();
    let peers = peers.filter_map(|peer| Some((peer.name().to_string(), peer.version()?.into())));
    let ours = ("forerun".to_string(), env!("CARGO_PKG_VERSION").into());
    std::iter::once(ours).chain(peers)
}

/// Wraps a text into indented lines.
pub fn wrapped(text: &str) -> String {
    let mut lines = vec![INDENT.trim_end().to_string()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                let gap = if line.is_empty() { INDENT } else { " " };
                *line += &format!("{gap}{word}");
            }
            _ => lines.push(format!("{INDENT}{word}")),
        }
    }
    lines.join("\n")
}

#[allow(clippy::as_conversions)] // For display; no integer of this size loses what is shown of it.
pub fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}
