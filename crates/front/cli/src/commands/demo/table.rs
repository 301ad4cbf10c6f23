//! The measurements, as a table and as JSON.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use super::measure::{Measured, Row};

/// Formats a time, as in `0.25 s`.
pub fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

/// Formats the table and the notes to it, indented.
pub fn text(measured: &Measured) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "read with cold caches",
        "time",
        "MiB/s",
        "ratio",
        "requests",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let base = measured.rows.first().map_or(1.0, Row::seconds);
    for row in &measured.rows {
        let mark = if row.is_complete() { "" } else { " *" };
        table.add_row([
            row.what.to_string(),
            format!("{:.2} s{mark}", row.seconds()),
            format!("{:.0}", row.speed()),
            format!("{:.2}", row.seconds() / base),
            row.requests().map_or_else(String::new, |n| n.to_string()),
        ]);
    }
    let mut lines: Vec<String> = table
        .lines()
        .map(|line| format!("  {}", line.trim_end()))
        .collect();
    lines.push(String::new());
    lines.extend(notes(measured).into_iter().map(|note| format!("   {note}")));
    lines.join("\n")
}

fn notes(measured: &Measured) -> Vec<String> {
    let mut notes: Vec<String> = [
        "ratio: time against that of the image itself, read and hashed in the same way; the better",
        "of two runs. requests: what was asked of the image; nolargeblocks asks for 1 KiB at a time,",
        "as the legacy romfs driver did",
    ]
    .map(String::from)
    .into();
    if measured.rows.iter().any(|row| !row.is_complete()) {
        notes.push("* stopped after a few seconds; time and requests are extrapolated".to_string());
    }
    if !measured.dropped_all {
        notes.push(
            "the caches of this machine can be dropped by root only; the image's were".to_string(),
        );
    }
    if let Some(why) = &measured.no_mount {
        notes.push(format!("not mounted: {why}"));
    }
    notes
}

/// Converts the results to the JSON that docs/json.md describes.
pub fn to_json(measured: &Measured) -> Value {
    let base = measured.rows.first().map_or(1.0, Row::seconds);
    let rows: Vec<_> = measured
        .rows
        .iter()
        .map(|row| {
            json!({
                "id": row.id,
                "bytes_read": row.bytes,
                "bytes": row.total,
                "seconds": row.seconds(),
                "extrapolated": !row.is_complete(),
                "mib_per_second": row.speed(),
                "ratio": row.seconds() / base,
                "source_requests": row.requests(),
            })
        })
        .collect();
    json!({
        "rows": rows,
        "mount_error": measured.no_mount,
        "dropped_all_caches": measured.dropped_all,
    })
}
