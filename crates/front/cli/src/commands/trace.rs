//! `forerun trace`: summarises a recorded trace.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use comfy_table::{CellAlignment, Table, presets};
use forerun_io::Structure;
use forerun_pictures::{TracePicture, TraceRecord, TraceRow, TraceSummary};
use forerun_sandbox::Sandbox;
use serde_json::{Value, json};

use super::picture;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::size;
use crate::target::is_same_file;

const HELP: &str = "\
Columns: requests, their bytes, sectors that were merged into one request with
others, bytes that an earlier request of that kind moved too, failed requests.

Examples:
  forerun mount --trace t.txt card.img /mnt -- cp -r photos /mnt
  forerun trace t.txt
  forerun trace --html t.html t.txt           a page that draws the requests";

/// Sum up the requests that mount --trace recorded
///
/// Prints counts, bytes, merges and flushes for each kind of request and each part of the volume.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct TraceArgs {
    /// File that mount --trace wrote
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Write the trace to OUT as a self-contained HTML page; - for standard output
    #[arg(long, value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Replace OUT if it exists
    #[arg(long)]
    pub force: bool,
}

#[derive(Default)]
struct Recorded {
    summary: TraceSummary,
    picture: TracePicture,
}

/// Longest line of a trace in bytes: more than a name with its escapes takes.
const LONGEST_LINE: u64 = 4096;

pub fn run(context: &Context, args: &TraceArgs) -> Result {
    let named = |failure: Failure| failure.of(args.file.display());
    let file = File::open(&args.file).map_err(|error| named(Failure::source(&error)))?;
    if let Some(out) = args
        .html
        .as_deref()
        .filter(|out| is_same_file(&args.file, out))
    {
        let failure = Failure::usage("the trace and the page are the same file");
        return Err(failure.of(out.display()));
    }
    let target = picture::target(args.html.as_deref(), args.force, "a page")?;
    context.confine(&match &target {
        Some(target) => target.sandbox(Sandbox::new()),
        None => Sandbox::new(),
    });
    let recorded = read(file).map_err(named)?;
    if let Some(target) = target {
        let page = recorded.picture.page(&args.file.display().to_string());
        picture::write(target, &page)?;
        return Ok(Exit::Ok);
    }
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&to_json(&recorded))?;
    } else {
        out.text(table(&recorded.summary))?;
    }
    out.finish()?;
    Ok(Exit::Ok)
}

fn read(file: File) -> Result<Recorded> {
    let mut recorded = Recorded::default();
    let (mut file, mut line) = (BufReader::with_capacity(1 << 18, file), Vec::new());
    for n in 1_u64.. {
        line.clear();
        let read = file
            .by_ref()
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::source(&error))? == 0 {
            break;
        }
        let text = str::from_utf8(&line)
            .ok()
            .map(|line| line.trim_end_matches('\n'));
        let Some(record) = text.and_then(TraceRecord::parse) else {
            let message = format!("line {n} is not an event of a trace");
            let hint = "forerun mount --trace FILE writes a trace";
            return Err(Failure::new(Exit::Source, "trace", message).hint(hint));
        };
        if let TraceRecord::Event(event) = &record {
            recorded.summary.add(event);
        }
        recorded.picture.add(&record);
    }
    Ok(recorded)
}

/// Requests that get a total: those that move bytes to or from the device.
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

fn to_json(recorded: &Recorded) -> Value {
    let summary = &recorded.summary;
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
    let picture = recorded.picture.json();
    json!({ "requests": rows, "totals": totals, "picture": picture })
}
