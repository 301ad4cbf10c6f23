//! romfs behind the seam.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{BlobId, LEGACY_BLOCK, Limits, ReadAt};
use forerun_vfs::{
    Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Metadata, NodeId, Place,
    Problem, Result, Timestamp, VolumeInfo,
};

use crate::dir::{self, Chain, Entry, Indexes};
use crate::error::Check;
use crate::header::{Header, Kind};
use crate::image::Image;

/// An open romfs image.
pub struct Romfs {
    image: Image,
    indexes: Indexes,
}

impl Romfs {
    /// # Errors
    /// As [`Image::open`].
    pub fn open(metadata: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self> {
        let image = Image::open(metadata, limits)?;
        Ok(Self {
            image,
            indexes: Indexes::new(limits.dir_index_bytes),
        })
    }

    fn first(&self, dir: NodeId) -> Result<u64> {
        dir::first(&self.image.node(dir)?)
    }

    /// Directories too large to index: the cursor is the next header and how many came before it.
    fn read_large_dir(
        &self,
        first: u64,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let (next, mut done) = match from {
            DirCursor::START => (first, 0),
            DirCursor(cursor) => ((cursor & 0x0FFF_FFFF) << 4, cursor >> 28),
        };
        let mut chain = Chain::resume(&self.image, next, done);
        while let Some(header) = chain.next() {
            done += 1;
            let Some(Entry {
                name, node, kind, ..
            }) = dir::entry(&self.image, header?)?
            else {
                continue;
            };
            // Offsets are multiples of 16 below 4 GiB: 28 bits. 0 cannot follow START by `done`.
            let next = DirCursor(done << 28 | chain.position().unwrap_or(0) >> 4);
            if visit(DirEntry {
                name: &name,
                node,
                kind,
                next,
            })
            .is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

impl FileSystem for Romfs {
    fn volume(&self) -> VolumeInfo {
        let superblock = &self.image.superblock;
        let mut info = VolumeInfo::new(
            "romfs",
            superblock.full_size,
            u32::try_from(LEGACY_BLOCK).unwrap_or(1024),
        );
        info.label.clone_from(&superblock.volume_name);
        // The format has no bound of its own; the Linux driver reads 127 bytes.
        info.name_max = u32::try_from(self.image.limits.name_len).unwrap_or(u32::MAX);
        info.has_owners = false;
        info.details = vec![
            ("full size", superblock.full_size.to_string()),
            ("checksum", format!("{:#010x}", superblock.checksum)),
            ("root header", format!("{:#x}", superblock.root)),
        ];
        info
    }

    fn root(&self) -> NodeId {
        NodeId(self.image.superblock.root)
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let header = self.image.node(node)?;
        let kind = header.file_type().ok_or(Error::StaleNode(node))?;
        let sized = matches!(kind, FileType::Regular | FileType::Symlink);
        let device = match header.kind {
            Kind::BlockDevice(device) | Kind::CharDevice(device) => device,
            _ => Device::default(),
        };
        Ok(Metadata {
            kind,
            mode: mode(kind, header.executable),
            uid: 0,
            gid: 0,
            size: if sized { u64::from(header.size) } else { 0 },
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            mtime: Timestamp::default(),
            device,
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let first = self.first(dir)?;
        if let Some(index) = self.indexes.get(&self.image, first)? {
            return match (index.find(name), &index.damage) {
                (Some(entry), _) => Ok(Some(entry.node)),
                // It may lie behind the damage.
                (None, Some(damage)) => Err(damage.clone()),
                (None, None) => Ok(None),
            };
        }
        for header in Chain::new(&self.image, first) {
            let header = header?;
            if header.name == name && !header.is_dot() {
                return Ok(dir::entry(&self.image, header)?.map(|entry| entry.node));
            }
        }
        Ok(None)
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let first = self.first(dir)?;
        let Some(index) = self.indexes.get(&self.image, first)? else {
            return self.read_large_dir(first, from, visit);
        };
        let mut cursor = from.0;
        for entry in index
            .entries
            .iter()
            .skip(forerun_io::saturating_usize(from.0))
        {
            cursor += 1;
            let Entry {
                name, node, kind, ..
            } = entry;
            if visit(DirEntry {
                name,
                node: *node,
                kind: *kind,
                next: DirCursor(cursor),
            })
            .is_break()
            {
                return Ok(());
            }
        }
        index.damage.clone().map_or(Ok(()), Err)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let header = self.image.node(node)?;
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
        let header = self.image.node(node)?;
        match header.kind {
            Kind::Regular => {}
            Kind::Directory { .. } => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let logical = range.start..range.end.min(u64::from(header.size));
        if !logical.is_empty() {
            let place = Place::Stored {
                blob: BlobId::IMAGE,
                offset: header.data + logical.start,
            };
            let _only_one = visit(Extent { logical, place });
        }
        Ok(())
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let Some(node) = node else {
            let superblock = &self.image.superblock;
            return Ok(vec![
                ("full_size", superblock.full_size.to_string()),
                ("checksum", format!("{:#010x}", superblock.checksum)),
                (
                    "volume_name",
                    String::from_utf8_lossy(&superblock.volume_name).into_owned(),
                ),
                ("root", format!("{:#x}", superblock.root)),
            ]);
        };
        Ok(describe(&self.image.node(node)?))
    }

    /// With no node, the root's header; with a directory, the headers of its entries, hard links
    /// and dots included, since these are no nodes.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        let mut check = |header: &Header| {
            for deviation in header.deviations() {
                let node = Some(NodeId(header.offset));
                report(Problem {
                    node,
                    fatal: false,
                    error: deviation.at(node, header.offset),
                });
            }
        };
        let Some(node) = node else {
            check(&self.image.header(self.image.superblock.root)?);
            return Ok(());
        };
        if let Kind::Directory { first } = self.image.node(node)?.kind {
            // Damage to the chain is found by whoever walks it.
            let chain = Chain::new(&self.image, first).map_while(Result::ok);
            chain
                .filter(|header| header.offset != self.image.superblock.root)
                .for_each(|header| check(&header));
        }
        Ok(())
    }
}

/// Permission bits as the Linux driver gives them: the format keeps only one bit.
const fn mode(kind: FileType, executable: bool) -> u16 {
    let base = match kind {
        FileType::Symlink => 0o777,
        FileType::BlockDevice | FileType::CharDevice => 0o600,
        FileType::Directory | FileType::Regular | FileType::Fifo | FileType::Socket => 0o644,
    };
    let executes = matches!(kind, FileType::Directory | FileType::Regular) && executable;
    if executes { base | 0o111 } else { base }
}

fn describe(header: &Header) -> Vec<(&'static str, String)> {
    let kind = header.file_type().map_or("hard_link", FileType::name);
    vec![
        ("offset", format!("{:#x}", header.offset)),
        ("next", format!("{:#x}", header.next.unwrap_or(0))),
        ("type", kind.to_string()),
        ("executable", header.executable.to_string()),
        ("spec_info", format!("{:#x}", header.spec_info)),
        ("size", header.size.to_string()),
        ("checksum", format!("{:#010x}", header.checksum)),
        ("name", String::from_utf8_lossy(&header.name).into_owned()),
        ("data", format!("{:#x}", header.data)),
    ]
}
