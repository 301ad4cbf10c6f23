//! The xattr tables: shared sets of names and values, with values inline or elsewhere.

use forerun_vfs::{Bound, Error, NodeId, Result, check_xattr_name};
use zerocopy::little_endian::{U32, U64};

use crate::blocks::Blocks;
use crate::cursor::{Cursor, Table};
use crate::error::Check;
use crate::ondisk::{XattrId, XattrName, XattrTable, xattr};
use crate::reference::Reference;
use crate::superblock::{HEAD, Superblock};
use crate::tables::{Indexed, Pointers};

/// Longest value: the limit of Linux.
const VALUE_MAX: u32 = 65536;
/// Longest name with its prefix: the limit of Linux.
const NAME_MAX: usize = 255;

pub enum Found<'x> {
    Pair(&'x [u8], &'x [u8]),
    /// An xattr with an unknown prefix, and the error for it.
    Unknown(Error),
}

#[derive(Debug)]
pub struct XattrTables {
    pairs: Table,
    sets: Indexed,
}

impl XattrTables {
    /// Opens the table whose header is at `start`.
    pub fn open(blocks: &Blocks, superblock: &Superblock, start: u64) -> Result<Self> {
        let (table, end) = ("xattr table", superblock.end_of(start));
        let outside = || Check::TableOutside { table, start, end }.at(None, start);
        let pointers = start.checked_add(16).filter(|&at| at <= end);
        let pointers = pointers.ok_or_else(outside)?;
        let raw: XattrTable = blocks.plain(start)?;
        let pairs = Table {
            name: "xattr pairs",
            start: raw.xattr_table_start.get(),
            end: start,
        };
        let count = u64::from(raw.xattr_ids.get());
        if count > 0 && (pairs.start < HEAD || pairs.start >= start) {
            let (start, end) = (pairs.start, start);
            return Err(Check::TableOutside { table, start, end }.at(None, end));
        }
        let form = Pointers::v4(superblock.order);
        let sets = Indexed::new(table, pointers..end, count, 16, HEAD, form)?;
        Ok(Self { pairs, sets })
    }

    pub const fn count(&self) -> u64 {
        self.sets.count()
    }

    pub fn each(
        &self,
        blocks: &Blocks,
        index: u32,
        node: NodeId,
        limit: u64,
        visit: &mut dyn FnMut(Found<'_>),
    ) -> Result<()> {
        self.pairs(blocks, index, node, limit, visit).map(|_| ())
    }

    /// Returns an error if the declared size of a set is wrong. Writers count it in different ways,
    /// and readers do not need it.
    pub fn wrong_size(&self, blocks: &Blocks, index: u32, limit: u64) -> Result<Option<Error>> {
        let mut is_known = true;
        let visit = &mut |found: Found<'_>| is_known &= matches!(found, Found::Pair(..));
        let (set, found) = self.pairs(blocks, index, NodeId(0), limit, visit)?;
        let (count, size) = (set.count.get(), set.size.get());
        let check = Check::XattrSize {
            index,
            count,
            size,
            found,
        };
        // The size is unknown if a prefix is.
        let is_wrong = is_known && u64::from(size) != found;
        Ok(is_wrong.then(|| check.at(None, self.pairs.start)))
    }

    /// Visits the xattrs of set `index`. Returns its table entry and its size.
    fn pairs(
        &self,
        blocks: &Blocks,
        index: u32,
        node: NodeId,
        limit: u64,
        visit: &mut dyn FnMut(Found<'_>),
    ) -> Result<(XattrId, u64)> {
        let set: XattrId = self.sets.get(blocks, u64::from(index), Some(node))?;
        let at = Reference::from_raw(set.xattr.get());
        let mut cursor = Cursor::new(blocks, self.pairs, at, Some(node))?;
        let mut size = 0;
        let (mut name, mut value) = (Vec::new(), Vec::new());
        for _ in 0..set.count.get() {
            let unknown = self.pair(blocks, &mut cursor, node, &mut name, &mut value)?;
            // A pair counts for its name with prefix and NUL, and its value.
            size += forerun_io::u64_from(name.len() + 1 + value.len());
            // Many xattrs may share one long value, so a small image can hold gigabytes.
            if size > limit {
                let what = format!("bytes of xattrs of node {node}");
                return Err(Error::limit(Bound::Other, what, limit));
            }
            visit(match unknown {
                Some(error) => Found::Unknown(error),
                None => Found::Pair(&name, &value),
            });
        }
        Ok((set, size))
    }

    /// Reads a name and a value. Returns an error in `Some` if the name's prefix is unknown.
    fn pair(
        &self,
        blocks: &Blocks,
        cursor: &mut Cursor<'_>,
        node: NodeId,
        name: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<Option<Error>> {
        let head: XattrName = cursor.read()?;
        let fail = |check: Check, offset: u64| Err(check.at(Some(node), offset));
        let kind = head.kind.get();
        let prefix = xattr::PREFIXES.get(usize::from(kind & xattr::PREFIX));
        let known = xattr::PREFIX | xattr::OUT_OF_LINE;
        let prefix = prefix.filter(|_| kind & !known == 0);
        let unknown = match prefix {
            Some(_) => None,
            None => Some(Check::XattrPrefix { kind }.at(Some(node), cursor.offset())),
        };
        let prefix = prefix.copied().unwrap_or_default();
        let len = usize::from(head.size.get());
        name.clear();
        name.extend_from_slice(prefix);
        let start = name.len();
        // At most 64 KiB: the length field has 16 bits.
        name.resize(start + len, 0);
        cursor.read_into(name.get_mut(start..).unwrap_or_default())?;
        if let Err(source) = check_xattr_name(name, NAME_MAX) {
            let name = String::from_utf8_lossy(name).into_owned();
            return fail(Check::XattrName { name, source }, cursor.offset());
        }
        let len: U32 = cursor.read()?;
        if kind & xattr::OUT_OF_LINE == 0 {
            read_value(cursor, len.get(), node, value)?;
            return Ok(unknown);
        }
        if len.get() != 8 {
            let check = Check::XattrReference { len: len.get() };
            return fail(check, cursor.offset());
        }
        let at: U64 = cursor.read()?;
        let at = Reference::from_raw(at.get());
        let mut elsewhere = Cursor::new(blocks, self.pairs, at, Some(node))?;
        let len: U32 = elsewhere.read()?;
        read_value(&mut elsewhere, len.get(), node, value)?;
        Ok(unknown)
    }
}

fn read_value(cursor: &mut Cursor<'_>, len: u32, node: NodeId, value: &mut Vec<u8>) -> Result<()> {
    if len > VALUE_MAX {
        let check = Check::XattrValue {
            len,
            limit: VALUE_MAX,
        };
        return Err(check.at(Some(node), cursor.offset()));
    }
    value.clear();
    value.resize(forerun_io::usize_from(u64::from(len)), 0);
    cursor.read_into(value)
}
