//! Checks that reading does not need: the checksum of the image, reserved fields, the order of
//! entries.

use std::sync::Arc;

use forerun_vfs::{Error, FileType, NodeId, Problem, Result};

use crate::directory::{Directory, lossy};
use crate::error::Check;
use crate::image::Image;
use crate::indexes::Indexes;
use crate::ondisk::SHIFTED_ROOT_OFFSET;
use crate::superblock::without_crc;

/// Number of bytes summed at a time.
const PIECE: u64 = 128 << 10;

/// Checks the image as a whole. The checksum covers all of it, so all of it is read, including file
/// data.
pub fn image(image: &Image, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let superblock = &image.superblock;
    let at = superblock.offset;
    let mut warn = |check: Check| report(problem(None, false, check.at(None, at)));
    if !superblock.has_signature() {
        let found = superblock.signature;
        warn(Check::Signature { found });
    }
    if superblock.future != 0 {
        let found = superblock.future;
        warn(Check::Future { found });
    }
    let (found, expected) = (superblock.root.offset, superblock.end());
    if superblock.root.has_data() && found != expected && !superblock.has(SHIFTED_ROOT_OFFSET) {
        warn(Check::RootOffset { found, expected });
    }
    if superblock.is_version_2() {
        let (stored, found) = (superblock.crc, checksum(image)?);
        if stored != found {
            let error = Check::ImageChecksum { stored, found }.at(None, at);
            report(problem(None, true, error));
        }
    }
    Ok(())
}

/// Sums the image from the superblock to its end, with the checksum field taken as 0.
fn checksum(image: &Image) -> Result<u32> {
    let (start, end) = (image.superblock.offset, image.superblock.image_len);
    let mut sum = libdeflater::Crc::new();
    let mut at = start;
    while at < end {
        let len = PIECE.min(end - at);
        let mut piece = image.read(at, len)?;
        if at == start {
            without_crc(&mut piece, 0);
        }
        sum.update(&piece);
        at += len;
    }
    Ok(sum.sum())
}

/// Checks one node, and for a directory also the order of its entries. The caller lists directories
/// and reads files, which reports all other damage.
pub fn node(
    image: &Image,
    indexes: &Indexes,
    node: NodeId,
    report: &mut dyn FnMut(Problem),
) -> Result<()> {
    let inode = image.inode(node)?;
    let is_root = node == image.superblock.root_node();
    for check in inode.deviations(is_root) {
        report(problem(Some(node), false, check.at(Some(node), node.0)));
    }
    if inode.kind == FileType::Directory {
        let directory: Arc<Directory> = match indexes.get(image, node) {
            Ok(directory) => directory,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(_) => return Ok(()),
        };
        if let Some(error @ Error::Io { .. }) = &directory.damage {
            return Err(error.clone());
        }
        if let Some(error) = &directory.cut {
            report(problem(Some(node), false, error.clone()));
        }
        if !image.superblock.is_sorted() {
            return Ok(());
        }
        let mut previous: &[u8] = &[];
        for entry in directory.entries(0) {
            if entry.name < previous {
                let check = Check::Unsorted {
                    name: lossy(entry.name),
                    previous: lossy(previous),
                };
                let error = check.at(Some(node), entry.node.0);
                report(problem(Some(node), false, error));
                break;
            }
            previous = entry.name;
        }
    }
    Ok(())
}

const fn problem(node: Option<NodeId>, fatal: bool, error: Error) -> Problem {
    Problem { node, fatal, error }
}
