//! The table of an image's own xattr name prefixes.

use forerun_vfs::{NodeId, Result};

use crate::address::{Address, Space};
use crate::compressor::record;
use crate::error::Check;
use crate::image::{Image, data};
use crate::ondisk::compat;
use crate::prefix::Prefix;

/// Longest part of a long prefix after the predefined one: the longest name.
const MOST: usize = 255;

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
    // The table is in the packed inode if there is one and no metabox.
    let packed = image.packed.as_ref();
    let packed = packed.filter(|_| !is_plain && at.space == Space::Image);
    let mut prefixes = Vec::new();
    for index in 0..usize::from(superblock.prefixes) {
        let entry = match packed {
            Some(packed) => data::record(image, packed, &mut at.offset)?,
            None => record(image, &mut at, "long xattr prefixes")?,
        };
        let Some((&base, infix)) = entry.split_first() else {
            let node: Option<NodeId> = packed.map(|packed| packed.node);
            return Err(Check::LongPrefix { index }.at(node, at.offset));
        };
        let (len, most) = (infix.len(), MOST);
        if len > most {
            let check = Check::LongPrefixLen { index, len, most };
            return Err(check.at(packed.map(|packed| packed.node), at.offset));
        }
        prefixes.push(Prefix::new(base, infix));
    }
    Ok(prefixes)
}
