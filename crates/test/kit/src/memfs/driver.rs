//! [`MemFs`] as a [`FileSystem`].

use std::ops::{ControlFlow, Range};

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{
    Capabilities, ContentsBelow, Corrupt, DirCursor, DirEntry, Error, Extent, FileSystem, FileType,
    Layout, Metadata, MetadataLayout, NodeId, OverlayAttribute, Place, Problem, Result, VolumeInfo,
};

use super::{DamagedOnPurpose, MemFs, MemFsNode, OnMap};

impl MemFs {
    fn get(&self, id: NodeId) -> Result<&MemFsNode> {
        let node = self.node(id).ok_or(Error::StaleNode(id))?;
        if node.damaged {
            return Err(Corrupt::new("memfs", Some(id), 0, DamagedOnPurpose).into());
        }
        Ok(node)
    }

    fn get_dir(&self, id: NodeId) -> Result<&MemFsNode> {
        let node = self.get(id)?;
        match node.metadata.kind {
            FileType::Directory => Ok(node),
            _ => Err(Error::NotADirectory),
        }
    }

    fn map_range(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let id = node;
        let node = self.get(node)?;
        match node.metadata.kind {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::NotAFile),
        }
        let end = range.end.min(node.metadata.size);
        if range.start >= end {
            return Ok(());
        }
        let metacopy = Some(OverlayAttribute::Own(b"metacopy"));
        if node
            .xattrs
            .iter()
            .any(|(name, _)| OverlayAttribute::of(name) == metacopy)
        {
            return Err(Corrupt::new("memfs", Some(id), 0, ContentsBelow).into());
        }
        for extent in &node.extents {
            if extent.logical.end <= range.start || extent.logical.start >= end {
                continue;
            }
            let extent = if self.clamp {
                clamped(extent, range.start..end)
            } else {
                extent.clone()
            };
            if visit(extent).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the kind that an entry shows. It is known even for a damaged node, because formats
    /// store it in the directory.
    fn kind(&self, id: NodeId) -> FileType {
        self.node(id)
            .map_or(FileType::Regular, |node| node.metadata.kind)
    }
}

impl FileSystem for MemFs {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        NodeId(1)
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        Ok(self.get(node)?.metadata.clone())
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        Ok(self.get_dir(dir)?.names.get(name).copied())
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let entries = &self.get_dir(dir)?.entries;
        // A cursor is the number of entries before it.
        let first = usize_from(from.0);
        for (index, (name, node)) in entries.iter().enumerate().skip(first) {
            let entry = DirEntry {
                name,
                node: *node,
                kind: self.kind(*node),
                next: DirCursor(u64_from(index) + 1),
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let node = self.get(node)?;
        match node.metadata.kind {
            FileType::Symlink => Ok(node.target.clone()),
            _ => Err(Error::NotASymlink),
        }
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        for (name, value) in &self.get(node)?.xattrs {
            visit(name, value);
        }
        Ok(())
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let ranges = match &self.on_map {
            Some(OnMap(hook)) => hook(node, range),
            None => vec![range],
        };
        for range in ranges {
            self.map_range(node, range, visit)?;
        }
        Ok(())
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let Some(id) = node else {
            return Ok(vec![("nodes", self.nodes.len().to_string())]);
        };
        let node = self.get(id)?;
        Ok(vec![
            ("kind", node.metadata.kind.name().to_string()),
            ("size", node.metadata.size.to_string()),
            ("extents", node.extents.len().to_string()),
        ])
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        if let Some(Err(error)) = node.map(|id| self.get(id)) {
            report(Problem {
                node,
                fatal: true,
                error,
            });
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for MemFs {
    fn metadata_layout(&self) -> MetadataLayout {
        MetadataLayout::of_ranges(self.metadata_ranges.clone())
    }

    fn shares_blocks(&self) -> bool {
        self.shares_blocks
    }
}

/// Returns the part of an extent inside `range`, which it must overlap.
fn clamped(extent: &Extent, range: Range<u64>) -> Extent {
    let start = extent.logical.start.max(range.start);
    let end = extent.logical.end.min(range.end);
    let cut = start - extent.logical.start;
    let place = match &extent.place {
        Place::Zero => Place::Zero,
        Place::Stored { blob, offset } => Place::Stored {
            blob: *blob,
            // Hostile offsets may be anywhere, including the end of u64.
            offset: offset.wrapping_add(cut),
        },
        Place::Encoded { block, skip } => Place::Encoded {
            block: *block,
            skip: skip.saturating_add(u32::try_from(cut).unwrap_or(u32::MAX)),
        },
        Place::Inline(bytes) => {
            let first = usize_from(cut).min(bytes.len());
            let last = usize_from(end - extent.logical.start).min(bytes.len());
            Place::Inline(bytes[first..last].into())
        }
    };
    Extent {
        logical: start..end,
        place,
    }
}
