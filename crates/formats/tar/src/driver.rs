//! The tar driver: implements the seam on an index in memory.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Limits, ReadAt};
use forerun_vfs::{
    BlobId, Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Metadata, NodeId,
    Place, Problem, Result, VolumeInfo,
};

use crate::header::BLOCK;
use crate::index::{self, Index};
use crate::tree::Node;

/// An open archive. All its metadata is in memory once it is open.
pub struct Tar {
    index: Index,
}

impl Tar {
    /// Opens the archive at the start of `metadata`: reads all its headers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a header fails a check, [`Error::Unsupported`] for archives of several
    /// volumes, [`Error::Limit`] if the index would take too much memory, [`Error::Io`].
    pub fn open(metadata: &dyn ReadAt, limits: &Limits) -> Result<Self> {
        Self::open_with(metadata, limits, false)
    }

    /// Opens the archive. With `rescue`, it ends where it is damaged.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(metadata: &dyn ReadAt, limits: &Limits, rescue: bool) -> Result<Self> {
        let index = index::read(metadata, limits, rescue)?;
        Ok(Self { index })
    }

    /// Opens the archive of `metadata` as [`Self::open_with`] does, behind the seam.
    pub(crate) fn boxed(
        metadata: &dyn ReadAt,
        limits: &Limits,
        rescue: bool,
    ) -> Result<Arc<dyn FileSystem>> {
        Ok(Arc::new(Self::open_with(metadata, limits, rescue)?))
    }
}

impl FileSystem for Tar {
    fn volume(&self) -> VolumeInfo {
        let index = &self.index;
        let block = u32::try_from(BLOCK).unwrap_or(u32::MAX);
        let mut info = VolumeInfo::new("tar", index.facts.len, block);
        info.label.clone_from(&index.facts.label);
        info.has_xattrs = index.tree.has_xattrs();
        info.details = vec![("members", index.facts.members.to_string())];
        let warnings = index.facts.warnings.iter();
        info.warnings = warnings
            .map(|(at, check)| format!("{check} (at {at:#x})"))
            .collect();
        if index.facts.more_warnings > 0 {
            let told = format!(
                "{} further members are left out or unusual",
                index.facts.more_warnings
            );
            info.warnings.push(told);
        }
        if let Some(damage) = &index.damage {
            info.warnings.push(damage.to_string());
        }
        info
    }

    fn root(&self) -> NodeId {
        self.index.tree.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let node = self.index.tree.node(node)?;
        Ok(Metadata {
            kind: node.kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            size: node.size,
            nlink: node.nlink,
            mtime: node.mtime,
            device: node
                .extra
                .as_ref()
                .map_or(Device::default(), |extra| extra.device),
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        self.index.tree.lookup(dir, name)
    }

    /// Visits the entries by name. The cursor is the number of entries before it.
    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let entries = self.index.tree.entries(dir, from.0)?;
        for (next, (name, node, kind)) in (from.0.saturating_add(1)..).zip(entries) {
            let next = DirCursor(next);
            let entry = DirEntry {
                name,
                node,
                kind,
                next,
            };
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let node = self.index.tree.node(node)?;
        match (node.kind, &node.extra) {
            (FileType::Symlink, Some(extra)) => Ok(extra.target.clone()),
            _ => Err(Error::NotASymlink),
        }
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        if let Some(extra) = &self.index.tree.node(node)?.extra {
            for (name, value) in &extra.xattrs {
                visit(name, value);
            }
        }
        Ok(())
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let node = self.index.tree.node(node)?;
        match node.kind {
            FileType::Regular => {
                // A break ends the visit, and is no error.
                let _ended = map(node, range, visit);
                Ok(())
            }
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let Some(node) = node else {
            return Ok(vec![
                ("length", self.index.facts.len.to_string()),
                ("members", self.index.facts.members.to_string()),
                ("nodes", self.index.tree.len().to_string()),
            ]);
        };
        let node = self.index.tree.node(node)?;
        let header = match node.header {
            Some(header) => format!("{header:#x}"),
            None => "none".to_string(),
        };
        let mut fields = vec![
            ("header", header),
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
        if node.kind == FileType::Regular {
            fields.push(("data", format!("{:#x}", node.data)));
        }
        if let Some(pieces) = node.extra.as_ref().and_then(|extra| extra.pieces.as_ref()) {
            fields.push(("pieces", pieces.len().to_string()));
        }
        Ok(fields)
    }

    /// Reports what opening the archive noticed: it has verified every header.
    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        if node.is_none() {
            for (at, check) in &self.index.facts.warnings {
                report(problem(false, check.clone().at(*at)));
            }
            if let Some(damage) = &self.index.damage {
                report(problem(true, damage.clone()));
            }
        }
        Ok(())
    }
}

const fn problem(fatal: bool, error: Error) -> Problem {
    Problem {
        node: None,
        fatal,
        error,
    }
}

/// Maps a file: pieces are stored, and all between them is zero.
fn map(
    node: &Node,
    range: Range<u64>,
    visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let range = range.start..range.end.min(node.size);
    let mut give = |logical: Range<u64>, stored: Option<u64>| {
        let (start, end) = (logical.start.max(range.start), logical.end.min(range.end));
        if start >= end {
            return ControlFlow::Continue(());
        }
        let place = match stored {
            None => Place::Zero,
            Some(offset) => Place::Stored {
                blob: BlobId::IMAGE,
                offset: offset.saturating_add(start - logical.start),
            },
        };
        visit(Extent {
            logical: start..end,
            place,
        })
    };
    let Some(pieces) = node.extra.as_ref().and_then(|extra| extra.pieces.as_ref()) else {
        return give(0..node.size, Some(node.data));
    };
    let first =
        pieces.partition_point(|piece| piece.logical.saturating_add(piece.len) <= range.start);
    let pieces = pieces.get(first..).unwrap_or_default();
    let mut at = range.start;
    for piece in pieces {
        if piece.logical >= range.end {
            break;
        }
        let end = piece.logical.saturating_add(piece.len);
        give(at.min(piece.logical)..piece.logical, None)?;
        give(piece.logical..end, Some(piece.stored))?;
        at = end;
    }
    give(at..node.size, None)
}
