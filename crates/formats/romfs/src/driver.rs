use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{BlobId, LEGACY_BLOCK, Limits, ReadAt, usize_from};
use forerun_vfs::{
    Capabilities, Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Layout,
    Metadata, NodeId, Place, Problem, Region, Result, Timestamp, VolumeInfo,
};

use crate::chain::Chain;
use crate::check;
use crate::describe;
use crate::dir::{self, Entry, Index};
use crate::error::Check;
use crate::header::{self, Kind};
use crate::image::Image;
use crate::indexes::{Indexes, Slot};

/// An open romfs image. Nodes are the offsets of their headers.
pub struct Romfs {
    image: Image,
    indexes: Indexes,
    volume: VolumeInfo,
}

impl Romfs {
    /// Opens the image at the start of `metadata`, which may be longer than the image.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if superblock or root fail a check, [`Error::Io`] if they cannot be read.
    pub fn open(metadata: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self> {
        Self::open_with(metadata, limits, false)
    }

    /// Opens the image. With `rescue`, the image may be truncated, and the checksum of the
    /// superblock may be wrong: files end where the source ends.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_with(metadata: Arc<dyn ReadAt>, limits: &Limits, rescue: bool) -> Result<Self> {
        let image = Image::open(metadata, limits, rescue)?;
        Ok(Self {
            volume: volume(&image),
            image,
            indexes: Indexes::new(limits.dir_index_bytes),
        })
    }
}

impl FileSystem for Romfs {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        NodeId(self.image.superblock.root)
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let header = self.image.sound_node(node)?;
        let kind = header.file_type().ok_or(Error::StaleNode(node))?;
        let device = match header.kind {
            Kind::BlockDevice(device) | Kind::CharDevice(device) => device,
            _ => Device::default(),
        };
        Ok(Metadata {
            kind,
            mode: mode(kind, header.executable),
            uid: 0,
            gid: 0,
            size: match kind {
                FileType::Regular | FileType::Symlink => u64::from(header.size),
                // The length of the header, as in Linux.
                FileType::Directory => header.data - header.offset,
                _ => 0,
            },
            // The format stores no count. For `find`, 1 also means that the count of a directory
            // does not include its subdirectories.
            nlink: 1,
            mtime: Timestamp::default(),
            device,
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        match self.indexes.get(&self.image, dir)? {
            Slot::Index(index) => match (index.find(name), &index.damage) {
                (Some(entry), _) => Ok(Some(entry.node)),
                // The name may belong to a damaged entry, or to one that cannot be reached because
                // of the damage.
                (None, Some(damage)) => Err(damage.clone()),
                (None, None) => Ok(None),
            },
            Slot::Large { first } => lookup_large(&self.image, dir, first, name),
        }
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        match self.indexes.get(&self.image, dir)? {
            Slot::Index(index) if from.0 < LARGE_CURSOR => read_index(&index, from, visit),
            // The cursor holds all that is needed to resume.
            Slot::Index(_) => read_large(&self.image, dir, 0, from, visit),
            Slot::Large { first } => read_large(&self.image, dir, first, from, visit),
        }
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let header = self.image.sound_node(node)?;
        if header.kind != Kind::Symlink {
            return Err(Error::NotASymlink);
        }
        let fail = |check: Check| Err(check.at(Some(node), header.offset));
        let (size, limit) = (u64::from(header.size), self.image.limits.symlink_len);
        if size == 0 || size > limit {
            return fail(Check::SymlinkLen { size, limit });
        }
        let target = self.image.read(header.data, size)?;
        if target.contains(&0) {
            fail(Check::SymlinkNul)
        } else {
            Ok(target)
        }
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let header = self.image.sound_node(node)?;
        match header.kind {
            Kind::Regular => {}
            Kind::Directory { .. } => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let logical = range.start..range.end.min(u64::from(header.size));
        let end = self.image.readable(&header, logical.end);
        let is_cut = end < logical.end;
        let logical = logical.start..end;
        if !logical.is_empty() {
            let place = Place::Stored {
                blob: BlobId::IMAGE,
                offset: header.data + logical.start,
            };
            if visit(Extent { logical, place }).is_break() {
                return Ok(());
            }
        }
        if is_cut {
            let checked = header.check_data(self.image.superblock.full_size);
            return checked.map_err(|check| check.at(Some(node), node.0));
        }
        Ok(())
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        Ok(match node {
            Some(node) => describe::header(&self.image.node(node)?),
            None => describe::superblock(&self.image.superblock),
        })
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        match node {
            Some(node) => check::node(&self.image, node, report),
            None => {
                check::image(&self.image, report);
                Ok(())
            }
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Romfs {
    fn names_max(&self) -> Option<u64> {
        Some(self.image.superblock.full_size / header::max_len(0))
    }

    /// Visits the superblock, which ends at the first file's header.
    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        let _ended = visit(Region::metadata(
            "superblock",
            0..self.image.superblock.root,
        ));
        Ok(())
    }

    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        let header = self.image.node(node)?;
        if visit(Region::metadata("headers", header.offset..header.data)).is_continue()
            && header.kind == Kind::Symlink
        {
            let end = header.data + u64::from(header.size);
            let _ended = visit(Region::metadata("symbolic links", header.data..end));
        }
        Ok(())
    }
}

fn volume(image: &Image) -> VolumeInfo {
    let superblock = &image.superblock;
    let block_size = u32::try_from(LEGACY_BLOCK).unwrap_or(1024);
    let mut info = VolumeInfo::new("romfs", superblock.full_size, block_size);
    info.label.clone_from(&superblock.volume_name);
    // The format has no bound of its own; the Linux driver reads 127 bytes.
    info.name_max = u32::try_from(image.limits.name_len).unwrap_or(u32::MAX);
    info.has_owners = false;
    info.has_times = false;
    info.warnings = image.rescue.clone().unwrap_or_default();
    info.details = vec![
        ("full size", superblock.full_size.to_string()),
        ("checksum", format!("{:#010x}", superblock.checksum)),
        ("root header", format!("{:#x}", superblock.root)),
    ];
    info
}

/// Visits the entries of an index. The cursor is the number of entries before it.
fn read_index(
    index: &Index,
    from: DirCursor,
    visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let entries = index.entries.iter().skip(usize_from(from.0));
    for (next, entry) in (from.0 + 1..).zip(entries) {
        if show(entry, DirCursor(next), visit).is_break() {
            return Ok(());
        }
    }
    index.damage.clone().map_or(Ok(()), Err)
}

/// Cursors from this value on belong to [`read_large`], which counts at least one header. Cursors
/// of an index count entries, and an image of 4 GiB has fewer than this.
const LARGE_CURSOR: u64 = 1 << 28;

/// Walks the chain of a directory that has no index. The cursor holds the next header and the
/// number of headers before it. Ends at the first damage, which is not remembered. Does not detect
/// duplicate names.
fn read_large(
    image: &Image,
    dir: NodeId,
    first: u64,
    from: DirCursor,
    visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    // Offsets are multiples of 16 below 4 GiB, so 28 bits.
    let (next, done) = match from {
        DirCursor::START => (first, 0),
        DirCursor(cursor) => ((cursor & 0x0FFF_FFFF) << 4, cursor >> 28),
    };
    let mut chain = Chain::resume(image, dir, next, done);
    while let Some(header) = chain.next() {
        let Some(entry) = dir::entry(image, dir, header?)? else {
            continue;
        };
        // Never START, because at least one header is done.
        let next = DirCursor(chain.done() << 28 | chain.position().unwrap_or(0) >> 4);
        if show(&entry, next, visit).is_break() {
            break;
        }
    }
    Ok(())
}

fn lookup_large(image: &Image, dir: NodeId, first: u64, name: &[u8]) -> Result<Option<NodeId>> {
    for header in Chain::new(image, dir, first) {
        let header = header?;
        if header.name == name {
            return Ok(dir::entry(image, dir, header)?.map(|entry| entry.node));
        }
    }
    Ok(None)
}

fn show(
    entry: &Entry,
    next: DirCursor,
    visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    visit(DirEntry {
        name: &entry.name,
        node: entry.node,
        kind: entry.kind,
        next,
    })
}

/// Returns the permission bits as the Linux driver reports them. The format stores only one bit.
const fn mode(kind: FileType, executable: bool) -> u16 {
    let base = match kind {
        FileType::Symlink => 0o777,
        FileType::BlockDevice | FileType::CharDevice => 0o600,
        FileType::Directory | FileType::Regular | FileType::Fifo | FileType::Socket => 0o644,
    };
    let executes = matches!(kind, FileType::Directory | FileType::Regular) && executable;
    if executes { base | 0o111 } else { base }
}
