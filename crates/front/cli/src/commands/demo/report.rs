//! The results: lines that are compared, and remarks on them, as text, JSON and a page for a browser.

use std::fmt::Write as _;

use indicatif::HumanCount;
use serde_json::{Map, Value, json};

use super::parts::PartName;
use crate::measure::machine::Machine;
use crate::measure::peers::Peer;
use crate::measure::run::Run;

/// Columns that no line of the text exceeds, and those of a bar.
const WIDTH: usize = 100;
const BAR: usize = 14;
const INDENT: &str = "   ";

/// The role of a line: forerun, the way without what the part shows, or another program or limit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Ours,
    Legacy,
    Reference,
}

pub struct Row {
    /// Stable name for JSON.
    pub id: &'static str,
    pub role: Role,
    /// The name of the line, for people.
    pub what: &'static str,
    /// Seconds that all of the work takes.
    pub seconds: f64,
    /// The count for all of the work; nothing where nothing is counted.
    pub count: Option<u64>,
    /// Whether a part of the work was done, and figures are extrapolated.
    pub is_extrapolated: bool,
}

impl Row {
    /// Makes a line of a run, which has a counter of that name perhaps.
    pub fn new(id: &'static str, role: Role, what: &'static str, run: &Run, counter: &str) -> Self {
        Self {
            id,
            role,
            what,
            seconds: run.seconds,
            count: run.counters.get(counter).copied(),
            is_extrapolated: false,
        }
    }

    /// Makes a line of a run of another program.
    pub fn peer(peer: Peer, run: &Run) -> Self {
        let what = match peer {
            Peer::Kernel => "Linux's own driver",
            other => other.name(),
        };
        Self::new(peer.name(), Role::Reference, what, run, "")
    }

    /// Extrapolates from what was done to all of the work.
    pub fn extrapolated(mut self, done: u64, all: u64) -> Self {
        if done < all {
            self.seconds *= ratio(all, done);
            self.count = self.count.map(|count| count * all / done.max(1));
            self.is_extrapolated = true;
        }
        self
    }

    /// Returns time and count for people.
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

/// The measurements of a part.
pub struct Part {
    pub name: PartName,
    /// The work, in a sentence.
    pub what: String,
    /// The lines: this program, the legacy way, others.
    pub rows: Vec<Row>,
    /// A remark on the figures.
    pub note: String,
    /// Work that this machine or user cannot do.
    pub left_out: Vec<String>,
}

impl Part {
    pub fn new(name: PartName, what: String, note: &str) -> Self {
        Self {
            name,
            what,
            rows: Vec::new(),
            note: note.to_string(),
            left_out: Vec::new(),
        }
    }

    /// Returns the comparison in a sentence.
    fn summary(&self) -> Option<String> {
        let (ours, others) = self.rows.split_first()?;
        let faster = others.iter().map(|other| {
            let times = other.seconds / ours.seconds.max(1e-9);
            let digits = if times < 10.0 { 1 } else { 0 };
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
        remarks.push(self.note.clone());
        if self.rows.iter().any(|row| row.is_extrapolated) {
            remarks.push("* extrapolated: a part of the work was measured".to_string());
        }
        remarks.extend(self.left_out.iter().map(|what| format!("Left out: {what}")));
        remarks
    }

    /// Returns the length of a row's bar, as a share of the slowest.
    fn share(&self, row: &Row) -> f64 {
        let slowest = self.rows.iter().map(|row| row.seconds).fold(0.0, f64::max);
        row.seconds / slowest.max(f64::MIN_POSITIVE)
    }

    /// Formats the part for a terminal.
    #[allow(clippy::as_conversions)] // From 0 to 14: nothing is lost but the fraction.
    pub fn text(&self, bar: &str) -> String {
        let counts = self.name.facts().counts;
        let mut lines = vec![format!("{INDENT}{:47} {:>14} {:>16}", "", "time", counts)];
        for row in &self.rows {
            let [time, count] = row.figures();
            // A figure that is not 0 is seen.
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
                "id": row.id, "role": role(row.role), "what": row.what, "seconds": row.seconds,
                "count": row.count, "extrapolated": row.is_extrapolated,
            })
        });
        let facts = self.name.facts();
        json!({
            "id": facts.id, "title": facts.title, "what": self.what, "counts": facts.counts,
            "rows": rows.collect::<Vec<_>>(), "linux": facts.linux, "note": self.note,
            "left_out": self.left_out,
        })
    }

    fn page(&self) -> String {
        let facts = self.name.facts();
        let mut page = format!(
            "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"what\">{}</p>\n<table>\n<thead><tr><td></td>\
             <th colspan=\"2\">time</th><th>{}</th></tr></thead>\n<tbody>\n",
            facts.id,
            facts.title,
            escape(&self.what),
            facts.counts
        );
        for row in &self.rows {
            let (role, percent) = (role(row.role), self.share(row) * 100.0);
            let [time, count] = row.figures();
            let _ = writeln!(
                page,
                "<tr class=\"{role}\"><th scope=\"row\">{}</th><td class=\"figure\">{time}</td><td class=\"bar\">\
                 <div class=\"{role}\" style=\"min-width:2px;width:{percent:.2}%\"></div></td>\
                 <td class=\"figure\">{count}</td></tr>",
                escape(row.what)
            );
        }
        page += "</tbody>\n</table>\n";
        for remark in self.remarks() {
            let _ = writeln!(page, "<p class=\"note\">{}</p>", escape(&remark));
        }
        page + "</section>\n"
    }
}

pub struct DemoReport {
    /// The parts that were asked for.
    pub parts: Vec<Part>,
    /// The reason why nothing was mounted, where that is so.
    pub no_mount: Option<String>,
    /// Seconds that the run took.
    pub seconds: f64,
}

impl DemoReport {
    /// Returns the results for programs, as docs/json.md describes them.
    pub fn json(&self) -> Value {
        json!({
            "parts": self.parts.iter().map(Part::json).collect::<Vec<_>>(),
            "mount_error": self.no_mount,
            "dropped_all_caches": drops_all(),
            "machine": Machine::look().json(),
            "programs": programs().collect::<Map<_, _>>(),
            "seconds": self.seconds,
        })
    }

    /// Makes a page: no script, no font and no picture comes from elsewhere.
    pub fn page(&self) -> String {
        let style = include_str!("style.css");
        let parts: String = self.parts.iter().map(Part::page).collect();
        // No end tag can be spelled in it.
        let data = self.json().to_string().replace('<', "\\u003c");
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>forerun demo</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n<h1>forerun demo</h1>\n\
             <p class=\"lead\">{}</p>\n{parts}</main>\n\
             <script type=\"application/json\" id=\"results\">{data}</script>\n</body>\n</html>\n",
            escape(&head())
        )
    }
}

/// Says where it is measured, with what, and what that does to the machine.
pub fn head() -> String {
    let programs = programs().map(|(name, version)| match version.as_str() {
        Some(version) if version.contains(&name) => version.to_string(),
        version => format!("{name} {}", version.unwrap_or_default()),
    });
    let programs = programs.collect::<Vec<_>>().join("; ");
    let caches = if drops_all() {
        "All caches of this machine are dropped before each measurement: other programs are slower meanwhile."
    } else {
        "The caches of the images are dropped before each measurement. Only root can drop all caches of the machine."
    };
    [&Machine::look().text(), programs.as_str(), caches]
        .map(wrapped)
        .join("\n")
}

/// Lists the programs that may take part, with their versions.
fn programs() -> impl Iterator<Item = (String, Value)> {
    let peers = Peer::ALL.into_iter();
    let peers = peers.filter_map(|peer| Some((peer.name().to_string(), peer.version()?.into())));
    let ours = ("forerun".to_string(), env!("CARGO_PKG_VERSION").into());
    std::iter::once(ours).chain(peers)
}

fn drops_all() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the name in JSON and in the classes of the page.
fn role(role: Role) -> &'static str {
    match role {
        Role::Ours => "ours",
        Role::Legacy => "legacy",
        Role::Reference => "reference",
    }
}

/// Breaks a text into indented lines of the width.
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

/// Returns `a / b` for display.
#[allow(clippy::as_conversions)] // For display; no integer of this size loses what is shown of it.
pub fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
