//! zip: a read-only driver.
//!
//! An archive ends with a directory of its members, and the last record says where the directory is. Opening an
//! archive reads the end and the directory, and no member. The tree is then in memory. `docs/formats/zip.md` describes
//! the bytes and the rules of the tree.
//!
//! The parser is the driver's own: it needs the places of compressed data, and bounded memory for the directories
//! of hostile archives. The crate `zip` reads members instead of mapping them.

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

/// zip in the registry.
pub const FORMAT: Format = Format {
    name: "zip",
    probe_len: 4,
    probe: is_zip,
    tail: Some(TailProbe {
        len: end::TAIL,
        probe: |tail| end::find(tail).is_some(),
    }),
    // The members of an archive lie one after the other, so a search would find each of them.
    magics: &[],
    archive: None,
    measure: measure::measure,
    open: |with| Ok(Arc::new(Zip::open_with(&with)?)),
    open_mut: None,
};

/// Returns whether a file that starts with `head` is an archive: of members, or an empty one.
fn is_zip(head: &[u8]) -> bool {
    head.starts_with(&ondisk::LOCAL) || head.starts_with(&ondisk::END)
}

/// Returns whether reading a file that starts with `head` may need a temporary file
/// ([`OpenArchive::spool`](forerun_vfs::OpenArchive::spool)): long members that are compressed with Zstandard do.
#[must_use]
pub fn may_spool(head: &[u8]) -> bool {
    is_zip(head)
}
