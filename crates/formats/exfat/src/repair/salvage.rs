//! Restores damaged entry sets: first in ways that the set's checksum confirms, then from the sound
//! entries.

use forerun_vfs::Result;

use super::report::Kind;
use crate::dir::Slots;
use crate::entry_set::{EntrySet, MAX_ENTRIES, checksum, name_entries};
use crate::error::Check;
use crate::ondisk::{ENTRY, MAX_NAME, kind};

/// Byte offsets of `SecondaryCount`, `SetChecksum` and `NameLength` in a set.
const COUNT_AT: usize = 1;
const CHECKSUM_AT: usize = 2;
const NAME_LEN_AT: usize = ENTRY + 3;

/// A set that was read from a directory, and restored if it was damaged.
pub struct SalvagedSet {
    pub set: EntrySet,
    /// Number of entries that the set occupies in the directory.
    pub entries: u32,
    /// The damage, and the change that restores the set.
    pub wrong: Option<(Kind, Check, &'static str)>,
    /// No checksum confirms the set, so any field may be wrong.
    pub is_loose: bool,
    pub is_nameless: bool,
}

/// The set that begins with a file entry, or the damage that makes it useless.
pub enum Read {
    Set(Box<SalvagedSet>),
    /// The location of the data is lost.
    Lost(Check),
}

/// Reads the set that begins at `slot`, whatever the type of the first entry.
pub fn read(slots: &mut Slots<'_>, slot: u32) -> Result<Read> {
    let raw = raw(slots, slot)?;
    let count = usize::from(raw.get(COUNT_AT).copied().unwrap_or(0));
    let in_use = in_use(&raw);
    let check = match EntrySet::parse(first(&raw, count.min(in_use) + 1)) {
        Ok(set) => return Ok(whole(set, None)),
        Err(check) => check,
    };
    let form = |set| {
        let how = "restore the entries as their checksum says";
        Ok(whole(set, Some((Kind::SetForm, check.clone(), how))))
    };
    if let Some(set) = retyped(&raw, count) {
        return form(set);
    }
    if let Some(set) = (2..=in_use).find_map(|count| recounted(&raw, count)) {
        return form(set);
    }
    Ok(match loose(&raw, count, in_use) {
        Some((set, is_nameless)) => {
            let taken = if is_nameless { 2 } else { in_use.min(count) };
            let kind = match check {
                Check::SetChecksum { .. } => Kind::SetChecksum,
                _ => Kind::SetForm,
            };
            let entries = u32::try_from(taken + 1).unwrap_or(0);
            Read::Set(Box::new(SalvagedSet {
                wrong: Some((kind, check, "keep what is there, with a checksum that fits")),
                set,
                entries,
                is_loose: true,
                is_nameless,
            }))
        }
        None => Read::Lost(check),
    })
}

/// Returns the set that begins at `slot` if only the type of its first entry is wrong.
pub fn with_type(slots: &mut Slots<'_>, slot: u32) -> Result<Option<EntrySet>> {
    let next = slots.entry(slot + 1)?;
    if next.is_none_or(|next| next[0] != kind::STREAM) {
        return Ok(None);
    }
    let raw = raw(slots, slot)?;
    let count = usize::from(raw.get(COUNT_AT).copied().unwrap_or(0));
    let mut bytes = first(&raw, count + 1);
    if let Some(kind) = bytes.first_mut() {
        *kind = kind::FILE;
    }
    Ok(EntrySet::parse(bytes).ok())
}

fn whole(set: EntrySet, wrong: Option<(Kind, Check, &'static str)>) -> Read {
    Read::Set(Box::new(SalvagedSet {
        entries: u32::try_from(set.entries()).unwrap_or(0),
        set,
        wrong,
        is_loose: false,
        is_nameless: false,
    }))
}

/// Reads the entry at `slot` and the entries after it: at least the count that it stores, all
/// secondary entries in use that follow, and the two entries where stream extension and name would
/// be.
fn raw(slots: &mut Slots<'_>, slot: u32) -> Result<Vec<u8>> {
    let mut raw = Vec::with_capacity(4 * ENTRY);
    let (mut count, mut is_run, mut at) = (2, true, slot);
    for index in 0..MAX_ENTRIES {
        let Some(entry) = slots.entry(at)? else {
            break;
        };
        if index == 0 {
            count = count.max(usize::from(entry[1]));
        } else {
            is_run &= entry[0] & kind::IN_USE != 0 && entry[0] & kind::SECONDARY != 0;
        }
        if index > count && !is_run {
            break;
        }
        raw.extend(entry);
        at += 1;
    }
    Ok(raw)
}

fn first(raw: &[u8], entries: usize) -> Vec<u8> {
    raw[..(entries * ENTRY).min(raw.len())].to_vec()
}

/// Counts the secondary entries in use after the first entry.
fn in_use(raw: &[u8]) -> usize {
    let wanted = kind::IN_USE | kind::SECONDARY;
    let rest = raw.chunks_exact(ENTRY).skip(1);
    rest.take_while(|entry| entry.first().is_some_and(|kind| kind & wanted == wanted))
        .count()
}

/// Returns the set with corrected entry types, if the checksum confirms them.
fn retyped(raw: &[u8], count: usize) -> Option<EntrySet> {
    let mut bytes = first(raw, count + 1);
    let names = name_entries(bytes.get(NAME_LEN_AT).copied().unwrap_or(0).into());
    for (index, entry) in bytes.chunks_exact_mut(ENTRY).enumerate() {
        let found = entry.first_mut()?;
        *found = match index {
            0 => kind::FILE,
            1 => kind::STREAM,
            index if index < 2 + names => kind::NAME,
            _ => *found | kind::IN_USE | kind::SECONDARY,
        };
    }
    EntrySet::parse(bytes).ok()
}

/// Returns the set with `count` secondary entries, if the checksum confirms the count.
fn recounted(raw: &[u8], count: usize) -> Option<EntrySet> {
    let mut bytes = first(raw, count + 1);
    *bytes.get_mut(COUNT_AT)? = u8::try_from(count).ok()?;
    EntrySet::parse(bytes).ok()
}

/// Returns a set of file entry, stream extension and the sound part of the name, with a corrected
/// checksum. The flag says whether the name is lost.
fn loose(raw: &[u8], count: usize, in_use: usize) -> Option<(EntrySet, bool)> {
    let mut entries = raw.chunks_exact(ENTRY);
    let stream = entries.nth(1)?;
    if stream.first() != Some(&kind::STREAM) {
        return None;
    }
    let is_name = |entry: &&[u8]| entry.first() == Some(&kind::NAME);
    let there = entries.clone().take_while(is_name).count();
    let said = usize::from(raw.get(NAME_LEN_AT).copied()?);
    if there == 0 || count < 2 && in_use < 2 {
        return nameless(raw).map(|set| (set, true));
    }
    let names = there.min(count.saturating_sub(1)).max(1);
    let len = name_len(raw, said, names)?;
    let mut bytes = first(raw, 2 + names);
    // Nothing confirms further entries, and their type may be wrong too.
    bytes.truncate((2 + names) * ENTRY);
    seal(bytes, len).map(|set| (set, false))
}

/// Returns the length of a name in `names` entries: the stored length if it fits, otherwise the
/// number of units before the first zero.
fn name_len(raw: &[u8], said: usize, names: usize) -> Option<u8> {
    let units = raw.chunks_exact(ENTRY).skip(2).take(names);
    let units = units.flat_map(|entry| entry[2..].chunks_exact(2));
    let units: Vec<bool> = units.map(|unit| unit != [0, 0]).collect();
    let padding = units.get(said..).unwrap_or_default();
    let fits = said > 0 && name_entries(said) == names && !padding.contains(&true);
    let len = if fits {
        said
    } else {
        units.iter().take_while(|unit| **unit).count().max(1)
    };
    u8::try_from(len.min(MAX_NAME)).ok()
}

/// Returns the set with a new name entry in third position, unless another primary entry is there.
fn nameless(raw: &[u8]) -> Option<EntrySet> {
    let third = raw.get(2 * ENTRY).copied()?;
    let is_other = third & kind::IN_USE != 0 && third & kind::SECONDARY == 0;
    if is_other {
        return None;
    }
    let mut bytes = first(raw, 3);
    let name = bytes.get_mut(2 * ENTRY..)?;
    name.fill(0);
    // A placeholder. The set is renamed before it is written.
    for (to, byte) in name.iter_mut().zip([kind::NAME, 0, b'_']) {
        *to = byte;
    }
    seal(bytes, 1)
}

fn seal(bytes: Vec<u8>, name_len: u8) -> Option<EntrySet> {
    let mut bytes = bytes;
    *bytes.first_mut()? = kind::FILE;
    *bytes.get_mut(COUNT_AT)? = u8::try_from(bytes.len() / ENTRY - 1).ok()?;
    *bytes.get_mut(NAME_LEN_AT)? = name_len;
    sealed(bytes)
}

/// Returns the set of these entries, with corrected count and checksum.
pub fn shorter(mut bytes: Vec<u8>) -> Option<EntrySet> {
    *bytes.get_mut(COUNT_AT)? = u8::try_from((bytes.len() / ENTRY).checked_sub(1)?).ok()?;
    sealed(bytes)
}

/// Returns the set of these bytes, with corrected checksum.
pub fn sealed(mut bytes: Vec<u8>) -> Option<EntrySet> {
    let sum = checksum(&bytes).to_le_bytes();
    bytes
        .get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)?
        .copy_from_slice(&sum);
    EntrySet::parse(bytes).ok()
}
