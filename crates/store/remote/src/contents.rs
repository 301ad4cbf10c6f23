//! Tables of contents of layers.

use forerun_cache::Digest;

/// A table of contents in a layer, by which parts of it can be used before all of it is here. The digest is in the
/// manifest, and so is proven as the manifest is. The table has the digests of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerContents {
    /// eStargz: the last bytes of the layer say where the table is.
    EStargz {
        /// Digest of the table as it is decoded.
        digest: Digest,
    },
    /// zstd:chunked.
    ZstdChunked {
        /// Digest of the table as it is stored.
        digest: Digest,
        /// Offset of the table in the layer.
        offset: u64,
        /// Bytes there.
        len: u64,
        /// Bytes that these decode to.
        decoded_len: u64,
    },
}
