//! A read-only driver for zip.
//!
//! An archive ends with a directory of its members, and the last record locates the directory.
//! Opening an archive reads the end and the directory, but no member. The tree is then in memory.
//! `docs/formats/zip.md` describes the bytes and the rules of the tree.
//!
//! The driver has its own parser, because it needs the offsets of compressed data, and bounded
//! memory for the directories of hostile archives. The crate `zip` reads members instead of mapping
//! them.

use std::sync::Arc;

use forerun_vfs::{Format, TailProbe};

mod archive;
mod check;
mod directory;
mod driver;
mod end;
mod entry;
mod error;
mod extra;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod large;
mod local;
mod measure;
mod method;
mod name;
mod node;
mod ondisk;
mod time;
mod tree;
mod volume;

pub use archive::Zip;

pub const FORMAT: Format = Format {
    name: "zip",
    probe_len: 4,
    probe: is_zip,
    tail: Some(TailProbe {
        len: end::TAIL,
        probe: |tail| end::find(tail).is_some(),
    }),
    // Archives have no magic number of their own: a search would find each member.
    magics: &[],
    archive: None,
    measure: measure::measure,
    open: |with| Ok(Arc::new(Zip::open_with(&with)?)),
    open_mut: None,
};

/// Returns whether a file that starts with `head` is an archive, possibly an empty one.
fn is_zip(head: &[u8]) -> bool {
    head.starts_with(&ondisk::LOCAL) || head.starts_with(&ondisk::END)
}

/// Returns whether reading a file that starts with `head` may need a temporary file
/// ([`OpenArchive::spool`](forerun_vfs::OpenArchive::spool)), as long Zstandard members do.
#[must_use]
pub fn may_spool(head: &[u8]) -> bool {
    is_zip(head)
}
