//! The driver and the writer for romfs.
//!
//! romfs is the smallest of the formats: a superblock, then headers and data, with each directory a
//! chain of headers. `docs/formats/romfs.md` describes the bytes.
//!
//! The driver reads headers through its source and maps files to extents; it reads no file data.
//! The writer streams an image from its first byte to its last.

use std::sync::Arc;

use forerun_vfs::{Format, Magic};

mod chain;
mod check;
mod describe;
mod dir;
mod driver;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod header;
mod image;
mod indexes;
mod ondisk;
mod superblock;
#[cfg(feature = "write")]
mod write;

pub use driver::Romfs;
#[cfg(feature = "write")]
pub use write::{KEPT, RomfsOptions, write};

pub const FORMAT: Format = Format {
    name: "romfs",
    probe_len: ondisk::MAGIC.len(),
    probe: |head| head.starts_with(&ondisk::MAGIC),
    magics: &[Magic {
        offset: 0,
        bytes: &ondisk::MAGIC,
    }],
    measure: superblock::measure,
    open: |with| {
        let opened = Romfs::open_with(with.metadata, &with.limits, with.rescue)?;
        Ok(Arc::new(opened))
    },
    archive: None,
    tail: None,
    open_mut: None,
};
