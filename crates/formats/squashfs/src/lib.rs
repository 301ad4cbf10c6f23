//! SquashFS: the driver that maps versions 1.x to 4.0, and the writer that makes 4.0.
//!
//! The format is described in `docs/formats/squashfs.md`. The parsers in `legacy` convert old
//! versions, and LZMA as firmware vendors store it, to the structures of 4.0. Nothing here moves
//! file data: [`Squashfs`] only maps it.

mod bits;
mod blocks;
mod check;
mod choose;
mod cursor;
mod describe;
mod dir;
mod driver;
mod error;
mod facts;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod image;
mod inode;
mod landmarks;
mod legacy;
mod map;
mod ondisk;
mod open;
mod options;
mod positions;
mod reference;
mod regions;
mod salvage;
mod superblock;
mod tables;
mod variant;
#[cfg(feature = "write")]
pub mod write;
mod xattr;
mod xattr_tables;

use std::sync::Arc;

use forerun_vfs::{Format, OpenWith, Result, read_head};

pub use driver::Squashfs;
pub use facts::{CompressorOptions, SuperblockFacts, superblock_flags};
pub use salvage::Salvaged;

pub const FORMAT: Format = Format {
    name: "squashfs",
    probe_len: 4,
    probe: variant::is_any,
    magics: &variant::MAGICS,
    measure: superblock::measure,
    open: |with| {
        if with.rescue && !is_old(&with)? {
            Ok(Arc::new(salvage::open(with)?))
        } else {
            Ok(Arc::new(Squashfs::open(with)?))
        }
    },
    archive: None,
    tail: None,
    open_mut: None,
};

/// Returns whether this is an image of 1.x to 3.x. Salvage supports only 4.0; older images open
/// normally.
fn is_old(with: &OpenWith) -> Result<bool> {
    let head = read_head(&*with.metadata, superblock::LONGEST)?;
    Ok(superblock::Legacy::recognise(&head).is_some())
}
