use forerun_vfs::{
    ContentsBelow, Corrupt, Device, Error, FileType, Listed, Metadata, NodeId, OverlayAttribute,
    Result, Timestamp,
};

use crate::parser::Piece;

#[derive(Clone, Debug)]
pub struct Node {
    /// Offset of the header; `None` for a directory that exists only as part of paths.
    pub header: Option<u64>,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    pub size: u64,
    pub data: u64,
    /// Rare properties.
    pub extra: Option<Box<Extra>>,
}

/// The rare properties of a node.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    pub target: Vec<u8>,
    pub device: Device,
    pub pieces: Option<Vec<Piece>>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// For a hard link to a file of another layer, the path of that file.
    pub below: Option<Vec<u8>>,
}

impl Extra {
    /// Returns the memory of these properties in bytes.
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

pub fn target(node: &Listed<Node>) -> Result<Vec<u8>> {
    match (node.kind, &node.extra) {
        (FileType::Symlink, Some(extra)) => Ok(extra.target.clone()),
        _ => Err(Error::NotASymlink),
    }
}

/// Refuses a file of an overlayfs upper layer whose contents are in a lower layer, with
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

/// Returns a directory that no member describes.
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
