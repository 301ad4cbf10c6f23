//! Encodes extended attributes as EROFS stores them: in the inode, or once for all inodes that
//! share them.

use std::collections::HashMap;

use forerun_build::BuildError;
use forerun_io::{u16_from, u64_from};

use super::failed;
use super::flat::{FlatTree, Xattrs};
use crate::xxh32::xxh32;

/// Name prefixes and their numbers, longest first.
const PREFIXES: [(u8, &[u8]); 5] = [
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (1, b"user."),
    (4, b"trusted."),
    (6, b"security."),
];

/// Seed of the name filter. The number of the prefix is added to it.
const FILTER_SEED: u32 = 0x25BB_E08F;

const HEAD: usize = 12;

/// An encoded attribute, padded to four bytes.
pub type Encoded = Vec<u8>;

pub struct Shared {
    /// In the order of the image.
    pub entries: Vec<Encoded>,
    /// Offset of each attribute in bytes from the first one.
    positions: HashMap<(Vec<u8>, Vec<u8>), u32>,
}

impl Shared {
    /// Finds the attributes that several inodes have. The image stores them in descending order of
    /// name, then length, then value.
    pub fn new(tree: &FlatTree) -> Result<Self, BuildError> {
        let mut counts: HashMap<(&[u8], &[u8]), u32> = HashMap::new();
        for inode in &tree.inodes {
            for (name, value) in &inode.xattrs {
                *counts.entry((name, value)).or_insert(0) += 1;
            }
        }
        counts.retain(|_, count| *count > 1);
        let mut names: Vec<(&[u8], &[u8])> = counts.into_keys().collect();
        names.sort_by_key(|&(name, value)| (name, value.len(), value));
        let mut shared = Self {
            entries: Vec::new(),
            positions: HashMap::new(),
        };
        let mut position = 0_usize;
        for (name, value) in names.into_iter().rev() {
            let bytes = encode(name, value)?;
            let at = u32::try_from(position)
                .map_err(|_| failed("shared extended attributes of 4 GiB or more".into()))?;
            shared.positions.insert((name.to_vec(), value.to_vec()), at);
            position += bytes.len();
            shared.entries.push(bytes);
        }
        Ok(shared)
    }

    pub fn len(&self) -> usize {
        self.entries.iter().map(Vec::len).sum()
    }
}

pub struct XattrBody {
    /// The name filter: each set bit excludes some names.
    filter: u32,
    shared: Vec<u32>,
    inline: Vec<u8>,
}

impl XattrBody {
    pub fn new(xattrs: &Xattrs, shared: &Shared) -> Result<Self, BuildError> {
        let mut body = Self {
            filter: u32::MAX,
            shared: Vec::new(),
            inline: Vec::new(),
        };
        for (name, value) in xattrs {
            let (index, suffix) = split(name);
            let hash = xxh32(suffix, FILTER_SEED + u32::from(index));
            body.filter &= !(1 << (hash & 31));
            match shared.positions.get(&(name.clone(), value.clone())) {
                Some(&position) => body.shared.push(position),
                None => body.inline.extend(encode(name, value)?),
            }
        }
        if body.shared.len() > usize::from(u8::MAX) || body.words() > usize::from(u16::MAX) {
            return Err(failed(format!(
                "an inode has {} extended attributes; they take {} bytes",
                xattrs.len(),
                body.len()
            )));
        }
        Ok(body)
    }

    /// Returns the number of bytes between the inode and its contents.
    pub fn len(&self) -> usize {
        match self.words() {
            0 => 0,
            words => HEAD + 4 * (words - 1),
        }
    }

    /// Returns the length as the inode stores it: in words of four bytes, with the head counted as
    /// one word.
    fn words(&self) -> usize {
        match self.shared.len() + self.inline.len() / 4 {
            0 => 0,
            words => words + 1,
        }
    }

    /// Returns the `i_xattr_icount` field for this length.
    pub fn icount(&self) -> u16 {
        // The length was checked on creation.
        u16_from(u64_from(self.words()))
    }

    /// Writes the bytes. `base` is the position of the first shared attribute, counted from the
    /// start in the superblock.
    pub fn write(&self, base: u32, out: &mut Vec<u8>) {
        if self.words() == 0 {
            return;
        }
        out.extend(self.filter.to_le_bytes());
        out.push(u8::try_from(self.shared.len()).unwrap_or(u8::MAX));
        out.extend([0; HEAD - 5]);
        for position in &self.shared {
            out.extend(((base + *position) / 4).to_le_bytes());
        }
        out.extend(&self.inline);
    }
}

/// Returns whether the format can store an attribute of this name. Readers reject a name that is
/// only a namespace.
pub fn keeps(name: &[u8]) -> bool {
    match split(name) {
        (2 | 3, rest) => rest.is_empty(),
        (_, rest) => !rest.is_empty(),
    }
}

/// Splits a name into the number of its prefix and the rest.
fn split(name: &[u8]) -> (u8, &[u8]) {
    let mut known = PREFIXES.iter();
    known
        .find_map(|&(index, prefix)| Some((index, name.strip_prefix(prefix)?)))
        .unwrap_or((0, name))
}

fn encode(name: &[u8], value: &[u8]) -> Result<Encoded, BuildError> {
    let (index, suffix) = split(name);
    let (Ok(name_len), Ok(value_len)) = (u8::try_from(suffix.len()), u16::try_from(value.len()))
    else {
        return Err(failed(format!(
            "the extended attribute {} with a value of {} bytes; at most 255 bytes of name and 65535 of value are allowed",
            String::from_utf8_lossy(name),
            value.len()
        )));
    };
    let mut bytes = vec![name_len, index];
    bytes.extend(value_len.to_le_bytes());
    bytes.extend(suffix);
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Ok(bytes)
}
