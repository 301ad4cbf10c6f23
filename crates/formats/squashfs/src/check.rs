//! Checks for `check` that reading skips: the tables against each other.

use forerun_vfs::{Error, NodeId, Problem, Result};

use crate::dir;
use crate::error::Check;
use crate::image::Image;
use crate::inode::InodeBody;
use crate::map;
use crate::xattr;

/// Checks the inode number and its export table entry, link counts of 0, xattrs that readers
/// ignore, directory indexes, and whether the targets of entries have the entry's type.
pub fn node(image: &Image, node: NodeId, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let inode = match image.inode(node) {
        Ok(inode) => inode,
        // Reading the node reports the same error.
        Err(error) => return left_to_the_reader(error),
    };
    let mut problem = |fatal: bool, error: Error| {
        report(Problem {
            node: Some(node),
            fatal,
            error,
        });
    };
    let (number, inodes) = (inode.number, image.superblock.inodes);
    let at = image.superblock.inode_table;
    let legacy = image.superblock.legacy.as_ref();
    if legacy.is_some_and(|legacy| !legacy.has_numbers()) {
        // Inodes before 3.0 have no numbers.
    } else if number == 0 || number > inodes {
        problem(
            false,
            Check::InodeNumber { number, inodes }.at(Some(node), at),
        );
    } else {
        match image.exported(number, node) {
            Ok(Some(found)) if found.raw() != node.0 => {
                let expected = crate::reference::Reference::from_raw(node.0);
                let check = Check::Export {
                    number,
                    found,
                    expected,
                };
                problem(false, check.at(Some(node), at));
            }
            Ok(_) => {}
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => problem(false, error),
        }
    }
    xattr::check(image, &inode, node, &mut |error| problem(true, error))
        .or_else(left_to_the_reader)?;
    if inode.nlink == 0 {
        problem(false, Check::NoLinks.at(Some(node), at));
    }
    if let InodeBody::File(file) = &inode.body {
        match map::long_block(image, node, file) {
            Ok(found) => found.into_iter().for_each(|error| problem(false, error)),
            Err(error) => left_to_the_reader(error)?,
        }
    }
    if let InodeBody::Dir(dir) = &inode.body {
        match dir::check_indexes(image, node, dir) {
            Ok(()) => {}
            Err(error @ Error::Io { .. }) => return Err(error),
            // A lookup through a bad index misses names or fails.
            Err(error) => problem(true, error),
        }
        let listings = image.superblock.directory_table;
        let listed = dir::check_entries(image, node, &mut |check| {
            // Linux lists entries of type 0, but stops at other unknown types.
            let is_fatal = !matches!(check, Check::EntryType { found: 0 });
            problem(is_fatal, check.at(Some(node), listings));
        });
        listed.or_else(left_to_the_reader)?;
    }
    Ok(())
}

/// Checks every entry of the id and fragment tables, and reports the first xattr set with a wrong
/// size.
pub fn image(image: &Image, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let root = NodeId(image.superblock.root.raw());
    let mut problem = |result: Result<()>| match result {
        Ok(()) => Ok(true),
        Err(error @ Error::Io { .. }) => Err(error),
        Err(error) => {
            report(Problem {
                node: None,
                fatal: true,
                error,
            });
            Ok(false)
        }
    };
    for index in 0..image.superblock.ids {
        if !problem(image.id(index, root).map(|_| ()))? {
            break;
        }
    }
    for index in 0..image.superblock.fragments {
        if !problem(image.fragment(index, root).map(|_| ()))? {
            break;
        }
    }
    xattr_sizes(image, report)
}

/// Stops at the first wrong size: a writer that counts in its own way does so for all sets.
fn xattr_sizes(image: &Image, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let Some(xattrs) = &image.xattrs else {
        return Ok(());
    };
    for index in 0..forerun_io::u32_from(xattrs.count()) {
        let limit = image.limits.xattr_bytes;
        match xattrs.wrong_size(&image.blocks, index, limit) {
            Ok(None) => {}
            Ok(Some(error)) => {
                report(Problem {
                    node: None,
                    fatal: false,
                    error,
                });
                return Ok(());
            }
            Err(error) => left_to_the_reader(error)?,
        }
    }
    Ok(())
}

fn left_to_the_reader(error: Error) -> Result<()> {
    match error {
        Error::Io { .. } => Err(error),
        _ => Ok(()),
    }
}
