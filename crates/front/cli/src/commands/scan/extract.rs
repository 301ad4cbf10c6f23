//! `forerun scan --extract`: images as trees, the rest as files, named by their offsets.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use forerun::unstable::disk::scan::{ScanFinding, ScanKind};
use forerun::{OpenOptions, ReadAt};
use forerun_export::{ExtractOptions, Owners, Selection, extract};

use super::inside::{Level, open};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::progress::Progress;
use crate::size::count_of;

/// Bytes that are copied at once.
const STEP: u64 = 1 << 20;
/// Findings may overlap: bytes to write as files, for each byte of the source.
const MOST_COPIES: u64 = 2;

/// The name of the report in the directory.
pub const REPORT: &str = "report.json";

/// An extraction under way.
pub struct Extraction<'c> {
    context: &'c Context,
    open: OpenOptions,
    root: &'c Path,
    /// Bytes of this and outer levels that may still be written as files.
    copies_left: u64,
    pub failures: Vec<Failure>,
}

impl<'c> Extraction<'c> {
    pub fn new(context: &'c Context, open: &OpenOptions, root: &'c Path) -> Self {
        Self {
            context,
            open: OpenOptions {
                format: None,
                index: None,
                ..open.clone()
            },
            root,
            copies_left: 0,
            failures: Vec::new(),
        }
    }

    /// Writes what was found in a source below `dir`, which is in the directory of the extraction.
    pub fn level(&mut self, level: &mut Level, dir: &Path) -> Result<()> {
        // The map of a disk may claim any length.
        let len = level.source.len().min(self.open.limits.total_bytes);
        self.copies_left += len * MOST_COPIES;
        for (index, finding) in level.scanned.findings.clone().iter().enumerate() {
            if finding.kind == ScanKind::Padding || is_cover(&level.scanned.findings, index) {
                continue;
            }
            let name = format!("{:#010x}.{}", finding.offset, finding.kind.name());
            let path = dir.join(name);
            match self.finding(level, finding, &path) {
                Ok(()) => {
                    level.extracted.insert(index, path);
                }
                Err(failure) => self.failures.push(failure.of(path.display())),
            }
        }
        for number in 0..level.inside.len() {
            let Some(inner) = level.inside.get_mut(number) else {
                break;
            };
            let Some(outer) = level.scanned.findings.get(inner.finding) else {
                break;
            };
            // Paths of images are hostile; the report has them.
            let name = format!(
                "{:#010x}.{}.inside.{number}",
                outer.offset,
                outer.kind.name()
            );
            let inner_dir = dir.join(name);
            let made = fs::create_dir(self.root.join(&inner_dir));
            made.map_err(|error| Failure::output(&error).of(self.root.join(&inner_dir).display()))?;
            self.level(&mut inner.level, &inner_dir)?;
        }
        Ok(())
    }

    fn finding(&mut self, level: &Level, finding: &ScanFinding, path: &Path) -> Result<()> {
        if matches!(finding.kind, ScanKind::Image(_)) {
            let tree = self.tree(level, finding, path);
            let Err(failure) = tree else {
                return Ok(());
            };
            self.failures.push(failure.of(path.display()));
        }
        self.copy(level, finding, path)
    }

    fn tree(&mut self, level: &Level, finding: &ScanFinding, path: &Path) -> Result<()> {
        let image = open(level, finding, &self.open)?;
        let options = ExtractOptions {
            owners: Owners::Caller,
            salvage: finding.is_truncated,
            is_new: true,
            ..ExtractOptions::default()
        };
        let progress = Progress::new(self.context, "extracting", 0);
        let dir = self.root.join(path);
        let report = extract(
            image.reader(),
            &Selection::default(),
            &dir,
            &options,
            &progress,
        )?;
        let left = self.open.limits.total_bytes.checked_sub(report.bytes);
        self.open.limits.total_bytes = left.unwrap_or(0);
        let failures = report.failures.into_iter();
        self.failures
            .extend(failures.map(|error| Failure::from(error).of(path.display())));
        Ok(())
    }

    /// Writes the bytes of a finding to a new file.
    fn copy(&mut self, level: &Level, finding: &ScanFinding, path: &Path) -> Result<()> {
        let rest = level.source.len().saturating_sub(finding.offset);
        let len = finding.len.unwrap_or(rest).min(rest);
        let left = self.copies_left.checked_sub(len);
        self.copies_left = left.ok_or_else(|| {
            let message = "not written: findings overlap, and take more than twice the file";
            Failure::new(crate::exit::Exit::Partial, "limit", message)
        })?;
        let written = write(&*level.source, finding.offset, len, &self.root.join(path));
        written.map_err(|error| Failure::output(&error))
    }
}

fn write(source: &dyn ReadAt, offset: u64, len: u64, path: &Path) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let mut buffer = Vec::new();
    let mut done = 0;
    while done < len {
        let step = STEP.min(len - done);
        buffer.resize(forerun_io::usize_from(step), 0);
        source.read_exact_at(offset + done, &mut buffer)?;
        file.write_all(&buffer)?;
        done += count_of(buffer.len());
    }
    file.flush()
}

/// Returns whether a finding is a cover: what is in it is written by itself.
fn is_cover(findings: &[ScanFinding], index: usize) -> bool {
    let is_cover = findings.get(index).is_some_and(|finding| {
        matches!(
            finding.kind,
            ScanKind::Table(_)
                | ScanKind::Partition(_)
                | ScanKind::Container(_)
                | ScanKind::Known("uimage" | "trx" | "android-boot" | "uefi-volume")
        )
    });
    // What is inside of a finding follows it.
    is_cover
        && findings
            .get(index + 1)
            .is_some_and(|next| next.inside == Some(index))
}

/// Creates the report, which holds what was found and where it was written to.
pub fn report(root: &Path, text: &[u8]) -> Result<PathBuf> {
    let path = root.join(REPORT);
    let written = File::create_new(&path).and_then(|mut file| file.write_all(text));
    written.map_err(|error| Failure::output(&error).of(path.display()))?;
    Ok(path)
}
