//! Numbers of nodes, cursors and blobs that include the layer.
//!
//! A node id has 53 bits for the layer's own number, 10 bits for the layer, and one bit that marks
//! a merged directory. It is the same whenever the same layers are opened, so it can be an inode
//! number.

use forerun_io::u16_from;
use forerun_vfs::{BlobId, DirCursor, Error, NodeId, Result};

pub const LAYERS_MAX: usize = 1 << LAYER_BITS;

const LAYER_BITS: u32 = 10;
/// Bits of a layer's own numbers for nodes and cursors.
const NUMBER_BITS: u32 = 63 - LAYER_BITS;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
/// Marks the id of a merged directory.
const MERGED: u64 = 1 << 63;

/// A node of one layer. Layers are counted from the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerNode {
    pub layer: u16,
    /// The layer's own id.
    pub node: NodeId,
}

/// The node that an id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Single(LayerNode),
    /// The directory merged from this one, which is the uppermost, and lower ones.
    Merged(LayerNode),
}

impl Named {
    /// Decodes an id, which may not name any node.
    pub fn of(id: NodeId) -> Self {
        let (layer, node) = unpack(id.0 & !MERGED);
        let at = LayerNode {
            layer,
            node: NodeId(node),
        };
        match id.0 & MERGED {
            0 => Self::Single(at),
            _ => Self::Merged(at),
        }
    }

    /// Encodes the id.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the layer's own id has more than 53 bits.
    pub fn id(self) -> Result<NodeId> {
        let (at, mark) = match self {
            Self::Single(at) => (at, 0),
            Self::Merged(at) => (at, MERGED),
        };
        pack(at.layer, at.node.0, "node").map(|packed| NodeId(packed | mark))
    }
}

/// Returns the cursor of a merged directory for the cursor in one of its directories.
///
/// # Errors
/// [`Error::Unsupported`] if the cursor has more than 53 bits.
pub fn cursor(index: u16, inner: DirCursor) -> Result<DirCursor> {
    pack(index, inner.0, "position in a directory").map(DirCursor)
}

/// Returns the index of a directory among the merged ones, and the cursor in it.
pub fn split_cursor(cursor: DirCursor) -> (u16, DirCursor) {
    let (index, inner) = unpack(cursor.0 & !MERGED);
    (index, DirCursor(inner))
}

fn pack(layer: u16, number: u64, what: &str) -> Result<u64> {
    if number & !NUMBER_MASK != 0 {
        return Err(Error::Unsupported(format!(
            "{what} {number:#x} in a stack of layers: its number has more than {NUMBER_BITS} bits"
        )));
    }
    Ok(u64::from(layer) << NUMBER_BITS | number)
}

fn unpack(packed: u64) -> (u16, u64) {
    (u16_from(packed >> NUMBER_BITS), packed & NUMBER_MASK)
}

/// Returns the blob of the merge for a blob of a layer. The image of the lowest layer is
/// [`BlobId::IMAGE`].
///
/// # Errors
/// [`Error::Unsupported`] if there are too many blobs to number.
pub fn blob(layer: u16, layers: u32, inner: BlobId) -> Result<BlobId> {
    let number = inner.0.checked_mul(layers);
    let number = number.and_then(|number| number.checked_add(u32::from(layer)));
    number.map(BlobId).ok_or_else(|| {
        let what = format!("blob {} in a stack of {layers} layers", inner.0);
        Error::Unsupported(what)
    })
}

/// Returns the layer of a blob, and the layer's own number for the blob.
pub fn split_blob(blob: BlobId, layers: u32) -> (u16, BlobId) {
    let layers = layers.max(1);
    (
        u16_from(u64::from(blob.0 % layers)),
        BlobId(blob.0 / layers),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_hold_what_they_were_made_of() {
        for (layer, node) in [(0, 0), (0, 1), (5, 32), (1023, NUMBER_MASK)] {
            let node = NodeId(node);
            let at = LayerNode { layer, node };
            for named in [Named::Single(at), Named::Merged(at)] {
                assert_eq!(Named::of(named.id().unwrap()), named);
            }
            let inner = DirCursor(node.0);
            let both = cursor(layer, inner).unwrap();
            assert_eq!(split_cursor(both), (layer, inner));
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_an_error_and_does_not_wrap() {
        let node = NodeId(NUMBER_MASK + 1);
        let error = Named::Single(LayerNode { layer: 1, node }).id();
        let expected = "not supported: node 0x20000000000000 in a stack of layers: its number has more \
                        than 53 bits";
        assert_eq!(error.unwrap_err().to_string(), expected);
        assert!(cursor(0, DirCursor(u64::MAX)).is_err());
    }

    #[test]
    fn blobs_of_layers_never_meet() {
        let layers = 3;
        let mut seen = std::collections::BTreeSet::new();
        for layer in 0..3 {
            for inner in (0..50).map(BlobId) {
                let both = blob(layer, layers, inner).unwrap();
                assert!(seen.insert(both));
                assert_eq!(split_blob(both, layers), (layer, inner));
            }
        }
        assert_eq!(blob(0, layers, BlobId::IMAGE).unwrap(), BlobId::IMAGE);
        assert!(blob(2, layers, BlobId(u32::MAX / 3)).is_err());
        assert!(blob(0, layers, BlobId(u32::MAX)).is_err());
    }
}
