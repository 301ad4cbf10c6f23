//! Reads headers of one image and follows hard links.

use std::sync::Arc;

use forerun_io::{Limits, ReadAt, saturating_usize};
use forerun_vfs::{Error, NodeId, Result};

use crate::error::Check;
use crate::header::{self, Header, Kind};
use crate::superblock::{HEAD_LEN, Superblock};

/// The bytes, what the superblock says of them, and the bounds.
pub struct Image {
    source: Arc<dyn ReadAt>,
    pub superblock: Superblock,
    pub limits: Limits,
}

impl Image {
    /// # Errors
    /// `Corrupt` where the superblock fails a check, `Io` where it cannot be read.
    pub fn open(source: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self> {
        let head = read(&*source, 0, source.len().min(HEAD_LEN))?;
        let superblock = Superblock::parse(&head, source.len())?;
        let image = Self {
            source,
            superblock,
            limits: limits.clone(),
        };
        let root = image.header(image.superblock.root)?;
        match root.kind {
            Kind::Directory { .. } => Ok(image),
            _ => Err(Check::RootKind.at(Some(NodeId(root.offset)), root.offset)),
        }
    }

    /// The header at `offset`, whatever it is.
    pub fn header(&self, offset: u64) -> Result<Header> {
        let full_size = self.superblock.full_size;
        // Nothing that comes before the root's is a header.
        if offset >= full_size || offset < self.superblock.root {
            return Err(Check::HeaderOutside { full_size }.at(Some(NodeId(offset)), offset));
        }
        let len = header::read_len(self.limits.name_len).min(full_size - offset);
        let bytes = self.read(offset, len)?;
        Header::parse(&bytes, offset, full_size, self.limits.name_len)
    }

    /// The header of the file that `header` names: itself, or where its hard links lead.
    pub fn follow(&self, header: Header) -> Result<Header> {
        let (named, mut hops, mut header) = (header.offset, 0, header);
        while let Kind::HardLink { target } = header.kind {
            hops += 1;
            if hops > self.limits.hard_link_hops {
                let hops = self.limits.hard_link_hops;
                return Err(Check::HardLinkHops { target, hops }.at(Some(NodeId(named)), named));
            }
            header = self.header(target)?;
        }
        Ok(header)
    }

    /// The header of a node. Nodes are never hard links, since these are followed before an id is
    /// given out.
    pub fn node(&self, node: NodeId) -> Result<Header> {
        if node.0 < self.superblock.root
            || node.0 >= self.superblock.full_size
            || !node.0.is_multiple_of(16)
        {
            return Err(Error::StaleNode(node));
        }
        let header = self.header(node.0)?;
        match header.kind {
            Kind::HardLink { .. } => Err(Error::StaleNode(node)),
            _ => Ok(header),
        }
    }

    /// Bytes inside the image.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        read(&*self.source, offset, len)
    }
}

/// `len` was checked against the image, and is at most a few kilobytes.
fn read(source: &dyn ReadAt, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; saturating_usize(len)];
    source
        .read_exact_at(offset, &mut bytes)
        .map_err(|error| Error::io(offset, bytes.len(), error))?;
    Ok(bytes)
}
