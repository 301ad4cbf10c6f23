//! A read-only driver for cramfs.
//!
//! cramfs is a small compressed format for ROMs: a superblock, directories as arrays of inodes with
//! names, and the data of each file as a table of block ends and one zlib stream per block.
//! `docs/formats/cramfs.md` describes the bytes.
//!
//! The driver reads superblock, inodes, names and block tables through its source and maps files to
//! extents. It reads no file data, except for `check`, which sums the whole image.

use std::sync::Arc;

use forerun_vfs::{Format, Magic};

mod blocks;
mod check;
mod describe;
mod directory;
mod driver;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod indexes;
mod inode;
mod ondisk;
mod superblock;
mod symlink;

pub use driver::Cramfs;

pub const FORMAT: Format = Format {
    name: "cramfs",
    probe_len: superblock::PROBE_LEN,
    probe: |head| superblock::find(head).is_some(),
    magics: &MAGICS,
    measure: superblock::measure,
    open: |with| {
        let opened = Cramfs::open_with(with.metadata, &with.limits, with.rescue)?;
        Ok(Arc::new(opened))
    },
    archive: None,
    tail: None,
    open_mut: None,
};

/// The magic number in both byte orders, at both possible offsets of a superblock.
const MAGICS: [Magic; 4] = [
    magic(ondisk::SUPERBLOCKS[0], &ondisk::LITTLE),
    magic(ondisk::SUPERBLOCKS[0], &ondisk::BIG),
    magic(ondisk::SUPERBLOCKS[1], &ondisk::LITTLE),
    magic(ondisk::SUPERBLOCKS[1], &ondisk::BIG),
];

const fn magic(offset: usize, bytes: &'static [u8]) -> Magic {
    Magic {
        offset: forerun_io::u64_from(offset),
        bytes,
    }
}
