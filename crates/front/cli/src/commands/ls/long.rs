//! The columns of `ls -l`, aligned over one section.

use forerun::vfs::{FileType, Metadata};
use jiff::tz::TimeZone;

use super::Entry;
use crate::columns::{mode, time};
use crate::size;

/// Returns the texts before the names, one per entry, all of the same width.
pub fn prefixes(entries: &[Entry], human: bool) -> Vec<String> {
    let zone = TimeZone::system();
    let rows: Vec<_> = entries
        .iter()
        .map(|entry| columns(entry.metadata.as_ref(), human, &zone))
        .collect();
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let lines = rows.iter().map(|row| {
        let cells = row.iter().zip(widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:>width$}"))
            .collect();
        cells.join(" ")
    });
    lines.collect()
}

fn columns(metadata: Option<&Metadata>, human: bool, zone: &TimeZone) -> [String; 6] {
    let Some(metadata) = metadata else {
        return ["??????????", "?", "?", "?", "?", "?"].map(String::from);
    };
    let size = match metadata.kind {
        FileType::BlockDevice | FileType::CharDevice => {
            format!("{}, {}", metadata.device.major, metadata.device.minor)
        }
        _ if human => size::human(metadata.size),
        _ => metadata.size.to_string(),
    };
    [
        mode(metadata.kind, metadata.mode),
        metadata.nlink.to_string(),
        metadata.uid.to_string(),
        metadata.gid.to_string(),
        size,
        time(metadata.mtime, zone),
    ]
}
