//! Writes the contents of the selected files, one after the other.

use std::io::Write;

use forerun_engine::Reader;
use forerun_io::{u64_from, usize_from};
use forerun_vfs::{FileType, Held};

use crate::content::CHUNK;
use crate::select::{Found, Selection, failure, hold_failure, visit};
use crate::survey::{Names, Survey};
use crate::{ExportError, Progress};

#[derive(Debug, Default)]
pub struct ContentsReport {
    /// Regular files written completely.
    pub files: u64,
    pub bytes: u64,
    /// Entries that could not be read. Of a damaged file, the data before the damage is written.
    pub failures: Vec<ExportError>,
}

impl ContentsReport {
    fn fail(&mut self, held: &mut Held, failed: ExportError) -> Result<(), ExportError> {
        hold_failure(held, &failed)?;
        self.failures.push(failed);
        Ok(())
    }
}

/// Writes the contents of all selected regular files in walk order. A file with several selected
/// names is written once per name.
///
/// # Errors
/// A selected path does not exist, the files exceed the limit, or writing fails.
pub fn write_contents(
    reader: &Reader,
    selection: &Selection,
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<ContentsReport, ExportError> {
    let mut survey = Survey::of(reader, selection, Names::All)?;
    progress.begin(survey.bytes, u64_from(survey.files.len()));
    let mut report = ContentsReport::default();
    let bulk = reader.bulk(std::mem::take(&mut survey.files));
    visit(reader, selection, &mut |found| {
        let entry = match found {
            Found::Entry(entry) if entry.metadata.kind != FileType::Regular => return Ok(()),
            Found::Entry(entry) => entry,
            Found::Failure(failed) => return report.fail(&mut survey.held, failed),
        };
        bulk.take();
        let (size, mut at) = (entry.metadata.size, 0);
        let sum = reader.fs().file_sum(entry.node);
        let mut sum = sum.map_err(|error| failure(&entry, error))?;
        while at < size {
            let want = usize_from((size - at).min(CHUNK));
            let data = match bulk.reader().read(entry.node, at, want) {
                Ok(data) if data.is_empty() => break,
                Ok(data) => data,
                Err(error) => {
                    report.fail(&mut survey.held, failure(&entry, error))?;
                    break;
                }
            };
            if let Some(sum) = &mut sum {
                sum.take(&data);
            }
            out.write_all(&data).map_err(ExportError::Output)?;
            at += u64_from(data.len());
            progress.advance(u64_from(data.len()), 0);
        }
        report.bytes = report.bytes.saturating_add(at);
        if at >= size
            && let Some(Err(error)) = sum.map(|sum| sum.finish())
        {
            report.fail(&mut survey.held, failure(&entry, error))?;
        }
        report.files += u64::from(at >= size);
        progress.advance(0, 1);
        Ok(())
    })?;
    out.flush().map_err(ExportError::Output)?;
    Ok(report)
}
