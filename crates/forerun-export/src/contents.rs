//! The contents of the files that were chosen, one after the other.

use std::io::Write;

use forerun_engine::Reader;
use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::FileType;

use crate::content::CHUNK;
use crate::select::{Selection, failure, select};
use crate::{ExportError, Progress};

/// What was written, and what could not be.
#[derive(Debug, Default)]
pub struct ContentsReport {
    /// Regular files written to their end.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// What could not be looked at or read. Of a file that is damaged, what lies before is written.
    pub failures: Vec<ExportError>,
}

/// Writes the contents of all regular files that are selected, in the order of the walk; of a file
/// with several names as often as one of them is met. Everything else is passed over.
///
/// # Errors
/// A selected path that is not there, more bytes than the limit, an output that fails.
pub fn write_contents(
    reader: &Reader,
    selection: &Selection,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<ContentsReport, ExportError> {
    let chosen = select(reader, selection)?;
    let bytes = chosen.check_limit(reader.limits().total_bytes)?;
    let is_file = |kind| kind == FileType::Regular;
    let files: Vec<_> = chosen
        .entries
        .iter()
        .filter(|entry| is_file(entry.metadata.kind))
        .collect();
    progress.begin(bytes, u64_from(files.len()));
    let mut report = ContentsReport {
        failures: chosen.failures,
        ..ContentsReport::default()
    };
    let bulk = reader.bulk(files.iter().map(|entry| entry.node).collect());
    for entry in files {
        bulk.take();
        let (size, mut at) = (entry.metadata.size, 0);
        while at < size {
            let want = saturating_usize((size - at).min(CHUNK));
            let data = match bulk.reader().read(entry.node, at, want) {
                Ok(data) if data.is_empty() => break,
                Ok(data) => data,
                Err(error) => {
                    report.failures.push(failure(entry, error));
                    break;
                }
            };
            out.write_all(&data).map_err(ExportError::Output)?;
            at += u64_from(data.len());
            progress.advance(u64_from(data.len()), 0);
        }
        report.bytes = report.bytes.saturating_add(at);
        report.files += u64::from(at >= size);
        progress.advance(0, 1);
    }
    out.flush().map_err(ExportError::Output)?;
    Ok(report)
}
