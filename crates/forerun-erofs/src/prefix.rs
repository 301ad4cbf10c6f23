//! The prefixes of xattr names: those that every image has, and those of its own.

use forerun_vfs::{NodeId, Result};

use crate::compressor::record;
use crate::data;
use crate::error::Check;
use crate::image::{Address, Image, Space};
use crate::ondisk::{XATTR_LONG_PREFIX, compat};

/// The beginning of the names of many xattrs.
pub type Prefix = Vec<u8>;

/// What an image calls by a number from 1 on; the empty ones mean nothing.
const SHORT: [&[u8]; 7] = [
    b"",
    b"user.",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"trusted.",
    b"",
    b"security.",
];

/// The prefix of that number, if it is one of those that every image has.
pub fn short(index: u8) -> Option<&'static [u8]> {
    let prefix = SHORT.get(usize::from(index)).copied();
    prefix.filter(|prefix| !prefix.is_empty())
}

/// The prefix that an xattr's `e_name_index` means.
pub fn find(prefixes: &[Prefix], index: u8) -> Option<&[u8]> {
    if index & XATTR_LONG_PREFIX == 0 {
        return short(index);
    }
    let prefix = prefixes.get(usize::from(index & !XATTR_LONG_PREFIX))?;
    Some(prefix)
}

/// Reads the image's own prefixes.
pub fn read(image: &Image) -> Result<Vec<Prefix>> {
    let superblock = &image.superblock;
    let start = u64::from(superblock.prefix_start) << 2;
    let is_plain = superblock.has_compat(compat::PLAIN_XATTR_PFX);
    let mut at = Address {
        space: match (&image.metabox, is_plain) {
            (Some(_), false) => Space::Metabox,
            _ => Space::Image,
        },
        offset: start,
    };
    // In the packed inode, where there is one and no metabox.
    let packed = image.packed.as_ref();
    let packed = packed.filter(|_| !is_plain && at.space == Space::Image);
    let mut prefixes = Vec::new();
    for index in 0..usize::from(superblock.prefixes) {
        let entry = match packed {
            Some(packed) => data::record(image, packed, &mut at.offset)?,
            None => record(image, &mut at, "long xattr prefixes")?,
        };
        let (base, infix) = entry.split_first().unzip();
        let Some(base) = base.and_then(|&base| short(base)) else {
            let len = u16::try_from(entry.len()).unwrap_or(u16::MAX);
            let check = Check::LongPrefix { index, len };
            let node: Option<NodeId> = packed.map(|packed| packed.node);
            return Err(check.at(node, at.offset));
        };
        prefixes.push([base, infix.unwrap_or_default()].concat());
    }
    Ok(prefixes)
}
