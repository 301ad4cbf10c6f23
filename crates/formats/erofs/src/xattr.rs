//! Extended attributes: an inode's own, and those that it shares with other inodes.
//!
//! The name filter in the header is not used: it speeds up the lookup of one name, and this driver
//! visits all names.

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Bound, Error, Problem, Result, check_xattr_name};
use zerocopy::FromBytes;

use crate::address::{Address, Space};
use crate::error::Check;
use crate::image::Image;
use crate::inode::Inode;
use crate::ondisk::{XattrEntry, XattrHeader, compat};
use crate::prefix::{self, Meaning};

/// Longest name with its prefix: the limit of Linux.
const NAME_MAX: usize = 255;
const HEADER: usize = size_of::<XattrHeader>();
const ENTRY: usize = size_of::<XattrEntry>();

pub enum Found<'x> {
    Pair(&'x [u8], &'x [u8]),
    /// An xattr with an unknown prefix, and the error for it.
    Unknown(Error),
}

/// Visits the xattrs of `inode`. Ignores xattrs with an unknown prefix, as Linux does.
pub fn visit(image: &Image, inode: &Inode, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
    each(image, inode, &mut |found| match found {
        Found::Pair(name, value) => visit(name, value),
        Found::Unknown(_) => {}
    })
}

/// Reports the xattrs that [`visit`] ignores.
pub fn check(image: &Image, inode: &Inode, report: &mut dyn FnMut(Problem)) -> Result<()> {
    each(image, inode, &mut |found| {
        if let Found::Unknown(error) = found {
            report(Problem {
                node: Some(inode.node),
                fatal: true,
                error,
            });
        }
    })
}

fn each(image: &Image, inode: &Inode, visit: &mut dyn FnMut(Found<'_>)) -> Result<()> {
    if inode.xattr_len == 0 {
        return Ok(());
    }
    let at = inode.xattrs();
    let node = Some(inode.node);
    image.inside(at, inode.xattr_len, "xattrs", node)?;
    // At most 256 KiB, and at most the length of the image.
    let mut bytes = vec![0; usize_from(inode.xattr_len)];
    image.read(at, &mut bytes, "xattrs", node)?;
    let room = |what| {
        let len = inode.xattr_len;
        Check::XattrRoom { len, what }.at(node, at.offset)
    };
    let Ok((header, rest)) = XattrHeader::read_from_prefix(&bytes) else {
        return Err(room("their header"));
    };
    let shared = usize::from(header.h_shared_count) * 4;
    let Some((shared, own)) = rest.split_at_checked(shared) else {
        return Err(room("the numbers of shared ones"));
    };
    let mut visitor = Visitor {
        image,
        inode,
        left: image.limits.xattr_bytes,
        visit,
    };
    // In the order of Linux.
    let start = at.plus(u64_from(HEADER + shared.len()));
    visitor.own(start, own)?;
    for number in shared.chunks_exact(4) {
        let number = number.try_into().map_or(0, u32::from_le_bytes);
        visitor.shared(number)?;
    }
    Ok(())
}

struct Visitor<'v> {
    image: &'v Image,
    inode: &'v Inode,
    /// Remaining bound on the bytes of names and values.
    left: u64,
    visit: &'v mut dyn FnMut(Found<'_>),
}

impl Visitor<'_> {
    fn shared(&mut self, number: u32) -> Result<()> {
        let superblock = &self.image.superblock;
        let in_metabox = superblock.has_compat(compat::SHARED_EA_IN_METABOX);
        let at = Address {
            space: match (&self.image.metabox, in_metabox) {
                (Some(_), true) => Space::Metabox,
                _ => Space::Image,
            },
            offset: superblock.block_at(u64::from(superblock.xattr_block)),
        };
        let at = at.plus(u64::from(number) * 4);
        let (what, node) = ("shared xattr", Some(self.inode.node));
        let mut head = [0; ENTRY];
        self.image.read(at, &mut head, what, node)?;
        let entry: XattrEntry = zerocopy::transmute!(head);
        let len = usize::from(entry.e_name_len) + usize::from(entry.e_value_size.get());
        let at = at.plus(u64_from(ENTRY));
        self.image.inside(at, u64_from(len), what, node)?;
        // At most 64 KiB and a name.
        let mut bytes = vec![0; len];
        self.image.read(at, &mut bytes, what, node)?;
        self.pair(at, &entry, &bytes)
    }

    fn own(&mut self, mut at: Address, mut bytes: &[u8]) -> Result<()> {
        let (len, node) = (self.inode.xattr_len, self.inode.node);
        while let Ok((entry, rest)) = XattrEntry::read_from_prefix(bytes) {
            let (name, value) = (usize::from(entry.e_name_len), entry.e_value_size.get());
            let pair = name + usize::from(value);
            if entry.e_name_index == 0 && pair == 0 {
                // Four zero bytes are space reserved for later xattrs.
                (bytes, at) = (rest, at.plus(u64_from(ENTRY)));
                continue;
            }
            let Some(found) = rest.get(..pair) else {
                let what = "an entry";
                return Err(Check::XattrRoom { len, what }.at(Some(node), at.offset));
            };
            let pair_at = at.plus(u64_from(ENTRY));
            let step = pair.next_multiple_of(4);
            self.pair(pair_at, &entry, found)?;
            bytes = rest.get(step..).unwrap_or_default();
            at = pair_at.plus(u64_from(step));
        }
        Ok(())
    }

    fn pair(&mut self, at: Address, entry: &XattrEntry, bytes: &[u8]) -> Result<()> {
        let error = |check: Check| check.at(Some(self.inode.node), at.offset);
        let index = entry.e_name_index;
        let prefix = match prefix::find(&self.image.prefixes, index) {
            Meaning::Name(prefix) => prefix,
            Meaning::Hidden => return Ok(()),
            Meaning::Unknown => {
                (self.visit)(Found::Unknown(error(Check::XattrPrefix { index })));
                return Ok(());
            }
        };
        let (suffix, value) = bytes.split_at(usize::from(entry.e_name_len).min(bytes.len()));
        let name = [prefix, suffix].concat();
        if let Err(source) = check_xattr_name(&name, NAME_MAX) {
            let name = String::from_utf8_lossy(&name).into_owned();
            return Err(error(Check::XattrName { name, source }));
        }
        // Many inodes may share a long value, and one inode may list it often, so the total is
        // bounded.
        let here = u64_from(name.len() + value.len());
        let Some(left) = self.left.checked_sub(here) else {
            let limit = self.image.limits.xattr_bytes;
            return Err(Error::limit(
                Bound::Other,
                format!("xattrs of node {}", self.inode.node),
                limit,
            ));
        };
        self.left = left;
        (self.visit)(Found::Pair(&name, value));
        Ok(())
    }
}
