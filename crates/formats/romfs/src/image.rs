//! Reads the headers of an image, and follows hard links.

use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, NodeId, Result};

use crate::error::Check;
use crate::header::{self, Header, Kind};
use crate::ondisk::{ALIGN, HEADER_LEN};
use crate::superblock::{HEAD_LEN, Superblock};

/// Length of the first read of a header: enough for nearly all, with names up to 15 bytes. A longer
/// read would often reach into another block, which may be file data that no reader asked for.
const FIRST_READ: u64 = 2 * HEADER_LEN;

pub struct Image {
    source: Arc<dyn ReadAt>,
    pub superblock: Superblock,
    pub limits: Limits,
    /// The damage of the superblock that a rescue ignores; `None` if the image was not opened for a
    /// rescue.
    pub rescue: Option<Vec<String>>,
}

impl Image {
    /// Opens the image, and reads its superblock and root.
    pub fn open(source: Arc<dyn ReadAt>, limits: &Limits, rescue: bool) -> Result<Self> {
        let head = read(&*source, 0, source.len().min(HEAD_LEN))?;
        let mut passed = Vec::new();
        let superblock = Superblock::parse_or(&head, source.len(), &mut |check| {
            if rescue {
                passed.push(check.to_string());
                Ok(())
            } else {
                Err(check.at(None, 0))
            }
        })?;
        let image = Self {
            source,
            superblock,
            limits: limits.clone(),
            rescue: rescue.then_some(passed),
        };
        let root = NodeId(image.superblock.root);
        match image.header(root, root.0)?.kind {
            Kind::Directory { .. } => Ok(image),
            _ => Err(Check::RootKind.at(Some(root), root.0)),
        }
    }

    /// Returns the length of the source; the image may be shorter.
    pub fn source_len(&self) -> u64 {
        self.source.len()
    }

    /// Reads the header at `offset`, of any kind. `node` is for errors: the directory whose chain
    /// contains the header, or the hard link that points to it.
    pub fn header(&self, node: NodeId, offset: u64) -> Result<Header> {
        let full_size = self.superblock.full_size;
        let fail = |check: Check| check.at(Some(node), offset);
        // No header lies before the root's.
        if offset >= full_size || offset < self.superblock.root {
            return Err(fail(Check::HeaderOutside { full_size }));
        }
        let name_limit = self.limits.name_len;
        let most = header::max_len(name_limit).min(full_size - offset);
        let mut bytes = self.read(offset, FIRST_READ.min(most))?;
        while u64_from(bytes.len()) < most && !header::has_name_end(&bytes) {
            let done = u64_from(bytes.len());
            bytes.extend(self.read(offset + done, done.min(most - done))?);
        }
        Header::parse(&bytes, offset, full_size, name_limit).map_err(fail)
    }

    /// Follows hard links from `header`. Returns the header at their end, which is `header` itself
    /// if it is not a hard link. Only `.` and `..` may lead to a directory.
    pub fn follow(&self, header: Header) -> Result<Header> {
        let (named, is_dot) = (header.offset, header.is_dot());
        let (mut hops, mut header) = (0, header);
        while let Kind::HardLink { target } = header.kind {
            hops += 1;
            if hops > self.limits.hard_link_hops {
                let hops = self.limits.hard_link_hops;
                return Err(Check::HardLinkHops { target, hops }.at(Some(NodeId(named)), named));
            }
            header = self.header(NodeId(named), target)?;
        }
        if hops > 0 && !is_dot && matches!(header.kind, Kind::Directory { .. }) {
            let target = header.offset;
            return Err(Check::HardLinkToDirectory { target }.at(Some(NodeId(named)), named));
        }
        Ok(header)
    }

    /// Reads the header of a node. Nodes are never hard links, since these are followed before an
    /// id is returned.
    pub fn node(&self, node: NodeId) -> Result<Header> {
        let Superblock {
            root, full_size, ..
        } = self.superblock;
        if node.0 < root || node.0 >= full_size || !node.0.is_multiple_of(ALIGN) {
            return Err(Error::StaleNode(node));
        }
        let header = self.header(node, node.0)?;
        match header.kind {
            Kind::HardLink { .. } => Err(Error::StaleNode(node)),
            _ => Ok(header),
        }
    }

    /// Reads the header of a node, and checks that its data lies in the image. In a rescue, a part
    /// of the data of a regular file is enough.
    pub fn sound_node(&self, node: NodeId) -> Result<Header> {
        let header = self.node(node)?;
        if self.rescue.is_some() && header.kind == Kind::Regular {
            return Ok(header);
        }
        header
            .check_data(self.superblock.full_size)
            .map_err(|check| check.at(Some(node), node.0))?;
        Ok(header)
    }

    /// Returns how many of the first `len` bytes of a file's data lie in the image.
    pub const fn readable(&self, header: &Header, len: u64) -> u64 {
        let room = self.superblock.full_size.saturating_sub(header.data);
        if len < room { len } else { room }
    }

    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        read(&*self.source, offset, len)
    }
}

/// Reads `len` bytes, at most a few kilobytes. The caller must have checked `len` against the
/// image.
fn read(source: &dyn ReadAt, offset: u64, len: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize_from(len)];
    source
        .read_exact_at(offset, &mut bytes)
        .map_err(|error| Error::io(offset, bytes.len(), error))?;
    Ok(bytes)
}
