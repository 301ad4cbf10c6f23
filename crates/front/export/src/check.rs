//! Checks an image: reads everything, and reports all findings.

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

/// How much is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// Only metadata; no file is read.
    pub quick: bool,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Path of the node; nothing for the image as a whole.
    pub path: Option<Vec<u8>>,
    /// Whether something cannot be read; otherwise it deviates from the format but loses nothing.
    pub fatal: bool,
    /// What is wrong, and where in the image.
    pub error: Error,
}

/// The amounts that were checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    pub entries: u64,
    /// Regular files read or, in a quick check, mapped.
    pub files: u64,
    /// Bytes of file data read. Holes are not read.
    pub bytes: u64,
    /// Findings that are fatal.
    pub errors: u64,
    pub warnings: u64,
    /// Different errors. Files that share a damaged block have the same one, each.
    pub places: u64,
    /// Bytes of file data that no checksum or digest vouches for, by how they are stored: the name of a codec, or
    /// `stored` for bytes that are as they are. Empty in a quick check.
    pub unproven: BTreeMap<&'static str, u64>,
    /// Bytes of metadata that no checksum covers; nothing if that is all metadata.
    pub unproven_metadata: Option<u64>,
}

/// Checks the whole image, and goes on after each finding. Files are read until
/// [`Limits::total_bytes`](forerun_vfs::Limits::total_bytes) is reached, which is a finding; those that
/// follow are mapped only.
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

/// Answers that no driver may give, whatever the image, and what only looks whole.
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
    /// The block that was looked at last, and whether a checksum vouches for it.
    last_proven: Option<(BlockKey, bool)>,
    /// Nodes with several names are looked at once.
    seen: HashSet<NodeId>,
    held: Held,
    /// Hashes of findings: two looks at one node may have the same.
    told: HashSet<u64>,
    /// Hashes of errors without their paths.
    places: HashSet<u64>,
    hasher: RandomState,
}

/// Bytes that a set of nodes takes for each, while it grows.
const SEEN: usize = 24;

impl Check<'_> {
    fn image(&mut self) {
        let fs = self.reader.fs();
        // A format may have longer names than the limit, which is for those that set none.
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

    /// Reads the pieces of a file that an extraction reads, up to the first that cannot be read, and
    /// maps all of it. The rest of a damaged file is not read: an image can give a file any size, and
    /// reading on would not end.
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

    /// Counts the bytes of a file that nothing vouches for.
    fn weigh(&mut self, node: NodeId, size: u64) -> Result<(), Error> {
        /// Extents that are held at a time: streams are looked into once the driver has answered.
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
                // Many small files are in one block.
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

    /// Returns whether more bytes were read than the limit allows. No further file is read then.
    fn is_over_limit(&self) -> bool {
        self.summary.bytes > self.reader.limits().total_bytes
    }

    /// Checks that the extents of a file are in order, without gaps or overlaps, up to the size.
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

    /// Creates the error for a breach of the seam's contract, which drivers should have refused: no
    /// offset is to blame.
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

    /// Reports a finding, once for each path.
    fn found(&mut self, path: Option<Vec<u8>>, fatal: bool, error: Error) {
        let text = error.to_string();
        let hasher = &self.hasher;
        let (told, place) = (hasher.hash_one((&path, &text)), hasher.hash_one(&text));
        // Beyond the limit each is reported as it comes.
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
