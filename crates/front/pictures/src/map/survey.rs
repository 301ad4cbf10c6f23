//! Walks an image and collects the extents of all files. Reads only metadata.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::{ControlFlow, Range};

use forerun_engine::Reader;
use forerun_io::BlobId;
use forerun_vfs::{
    Bound, Codec, DecodedLen, EncodedBlock, Error, Extent, FileSystem, Metadata, NodeId, Place,
    Result,
};

use super::layout::{Kind, Layout};
use super::tree::{Sums, Tree};
use super::{FileRuns, ImageMap};

/// Maximum number of files, and of ranges of compressed blocks, that are counted only once; each
/// set takes about 40 MiB.
const REMEMBERED: usize = 1 << 21;
const NAMED_FILES: usize = 20;
/// Maximum number of extents in total, more than in an image of 16 TiB with blocks of 64 KiB.
const MOST_EXTENTS: u64 = 1 << 28;

pub fn survey(reader: &Reader, failed: &mut dyn FnMut(Vec<u8>, Error)) -> Result<ImageMap> {
    let volume = reader.fs().volume();
    let mut survey = Survey {
        reader,
        places: Places {
            fs: reader.fs(),
            layout: Layout::new(volume.image_len),
            pieces: Remembered::default(),
            last: None,
        },
        tree: Tree::default(),
        nodes: Remembered::default(),
        most_runs: Vec::new(),
        extents: 0,
    };
    if let Some(layout) = reader.fs().capabilities().layout {
        let regions = layout.regions(&mut |region| {
            survey.places.layout.region(&region);
            ControlFlow::Continue(())
        });
        if let Err(error) = regions {
            failed(Vec::new(), error);
        }
    }
    for entry in reader.walk(reader.fs().root()) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                failed(error.path, error.error);
                continue;
            }
        };
        let depth = match entry.path.as_slice() {
            [] => 0,
            path => 1 + path.iter().filter(|&&byte| byte == b'/').count(),
        };
        survey.tree.close(depth);
        let added = match &entry.metadata {
            Ok(metadata) => survey.entry(&entry.path, entry.name(), entry.node, metadata),
            Err(error) => Err(error.clone()),
        };
        match added {
            Err(error @ Error::Limit { .. }) if survey.extents > MOST_EXTENTS => return Err(error),
            Err(error) => failed(entry.path, error),
            Ok(()) => {}
        }
    }
    Ok(survey.finish(volume.format))
}

#[derive(Default)]
struct Remembered {
    seen: HashSet<u64, BuildHasherDefault<DefaultHasher>>,
    is_full: bool,
}

impl Remembered {
    fn add(&mut self, value: u64) -> bool {
        if self.seen.len() < REMEMBERED {
            return self.seen.insert(value);
        }
        self.is_full = true;
        !self.seen.contains(&value)
    }
}

struct Survey<'a> {
    reader: &'a Reader,
    places: Places<'a>,
    tree: Tree,
    nodes: Remembered,
    most_runs: Vec<FileRuns>,
    extents: u64,
}

#[derive(Default)]
struct FileScan {
    sums: Sums,
    end: Option<(BlobId, u64)>,
    /// The compressed block of the last extent, if any.
    block: Option<EncodedBlock>,
}

impl FileScan {
    /// Counts a run unless the extent at `start` continues the previous one.
    fn run(&mut self, blob: BlobId, start: u64, end: u64) {
        if self.end != Some((blob, start)) {
            self.sums.runs += 1;
        }
        self.end = Some((blob, end));
    }
}

impl Survey<'_> {
    fn entry(&mut self, path: &[u8], name: &[u8], node: NodeId, metadata: &Metadata) -> Result<()> {
        if metadata.is_dir() {
            self.tree.enter(name);
            return self.regions_of(node);
        }
        let is_new = self.nodes.add(node.0);
        let regions = if is_new {
            self.regions_of(node)
        } else {
            Ok(())
        };
        if !metadata.is_file() || !is_new {
            let other = Sums {
                others: 1,
                ..Sums::default()
            };
            self.tree.rest(&other);
            return regions;
        }
        let mut scan = FileScan::default();
        scan.sums.files = 1;
        scan.sums.size = metadata.size;
        let mut over = false;
        let mapped = match metadata.size {
            0 => Ok(()),
            size => self.reader.fs().map(node, 0..size, &mut |extent| {
                self.extents += 1;
                over = self.extents > MOST_EXTENTS;
                self.places.add(&mut scan, size, &extent);
                if over {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            }),
        };
        let mut sums = scan.sums;
        sums.fragmented = u64::from(sums.runs > 1);
        self.note_runs(path, &sums);
        self.tree.file(name, sums);
        if over {
            let what = "number of extents of all files";
            return Err(Error::limit(Bound::Other, what, MOST_EXTENTS));
        }
        mapped.and(regions)
    }

    /// Adds a node's metadata that is interleaved with other parts of the image.
    fn regions_of(&mut self, node: NodeId) -> Result<()> {
        let Some(layout) = self.reader.fs().capabilities().layout else {
            return Ok(());
        };
        layout.regions_of(node, &mut |region| {
            self.places.layout.region(&region);
            ControlFlow::Continue(())
        })
    }

    /// Keeps a file if it is among the most fragmented.
    fn note_runs(&mut self, path: &[u8], sums: &Sums) {
        let least = self.most_runs.last().map_or(0, |file| file.runs);
        let is_wanted = self.most_runs.len() < NAMED_FILES || sums.runs > least;
        if sums.runs > 1 && is_wanted {
            self.most_runs.push(FileRuns {
                path: path.to_vec(),
                runs: sums.runs,
                size: sums.size,
            });
            self.most_runs
                .sort_by_key(|file| std::cmp::Reverse(file.runs));
            self.most_runs.truncate(NAMED_FILES);
        }
    }

    fn finish(mut self, format: &'static str) -> ImageMap {
        let Places {
            mut layout, pieces, ..
        } = self.places;
        layout.finish();
        self.tree.finish();
        ImageMap {
            format,
            is_exact: layout.is_exact() && !self.nodes.is_full && !pieces.is_full,
            layout,
            tree: self.tree,
            fragmented: self.most_runs,
        }
    }
}

/// Collects the file data in the image.
struct Places<'a> {
    fs: &'a dyn FileSystem,
    layout: Layout,
    pieces: Remembered,
    /// The blob of the last extent, and its range in the image.
    last: Option<(BlobId, Option<Range<u64>>)>,
}

impl Places<'_> {
    /// Returns the range in the image of bytes in a blob, `None` if they are outside.
    fn range(&mut self, blob: BlobId, range: &Range<u64>) -> Option<Range<u64>> {
        let whole = match &self.last {
            Some((last, whole)) if *last == blob => whole.clone(),
            _ => {
                let whole = match self.fs.capabilities().merged {
                    Some(merged) => merged.image_range(blob),
                    None => (blob == BlobId::IMAGE).then(|| 0..self.fs.volume().image_len),
                };
                self.last = Some((blob, whole.clone()));
                whole
            }
        }?;
        let place = |offset: u64| whole.start.saturating_add(offset).min(whole.end);
        Some(place(range.start)..place(range.end))
    }

    fn add(&mut self, scan: &mut FileScan, size: u64, extent: &Extent) {
        let logical = extent.logical.start..extent.logical.end.min(size);
        let len = logical.end.saturating_sub(logical.start);
        match &extent.place {
            Place::Zero => scan.sums.holes = scan.sums.holes.saturating_add(len),
            Place::Inline(_) => {
                scan.sums.inline = scan.sums.inline.saturating_add(len);
                scan.sums.stored = scan.sums.stored.saturating_add(len);
            }
            Place::Stored { blob, offset } => {
                let end = offset.saturating_add(len);
                scan.run(*blob, *offset, end);
                let Some(range) = self.range(*blob, &(*offset..end)) else {
                    scan.sums.outside = scan.sums.outside.saturating_add(len);
                    return;
                };
                let again = self.layout.data(Kind::Data, &range, false);
                scan.sums.shared = scan.sums.shared.saturating_add(again);
                scan.sums.stored = scan.sums.stored.saturating_add(len);
            }
            Place::Encoded { block, skip } => {
                let is_same = scan.block.replace(*block) == Some(*block);
                self.encoded(scan, (block, *skip), (len, is_same));
            }
        }
    }

    /// Adds `len` decoded bytes of a compressed block, starting `skip` bytes into it.
    fn encoded(
        &mut self,
        scan: &mut FileScan,
        (block, skip): (&EncodedBlock, u32),
        (len, is_same): (u64, bool),
    ) {
        let whole = u64::from(block.decoded_len.max()).max(1);
        let mut stored = block.stored();
        // The previous span shares the first byte and counts it.
        if matches!(
            block.codec,
            Codec::DeflateSpan { skip: 1.. } | Codec::GzipSpan { skip: 1.. }
        ) {
            stored.start = stored.start.saturating_add(1).min(stored.end);
        }
        let is_piece = skip > 0
            || len < whole && !is_same
            || matches!(block.decoded_len, DecodedLen::AtMost(_));
        let bytes = match is_piece {
            false if is_same => 0,
            false => u64::from(block.len),
            // Cannot overflow: both factors are below 2^32.
            true => u64::from(block.len) * len.min(whole) / whole,
        };
        let Some(range) = self.range(block.blob, &stored) else {
            scan.sums.outside = scan.sums.outside.saturating_add(bytes);
            return;
        };
        scan.sums.stored = scan.sums.stored.saturating_add(bytes);
        if is_same {
            return;
        }
        if is_piece {
            self.layout.data(Kind::Fragments, &range, true);
            let piece = (block.blob, block.offset, skip);
            let piece = BuildHasherDefault::<DefaultHasher>::default().hash_one(piece);
            if !self.pieces.add(piece) {
                scan.sums.shared = scan.sums.shared.saturating_add(bytes);
            }
            return;
        }
        scan.run(block.blob, stored.start, stored.end);
        if self.layout.data(Kind::Compressed, &range, false) > 0 {
            scan.sums.shared = scan.sums.shared.saturating_add(bytes);
        }
    }
}
