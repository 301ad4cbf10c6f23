//! The driver's traits, on a tree in memory.

use std::ops::{ControlFlow, Range};

use forerun_io::u64_from;
use forerun_vfs::{
    Capabilities, Device, DirCursor, DirEntry, EncodedBlock, Error, Extent, FileSum, FileSystem,
    FileType, Inferred, Layout, Metadata, MetadataLayout, NodeId, Place, Problem, Region, Result,
    Verifier, VolumeInfo,
};
use libdeflater::{Crc, crc32};

use crate::archive::Zip;
use crate::check;
use crate::end::End;
use crate::error::Check;
use crate::method::Method;

/// The CRC-32 of an uncompressed member.
pub struct StoredSum {
    crc: Crc,
    stored: u32,
    node: NodeId,
    header: u64,
}

impl FileSum for StoredSum {
    fn take(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    fn finish(&self) -> Result<()> {
        let (stored, found) = (self.stored, self.crc.sum());
        if stored == found {
            Ok(())
        } else {
            Err(Check::Crc { stored, found }.of(self.node, self.header))
        }
    }
}

impl FileSystem for Zip {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.directory.tree.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let node = self.directory.tree.node(node)?;
        Ok(Metadata {
            kind: node.kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            size: node.size,
            nlink: node.nlink,
            mtime: node.mtime,
            device: Device::default(),
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        self.directory.tree.lookup(dir, name)
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.directory.tree.read_dir(dir, from, visit)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let found = self.directory.tree.node(node)?;
        match found.kind {
            FileType::Symlink => self.target(node, found),
            _ => Err(Error::NotASymlink),
        }
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let found = self.directory.tree.node(node)?;
        match found.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let range = range.start..range.end.min(found.size);
        if range.is_empty() {
            return Ok(());
        }
        self.places(node, found, range, &mut |logical, place| {
            visit(Extent { logical, place })
        })
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let Some(node) = node else {
            let End {
                directory, prefix, ..
            } = &self.end;
            return Ok(vec![
                ("length", self.end.len.to_string()),
                (
                    "directory",
                    format!("{:#x}..{:#x}", directory.start, directory.end),
                ),
                ("zip64", self.end.is_zip64.to_string()),
                ("prefix", prefix.to_string()),
                ("entries", self.directory.facts.members.to_string()),
                ("nodes", self.directory.tree.count().to_string()),
            ]);
        };
        let node = self.directory.tree.node(node)?;
        let entry = match node.entry {
            Some(entry) => format!("{entry:#x}"),
            None => "none".to_string(),
        };
        let mut fields = vec![
            ("entry", entry),
            ("type", node.kind.name().to_string()),
            ("mode", format!("{:#o}", node.mode)),
            ("uid", node.uid.to_string()),
            ("gid", node.gid.to_string()),
            ("size", node.size.to_string()),
            (
                "mtime",
                format!("{}.{:09}", node.mtime.seconds, node.mtime.nanoseconds),
            ),
        ];
        if node.kind != FileType::Directory {
            fields.extend([
                ("header", format!("{:#x}", node.data.header)),
                ("method", node.data.method.name()),
                ("stored", node.data.len.to_string()),
                ("crc32", format!("{:#010x}", node.data.crc)),
            ]);
        }
        Ok(fields)
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        match node {
            None => check::whole(self, report),
            Some(node) => check::member(self, node, report),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            verifier: Some(self),
            blobs: Some(&self.large),
            history: Some(&self.large),
            inferred: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Zip {
    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        let node = self.directory.tree.node(node).ok()?;
        (node.kind != FileType::Directory).then_some(node.data.header)
    }

    /// Headers are locatable, because the directory was read. The header before the contents of a
    /// file says where the contents begin.
    fn metadata_layout(&self) -> MetadataLayout {
        MetadataLayout::Locatable
    }

    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        let directory = self.end.directory.clone();
        let end = directory.end..self.end.len;
        for region in [
            Region::metadata("central directory", directory),
            Region::metadata("end of central directory", end),
        ] {
            if visit(region).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        let found = self.directory.tree.node(node)?;
        if found.entry.is_none() {
            return Ok(());
        }
        let contents = self.contents(node, found)?;
        let header = Region::metadata("local headers", found.data.header..contents.start);
        if visit(header).is_continue() && found.kind == FileType::Symlink {
            let _ended = visit(Region::metadata("symbolic links", contents));
        }
        Ok(())
    }
}

impl Verifier for Zip {
    /// Compares a member that is one block with its CRC-32. Members of several blocks were compared
    /// in the pass that found their spans.
    fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        let last = self
            .by_header
            .partition_point(|(header, _)| *header < block.offset);
        let before = self.by_header.get(..last).unwrap_or_default();
        let Some(&(header, id)) = before.last().filter(|_| self.verifies) else {
            return Ok(());
        };
        let node = self.directory.tree.node(id)?;
        let is_whole =
            u64_from(decoded.len()) == node.size && u64::from(block.len) == node.data.len;
        if !is_whole {
            return Ok(());
        }
        let (stored, found) = (node.data.crc, crc32(decoded));
        if stored == found {
            Ok(())
        } else {
            Err(Check::Crc { stored, found }.of(id, header))
        }
    }

    fn file_sum(&self, node: NodeId) -> Result<Option<Box<dyn FileSum>>> {
        let found = self.directory.tree.node(node)?;
        let is_stored = found.kind == FileType::Regular && found.data.method == Method::Stored;
        Ok((is_stored && self.verifies).then(|| -> Box<dyn FileSum> {
            Box::new(StoredSum {
                crc: Crc::new(),
                stored: found.data.crc,
                node,
                header: found.data.header,
            })
        }))
    }

    /// Each member has a CRC-32.
    fn proves(&self, _place: &Place) -> bool {
        true
    }
}

impl Inferred for Zip {
    fn is_implied(&self, node: NodeId) -> bool {
        let node = self.directory.tree.node(node);
        node.is_ok_and(|node| node.entry.is_none())
    }
}
