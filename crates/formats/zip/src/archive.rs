//! An open archive, and the places of its members' contents.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u32_from, usize_from};
use forerun_vfs::{
    BlobId, DecodedLen, EncodedBlock, Error, FileType, NodeId, OpenWith, Padding, Place, Result,
    VolumeInfo,
};
use libdeflater::crc32;

use crate::directory::Directory;
use crate::end::{End, read};
use crate::error::Check;
use crate::large::{Large, Stated};
use crate::local;
use crate::method::Method;
use crate::node::Node;
use crate::volume;

/// An open archive. Its directory is in memory.
pub struct Zip {
    pub(crate) source: Arc<dyn ReadAt>,
    pub(crate) end: End,
    pub(crate) directory: Directory,
    pub(crate) volume: VolumeInfo,
    pub(crate) large: Large,
    limits: Limits,
    /// Whether contents are compared with their CRC-32.
    pub(crate) verifies: bool,
    /// The members, sorted by the offsets of their local headers.
    pub(crate) by_header: Vec<(u64, NodeId)>,
}

impl Zip {
    /// Opens the archive in `metadata`: reads its end and its directory.
    ///
    /// # Errors
    /// The errors of [`Self::open_with`].
    pub fn open(metadata: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self> {
        let mut with = OpenWith::new(metadata);
        with.limits = limits.clone();
        Self::open_with(&with)
    }

    /// Opens the archive. In a rescue, the directory ends where it is damaged, and contents are not
    /// compared with their CRC-32.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the end or the directory fails a check, [`Error::Unsupported`] for
    /// archives of several disks, [`Error::Limit`] if the tree would take too much memory,
    /// [`Error::Io`].
    pub fn open_with(with: &OpenWith) -> Result<Self> {
        let end = End::read(&*with.metadata)?;
        let directory = Directory::read(&end, with)?;
        let members = directory.tree.nodes();
        let members = members.filter(|(_, node)| node.kind != FileType::Directory);
        let mut by_header: Vec<_> = members.map(|(id, node)| (node.data.header, id)).collect();
        by_header.sort_unstable();
        Ok(Self {
            source: Arc::clone(&with.metadata),
            volume: volume::describe(&end, &directory),
            end,
            directory,
            large: Large::new(&with.limits, with.archive.spool.clone()),
            limits: with.limits.clone(),
            verifies: !with.rescue,
            by_header,
        })
    }

    pub(crate) fn contents(&self, id: NodeId, node: &Node) -> Result<Range<u64>> {
        let end = self.end.directory.start;
        local::contents(&*self.source, id, &node.data, end)
    }

    /// Visits the places of a member's bytes in `range`, which is not empty and lies inside the
    /// member.
    pub(crate) fn places(
        &self,
        id: NodeId,
        node: &Node,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Place) -> ControlFlow<()>,
    ) -> Result<()> {
        let (codec, compression) = match node.data.method {
            Method::Stored => {
                let part = self.contents(id, node)?;
                let (stored, size) = (node.data.len, node.size);
                if stored != size {
                    return Err(Check::StoredLen { stored, size }.of(id, node.data.header));
                }
                let offset = part.start + range.start;
                let blob = BlobId::IMAGE;
                let _ended = visit(range, Place::Stored { blob, offset });
                return Ok(());
            }
            Method::Encrypted => {
                return Err(Error::Unsupported(
                    "encrypted members of zip archives".into(),
                ));
            }
            Method::Other(_) => {
                let name = node.data.method.name();
                return Err(Error::Unsupported(format!(
                    "members of zip archives compressed with {name}"
                )));
            }
            method => match method.compressed() {
                Some(compressed) => compressed,
                None => return Ok(()),
            },
        };
        let part = self.contents(id, node)?;
        let longest = node.size.max(node.data.len);
        match (u32::try_from(node.data.len), u32::try_from(node.size)) {
            (Ok(len), Ok(size)) if longest <= u64::from(self.limits.block_len) => {
                let block = EncodedBlock {
                    blob: BlobId::IMAGE,
                    offset: part.start,
                    len,
                    codec,
                    decoded_len: DecodedLen::Exact(size),
                    padding: Padding::None,
                };
                let skip = u32_from(range.start);
                let _ended = visit(range, Place::Encoded { block, skip });
            }
            _ => {
                let stated = Stated {
                    compression,
                    size: node.size,
                    crc: node.data.crc,
                };
                let member = self.large.member(&*self.source, id, &part, stated)?;
                let _ended = member.map(range, visit);
            }
        }
        Ok(())
    }

    /// Reads the contents of a short member: the target of a symbolic link.
    pub(crate) fn target(&self, id: NodeId, node: &Node) -> Result<Vec<u8>> {
        let limit = self.limits.symlink_len;
        let refused = || Check::Target { limit }.of(id, node.data.header);
        // No codec makes short contents much longer.
        let longest = limit.saturating_mul(2).saturating_add(1024);
        if node.size == 0 || node.size > limit || node.data.len > longest {
            return Err(refused());
        }
        let mut target = Vec::new();
        self.places(id, node, 0..node.size, &mut |_, place| {
            target.push(place);
            ControlFlow::Break(())
        })?;
        let target = match target.pop() {
            Some(Place::Stored { offset, .. }) => read(&*self.source, offset..offset + node.size)?,
            Some(Place::Encoded { block, .. }) => {
                let stored = read(&*self.source, block.stored())?;
                let mut decoded = vec![0; usize_from(node.size)];
                let done = block.decode(&stored, &mut decoded);
                done.map_err(|source| Check::Link { source }.of(id, block.offset))?;
                decoded
            }
            _ => return Err(refused()),
        };
        let (stored, found) = (node.data.crc, crc32(&target));
        if self.verifies && stored != found {
            return Err(Check::Crc { stored, found }.of(id, node.data.header));
        }
        if target.contains(&0) {
            Err(refused())
        } else {
            Ok(target)
        }
    }
}
