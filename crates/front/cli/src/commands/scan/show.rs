//! What a scan found, as a table for people and as JSON.

use std::os::unix::ffi::OsStrExt;

use comfy_table::{CellAlignment, Table, presets};
use forerun::unstable::disk::Container;
use forerun::unstable::disk::scan::{ScanFinding, ScanKind};
use serde_json::{Map, Value};

use super::inside::Level;
use crate::escape::{escape, printable, quoted};
use crate::{json, size};

/// The result for a user.
pub struct ShownImage<'s> {
    pub name: &'s str,
    /// Whether the search began at the start of the file, so that its partitions are those of the file.
    pub at_start: bool,
    pub level: &'s Level,
    pub is_complete: bool,
}

/// A line of the table, and the command below it.
type Row = ([String; 5], Option<String>);

impl ShownImage<'_> {
    fn outer(&self, finding: &ScanFinding) -> Option<&ScanFinding> {
        self.level.scanned.findings.get(finding.inside?)
    }

    /// Returns the number of findings around one.
    fn depth(&self, finding: &ScanFinding) -> usize {
        std::iter::successors(self.outer(finding), |finding| self.outer(finding)).count()
    }

    /// Returns the command that lists an image.
    fn command(&self, finding: &ScanFinding) -> Option<String> {
        let file = match self.name {
            "standard input" => "-".to_string(),
            name => quoted(name),
        };
        match finding.kind {
            ScanKind::Image(_) => {}
            // What a file holds that is such a disk as a whole has commands of its own.
            ScanKind::Container(Container::AndroidSparse | Container::Ubi)
                if finding.inside.is_some() || finding.offset > 0 || !self.at_start => {}
            ScanKind::Container(Container::VirtualDisk(_)) => {
                return Some(format!(
                    "qemu-img convert -O raw {file} {}",
                    quoted(&format!("{}.raw", self.name))
                ));
            }
            _ => return None,
        }
        let place = match self.outer(finding) {
            Some(outer) if outer.offset == finding.offset && self.at_start => match outer.kind {
                ScanKind::Partition(number) => format!("--partition {number} "),
                _ => offset(finding),
            },
            _ => offset(finding),
        };
        // The last bytes show that it is an archive.
        let size = match (finding.kind, finding.len) {
            (ScanKind::Image("zip"), Some(len)) => format!("--size {len} "),
            _ => String::new(),
        };
        let salvage = if finding.is_truncated {
            "--salvage "
        } else {
            ""
        };
        Some(format!("forerun ls {salvage}{place}{size}{file}"))
    }

    pub fn table(&self) -> String {
        let mut rows = Vec::new();
        self.rows(self.level, 0, &mut rows);
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["offset", "hex", "size", "found", "about"]);
        for column in table.column_iter_mut().take(3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        // A command has a line of its own, which a terminal does not cut.
        let mut commands = vec![None];
        for (cells, command) in rows {
            table.add_row(cells);
            commands.push(command);
        }
        let mut text = String::new();
        for (line, command) in table.lines().zip(commands) {
            text += line.trim_end();
            text += "\n";
            if let Some(command) = command {
                text += &format!("    {command}\n");
            }
        }
        text
    }

    /// Adds the lines of a level. Inside of findings, only what is known has a line.
    fn rows(&self, level: &Level, depth: usize, rows: &mut Vec<Row>) {
        for (index, finding) in level.scanned.findings.iter().enumerate() {
            if depth > 0 && !finding.kind.is_known() {
                continue;
            }
            let around = if depth == 0 { self.depth(finding) } else { 0 };
            let indent = "  ".repeat(depth + around);
            let found = match finding.kind {
                ScanKind::Partition(number) => format!("partition {number}"),
                ref kind => kind.name().to_string(),
            };
            let problem = level.problems.get(&index);
            let about = [about(finding), problem.cloned().unwrap_or_default()];
            let about = about.into_iter().filter(|part| !part.is_empty());
            let cells = [
                finding.offset.to_string(),
                format!("{:#x}", finding.offset),
                finding.len.map_or_else(|| "?".to_string(), size::human),
                format!("{indent}{found}"),
                about.collect::<Vec<_>>().join(", "),
            ];
            let command = self.command(finding).filter(|_| depth == 0);
            rows.push((cells, command));
            for inner in level.inside(index) {
                let below = depth + around + 1;
                let name = match &inner.path {
                    Some(path) => escape(path.as_os_str().as_bytes()),
                    None => "decoded".to_string(),
                };
                let cells = ["", "", "", &format!("{}{name}", "  ".repeat(below)), ""];
                rows.push((cells.map(str::to_string), None));
                self.rows(&inner.level, below + 1, rows);
            }
        }
    }

    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("image".into(), self.name.into());
        object.insert("findings".into(), self.findings(self.level, true));
        object.insert("complete".into(), self.is_complete.into());
        object.into()
    }

    fn findings(&self, level: &Level, is_outermost: bool) -> Value {
        let findings = level.scanned.findings.iter().enumerate();
        let findings = findings.map(|(index, finding)| {
            let command = self.command(finding).filter(|_| is_outermost);
            let mut object = fields(finding, command);
            let inside = level.inside(index).iter().map(|inner| {
                let mut object = Map::new();
                let path = inner.path.as_ref();
                json::put_bytes(
                    &mut object,
                    "path",
                    path.map_or(&[], |path| path.as_os_str().as_bytes()),
                );
                object.insert("findings".into(), self.findings(&inner.level, false));
                Value::from(object)
            });
            object.insert("contents".into(), inside.collect());
            object.insert("problem".into(), level.problems.get(&index).cloned().into());
            let path = level.extracted.get(&index);
            let path = path.map(|path| path.display().to_string());
            object.insert("extracted".into(), path.into());
            Value::from(object)
        });
        findings.collect()
    }
}

fn fields(finding: &ScanFinding, command: Option<String>) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("offset".into(), finding.offset.into());
    object.insert("size".into(), finding.len.into());
    object.insert("type".into(), finding.kind.name().into());
    let number = match finding.kind {
        ScanKind::Partition(number) => Some(number),
        _ => None,
    };
    object.insert("partition".into(), number.into());
    json::put_bytes(&mut object, "label", &finding.label);
    object.insert("details".into(), finding.details.clone().into());
    object.insert("intact".into(), finding.intact.into());
    object.insert("truncated".into(), finding.is_truncated.into());
    let entropy = finding.entropy.map(|bits| (bits * 1000.0).round() / 1000.0);
    object.insert("entropy".into(), entropy.into());
    object.insert("inside".into(), finding.inside.into());
    object.insert("command".into(), command.into());
    object
}

/// Returns the option for an image that is not at the start of the file.
fn offset(finding: &ScanFinding) -> String {
    match finding.offset {
        0 => String::new(),
        offset => format!("--offset {offset} "),
    }
}

/// Describes a finding: its label, its details, and a checksum that is wrong.
fn about(finding: &ScanFinding) -> String {
    let mut parts = Vec::new();
    if !finding.label.is_empty() {
        parts.push(format!("\"{}\"", escape(&finding.label)));
    }
    if !finding.details.is_empty() {
        parts.push(printable(&finding.details));
    }
    if let Some(entropy) = finding.entropy {
        parts.push(format!("entropy {entropy:.2}"));
    }
    if finding.intact == Some(false) {
        parts.push("wrong checksum".to_string());
    }
    parts.join(", ")
}
