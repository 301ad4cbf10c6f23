//! tar: a read-only driver.
//!
//! An archive has a header before each member and no index, so opening one reads all headers, in order and
//! once; data is skipped by offset. Of a compressed archive, all is decoded once. The tree is then in memory. `docs/formats/tar.md` describes the bytes
//! and the rules of the tree.
//!
//! The parser is the driver's own. It needs the exact offsets of data, sparse maps of four kinds, and bounded memory for
//! records of hostile archives; the crate `tar` decodes no `GNU.sparse` keys.

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

/// tar in the registry.
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
    // Also of what has spans: it may be the image of another format, which is decoded as a whole.
    Compression::of(head).is_some()
}

/// Returns whether opening a file that starts with `head` makes an index that may be kept
/// ([`OpenArchive::index`](forerun_vfs::OpenArchive::index)).
#[must_use]
pub fn has_index(head: &[u8]) -> bool {
    matches!(
        Compression::of(head),
        Some(Compression::Gzip | Compression::Zstd | Compression::Lz4)
    )
}
