//! Writes a planned volume from its first byte to its last.

use std::sync::Arc;

use forerun_build::{BuildError, ExactStream, ImageOutput, ImageWriter, NodeKind, Tree, is_zero};
use forerun_io::{Observer, u64_from, usize_from};

use super::directories::Directories;
use super::geometry::Geometry;
use super::plan::Plan;
use super::{ExfatOptions, head};
use crate::default_upcase;
use crate::ondisk::END_OF_CHAIN;

/// Bytes of a file that one read fetches.
const CHUNK: u64 = 1 << 20;
/// Blocks of this length that are all zero become holes.
const PIECE: usize = 1 << 16;
/// First entry of the FAT: the media type (4.1.1).
const MEDIA: u32 = 0xFFFF_FFF8;

struct Emitter<'a, 'o> {
    tree: &'a Tree,
    plan: &'a Plan,
    geometry: &'a Geometry,
    out: ImageWriter<'o>,
}

pub fn emit(
    tree: &Tree,
    options: &ExfatOptions,
    plan: &Plan,
    geometry: &Geometry,
    mut directories: Directories,
    (out, observer): (&mut dyn ImageOutput, &Arc<Observer>),
) -> Result<u64, BuildError> {
    let mut emitter = Emitter {
        tree,
        plan,
        geometry,
        out: ImageWriter::new(out, observer),
    };
    emitter
        .out
        .write(&head::regions(geometry, directories.serial))?;
    emitter.fat()?;
    emitter.bitmap()?;
    emitter.start(Geometry::number(geometry.bitmap_clusters))?;
    emitter.out.write(&default_upcase::compressed())?;
    for (number, &item) in plan.directories.iter().enumerate() {
        emitter.start_of(item, &directories)?;
        emitter.out.write(&directories.entries(plan, number))?;
    }
    let mut shorter = false;
    for (item, planned) in plan.items.iter().enumerate() {
        if planned.is_directory || planned.len == 0 {
            continue;
        }
        emitter.start_of(item, &directories)?;
        let written = emitter.file(item)?;
        let valid = written.next_multiple_of(geometry.cluster).min(planned.len);
        if options.sparse_tails && valid < planned.len {
            directories.set_valid(item, valid);
            shorter = true;
        }
    }
    emitter.out.hole_to(geometry.volume)?;
    let mut complete = emitter.out.finish()?;
    if shorter {
        for (number, &item) in plan.directories.iter().enumerate() {
            let first = directories.first[item];
            let entries = directories.entries(plan, number);
            complete.patch(geometry.offset(first), &entries)?;
        }
    }
    complete.end()
}

impl Emitter<'_, '_> {
    fn start_of(&mut self, item: usize, directories: &Directories) -> Result<(), BuildError> {
        let first = directories.first[item];
        self.start(first)
    }

    fn start(&mut self, cluster: u32) -> Result<(), BuildError> {
        self.out.hole_to(self.geometry.offset(cluster))
    }

    /// Writes the FAT. Only bitmap, up-case table and root have chains, because they lack a
    /// `NoFatChain` flag.
    fn fat(&mut self) -> Result<(), BuildError> {
        self.out.hole_to(self.geometry.fat)?;
        let mut fat = Vec::from(MEDIA.to_le_bytes());
        fat.extend(END_OF_CHAIN.to_le_bytes());
        let root = self.plan.items.first();
        let root = root.map_or(1, |root| Plan::clusters(root, self.geometry.cluster));
        let geometry = self.geometry;
        let mut next = 0;
        for clusters in [geometry.bitmap_clusters, geometry.upcase_clusters, root] {
            let end = next + clusters;
            while next < end {
                next += 1;
                let entry = if next < end {
                    Geometry::number(next)
                } else {
                    END_OF_CHAIN
                };
                fat.extend(entry.to_le_bytes());
            }
        }
        self.out.write(&fat)
    }

    /// Writes the bitmap. The clusters in use are the first ones.
    fn bitmap(&mut self) -> Result<(), BuildError> {
        self.start(Geometry::number(0))?;
        let ones = [0xFF; 4096];
        let mut left = self.geometry.used / 8;
        while left > 0 {
            let part = ones.get(..usize_from(left)).unwrap_or(&ones);
            self.out.write(part)?;
            left -= u64_from(part.len());
        }
        let rest = (1_u16 << (self.geometry.used % 8)) - 1;
        match u8::try_from(rest) {
            Ok(rest) if rest > 0 => self.out.write(&[rest]),
            _ => Ok(()),
        }
    }

    /// Copies a file, and returns the end of its last non-zero byte.
    fn file(&mut self, item: usize) -> Result<u64, BuildError> {
        let Some(planned) = self.plan.items.get(item) else {
            return Ok(0);
        };
        let NodeKind::File { len, content } = &self.tree.node(planned.node).kind else {
            return Ok(0);
        };
        let path = || self.plan.path(item);
        let mut stream = ExactStream::open(content, *len).map_err(|e| e.of(path(), *len))?;
        let start = self.out.position();
        let mut written = 0;
        while stream.left() > 0 {
            let hole = stream.hole().map_err(|error| error.of(path(), *len))?;
            let hole = hole - hole % u64_from(PIECE);
            if hole > 0 {
                stream.skip(hole).map_err(|error| error.of(path(), *len))?;
                self.out.hole_to(self.out.position() + hole)?;
                continue;
            }
            let bytes = stream.read(CHUNK).map_err(|error| error.of(path(), *len))?;
            for piece in bytes.chunks(PIECE) {
                let end = self.out.position() + u64_from(piece.len());
                if is_zero(piece) {
                    self.out.hole_to(end)?;
                    continue;
                }
                self.out.write(piece)?;
                let zeros = piece.iter().rev().take_while(|&&byte| byte == 0);
                written = end - start - u64_from(zeros.count());
            }
        }
        Ok(written)
    }
}
