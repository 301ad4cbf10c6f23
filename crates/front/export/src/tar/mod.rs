//! Writes an image as a tar stream.
//!
//! Headers are POSIX, with PAX extensions for fields that do not fit. Entries are in walk order,
//! which is nearly image order, with readahead across files. Files with holes use GNU's sparse
//! format 1.0, which current tar programs and libraries read.

mod header;
mod sparse;

use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};
use std::ops::Range;

use forerun_engine::Reader;
use forerun_io::{u64_from, usize_from};
use forerun_vfs::{FileType, NodeId};

use crate::content::CHUNK;
use crate::salvage::visit_readable;
use crate::select::{Found, Selected, Selection, failure, hold_failure, visit};
use crate::survey::{Names, Survey};
use crate::{ExportError, IdMap, Progress, Remains, SalvagedFile};
use header::Fields;
use sparse::SparseMap;

#[derive(Clone, Debug, Default)]
pub struct TarWriteOptions {
    /// Maximum modification time in seconds since the epoch; later times are set to it.
    pub latest: Option<i64>,
    pub uids: IdMap,
    pub gids: IdMap,
    /// Write holes as zeros, for programs without sparse file support.
    pub no_sparse: bool,
    pub no_xattrs: bool,
    /// Write the readable data of damaged files, with zeros for the rest, and report the outcome of
    /// each file. The entry's PAX record `FORERUN.lost` lists the zeroed ranges. Every file is read
    /// twice.
    pub salvage: bool,
}

#[derive(Debug, Default)]
pub struct TarReport {
    pub entries: u64,
    /// Bytes of file data written, without omitted holes.
    pub bytes: u64,
    pub failures: Vec<ExportError>,
    /// Members of the image outside its tree, if the whole tree was selected.
    pub left_out: u64,
    /// The outcome of each regular file of a salvage; hard links are not listed.
    pub outcomes: Vec<SalvagedFile>,
}

/// Buffer for headers; file data of this size or more bypasses it.
const BUFFER: usize = 64 << 10;

/// Memory per file in the map of first names, in addition to the name.
const NAMED: usize = 80;

/// Writes the selection as a complete tar archive.
///
/// # Errors
/// A selected path does not exist, the files exceed the limit, writing fails, or a file cannot be
/// read completely: that would corrupt the archive, and the error names the file.
pub fn write_tar(
    reader: &Reader,
    selection: &Selection,
    out: &mut dyn Write,
    options: &TarWriteOptions,
    progress: &dyn Progress,
) -> Result<TarReport, ExportError> {
    let mut survey = Survey::of(reader, selection, Names::First)?;
    progress.begin(survey.bytes, survey.entries);
    let mut report = TarReport {
        left_out: selection.left_out(reader),
        ..TarReport::default()
    };
    let mut failures = Vec::new();
    let bulk = reader.bulk(std::mem::take(&mut survey.files));
    let mut archive = Archive {
        reader: bulk.reader(),
        options,
        progress,
        out: BufWriter::with_capacity(BUFFER, out),
        report: &mut report,
    };
    // Contains only files with several names.
    let mut first_names: HashMap<NodeId, Vec<u8>> = HashMap::new();
    visit(reader, selection, &mut |found| {
        let entry = match found {
            Found::Entry(entry) if entry.implied || is_made_up(reader, &entry) => return Ok(()),
            Found::Entry(entry) => entry,
            Found::Failure(failed) => {
                hold_failure(&mut survey.held, &failed)?;
                failures.push(failed);
                return Ok(());
            }
        };
        if survey.has_several_names(entry.node) && !first_names.contains_key(&entry.node) {
            let held = survey.held.add(NAMED + entry.name().len());
            held.map_err(|error| failure(&entry, error))?;
            first_names.insert(entry.node, entry.name().to_vec());
        }
        let first = first_names.get(&entry.node).map(Vec::as_slice);
        let first = first.filter(|first| *first != entry.name());
        if entry.metadata.kind == FileType::Regular && first.is_none() {
            bulk.take();
        }
        archive.entry(&entry, first)
    })?;
    archive.finish()?;
    report.failures.extend(failures);
    Ok(report)
}

/// Returns whether an entry is the target itself and the image has no metadata for it.
fn is_made_up(reader: &Reader, entry: &Selected) -> bool {
    let is_dir = entry.metadata.kind == FileType::Directory;
    entry.name().is_empty() && (!is_dir || reader.fs().is_implied(entry.node))
}

struct Archive<'a> {
    reader: &'a Reader,
    options: &'a TarWriteOptions,
    progress: &'a dyn Progress,
    out: BufWriter<&'a mut dyn Write>,
    report: &'a mut TarReport,
}

impl Archive<'_> {
    /// Writes one entry; `first` is the name that a hard link refers to.
    fn entry(&mut self, entry: &Selected, first: Option<&[u8]>) -> Result<(), ExportError> {
        self.progress.advance(0, 1);
        if entry.metadata.kind == FileType::Socket {
            let reason = "tar archives cannot store sockets";
            self.report.failures.push(ExportError::LeftOut {
                path: entry.name().to_vec(),
                reason,
            });
            return Ok(());
        }
        let mut fields = match Fields::of(self.reader, entry, first, self.options) {
            Err(failed) if self.options.salvage => {
                self.report.failures.push(failed);
                return Ok(());
            }
            fields => fields?,
        };
        if entry.metadata.kind == FileType::Regular && first.is_none() {
            let size = entry.metadata.size;
            if self.options.salvage {
                match self.salvage(entry, fields)? {
                    Some(whole) => fields = whole,
                    None => return Ok(()),
                }
            }
            let map = if self.options.no_sparse {
                None
            } else {
                SparseMap::of(self.reader, entry)?
            };
            if let Some(map) = map {
                fields.sparse(entry.name(), size);
                let text = map.text(size);
                let stored = map.data() + u64_from(text.len());
                fields.write(&mut self.out, stored).map_err(output)?;
                self.out.write_all(&text).map_err(output)?;
                self.copy(entry, map.parts())?;
                self.progress.advance(size - map.data(), 0);
                self.pad(stored)?;
            } else {
                fields.write(&mut self.out, size).map_err(output)?;
                self.copy(entry, std::slice::from_ref(&(0..size)))?;
                self.pad(size)?;
            }
        } else {
            fields.write(&mut self.out, 0).map_err(output)?;
        }
        self.report.entries += 1;
        Ok(())
    }

    /// Looks for damage in a file. Writes a damaged file; returns the header of an undamaged one.
    fn salvage(
        &mut self,
        entry: &Selected,
        mut fields: Fields,
    ) -> Result<Option<Fields>, ExportError> {
        let (reader, size) = (self.reader, entry.metadata.size);
        let damage = visit_readable(reader, entry.node, size, &mut |_, _| {
            Ok::<_, ExportError>(())
        });
        let damage = damage?;
        let outcome = SalvagedFile {
            path: entry.name().to_vec(),
            size: Some(size),
            lost: damage.lost,
            error: damage.error.as_ref().map(ToString::to_string),
            is_guess: reader.fs().is_guess(entry.node),
        };
        let (state, lost) = (outcome.state(), outcome.lost.clone());
        self.report.outcomes.push(outcome);
        match (state, damage.error) {
            (Remains::Lost, Some(error)) => {
                self.report.failures.push(failure(entry, error));
                return Ok(None);
            }
            (Remains::Partial, _) => {}
            _ => return Ok(Some(fields)),
        }
        fields.lost(&lost);
        fields.write(&mut self.out, size).map_err(output)?;
        let (mut at, out) = (0, &mut self.out);
        let zeros = |out: &mut dyn Write, len| io::copy(&mut io::repeat(0).take(len), out);
        let again = visit_readable(reader, entry.node, size, &mut |start, data| {
            zeros(out, start - at).map_err(output)?;
            at = start + u64_from(data.len());
            out.write_all(data).map_err(output)
        })?;
        // An unreliable source may return less than at the first reading.
        if let Some(outcome) = self.report.outcomes.last_mut() {
            outcome.lost = again.lost;
        }
        zeros(&mut self.out, size - at).map_err(output)?;
        self.report.bytes = self.report.bytes.saturating_add(size);
        self.progress.advance(size, 0);
        self.pad(size)?;
        self.report.entries += 1;
        Ok(None)
    }

    fn copy(&mut self, entry: &Selected, parts: &[Range<u64>]) -> Result<(), ExportError> {
        let sum = self.reader.fs().file_sum(entry.node);
        let mut sum = sum.map_err(|error| failure(entry, error))?;
        for part in parts {
            let mut at = part.start;
            while at < part.end {
                let want = usize_from((part.end - at).min(CHUNK));
                let data = self.reader.read(entry.node, at, want);
                let data = data.map_err(|error| failure(entry, error))?;
                if data.is_empty() {
                    return Err(output(io::ErrorKind::UnexpectedEof.into()));
                }
                if let Some(sum) = &mut sum {
                    sum.take(&data);
                }
                self.out.write_all(&data).map_err(output)?;
                let len = u64_from(data.len());
                at += len;
                self.report.bytes = self.report.bytes.saturating_add(len);
                self.progress.advance(len, 0);
            }
        }
        let sound = sum.map_or(Ok(()), |sum| sum.finish());
        sound.map_err(|error| failure(entry, error))
    }

    /// Pads data of `len` bytes to a full block.
    fn pad(&mut self, len: u64) -> Result<(), ExportError> {
        let padding = (512 - len % 512) % 512;
        io::copy(&mut io::repeat(0).take(padding), &mut self.out).map_err(output)?;
        Ok(())
    }

    /// Writes the two zero blocks at the end of an archive.
    fn finish(mut self) -> Result<(), ExportError> {
        self.out.write_all(&[0; 1024]).map_err(output)?;
        self.out.flush().map_err(output)
    }
}

const fn output(error: io::Error) -> ExportError {
    ExportError::Output(error)
}
