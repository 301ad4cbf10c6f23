//! A read-only driver for tar.
//!
//! An archive has a header before each member and no index. Opening one therefore reads all
//! headers, once and in order, and skips data by offset. A compressed archive is decoded
//! completely, once. The tree is then in memory. `docs/formats/tar.md` describes the bytes and the
//! rules of the tree.
//!
//! `pack` opens archives with the driver too, so this parser is the only one. The crate `tar` does
//! not give exact data offsets, decodes no `GNU.sparse` keys, and does not bound the memory for the
//! records of hostile archives.

use std::sync::Arc;

use forerun_spans::Compression;
use forerun_vfs::Format;

mod driver;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod index;
mod kept;
mod node;
mod parser;
mod pax;
mod plain;
mod search;
mod stream;
mod toc;
mod tree;

pub use driver::Tar;

/// The registry entry of tar.
pub const FORMAT: Format = Format {
    name: "tar",
    probe_len: header::BLOCK,
    probe: |head| header::is_header(head) || Compression::of(head).is_some(),
    magics: &[],
    archive: Some(&search::SEARCH),
    tail: None,
    measure: search::measure,
    open: |with| Ok(Arc::new(Tar::open_with(&with)?)),
    open_mut: None,
};

/// Returns whether opening a file that starts with `head` may need a temporary file
/// ([`OpenArchive::spool`](forerun_vfs::OpenArchive::spool)).
#[must_use]
pub fn may_spool(head: &[u8]) -> bool {
    // True even for streams with spans: the file may be a compressed image of another format, which
    // is decoded completely.
    Compression::of(head).is_some()
}

/// Returns whether opening a file that starts with `head` creates an index that can be stored
/// ([`OpenArchive::index`](forerun_vfs::OpenArchive::index)).
#[must_use]
pub fn has_index(head: &[u8]) -> bool {
    matches!(
        Compression::of(head),
        Some(Compression::Gzip | Compression::Zstd | Compression::Lz4)
    )
}
