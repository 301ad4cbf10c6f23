//! The nodes of the tree.

use forerun_vfs::{
    ContentsBelow, Corrupt, Device, Error, FileType, Listed, Metadata, NodeId, OverlayAttribute,
    Result, Timestamp,
};

use crate::parser::Piece;

/// A node of the tree.
#[derive(Clone, Debug)]
pub struct Node {
    /// Offset of the header; nothing for a directory that only paths name.
    pub header: Option<u64>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub size: u64,
    /// Offset of a file's data.
    pub data: u64,
    /// Properties that few nodes have.
    pub extra: Option<Box<Extra>>,
}

/// The properties that few nodes have.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub target: Vec<u8>,
    pub device: Device,
    pub pieces: Option<Vec<Piece>>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The path of the file in another layer that this hard link is a further name of.
    pub below: Option<Vec<u8>>,
}

impl Extra {
    /// Returns the bytes of memory that they take.
    pub fn len(&self) -> usize {
        let pieces = self.pieces.as_ref().map_or(0, Vec::len);
        let xattrs = self.xattrs.iter();
        let xattrs: usize = xattrs
            .map(|(name, value)| name.len() + value.len() + 48)
            .sum();
        let below = self.below.as_ref().map_or(0, Vec::len);
        size_of::<Self>() + self.target.len() + below + pieces * size_of::<Piece>() + xattrs
    }
}

/// Returns the metadata of a node.
pub fn metadata(node: &Listed<Node>) -> Metadata {
    Metadata {
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
    }
}

/// Returns the target of a symbolic link.
///
/// # Errors
/// `NotASymlink`.
pub fn target(node: &Listed<Node>) -> Result<Vec<u8>> {
    match (node.kind, &node.extra) {
        (FileType::Symlink, Some(extra)) => Ok(extra.target.clone()),
        _ => Err(Error::NotASymlink),
    }
}

/// Refuses a file of an upper layer of overlayfs whose contents are in a lower one.
///
/// # Errors
/// [`ContentsBelow`].
pub fn expect_contents(node: &Node, id: NodeId) -> Result<()> {
    let mut names = node.extra.iter().flat_map(|extra| &extra.xattrs);
    let metacopy = Some(OverlayAttribute::Own(b"metacopy"));
    if names.any(|(name, _)| OverlayAttribute::of(name) == metacopy) {
        let offset = node.header.unwrap_or_default();
        return Err(Corrupt::new("tar", Some(id), offset, ContentsBelow).into());
    }
    Ok(())
}

/// Creates a directory that no member describes.
pub const fn directory() -> Node {
    Node {
        header: None,
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime: Timestamp {
            seconds: 0,
            nanoseconds: 0,
        },
        size: 0,
        data: 0,
        extra: None,
    }
}
