//! The filesystem of a salvage: the image, and a directory of nameless files.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{
    Capabilities, Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Inferred,
    Metadata, NodeId, Problem, Result, Timestamp, VolumeInfo,
};

use super::carve::Carved;
use super::inodes::{Known, Orphan};
use crate::Squashfs;

/// Flag of node ids that the image does not have: no reference is as large.
const OWN: u64 = 1 << 63;
/// Node id that stands in for an unreadable root.
const ROOT: NodeId = NodeId(OWN);
/// The directory of nameless files.
const LOST: NodeId = NodeId(OWN | 1);
/// Node id of the first guessed file.
const CARVED: u64 = OWN | 1 << 8;
/// The cursor after the entry of [`LOST`], which comes last: no listing is as long.
const BEHIND: DirCursor = DirCursor(1 << 62);

pub struct Salvaged {
    image: Squashfs,
    root: NodeId,
    lost_name: &'static [u8],
    orphans: Vec<Orphan>,
    carved: Vec<Carved>,
    volume: VolumeInfo,
}

impl Salvaged {
    pub(super) fn new(
        image: Squashfs,
        known: Known,
        carved: Vec<Carved>,
        warnings: Vec<String>,
    ) -> Self {
        let root = if known.has_root { image.root() } else { ROOT };
        let names: [&'static [u8]; 3] = [b"lost+found", b"lost+found.forerun", b".forerun"];
        let is_free =
            |name: &&&[u8]| root == ROOT || !matches!(image.lookup(root, name), Ok(Some(_)));
        let lost_name = names.iter().find(is_free).copied().unwrap_or(b".forerun");
        let mut volume = image.volume().clone();
        volume.inodes = None;
        volume.warnings.extend(warnings);
        Self {
            image,
            root,
            lost_name,
            orphans: known.orphans,
            carved,
            volume,
        }
    }

    fn has_lost(&self) -> bool {
        !self.orphans.is_empty() || !self.carved.is_empty()
    }

    fn carved(&self, node: NodeId) -> Option<&Carved> {
        let index = node.0.checked_sub(CARVED)?;
        self.carved.get(usize::try_from(index).ok()?)
    }

    fn read_lost(&self, from: DirCursor, visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>) {
        let orphans = self.orphans.iter().map(|orphan| {
            // Numbers may repeat in a damaged image; references cannot.
            let name = format!("inode-{}-{:x}", orphan.number, orphan.node.0);
            (name, orphan.node, orphan.kind)
        });
        let carved = self.carved.iter().zip(CARVED..).map(|(file, node)| {
            let kind = if file.is_raw() { "raw" } else { "data" };
            let name = format!("{kind}-{:012x}", file.offset());
            (name, NodeId(node), FileType::Regular)
        });
        let skip = forerun_io::usize_from(from.0);
        let entries = orphans.chain(carved).zip(1..).skip(skip);
        for ((name, node, kind), next) in entries {
            let entry = DirEntry {
                name: name.as_bytes(),
                node,
                kind,
                next: DirCursor(next),
            };
            if visit(entry).is_break() {
                return;
            }
        }
    }

    fn find_lost(&self, wanted: &[u8]) -> Option<NodeId> {
        let mut found = None;
        self.read_lost(DirCursor::START, &mut |entry| {
            if entry.name != wanted {
                return ControlFlow::Continue(());
            }
            found = Some(entry.node);
            ControlFlow::Break(())
        });
        found
    }
}

fn own(kind: FileType, size: u64) -> Metadata {
    Metadata {
        kind,
        mode: if kind == FileType::Directory {
            0o755
        } else {
            0o644
        },
        uid: 0,
        gid: 0,
        size,
        nlink: 1,
        mtime: Timestamp::default(),
        device: Device::default(),
    }
}

impl FileSystem for Salvaged {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.root
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        match node {
            ROOT | LOST => Ok(own(FileType::Directory, 0)),
            _ => match self.carved(node) {
                Some(file) => Ok(own(FileType::Regular, file.size)),
                None => self.image.metadata(node),
            },
        }
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        if dir == LOST {
            return Ok(self.find_lost(name));
        }
        if dir == self.root && name == self.lost_name && self.has_lost() {
            return Ok(Some(LOST));
        }
        match dir == ROOT {
            true => Ok(None),
            false if self.carved(dir).is_some() => Err(Error::NotADirectory),
            false => self.image.lookup(dir, name),
        }
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if dir == LOST {
            self.read_lost(from, visit);
            return Ok(());
        }
        if self.carved(dir).is_some() {
            return Err(Error::NotADirectory);
        }
        if dir != self.root {
            return self.image.read_dir(dir, from, visit);
        }
        if from == BEHIND {
            return Ok(());
        }
        let mut ends = false;
        let read = if dir == ROOT {
            Ok(())
        } else {
            self.image.read_dir(dir, from, &mut |entry| {
                let flow = visit(entry);
                ends = flow.is_break();
                flow
            })
        };
        if !ends && self.has_lost() {
            let entry = DirEntry {
                name: self.lost_name,
                node: LOST,
                kind: FileType::Directory,
                next: BEHIND,
            };
            let _last = visit(entry);
        }
        read
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        match node.0 & OWN {
            0 => self.image.read_link(node),
            _ => Err(Error::NotASymlink),
        }
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        match node.0 & OWN {
            0 => self.image.xattrs(node, visit),
            _ => Ok(()),
        }
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        if matches!(node, ROOT | LOST) {
            return Err(Error::IsADirectory);
        }
        let Some(file) = self.carved(node) else {
            return self.image.map(node, range, visit);
        };
        file.map(self.image.image.superblock.codec, range, visit);
        Ok(())
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        match node {
            Some(node) if node.0 & OWN != 0 => Ok(vec![("salvage", "not in the image".into())]),
            _ => self.image.describe(node),
        }
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        match node {
            Some(node) if node.0 & OWN != 0 => Ok(()),
            _ => self.image.check(node, report),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            inferred: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Inferred for Salvaged {
    fn is_guess(&self, node: NodeId) -> bool {
        self.carved(node).is_some()
    }
}
