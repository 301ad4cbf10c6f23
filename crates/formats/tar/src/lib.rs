//! tar: a read-only driver.
//!
//! An archive has a header before each member and no index, so opening one reads all headers, in order and
//! once; data is skipped by offset. The tree is then in memory. `docs/formats/tar.md` describes the bytes
//! and the rules of the tree.
//!
//! The parser is the driver's own. It needs the exact offsets of data, sparse maps of four kinds, and bounded memory for
//! records of hostile archives; the crate `tar` decodes no `GNU.sparse` keys.

use forerun_io::ReadAt;
use forerun_vfs::{Format, Measured, Result, read_head};

mod driver;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod index;
mod parser;
mod pax;
mod tree;

pub use driver::Tar;

/// tar in the registry.
///
/// It has no magic numbers for searches: each member has one, and only a pass over all members tells where an
/// archive ends, which is more than a search may read.
pub const FORMAT: Format = Format {
    name: "tar",
    probe_len: header::BLOCK,
    probe: header::is_header,
    magics: &[],
    measure,
    open: |with| Tar::boxed(&*with.metadata, &with.limits, with.rescue),
    open_mut: None,
};

/// Validates the first header.
fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let head = read_head(source, header::BLOCK)?;
    header::Header::parse(&head).map_err(|check| check.at(0))?;
    Ok(Measured::default())
}
