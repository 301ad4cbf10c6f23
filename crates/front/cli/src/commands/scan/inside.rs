//! What lies inside of findings: compressed streams are decoded, images are opened and their files searched.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;

use forerun::unstable::disk::Expanded;
use forerun::unstable::disk::known::decode_stream;
use forerun::unstable::disk::scan::{ScanFinding, ScanKind, ScanOptions, Scanned, scan};
use forerun::unstable::formats;
use forerun::{FileType, Image, Observer, OpenOptions, ReadAt};
use forerun_io::{FileSource, Window};

use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;

/// Most levels of contents inside of contents.
const DEPTH: u32 = 4;
/// Most bytes that are decoded and searched inside of findings.
const MOST_BYTES: u64 = 16 << 30;
/// Most findings inside of findings.
const MOST_INSIDE: usize = 65_536;
/// Most files of an image that are searched.
const MOST_FILES: usize = 1 << 20;
/// Files of an image with fewer bytes are not searched.
const LEAST_FILE: u64 = 64;

/// What was found in a source, and inside of that.
pub struct Level {
    pub source: Arc<dyn ReadAt>,
    pub scanned: Scanned,
    /// In the order of the findings.
    pub inside: Vec<Inner>,
    /// Findings that could not be opened or decoded, and why.
    pub problems: BTreeMap<usize, String>,
    /// Where findings were extracted to, below the directory.
    pub extracted: BTreeMap<usize, PathBuf>,
}

impl Level {
    /// Returns what was found inside of the finding at `index`.
    pub fn inside(&self, index: usize) -> &[Inner] {
        let start = self.inside.partition_point(|inner| inner.finding < index);
        let rest = &self.inside[start..];
        &rest[..rest.partition_point(|inner| inner.finding == index)]
    }
}

/// What was found inside of a finding.
pub struct Inner {
    /// The finding, by its place in the level.
    pub finding: usize,
    /// The file, if the finding is an image; else it is the decoded stream.
    pub path: Option<PathBuf>,
    pub level: Level,
}

/// A search that goes into what it finds.
pub struct Descent<'c> {
    context: &'c Context,
    open: OpenOptions,
    /// The decoded streams, one behind the other. It is made before the process enters its sandbox.
    spool: Option<File>,
    bytes_left: u64,
    findings_left: usize,
    /// Whether something was not searched, because one of the bounds was reached.
    pub is_cut: bool,
}

impl<'c> Descent<'c> {
    /// Creates a search with these options for the images that it opens.
    pub fn new(context: &'c Context, open: &OpenOptions, spool: Option<File>) -> Self {
        Self {
            context,
            open: OpenOptions {
                offset: 0,
                size: None,
                format: None,
                index: None,
                ..open.clone()
            },
            spool,
            bytes_left: MOST_BYTES,
            findings_left: MOST_INSIDE,
            is_cut: false,
        }
    }

    /// Searches a source, and what is found in it as far as there is a spool.
    pub fn level(
        &mut self,
        source: &Arc<dyn ReadAt>,
        options: ScanOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Level> {
        let mut level = self.searched(source, options, progress)?;
        self.descend(&mut level, 0)?;
        Ok(level)
    }

    fn searched(
        &self,
        source: &Arc<dyn ReadAt>,
        options: ScanOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Level> {
        let observer = Arc::new(Observer::default());
        self.context.observe(&observer);
        let scanned = scan(source, formats(), options, &observer, progress)?;
        // Offsets in a file that is the map of a disk are offsets in the disk.
        let disk = Expanded::whole(source, &self.open.limits)?;
        Ok(Level {
            source: disk.map_or_else(|| Arc::clone(source), |disk| disk.source),
            scanned,
            inside: Vec::new(),
            problems: BTreeMap::new(),
            extracted: BTreeMap::new(),
        })
    }

    fn descend(&mut self, level: &mut Level, depth: u32) -> Result<()> {
        if self.spool.is_none() {
            return Ok(());
        }
        for (index, finding) in level.scanned.findings.clone().iter().enumerate() {
            let found = match finding.kind {
                ScanKind::Known(name) => self.stream(level, index, finding, name, depth),
                ScanKind::Image(_) => self.files(level, index, finding, depth),
                _ => Ok(()),
            };
            if let Err(failure) = found {
                level.problems.insert(index, failure.message);
            }
        }
        Ok(())
    }

    /// Searches a source inside of the finding at `index`.
    fn source(
        &mut self,
        level: &mut Level,
        index: usize,
        path: Option<PathBuf>,
        source: &Arc<dyn ReadAt>,
        depth: u32,
    ) -> Result<()> {
        if depth >= DEPTH {
            self.is_cut = true;
            return Ok(());
        }
        let mut inner = self.searched(source, ScanOptions::default(), &mut |_| {})?;
        if !inner.scanned.findings.iter().any(is_worth_a_line) {
            return Ok(());
        }
        let count = inner.scanned.findings.len();
        if count > self.findings_left {
            self.is_cut = true;
            return Ok(());
        }
        self.findings_left -= count;
        self.descend(&mut inner, depth + 1)?;
        level.inside.push(Inner {
            finding: index,
            path,
            level: inner,
        });
        Ok(())
    }

    /// Decodes a stream, if the finding is one.
    fn stream(
        &mut self,
        level: &mut Level,
        index: usize,
        finding: &ScanFinding,
        name: &str,
        depth: u32,
    ) -> Result<()> {
        let Some(mut spool) = self.spool.as_ref() else {
            return Ok(());
        };
        let source = Window::new(Arc::clone(&level.source), finding.offset, finding.len);
        let source = source.map_err(|error| Failure::output(&error))?;
        let start = spool.stream_position();
        let start = start.map_err(|error| Failure::output(&error))?;
        let (mut failed, mut written) = (None, 0);
        let left = self.bytes_left;
        let decoded = decode_stream(&source, name, &mut |bytes| {
            let more = crate::size::count_of(bytes.len());
            if depth >= DEPTH || written + more > left {
                return false;
            }
            failed = spool.write_all(bytes).err();
            written += more;
            failed.is_none()
        });
        if let Some(error) = failed {
            return Err(Failure::output(&error));
        }
        let Some(decoded) = decoded else {
            return Ok(());
        };
        self.is_cut |= decoded > written;
        self.bytes_left -= written;
        let file = spool.try_clone().and_then(FileSource::from_file);
        let file = file.map_err(|error| Failure::output(&error))?;
        let window = Window::new(file, start, Some(written));
        let window = window.map_err(|error| Failure::output(&error))?;
        let source: Arc<dyn ReadAt> = Arc::new(window);
        self.source(level, index, None, &source, depth)
    }

    /// Searches the files of an image.
    fn files(
        &mut self,
        level: &mut Level,
        index: usize,
        finding: &ScanFinding,
        depth: u32,
    ) -> Result<()> {
        if depth >= DEPTH {
            self.is_cut = true;
            return Ok(());
        }
        let image = open(level, finding, &self.open)?;
        let mut failed = None;
        for (count, entry) in image.walk().enumerate() {
            if count == MOST_FILES {
                self.is_cut = true;
                break;
            }
            let file = match entry {
                Ok(entry) if entry.file_type() == FileType::Regular => entry.file(),
                Ok(_) => continue,
                Err(error) => Err(error),
            };
            let file = match file {
                Ok(file) => file,
                Err(error) => {
                    // The other files are searched all the same.
                    failed.get_or_insert(error);
                    continue;
                }
            };
            let size = file.metadata().size;
            if size < LEAST_FILE {
                continue;
            }
            if size > self.bytes_left {
                self.is_cut = true;
                continue;
            }
            self.bytes_left -= size;
            let path = file.path().to_path_buf();
            let source: Arc<dyn ReadAt> = Arc::new(file);
            let searched = self.source(level, index, Some(path.clone()), &source, depth);
            if let Err(failure) = searched {
                return Err(failure.of(path.display()));
            }
        }
        match failed {
            Some(error) => Err(Failure::new(Exit::Image, "image", error.to_string())),
            None => Ok(()),
        }
    }
}

/// Opens the image that a finding is.
pub fn open(level: &Level, finding: &ScanFinding, options: &OpenOptions) -> Result<Image> {
    let options = OpenOptions {
        offset: finding.offset,
        size: finding.len,
        rescue: options.rescue || finding.is_truncated,
        ..options.clone()
    };
    Ok(Image::from_source(Arc::clone(&level.source), &options)?)
}

/// Returns whether a finding in a file of an image is worth a line: every program is one.
fn is_worth_a_line(finding: &ScanFinding) -> bool {
    finding.kind.is_known()
        && !matches!(
            finding.kind,
            ScanKind::Known("elf" | "pe" | "linux-version")
        )
}
