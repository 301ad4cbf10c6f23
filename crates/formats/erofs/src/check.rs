//! Checks for `check` that reading skips: reserved fields, and whether directory entries match
//! their inodes.
//! The superblock's checksum is checked when the image is opened.

use std::ops::ControlFlow;

use forerun_io::u64_from;
use forerun_vfs::{DirCursor, Error, FileType, NodeId, Problem, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::address::{Address, Space};
use crate::compressor;
use crate::dir::{self, Dir};
use crate::error::Check;
use crate::image::{Image, map};
use crate::inode::MOST_NANOSECONDS;
use crate::ondisk::{DEVICE_SLOT, DeviceSlot, SUPERBLOCK_AT, Superblock, compat, incompat};
use crate::xattr;

/// Checks the reserved fields of an inode, its link count, and xattrs that readers ignore. In a
/// directory, also checks `.`, `..` and the file types of the entries.
pub fn node(image: &Image, node: NodeId, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let inode = match image.inode(node) {
        Ok(inode) => inode,
        // Reading the node reports the same error.
        Err(error) => return left_to_the_reader(error),
    };
    xattr::check(image, &inode, report).or_else(left_to_the_reader)?;
    let mut problem = |fatal: bool, check: Check| {
        report(Problem {
            node: Some(node),
            fatal,
            error: check.at(Some(node), inode.at.offset),
        });
    };
    nanoseconds(inode.stored_nanoseconds, &mut problem);
    for &(field, value) in &inode.reserved {
        problem(false, Check::Reserved { field, value });
    }
    if inode.file_type != FileType::Directory {
        if inode.nlink == 0 {
            problem(false, Check::NoLinks);
        }
        let tail = map::unannounced_tail(image, &inode);
        if let Some(error) = tail.or_else(|error| left_to_the_reader(error).map(|()| None))? {
            report(Problem {
                node: Some(node),
                fatal: false,
                error,
            });
        }
        return Ok(());
    }
    let mut links = Links::default();
    let dir = Dir::open(image, node)?;
    let read = dir::each(&dir, DirCursor::START, &mut |entry, _| {
        match entry.name {
            b"." => links.itself = Some(entry.nid),
            b".." => links.parent = Some(entry.nid),
            _ => {
                let says = dir::kind(entry.file_type);
                let found = image.inode(NodeId(entry.nid));
                let found = found.map_or(says, |inode| Some(inode.file_type));
                links.below += u64::from(found == Some(FileType::Directory));
                // If the inode cannot be read, reading it reports that.
                if let (Some(says), Some(found)) = (says, found)
                    && says != found
                {
                    let name = String::from_utf8_lossy(entry.name).into_owned();
                    let (says, found) = (says.name(), found.name());
                    problem(true, Check::EntryKind { name, says, found });
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    });
    if let Err(error) = read {
        return left_to_the_reader(error);
    }
    links.check(image, &dir, &mut problem);
    Ok(())
}

#[derive(Default)]
struct Links {
    itself: Option<u64>,
    parent: Option<u64>,
    below: u64,
}

impl Links {
    fn check(&self, image: &Image, dir: &Dir<'_>, problem: &mut dyn FnMut(bool, Check)) {
        let inode = dir.inode();
        let node = inode.node.0;
        let mut dot = |name: &'static str, found: Option<u64>, expected: u64| match found {
            Some(found) if found == expected => {}
            Some(found) => {
                let check = Check::DotEntry {
                    name,
                    found,
                    expected,
                };
                problem(false, check);
            }
            None => problem(false, Check::NoDotEntry { name }),
        };
        if !inode.dot_omitted {
            dot(".", self.itself, node);
        }
        let is_root = inode.node == image.root();
        match self.parent {
            // For other directories, only a walk of the whole tree knows the parent.
            Some(_) if !is_root => {}
            found => dot("..", found, node),
        }
        let found = self.below;
        // A count of 1 means that the writer did not count links.
        if inode.nlink != 1 && u64::from(inode.nlink) != found + 2 {
            let nlink = inode.nlink;
            problem(false, Check::DirectoryLinks { nlink, found });
        }
    }
}

/// Checks superblock and device table fields that reading skips.
pub fn image(image: &Image, report: &mut dyn FnMut(Problem)) -> Result<()> {
    let at = Address {
        space: Space::Image,
        offset: SUPERBLOCK_AT,
    };
    let mut bytes = [0; size_of::<Superblock>()];
    image.read(at, &mut bytes, "superblock", None)?;
    let Ok(raw) = Superblock::read_from_bytes(&bytes) else {
        return Ok(());
    };
    if let Err(error) = compressor::check_end(image) {
        left_to_the_reader(error.clone())?;
        report(Problem {
            node: None,
            fatal: false,
            error,
        });
    }
    let mut problem = |fatal: bool, offset: u64, check: Check| {
        report(Problem {
            node: None,
            fatal,
            error: check.at(None, offset),
        });
    };
    let mut fields = vec![
        ("reserved", u64::from(u16::from_le_bytes(raw.reserved))),
        ("reserved2", raw.reserved2.get()),
    ];
    if !image.superblock.has(incompat::BITS_48) {
        fields.push(("build_time", u64::from(raw.build_time.get())));
        fields.push(("rootnid_8b", raw.rootnid_8b.get()));
    }
    for (field, value) in fields {
        if value != 0 {
            problem(false, SUPERBLOCK_AT, Check::Reserved { field, value });
        }
    }
    nanoseconds(image.superblock.nanoseconds, &mut |fatal, check| {
        problem(fatal, SUPERBLOCK_AT, check);
    });
    named(image, &raw, &mut |fatal, check| {
        problem(fatal, SUPERBLOCK_AT, check);
    });
    devices(image, &mut |at, check| problem(false, at, check))
}

fn nanoseconds(nanoseconds: u32, problem: &mut dyn FnMut(bool, Check)) {
    if nanoseconds > MOST_NANOSECONDS {
        problem(false, Check::Nanoseconds { nanoseconds });
    }
}

/// Checks structures that the superblock names but that no file may use.
fn named(image: &Image, raw: &Superblock, problem: &mut dyn FnMut(bool, Check)) {
    let superblock = &image.superblock;
    let start = superblock.block_at(superblock.xattr_block.into());
    let len = image.source.len();
    if start > len {
        let check = Check::Outside {
            what: "area of shared xattrs",
            start,
            end: start,
            image: len,
        };
        problem(false, check);
    }
    // Linux ignores all xattrs of an image with only the first of these features.
    if superblock.has_compat(compat::SHARED_EA_IN_METABOX) && !superblock.has(incompat::METABOX) {
        problem(true, Check::NoMetabox);
    }
    let (id, count) = (raw.ishare_xattr_prefix_id, raw.xattr_prefix_count);
    if superblock.has_compat(compat::ISHARE_XATTRS) && id >= count {
        problem(false, Check::SharePrefix { id, count });
    }
    // An image with fragments had its packed inode read when it was opened.
    let nid = raw.packed_nid.get();
    if nid > 0 && !superblock.has(incompat::FRAGMENTS) && image.inode(NodeId(nid)).is_err() {
        problem(false, Check::PackedNode { nid });
    }
}

/// Checks the device table for invalid entries. A mount with fewer devices than the table lists
/// fails.
fn devices(image: &Image, problem: &mut dyn FnMut(u64, Check)) -> Result<()> {
    let superblock = &image.superblock;
    for number in 1..=image.devices.list().len() {
        let slot = u64::from(superblock.device_slot) + u64_from(number - 1);
        let at = Address {
            space: Space::Image,
            offset: slot * DEVICE_SLOT,
        };
        let mut slot = DeviceSlot::new_zeroed();
        image.read(at, slot.as_mut_bytes(), "device table", None)?;
        if slot.as_bytes().iter().all(|&byte| byte == 0) {
            problem(at.offset, Check::EmptyDevice { number });
        } else if let Some(&value) = slot.reserved.iter().find(|&&byte| byte != 0) {
            let (field, value) = ("reserved of a device", u64::from(value));
            problem(at.offset, Check::Reserved { field, value });
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
