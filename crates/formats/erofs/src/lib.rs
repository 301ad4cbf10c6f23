//! EROFS: the driver that maps images, and the writer that makes them.
//!
//! The format is described in `docs/formats/erofs.md`. Nothing here moves file data: the driver
//! only maps it.

mod address;
mod check;
mod compressor;
mod describe;
mod device;
mod dir;
mod driver;
mod error;
mod facts;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod inode;
mod layout;
mod measure;
mod ondisk;
mod open;
mod prefix;
mod prefix_table;
mod regions;
mod superblock;
#[cfg(feature = "write")]
pub mod write;
mod xattr;
mod zmap;

use std::sync::Arc;

use forerun_vfs::{Format, Magic};

pub use device::Device;
pub use driver::Erofs;
pub use facts::{DataLayout, InodeFacts, StoredExtent, SuperblockFacts};

pub const FORMAT: Format = Format {
    name: "erofs",
    probe_len: 1028,
    probe: superblock::probe,
    magics: &[Magic {
        offset: ondisk::SUPERBLOCK_AT,
        bytes: &ondisk::MAGIC.to_le_bytes(),
    }],
    measure: measure::measure,
    open: |with| Ok(Arc::new(Erofs::open(with)?)),
    archive: None,
    tail: None,
    open_mut: None,
};
