//! Extended attributes: after their inode, or stored once for several inodes.

use std::collections::HashMap;

use forerun_build::{BuildError, NodeIndex, Tree};
use forerun_io::u64_from;

use super::cannot;
use super::plan::Plan;

/// Namespace prefixes and their indexes.
const NAME_SPACES: [(&[u8], u8); 3] = [(b"user.", 1), (b"trusted.", 4), (b"security.", 6)];
/// Whole names with indexes of their own.
const NAMES: [(&[u8], u8); 2] = [
    (b"system.posix_acl_access", 2),
    (b"system.posix_acl_default", 3),
];
/// Flag of a prefix index: the other bits are the index of a long prefix.
const LONG_PREFIX: u8 = 0x80;
/// Length of the header of an inode's xattrs.
const HEADER: usize = 12;
const MOST_SHARED: usize = 255;
/// The longest value of the format, which is also Linux's limit.
const LONGEST_VALUE: usize = 65_535;

pub fn check_prefixes(prefixes: &[Vec<u8>], most: usize) -> Result<(), BuildError> {
    if prefixes.len() > most {
        return Err(cannot(format!("{} prefixes of names", prefixes.len())));
    }
    for prefix in prefixes {
        if name_space(prefix).is_none() || prefix.len() > 255 {
            return Err(cannot(format!(
                "the prefix {}: it starts with user., trusted. or security., and has at most 255 \
                 bytes",
                String::from_utf8_lossy(prefix)
            )));
        }
    }
    Ok(())
}

pub fn prefix_table(prefixes: &[Vec<u8>]) -> Vec<u8> {
    let mut table = Vec::new();
    for prefix in prefixes {
        let (number, infix) = name_space(prefix).unwrap_or_default();
        let size = u16::try_from(infix.len() + 1).unwrap_or(0);
        table.extend_from_slice(&size.to_le_bytes());
        table.push(number);
        table.extend_from_slice(infix);
        pad(&mut table);
    }
    table
}

#[derive(Default)]
pub struct Xattrs {
    nodes: HashMap<NodeIndex, Vec<u8>>,
    pub shared: Vec<u8>,
}

type EncodedXattr = Vec<u8>;

impl Xattrs {
    /// Encodes the xattrs of a tree. `shared_at` is the id of the first shared xattr, in units of
    /// four bytes.
    pub fn new(
        tree: &Tree,
        plan: &Plan<'_>,
        prefixes: &[Vec<u8>],
        above: u32,
        shared_at: u64,
    ) -> Result<Self, BuildError> {
        let mut counts: HashMap<EncodedXattr, u32> = HashMap::new();
        for &node in &plan.inodes {
            for record in records(tree, node, prefixes)? {
                let count = counts.entry(record).or_default();
                *count += 1;
            }
        }
        let mut xattrs = Self::default();
        let mut places: HashMap<EncodedXattr, u32> = HashMap::new();
        for &node in &plan.inodes {
            let mut shared = Vec::new();
            let mut own = Vec::new();
            for record in records(tree, node, prefixes)? {
                let is_shared = counts.get(&record).is_some_and(|&count| count > above);
                if is_shared && shared.len() < MOST_SHARED {
                    shared.push(xattrs.share(record, &mut places, shared_at)?);
                } else {
                    own.extend_from_slice(&record);
                }
            }
            if !shared.is_empty() || !own.is_empty() {
                let encoded = encode(&shared, &own);
                if count(encoded.len()).is_none() {
                    return Err(cannot(format!(
                        "{} bytes of extended attributes of one inode",
                        encoded.len()
                    )));
                }
                xattrs.nodes.insert(node, encoded);
            }
        }
        Ok(xattrs)
    }

    /// Returns the encoded xattrs that follow an inode.
    pub fn of(&self, node: NodeIndex) -> &[u8] {
        self.nodes.get(&node).map_or(&[], Vec::as_slice)
    }

    fn share(
        &mut self,
        record: EncodedXattr,
        places: &mut HashMap<EncodedXattr, u32>,
        shared_at: u64,
    ) -> Result<u32, BuildError> {
        if let Some(&place) = places.get(&record) {
            return Ok(place);
        }
        let place = shared_at + u64_from(self.shared.len() / 4);
        let place = u32::try_from(place)
            .map_err(|_| cannot("16 GiB of shared extended attributes".to_string()))?;
        self.shared.extend_from_slice(&record);
        places.insert(record, place);
        Ok(place)
    }
}

/// Converts the length of an inode's xattrs to the value that the inode stores. `None` if it does
/// not fit.
pub fn count(len: usize) -> Option<u16> {
    match len {
        0 => Some(0),
        len => u16::try_from(len.checked_sub(HEADER)? / 4 + 1).ok(),
    }
}

fn encode(shared: &[u32], own: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    if let Some(count) = bytes.get_mut(4) {
        *count = u8::try_from(shared.len()).unwrap_or(u8::MAX);
    }
    for place in shared {
        bytes.extend_from_slice(&place.to_le_bytes());
    }
    bytes.extend_from_slice(own);
    bytes
}

/// Returns the xattrs of a node in name order, without those that the format cannot store.
fn records(
    tree: &Tree,
    node: NodeIndex,
    prefixes: &[Vec<u8>],
) -> Result<Vec<EncodedXattr>, BuildError> {
    let named = tree.node(node).xattrs.iter();
    let named = named.filter_map(|(name, value)| Some((split(name, prefixes)?, name, value)));
    let records = named.map(|((number, suffix), name, value)| {
        record(number, suffix, value).ok_or_else(|| {
            let (len, name) = (value.len(), String::from_utf8_lossy(name));
            cannot(format!("the extended attribute {name} with {len} bytes"))
        })
    });
    records.collect()
}

fn record(number: u8, suffix: &[u8], value: &[u8]) -> Option<EncodedXattr> {
    let size = u16::try_from(value.len()).ok()?;
    if value.len() > LONGEST_VALUE {
        return None;
    }
    let mut record = vec![u8::try_from(suffix.len()).ok()?, number];
    record.extend_from_slice(&size.to_le_bytes());
    record.extend_from_slice(suffix);
    record.extend_from_slice(value);
    pad(&mut record);
    Some(record)
}

/// Returns whether the format can store an xattr of this name.
pub fn keeps(name: &[u8]) -> bool {
    split(name, &[]).is_some()
}

/// Splits a name into the index of the longest matching prefix and the rest.
fn split<'n>(name: &'n [u8], prefixes: &[Vec<u8>]) -> Option<(u8, &'n [u8])> {
    // The format cannot store a bare namespace as a name, even if it equals one of the image's
    // prefixes.
    if NAME_SPACES.iter().any(|(space, _)| *space == name) {
        return None;
    }
    let own = (0_u8..).zip(prefixes);
    let own = own.filter_map(|(at, prefix)| Some((at, name.strip_prefix(prefix.as_slice())?)));
    if let Some((at, rest)) = own.min_by_key(|(_, rest)| rest.len()) {
        return Some((LONG_PREFIX | at, rest));
    }
    let whole = NAMES.iter().find(|(known, _)| *known == name);
    match whole {
        Some((_, number)) => Some((*number, &[])),
        None => name_space(name),
    }
}

fn name_space(name: &[u8]) -> Option<(u8, &[u8])> {
    let mut known = NAME_SPACES.iter();
    known.find_map(|(start, number)| Some((*number, name.strip_prefix(*start)?)))
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}
