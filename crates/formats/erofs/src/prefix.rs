//! The prefixes of xattr names: the predefined ones, and the image's own.

use forerun_vfs::{NodeId, Result};

use crate::compressor::record;
use crate::data;
use crate::error::Check;
use crate::image::{Address, Image, Space};
use crate::ondisk::{XATTR_LONG_PREFIX, compat};

/// The beginning of the names of many xattrs, from the image's own table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Number of the short prefix that it starts with.
    base: u8,
    /// The bytes that follow the base.
    infix: Vec<u8>,
    /// Both as text. `None` if the base is not the number of a short prefix: names with this prefix
    /// are in no namespace that a reader can name.
    name: Option<Vec<u8>>,
}

/// The meaning of an xattr's `e_name_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning<'p> {
    /// Names start with this.
    Name(&'p [u8]),
    /// The image keeps such attributes to itself, such as digests of its files.
    Hidden,
    /// No prefix has this number.
    Unknown,
}

impl Prefix {
    fn new(base: u8, infix: &[u8]) -> Self {
        Self {
            base,
            infix: infix.to_vec(),
            name: short(base).map(|base| [base, infix].concat()),
        }
    }

    /// Returns the text of `dump`.
    pub fn text(&self) -> String {
        match &self.name {
            Some(name) => String::from_utf8_lossy(name).into_owned(),
            None => {
                let infix = String::from_utf8_lossy(&self.infix);
                format!("{infix} (base {})", self.base)
            }
        }
    }
}

/// The prefixes with numbers from 1 on; empty ones are unused.
const SHORT: [&[u8]; 7] = [
    b"",
    b"user.",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"trusted.",
    b"",
    b"security.",
];

/// Bytes of a long prefix besides the short one: the length of a name.
const MOST: usize = 255;

/// Returns the predefined prefix with that number, if there is one.
pub fn short(index: u8) -> Option<&'static [u8]> {
    let prefix = SHORT.get(usize::from(index)).copied();
    prefix.filter(|prefix| !prefix.is_empty())
}

/// Returns the meaning of an xattr's `e_name_index`.
pub fn find(prefixes: &[Prefix], index: u8) -> Meaning<'_> {
    if index & XATTR_LONG_PREFIX == 0 {
        return short(index).map_or(Meaning::Unknown, Meaning::Name);
    }
    match prefixes.get(usize::from(index & !XATTR_LONG_PREFIX)) {
        Some(Prefix {
            name: Some(name), ..
        }) => Meaning::Name(name),
        Some(Prefix { name: None, .. }) => Meaning::Hidden,
        None => Meaning::Unknown,
    }
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
    // In the packed inode, if there is one and no metabox.
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
