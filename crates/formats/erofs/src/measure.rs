//! Validates a superblock that a search has found.

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, FileType, Measured, NodeId, Result, read_head};

use crate::address::{Address, Space};
use crate::error::Check;
use crate::inode::{self, Inode};
use crate::ondisk::{NID_METABOX, SLOT, SUPERBLOCK_AT, compat};
use crate::superblock::{self, Superblock};

/// Validates the superblock, its checksum if it has one, and that the root is a directory. An image
/// with a checksum may be cut. The length is unknown if the field `blocks` is 0.
///
/// # Errors
/// The errors of [`Superblock::parse`], `Corrupt`, `Io`.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let superblock = Superblock::parse(&read_head(source, superblock::HEAD)?, u64::MAX)?;
    let len = superblock.block_at(superblock.blocks);
    let is_cut = len > source.len();
    if is_cut && !superblock.has_compat(compat::SB_CHKSUM) {
        return Err(outside("image", 0, len, source));
    }
    check_sum(source, &superblock)?;
    if !is_cut {
        check_root(source, &superblock)?;
    }
    Ok(Measured {
        len: Some(len).filter(|&len| len > 0),
        label: superblock.label,
        created: Some(superblock.build_time),
        details: String::new(),
    })
}

fn check_sum(source: &dyn ReadAt, superblock: &Superblock) -> Result<()> {
    if !superblock.has_compat(compat::SB_CHKSUM) {
        return Ok(());
    }
    // If the first block ends before the superblock, the checksum covers one block from the
    // superblock on. At most 64 KiB.
    let end = match superblock.block_size() {
        len if len > SUPERBLOCK_AT => len,
        len => SUPERBLOCK_AT + len,
    };
    let bytes = read_head(source, usize_from(end))?;
    let block = bytes.get(usize_from(SUPERBLOCK_AT)..);
    let actual = superblock::checksum(block.unwrap_or_default());
    let found = superblock.checksum;
    if found == actual {
        Ok(())
    } else {
        Err(Check::Checksum { found, actual }.at(None, SUPERBLOCK_AT))
    }
}

/// Returns an error unless the root is a directory. Does not check a root in the metabox: the
/// driver does.
fn check_root(source: &dyn ReadAt, superblock: &Superblock) -> Result<()> {
    let root = NodeId(superblock.root);
    if root.0 & NID_METABOX != 0 {
        return Ok(());
    }
    let start = superblock.block_at(u64::from(superblock.meta_block));
    let offset = root
        .0
        .checked_mul(SLOT)
        .and_then(|at| at.checked_add(start));
    let have = source.len();
    let is_inside = |offset: &u64| offset.checked_add(SLOT).is_some_and(|end| end <= have);
    let offset = offset.filter(is_inside);
    let offset = offset.ok_or_else(|| outside("root", start, u64::MAX, source))?;
    let len = usize_from(have - offset).min(inode::MAX_LEN);
    let mut bytes = vec![0; len];
    let read = source.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, len, error))?;
    let at = Address {
        space: Space::Image,
        offset,
    };
    match Inode::parse(&bytes, at, root, superblock)?.file_type {
        FileType::Directory => Ok(()),
        _ => Err(Check::RootKind.at(Some(root), offset)),
    }
}

fn outside(what: &'static str, start: u64, end: u64, source: &dyn ReadAt) -> Error {
    let image = source.len();
    let check = Check::Outside {
        what,
        start,
        end,
        image,
    };
    check.at(None, SUPERBLOCK_AT)
}
