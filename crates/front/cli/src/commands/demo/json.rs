//! The results for programs, as docs/json.md describes them.

use serde_json::{Value, json};

use super::model::{DemoPart, Row};
use super::report::DemoReport;

/// Converts the results.
pub fn value(report: &DemoReport) -> Value {
    json!({
        "parts": report.parts.iter().map(part).collect::<Vec<_>>(),
        "mount_error": report.no_mount,
        "dropped_all_caches": report.dropped_all,
        "seconds": report.seconds,
    })
}

fn part(part: &DemoPart) -> Value {
    let original = part.name.original();
    json!({
        "id": part.name.id(),
        "title": part.name.title(),
        "what": part.what,
        "counts": part.name.counts(),
        "rows": part.rows.iter().map(row).collect::<Vec<_>>(),
        "linux": {
            "before": original.before,
            "after": original.after,
            "unit": original.unit,
            "what": original.text,
        },
        "notes": part.all_notes(),
        "left_out": part.left_out,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "id": row.id,
        "role": row.role.id(),
        "what": row.what,
        "seconds": row.seconds,
        "count": row.count,
        "extrapolated": row.extrapolated,
    })
}
