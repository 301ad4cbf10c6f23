//! SquashFS 4.0: the driver that maps it and the writer that makes it.
//!
//! The format is described in `docs/formats/squashfs.md`. Older versions and vendor variants are
//! recognised and refused by name. Nothing here moves file data: [`Squashfs`] only maps it.

mod blocks;
mod check;
mod cursor;
mod describe;
mod dir;
mod driver;
mod error;
#[cfg(feature = "write")]
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod inode;
mod map;
mod ondisk;
mod options;
mod positions;
mod reference;
mod salvage;
mod superblock;
mod tables;
mod variant;
#[cfg(feature = "write")]
pub mod write;
mod xattr;

use std::sync::Arc;

use forerun_vfs::{Format, Magic};

pub use driver::Squashfs;
pub use salvage::Salvaged;

/// SquashFS in the registry.
pub const FORMAT: Format = Format {
    name: "squashfs",
    probe_len: 4,
    probe: variant::is_any,
    magics: &[Magic {
        offset: 0,
        bytes: b"hsqs",
    }],
    measure: superblock::measure,
    open: |with| match with.rescue {
        true => Ok(Arc::new(salvage::open(with)?)),
        false => Ok(Arc::new(Squashfs::open(with)?)),
    },
    open_mut: None,
};
