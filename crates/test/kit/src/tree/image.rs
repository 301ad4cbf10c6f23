//! A tree inside an image as a model.
//!
//! Contents are read in one of two ways: through the engine, by a closure of the test, or by
//! [`read_extents`], which simply reads each extent and so is an oracle for the engine.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};

use forerun_io::{BlobId, ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Extent, FileSystem, FileType, Limits, NodeId, Place, Result, Walk};

use super::{ContentHash, ModelNode, TreeModel};

const STEP: usize = 256 << 10;

impl TreeModel {
    /// Reads the tree that `fs` shows. Contents are read from `source` with [`read_extents`].
    pub fn of_image(fs: &dyn FileSystem, source: &dyn ReadAt) -> Result<Self> {
        Self::of_reader(fs, |node, offset, out| {
            let end = offset.saturating_add(u64_from(out.len()));
            let bytes = read_extents(fs, source, node, offset..end)?;
            out[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        })
    }

    /// Reads the tree that `fs` shows. Contents are read with `read(node, offset, out)`, which
    /// returns the number of bytes read, and 0 only at the end of the file.
    pub fn of_reader(
        fs: &dyn FileSystem,
        mut read: impl FnMut(NodeId, u64, &mut [u8]) -> Result<usize>,
    ) -> Result<Self> {
        let limits = Limits::default();
        let mut model = Self::default();
        let mut ids: BTreeMap<NodeId, Vec<Vec<u8>>> = BTreeMap::new();
        for entry in Walk::new(fs, fs.root(), &limits) {
            let entry = entry?;
            let metadata = entry.metadata?;
            let (mut size, mut content, mut target) = (0, None, None);
            match metadata.kind {
                FileType::Regular => {
                    let (read_size, hash) = hash_node(entry.node, &mut read)?;
                    (size, content) = (read_size, Some(hash));
                    assert_eq!(size, metadata.size, "node {}: bytes read", entry.node);
                }
                FileType::Symlink => target = Some(fs.read_link(entry.node)?),
                _ => {}
            }
            if metadata.kind != FileType::Directory {
                ids.entry(entry.node).or_default().push(entry.path.clone());
            }
            let node = ModelNode {
                kind: metadata.kind,
                mode: metadata.mode,
                uid: metadata.uid,
                gid: metadata.gid,
                mtime: metadata.mtime,
                size,
                content,
                target,
                device: metadata.device,
                linked_to: None,
            };
            model.nodes.insert(entry.path, node);
        }
        model.group_links(ids);
        Ok(model)
    }
}

fn hash_node(
    node: NodeId,
    read: &mut impl FnMut(NodeId, u64, &mut [u8]) -> Result<usize>,
) -> Result<(u64, u64)> {
    let mut buffer = vec![0; STEP];
    let mut hash = ContentHash::default();
    let mut offset = 0;
    loop {
        let got = read(node, offset, &mut buffer)?;
        if got == 0 {
            return Ok((offset, hash.finish()));
        }
        hash.write_all(&buffer[..got]).expect("a hash takes all");
        offset += u64_from(got);
    }
}

/// Reads a range of a file, clamped to its size. Each extent is read and decoded separately,
/// without caching or readahead.
pub fn read_extents(
    fs: &dyn FileSystem,
    source: &dyn ReadAt,
    node: NodeId,
    range: Range<u64>,
) -> Result<Vec<u8>> {
    let end = range.end.min(fs.metadata(node)?.size);
    let range = range.start.min(end)..end;
    let mut out = vec![0; usize_from(range.end - range.start)];
    let mut outcome = Ok(());
    if range.is_empty() {
        return Ok(out);
    }
    fs.map(node, range.clone(), &mut |extent| {
        outcome = copy_extent(fs, source, &extent, &range, &mut out);
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    outcome.map(|()| out)
}

fn copy_extent(
    fs: &dyn FileSystem,
    source: &dyn ReadAt,
    extent: &Extent,
    range: &Range<u64>,
    out: &mut [u8],
) -> Result<()> {
    let from = extent.logical.start.max(range.start);
    let to = extent.logical.end.min(range.end);
    let within = from - extent.logical.start;
    let out = &mut out[usize_from(from - range.start)..usize_from(to - range.start)];
    match &extent.place {
        Place::Zero => out.fill(0),
        Place::Stored { blob, offset } => match *blob {
            BlobId::IMAGE => read(source, offset + within, out)?,
            blob => read(&*fs.blob(blob)?, offset + within, out)?,
        },
        Place::Encoded { block, skip } => {
            assert_eq!(block.blob, BlobId::IMAGE, "only the image can be read here");
            let mut stored = vec![0; usize_from(u64::from(block.len))];
            read(source, block.offset, &mut stored)?;
            let mut decoded = vec![0; usize_from(u64::from(block.decoded_len.max()))];
            let history = match fs.capabilities().history {
                Some(history) => history.history(block)?,
                None => Vec::new(),
            };
            let len = block.decode_after(&history, &stored, &mut decoded);
            let len = len.unwrap_or_else(|error| panic!("{block:?} does not decode: {error}"));
            decoded.truncate(len);
            if let Some(verifier) = fs.capabilities().verifier {
                verifier.verify(block, &decoded)?;
            }
            let skip = usize_from(u64::from(*skip) + within);
            out.copy_from_slice(&decoded[skip..skip + out.len()]);
        }
        Place::Inline(bytes) => {
            let skip = usize_from(within);
            out.copy_from_slice(&bytes[skip..skip + out.len()]);
        }
    }
    Ok(())
}

fn read(source: &dyn ReadAt, offset: u64, out: &mut [u8]) -> Result<()> {
    let read: io::Result<()> = source.read_exact_at(offset, out);
    read.map_err(|error| Error::io(offset, out.len(), error))
}
