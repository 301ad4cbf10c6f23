//! Extended attributes: sets that inodes share, and values that sets share.

use std::collections::{BTreeMap, HashMap};

use forerun_build::{BuildError, ImageWriter};
use forerun_io::{u32_from, u64_from};
use zerocopy::IntoBytes;

use super::cannot;
use super::metadata::{MetadataWriter, Place};
use super::tables::write_blocks;
use crate::ondisk::{XattrId, XattrName, XattrTable, xattr};

/// A value of at least this length is stored once and referred to. Repeating shorter ones,
/// compressed, costs less than reading another metadata block.
const SHARED_VALUE: usize = 128;
/// The longest value that Linux reads.
const LONGEST_VALUE: usize = 65536;

pub struct XattrWriter {
    table: MetadataWriter,
    ids: Vec<XattrId>,
    /// Numbers of the sets by their contents.
    sets: HashMap<Vec<u8>, u32>,
    values: HashMap<Vec<u8>, Place>,
}

struct Attribute<'a> {
    prefix: u16,
    name: &'a [u8],
    full_len: usize,
    value: &'a [u8],
}

impl XattrWriter {
    pub fn new(table: MetadataWriter) -> Self {
        Self {
            table,
            ids: Vec::new(),
            sets: HashMap::new(),
            values: HashMap::new(),
        }
    }

    /// Returns the number of an xattr set, writing the set if it is new. Returns `None` for an
    /// empty set.
    ///
    /// Attributes that the format cannot store, such as POSIX ACLs, are left out.
    pub fn id(
        &mut self,
        attributes: &BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<Option<u32>, BuildError> {
        let mut kept = Vec::new();
        let mut key = Vec::new();
        for (name, value) in attributes {
            let Some(attribute) = attribute(name, value)? else {
                continue;
            };
            // Length prefixes make the concatenation unambiguous.
            for part in [name, value] {
                key.extend_from_slice(&u64_from(part.len()).to_le_bytes());
                key.extend_from_slice(part);
            }
            kept.push(attribute);
        }
        if kept.is_empty() {
            return Ok(None);
        }
        if let Some(&id) = self.sets.get(&key) {
            return Ok(Some(id));
        }
        let id = self.write_set(&kept)?;
        self.sets.insert(key, id);
        Ok(Some(id))
    }

    fn write_set(&mut self, attributes: &[Attribute<'_>]) -> Result<u32, BuildError> {
        let place = self.table.place()?;
        let mut size: usize = 0;
        for attribute in attributes {
            size += attribute.full_len + 1 + attribute.value.len();
            self.write_attribute(attribute)?;
        }
        let numbers = (
            u32::try_from(self.ids.len()),
            u32::try_from(attributes.len()),
            u32::try_from(size),
        );
        let (Ok(id), Ok(count), Ok(size)) = numbers else {
            return Err(cannot(format!("{size} bytes of xattrs on one file")));
        };
        self.ids.push(XattrId {
            xattr: place.reference().into(),
            count: count.into(),
            size: size.into(),
        });
        Ok(id)
    }

    fn write_attribute(&mut self, attribute: &Attribute<'_>) -> Result<(), BuildError> {
        let value = attribute.value;
        let elsewhere = self.values.get(value).copied();
        let bit = elsewhere.map_or(0, |_| xattr::OUT_OF_LINE);
        let name = XattrName {
            kind: (attribute.prefix | bit).into(),
            size: u16::try_from(attribute.name.len()).unwrap_or(0).into(),
        };
        self.table.write(name.as_bytes());
        self.table.write(attribute.name);
        if let Some(place) = elsewhere {
            self.table.write(&8_u32.to_le_bytes());
            self.table.write(&place.reference().to_le_bytes());
            return Ok(());
        }
        if value.len() >= SHARED_VALUE {
            let place = self.table.place()?;
            self.values.insert(value.to_vec(), place);
        }
        let len = u32::try_from(value.len()).unwrap_or(0);
        self.table.write(&len.to_le_bytes());
        self.table.write(value);
        Ok(())
    }

    /// Writes the table. Returns its offset, or `None` without any set.
    pub fn finish(
        mut self,
        ids: MetadataWriter,
        out: &mut ImageWriter<'_>,
    ) -> Result<Option<u64>, BuildError> {
        if self.ids.is_empty() {
            return Ok(None);
        }
        let values_start = out.position();
        self.table.finish();
        out.write(&self.table.take())?;
        let count = u32_from(u64_from(self.ids.len()));
        let starts = write_blocks(ids, self.ids.as_bytes(), out)?;
        let start = out.position();
        let head = XattrTable {
            xattr_table_start: values_start.into(),
            xattr_ids: count.into(),
            unused: 0.into(),
        };
        out.write(head.as_bytes())?;
        out.write(&starts)?;
        Ok(Some(start))
    }
}

/// Returns whether the format can store an attribute of this name.
pub fn keeps(name: &[u8]) -> bool {
    split(name).is_some()
}

/// Splits a name into the number of its prefix and the rest, which is not empty.
fn split(name: &[u8]) -> Option<(u16, &[u8])> {
    let known = xattr::PREFIXES.iter().zip(0_u16..);
    let mut split = known.filter_map(|(prefix, n)| Some((n, name.strip_prefix(*prefix)?)));
    split.next().filter(|(_, rest)| !rest.is_empty())
}

fn attribute<'a>(name: &'a [u8], value: &'a [u8]) -> Result<Option<Attribute<'a>>, BuildError> {
    let Some((prefix, rest)) = split(name) else {
        return Ok(None);
    };
    if name.len() > 255 || value.len() > LONGEST_VALUE {
        return Err(cannot(format!(
            "the xattr {:?} of {} bytes; names have up to 255 bytes, values up to 65536",
            name.escape_ascii().to_string(),
            value.len()
        )));
    }
    Ok(Some(Attribute {
        prefix,
        name: rest,
        full_len: name.len(),
        value,
    }))
}
