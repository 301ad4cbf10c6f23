//! Checks an image: reads everything and reports all findings.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;

use forerun_engine::Reader;
use forerun_io::{BlockKey, u64_from, usize_from};
use forerun_vfs::{
    Bound, Corrupt, Error, Extent, FileType, Held, Metadata, NameError, NodeId, OverlayAttribute,
    Place, Verifier, check_name,
};

use crate::Progress;
use crate::content::visit_data;

#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// Check only metadata; read no file contents.
    pub quick: bool,
}

#[derive(Clone, Debug)]
pub struct Finding {
    /// Path of the node; `None` for the image as a whole.
    pub path: Option<Vec<u8>>,
    /// Whether something is unreadable. Otherwise the image deviates from its format without losing
    /// anything.
    pub fatal: bool,
    /// The defect, and its offset in the image.
    pub error: Error,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    pub entries: u64,
    /// Regular files read or, in a quick check, mapped.
    pub files: u64,
    /// Bytes of file data read, without holes.
    pub bytes: u64,
    pub errors: u64,
    pub warnings: u64,
    /// Number of different fatal errors. Files that share a damaged block have the same error.
    pub places: u64,
    /// Bytes of file data without a checksum or digest, by storage: the name of a codec, or
    /// `stored` for uncompressed data. Empty in a quick check.
    pub unproven: BTreeMap<&'static str, u64>,
    /// Bytes of metadata without a checksum; `None` if no metadata has one.
    pub unproven_metadata: Option<u64>,
}

/// Checks the whole image, continuing after each finding. Files are read until
/// [`Limits::total_bytes`](forerun_vfs::Limits::total_bytes) is reached, which is a finding; later
/// files are only mapped.
pub fn check(
    reader: &Reader,
    options: CheckOptions,
    progress: &dyn Progress,
    report: &mut dyn FnMut(Finding),
) -> CheckSummary {
    let mut check = Check {
        reader,
        options,
        progress,
        report,
        summary: CheckSummary::default(),
        last_proven: None,
        seen: HashSet::new(),
        held: Held::new(reader.limits()),
        told: HashSet::new(),
        places: HashSet::new(),
        hasher: RandomState::new(),
    };
    check.image();
    let verifier = reader.fs().capabilities().verifier;
    check.summary.unproven_metadata = verifier.map_or(Some(0), Verifier::unproven_metadata);
    check.summary
}

/// Results that drivers must never return, and results that are incomplete without an error.
#[derive(Debug, thiserror::Error)]
enum Breach {
    #[error("the extents of the file skip bytes {at} to {next}")]
    Jump { at: u64, next: u64 },
    #[error("an extent at {at} of the file is empty")]
    Empty { at: u64 },
    #[error("the extents end at {at} of the file's {size} bytes")]
    Short { at: u64, size: u64 },
    #[error("some of its entries may be in a lower layer of overlayfs (overlay.redirect)")]
    EntriesBelow,
    #[error("{source}: {name:?}")]
    Name { name: String, source: NameError },
}

struct Check<'c> {
    reader: &'c Reader,
    options: CheckOptions,
    progress: &'c dyn Progress,
    report: &'c mut dyn FnMut(Finding),
    summary: CheckSummary,
    /// The last block that `weigh` examined, and whether it has a checksum.
    last_proven: Option<(BlockKey, bool)>,
    /// Nodes with several names, to check each only once.
    seen: HashSet<NodeId>,
    held: Held,
    /// Hashes of reported findings, to report each only once.
    told: HashSet<u64>,
    /// Hashes of error messages without paths.
    places: HashSet<u64>,
    hasher: RandomState,
}

/// Bytes of memory per node in `seen`, including growth.
const SEEN: usize = 24;

impl Check<'_> {
    fn image(&mut self) {
        let fs = self.reader.fs();
        // The format's own limit may exceed the configured limit, which is meant for formats
        // without one.
        let longest = usize_from(u64::from(fs.volume().name_max));
        let longest = longest.max(self.reader.limits().name_len);
        self.progress.begin(0, 0);
        self.format(None, None);
        for entry in self.reader.walk(fs.root()) {
            let entry = match entry {
                Ok(entry) => entry,
                Err(failed) => {
                    self.found(Some(failed.path), true, failed.error);
                    continue;
                }
            };
            self.summary.entries += 1;
            let path = entry.path.clone();
            if !path.is_empty()
                && let Err(error) = check_name(entry.name(), longest)
            {
                let name = String::from_utf8_lossy(entry.name()).into_owned();
                let error = self.corrupt(
                    entry.node,
                    Breach::Name {
                        name,
                        source: error,
                    },
                );
                self.found(Some(path.clone()), true, error);
            }
            if !self.seen.insert(entry.node) {
                continue;
            }
            if let Err(error) = self.held.add(SEEN) {
                return self.found(Some(path), true, error);
            }
            match entry.metadata {
                Ok(metadata) => self.node(&path, entry.node, &metadata),
                Err(error) => self.found(Some(path.clone()), true, error),
            }
        }
    }

    fn node(&mut self, path: &[u8], node: NodeId, metadata: &Metadata) {
        self.format(Some(path), Some(node));
        let fs = self.reader.fs();
        let result = match metadata.kind {
            FileType::Regular if self.options.quick || self.is_over_limit() => {
                self.map(node, metadata.size)
            }
            FileType::Regular => self.read(node, metadata.size),
            FileType::Symlink => fs.read_link(node).map(|_| ()),
            FileType::Directory
            | FileType::BlockDevice
            | FileType::CharDevice
            | FileType::Fifo
            | FileType::Socket => Ok(()),
        };
        if metadata.kind == FileType::Regular {
            self.summary.files += 1;
        }
        self.progress.advance(0, 1);
        let mut is_moved = false;
        let redirect = Some(OverlayAttribute::Own(b"redirect"));
        let xattrs = fs.xattrs(node, &mut |name, _| {
            is_moved |= metadata.is_dir() && OverlayAttribute::of(name) == redirect;
        });
        if is_moved {
            let error = self.corrupt(node, Breach::EntriesBelow);
            self.found(Some(path.to_vec()), false, error);
        }
        for error in [result.err(), xattrs.err()].into_iter().flatten() {
            self.found(Some(path.to_vec()), true, error);
        }
    }

    /// Reads a file's data up to the first error, and maps all of it. Stops at the error because a
    /// damaged image can claim any file size, and reading on might never end.
    fn read(&mut self, node: NodeId, size: u64) -> Result<(), Error> {
        let read = visit_data(self.reader, node, size, &mut |piece| {
            let (mut at, end) = (piece.range.start, piece.range.end);
            while at < end {
                let data = self.reader.read(node, at, usize_from(end - at))?;
                if data.is_empty() {
                    break;
                }
                let len = u64_from(data.len());
                at += len;
                self.summary.bytes = self.summary.bytes.saturating_add(len);
                self.progress.advance(len, 0);
                if self.is_over_limit() {
                    let limit = self.reader.limits().total_bytes;
                    return Err(Error::limit(Bound::TotalBytes, "bytes of all files", limit));
                }
            }
            Ok::<_, Error>(())
        });
        read?;
        self.map(node, size)?;
        self.weigh(node, size)
    }

    fn weigh(&mut self, node: NodeId, size: u64) -> Result<(), Error> {
        /// Maximum number of extents collected at a time; they are examined after the driver's
        /// `map` has returned.
        const HELD: usize = 1 << 12;
        let mut at = 0;
        while at < size {
            let mut extents = Vec::new();
            self.reader.fs().map(node, at..size, &mut |extent| {
                at = extent.logical.end;
                if extent.place != Place::Zero {
                    extents.push(extent);
                }
                if extents.len() < HELD {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            if extents.is_empty() {
                return Ok(());
            }
            for Extent { logical, place } in extents {
                let (stored, key) = match &place {
                    Place::Encoded { block, .. } => (block.codec.name(), Some(block.key())),
                    Place::Stored { .. } | Place::Inline(_) | Place::Zero => ("stored", None),
                };
                // Many small files share a block.
                let is_proven = match self.last_proven {
                    Some((last, is_proven)) if Some(last) == key => is_proven,
                    _ => self.reader.is_proven(&place)?,
                };
                self.last_proven = key.map(|key| (key, is_proven));
                if !is_proven {
                    let len = logical.end - logical.start;
                    *self.summary.unproven.entry(stored).or_default() += len;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the limit on bytes to read is exceeded; no further file is read then.
    fn is_over_limit(&self) -> bool {
        self.summary.bytes > self.reader.limits().total_bytes
    }

    /// Checks that a file's extents are in order and cover it without holes or overlaps.
    fn map(&self, node: NodeId, size: u64) -> Result<(), Error> {
        let mut at = 0;
        let mut breach = None;
        self.reader.fs().map(node, 0..size, &mut |extent| {
            let next = extent.logical.start;
            if next != at {
                breach = Some(Breach::Jump { at, next });
            } else if extent.logical.is_empty() {
                breach = Some(Breach::Empty { at });
            } else {
                at = extent.logical.end;
                return ControlFlow::Continue(());
            }
            ControlFlow::Break(())
        })?;
        match breach {
            Some(breach) => Err(self.corrupt(node, breach)),
            None if at < size => Err(self.corrupt(node, Breach::Short { at, size })),
            None => Ok(()),
        }
    }

    /// Creates the error for a [`Breach`], which has no offset in the image.
    fn corrupt(&self, node: NodeId, breach: Breach) -> Error {
        let format = self.reader.fs().volume().format;
        Corrupt::new(format, Some(node), 0, breach).into()
    }

    fn format(&mut self, path: Option<&[u8]>, node: Option<NodeId>) {
        let mut problems = Vec::new();
        let result = self.reader.fs().check(node, &mut |problem| {
            problems.push((problem.fatal, problem.error))
        });
        problems.extend(result.err().map(|error| (true, error)));
        for (fatal, error) in problems {
            self.found(path.map(<[u8]>::to_vec), fatal, error);
        }
    }

    /// Reports a finding, once per path.
    fn found(&mut self, path: Option<Vec<u8>>, fatal: bool, error: Error) {
        let text = error.to_string();
        let hasher = &self.hasher;
        let (told, place) = (hasher.hash_one((&path, &text)), hasher.hash_one(&text));
        // Beyond the memory limit, findings are reported without deduplication.
        if self.held.add(2 * SEEN).is_ok() {
            if !self.told.insert(told) {
                return;
            }
            self.summary.places += u64::from(fatal && self.places.insert(place));
        } else {
            self.summary.places += u64::from(fatal);
        }
        if fatal {
            self.summary.errors += 1;
        } else {
            self.summary.warnings += 1;
        }
        (self.report)(Finding { path, fatal, error });
    }
}
