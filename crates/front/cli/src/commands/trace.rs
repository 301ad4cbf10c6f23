//! `forerun trace`: sums up a recorded trace.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table, presets};
use forerun::{Structure, TraceRow, TraceSummary, parse_trace_line};
use forerun_sandbox::Sandbox;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::size;

const HELP: &str = "\
Columns: requests; their bytes; sectors that went along with another in one request; bytes that
had been moved before by a request of that kind; requests that failed.

Examples:
  forerun mount --trace t.txt card.img /mnt; cp -r photos /mnt; forerun umount /mnt
  forerun trace t.txt";

/// Sum up the requests that a mount made, recorded with mount --trace
///
/// Counts, bytes, merges and flushes, by kind of request and by what on the volume it was for.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TraceArgs {
    /// The file that mount --trace wrote
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
}

/// Runs it.
pub fn run(context: &Context, args: &TraceArgs) -> Result {
    let summary = read(context, &args.file).map_err(|failure| failure.of(args.file.display()))?;
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&to_json(&summary))?;
    } else {
        out.text(table(&summary))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn read(context: &Context, path: &Path) -> Result<TraceSummary> {
    let file = File::open(path).map_err(|error| Failure::source(&error))?;
    context.confine(&Sandbox::new());
    let mut summary = TraceSummary::default();
    for (n, line) in (1..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|error| Failure::source(&error))?;
        match parse_trace_line(&line) {
            Some(Some(event)) => summary.add(&event),
            Some(None) => {}
            None => {
                let message = format!("line {n} is no event of a trace");
                let hint = "forerun mount --trace FILE writes one";
                return Err(Failure::new(Exit::Source, "trace", message).hint(hint));
            }
        }
    }
    Ok(summary)
}

/// The requests that get a total: those that move bytes between us and the device.
const TOTALS: [&str; 2] = ["source_read", "write"];

fn name(kind: &'static str) -> &'static str {
    match kind {
        "source_read" => "read",
        kind => kind,
    }
}

fn table(summary: &TraceSummary) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "request", "of", "count", "bytes", "merged", "again", "failed",
    ]);
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut add = |kind, of: &str, row: &TraceRow| {
        let numbers = [row.requests, row.bytes, row.merged, row.again, row.failed];
        let cells = [name(kind), of].map(str::to_string).into_iter();
        table.add_row(cells.chain(numbers.map(|n| n.to_string())));
    };
    for (kind, structure, row) in summary.rows() {
        let of = if structure == Structure::Unknown {
            ""
        } else {
            structure.name()
        };
        add(kind, of, row);
    }
    for kind in TOTALS {
        let total = summary.total(kind);
        if total.requests > 0 {
            add(kind, "all", &total);
        }
    }
    let mut text = String::new();
    for line in table.lines() {
        text += line.trim_end();
        text += "\n";
    }
    let written = summary.total("write").bytes;
    text += &format!("written: {}\n", size::exact(written));
    text
}

fn to_json(summary: &TraceSummary) -> Value {
    let fields = |kind, structure: Option<&str>, row: &TraceRow| {
        json!({
            "request": name(kind),
            "structure": structure,
            "count": row.requests,
            "bytes": row.bytes,
            "merged_sectors": row.merged,
            "bytes_again": row.again,
            "failed": row.failed,
        })
    };
    let rows = summary.rows();
    let rows: Vec<_> = rows
        .map(|(kind, structure, row)| fields(kind, Some(structure.name()), row))
        .collect();
    let totals: Vec<_> = TOTALS
        .iter()
        .map(|kind| fields(kind, None, &summary.total(kind)))
        .collect();
    json!({ "requests": rows, "totals": totals })
}
