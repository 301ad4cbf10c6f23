//! Reading of many files, for example to extract them.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Mutex;

use forerun_io::{Pattern, Unpoisoned};
use forerun_vfs::{BlobId, Extent, NodeId, Place, Result};

use super::Reader;
use super::group::{Asked, FilePlace, Within};
use crate::Data;
use crate::ahead::Plan;
use crate::read::{Allowance, Blocks};
use crate::tuning::{BULK_FILE, FILE_GAP};

/// A list of files that one or more threads read. The engine reads ahead along the list, across the
/// boundaries of files.
#[derive(Debug)]
pub struct Bulk {
    pub(super) reader: Reader,
    files: Vec<Listed>,
    window: u64,
    /// The bound on the blocks of groups that are cached; `None` if all are.
    pub(super) allowance: Option<Allowance>,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Listed {
    node: NodeId,
    blocks: Blocks,
    /// The block in which the file lies together with others, and its offset in the block.
    within: Option<Within>,
}

#[derive(Clone, Copy, Debug)]
pub struct TakenFile {
    pub position: usize,
    pub node: NodeId,
    /// Whether readahead was planned for the whole file.
    is_planned: bool,
    blocks: Blocks,
    pub(super) within: Option<Within>,
}

#[derive(Debug, Default)]
struct Progress {
    taken: usize,
    planned: usize,
    /// Cost in bytes of the planned files that no thread has taken.
    ahead: u64,
    /// The planned files that no thread has taken: whether each was planned to its end, and its
    /// cost in bytes.
    files: VecDeque<(bool, u64)>,
}

impl Reader {
    /// Sorts regular files by the offset of their first byte, so that reading them in order reads
    /// the image forward. Files that cannot be mapped come first.
    pub fn physical_order(&self, nodes: &mut [NodeId]) {
        nodes.sort_by_cached_key(|&node| first_place(self, node));
    }

    /// Creates a list of files to read in the given order.
    #[must_use]
    pub fn bulk(&self, nodes: Vec<NodeId>) -> Bulk {
        Bulk::new(self.clone(), nodes)
    }

    /// Creates a list of files to read in [physical order](Self::physical_order), which is the
    /// fastest: requests follow the image, and blocks that belong to one file are not cached.
    #[must_use]
    pub fn bulk_by_place(&self, nodes: Vec<NodeId>) -> Bulk {
        Bulk::by_place(self.clone(), nodes)
    }

    #[must_use]
    pub fn place(&self, node: NodeId, size: u64) -> FilePlace {
        FilePlace::of(self, node, size)
    }

    /// Creates a list as [`bulk_by_place`](Self::bulk_by_place) does, for a caller that has found
    /// the [`place`](Self::place) of each file itself, for example on several threads. The caller
    /// takes files with [`take_group`](Bulk::take_group).
    #[must_use]
    pub fn bulk_at(&self, places: Vec<(FilePlace, NodeId)>, asked: Asked) -> Bulk {
        let list = Bulk::of_places(self.clone(), places);
        Bulk {
            allowance: (asked == Asked::All).then(|| self.allowance()),
            ..list
        }
    }
}

impl Bulk {
    pub(crate) fn new(reader: Reader, nodes: Vec<NodeId>) -> Self {
        let file = |node| Listed {
            node,
            blocks: Blocks::Shared,
            within: None,
        };
        Self::of(reader, nodes.into_iter().map(file).collect())
    }

    /// Creates a list in physical order. Equal files that are stored once start at the same offset,
    /// so they become neighbours, and their blocks count as shared.
    pub(crate) fn by_place(reader: Reader, nodes: Vec<NodeId>) -> Self {
        // The threads that read such a list do not take groups.
        let place = |node| (FilePlace::alone(first_place(&reader, node)), node);
        let places = nodes.into_iter().map(place).collect();
        Self::of_places(reader, places)
    }

    /// Creates a list in the order of the places that the caller has found.
    pub(crate) fn of_places(reader: Reader, mut places: Vec<(FilePlace, NodeId)>) -> Self {
        let shares_blocks = reader.inner.shares_blocks;
        places.sort_by_key(|(place, _)| place.start);
        let has_neighbour = |at: usize, place: &FilePlace| {
            [at.checked_sub(1), at.checked_add(1)]
                .into_iter()
                .filter_map(|at| places.get(at?))
                .any(|(other, _)| other.start == place.start)
        };
        let file = |(at, (place, node)): (usize, &(FilePlace, NodeId))| {
            let is_shared = shares_blocks || has_neighbour(at, place);
            let is_part = |within: &Within| is_shared || !within.is_all;
            Listed {
                node: *node,
                blocks: if is_shared {
                    Blocks::Shared
                } else {
                    Blocks::Own
                },
                within: place.within.filter(is_part),
            }
        };
        let files = places.iter().enumerate().map(file).collect();
        Self::of(reader, files)
    }

    fn of(reader: Reader, files: Vec<Listed>) -> Self {
        let window = reader.bulk_window();
        Self {
            reader: reader.without_guesses(),
            files,
            window,
            allowance: None,
            progress: Mutex::default(),
        }
    }

    /// Takes the next file of the list, if any. Plans more files once at most half of the window is
    /// left. The caller reads the file to its end, through [`read`](Self::read) or
    /// [`reader`](Self::reader).
    pub fn take(&self) -> Option<TakenFile> {
        let mut progress = self.progress.lock().unpoisoned();
        let taken = self.take_next(&mut progress)?;
        // Planning half a window at a time makes large requests.
        if self.window > 0 && progress.ahead <= self.window / 2 {
            self.plan(&mut progress);
        }
        Some(taken)
    }

    /// Takes the next file of a list made by [`bulk_at`](Reader::bulk_at), together with all other
    /// files in the same block. So one thread decodes the block, once, and no other thread waits
    /// for the block or keeps it from being evicted.
    pub fn take_group(&self) -> Vec<TakenFile> {
        let mut progress = self.progress.lock().unpoisoned();
        let mut group: Vec<TakenFile> = Vec::new();
        while let Some(next) = self.files.get(progress.taken) {
            let is_together = group.last().is_none_or(|last| {
                let (last, next) = (last.within.as_ref(), next.within.as_ref());
                last.zip(next)
                    .is_some_and(|(last, next)| last.block == next.block)
            });
            if !is_together {
                break;
            }
            group.extend(self.take_next(&mut progress));
        }
        if self.window > 0 && progress.ahead <= self.window / 2 {
            self.plan(&mut progress);
        }
        group
    }

    fn take_next(&self, progress: &mut Progress) -> Option<TakenFile> {
        let position = progress.taken;
        let file = self.files.get(position)?;
        progress.taken += 1;
        let (is_planned, cost) = progress.files.pop_front().unwrap_or_default();
        progress.ahead -= cost;
        progress.planned = progress.planned.max(progress.taken);
        Some(TakenFile {
            position,
            node: file.node,
            is_planned,
            blocks: file.blocks,
            within: file.within,
        })
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.files.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the reader of the files. It makes no guesses, because the list says what will be
    /// read.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Reads `range` of a taken file. A caller that knows the extent that holds all of `range`
    /// passes it, so that the driver need not map the range again. The extent is used only if the
    /// whole file was planned.
    ///
    /// # Errors
    /// The errors of [`Reader::read`].
    pub fn read(
        &self,
        taken: &TakenFile,
        range: Range<u64>,
        extent: Option<&Extent>,
    ) -> Result<Data> {
        match extent {
            Some(extent) if taken.is_planned => {
                self.reader.read_extent(range, extent, taken.blocks)
            }
            _ => {
                let len = forerun_io::usize_from(range.end - range.start);
                self.reader.read(taken.node, range.start, len)
            }
        }
    }

    fn plan(&self, progress: &mut Progress) {
        let mut plan = Plan::new(Pattern::Once);
        while progress.ahead < self.window {
            let Some(file) = self.files.get(progress.planned) else {
                break;
            };
            let before = (plan.bytes(), plan.decoded());
            let is_whole = self.plan_file(file, &mut plan);
            // Blocks decoded ahead must stay cached until they are wanted, so their bytes count
            // too. Each file costs at least 512 bytes, so that empty files do not plan the whole
            // list.
            let stored = plan.bytes() - before.0;
            let decoded = plan.decoded() - before.1;
            let cost = stored.max(decoded).max(512);
            progress.planned += 1;
            progress.ahead += cost;
            progress.files.push_back((is_whole, cost));
        }
        plan.coalesce(FILE_GAP);
        self.reader.start(plan);
    }

    /// Adds a file to the plan. Returns whether the whole file is planned.
    fn plan_file(&self, file: &Listed, plan: &mut Plan) -> bool {
        if let Some(within) = &file.within {
            // The thread that takes the group decodes the block.
            plan.add_stored(&within.block, FILE_GAP);
            return true;
        }
        let fs = self.reader.fs();
        let size = fs.metadata(file.node).map_or(u64::MAX, |found| found.size);
        let is_whole = size <= BULK_FILE;
        // The threads that read the list keep all CPUs busy, so they decode the blocks of such
        // files themselves.
        let is_left = is_whole && file.blocks == Blocks::Own;
        plan.add(fs, file.node, 0..BULK_FILE, FILE_GAP, &|extent| {
            !is_left || !extent.is_whole_block()
        });
        is_whole
    }
}

/// Returns the offset of the first byte of a file, or the start of the image for files without data
/// and for files that the driver cannot map.
fn first_place(reader: &Reader, node: NodeId) -> (BlobId, u64) {
    let mut first = (BlobId::IMAGE, 0);
    let _fails_when_read = reader.fs().map(node, 0..1, &mut |extent| {
        first = match extent.place {
            Place::Stored { blob, offset } => (blob, offset),
            Place::Encoded { block, .. } => (block.blob, block.offset),
            Place::Zero | Place::Inline(_) => first,
        };
        ControlFlow::Break(())
    });
    first
}
