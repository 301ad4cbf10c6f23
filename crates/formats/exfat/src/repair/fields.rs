//! Repairs the fields of a set that do not describe clusters: name, hash, times, reserved fields.

use forerun_vfs::Result;

use super::names::{self, Names};
use super::report::Kind;
use super::salvage::sealed;
use super::work::Work;
use crate::chain::Chain;
use crate::entry_set::EntrySet;
use crate::error::Check;
use crate::name::is_allowed;
use crate::ondisk::{ENTRY, attribute, flag, kind};
use crate::time::Stamp;

/// Byte offsets in a set.
const ATTRIBUTES_AT: usize = 4;
const RESERVED1_AT: usize = 6;
const FLAGS_AT: usize = ENTRY + 1;
const STREAM_RESERVED1_AT: usize = ENTRY + 2;
const HASH_AT: usize = ENTRY + 4;
const STREAM_RESERVED2_AT: usize = ENTRY + 6;
const STREAM_RESERVED3_AT: usize = ENTRY + 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    None,
    /// The set of the name was damaged.
    Damaged,
    Nameless,
}

/// The location of a set in its directory.
pub struct SetPlace<'a> {
    pub chain: &'a Chain,
    /// Path of the directory; empty for the root.
    pub directory: &'a [u8],
    pub slot: u32,
    pub at: u64,
}

/// Repairs the name of a set, which must be valid and unique in its directory. Returns the set.
pub fn name(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    names: &mut Names,
    set: EntrySet,
    doubt: Doubt,
) -> Result<EntrySet> {
    let volume = std::rc::Rc::clone(&work.volume);
    let mut set = set;
    if doubt == Doubt::Nameless {
        let lost: Vec<u16> = "LOST".encode_utf16().collect();
        let name = names.unique(&volume, here.chain, &lost)?;
        set = names::renamed(&volume, &set, &name);
    }
    let plain = names::renamed(&volume, &set, &set.name());
    if plain.bytes().get(2 * ENTRY..) != set.bytes().get(2 * ENTRY..) {
        let names = set.bytes().chunks_exact(ENTRY);
        let entries = names
            .filter(|entry| entry.first() == Some(&kind::NAME))
            .count();
        let len = set.stream().name_length;
        let check = Check::NameForm { len, entries };
        let path = path_of(here, &set);
        if work.ask(
            Kind::SetForm,
            Some(&path),
            (check, here.at),
            "write its entries anew",
        ) {
            set = plain;
        }
    }
    if let Some(name) = names::allowed(&set.name()) {
        let check = bad_name(&set);
        let remedy = format!("rename it to {}", String::from_utf16_lossy(&name));
        let path = path_of(here, &set);
        if work.ask(Kind::Name, Some(&path), (check, here.at), remedy) {
            set = names::renamed(&volume, &set, &name);
        }
    }
    let is_there = names.has(&volume, here.chain, &set.name())?;
    // If two sets have the same name, the undamaged one keeps it.
    let is_doubtful = doubt == Doubt::Damaged && names.are(&volume, here.chain, &set.name())?;
    if is_there || is_doubtful {
        let name = names.unique(&volume, here.chain, &set.name())?;
        let check = Check::NameTwice {
            name: String::from_utf16_lossy(&set.name()),
        };
        let remedy = format!("rename it to {}", String::from_utf16_lossy(&name));
        let path = path_of(here, &set);
        if work.ask(Kind::NameTwice, Some(&path), (check, here.at), remedy) {
            set = names::renamed(&volume, &set, &name);
        }
    }
    let (found, actual) = (
        set.stream().name_hash.get(),
        volume.upcase.hash(&set.name()),
    );
    if found != actual {
        let path = path_of(here, &set);
        let check = Check::NameHash { found, actual };
        if work.ask(Kind::NameHash, Some(&path), (check, here.at), "correct it") {
            set = edited(set, &[(HASH_AT, &actual.to_le_bytes())]);
        }
    }
    names.add(&volume, &set.name(), here.slot);
    Ok(set)
}

fn bad_name(set: &EntrySet) -> Check {
    match set.visible_name() {
        Err(check) => check,
        Ok(_) => {
            let units = set.name();
            let unit = units.iter().copied().find(|&unit| !is_allowed(unit));
            Check::NameCharacter {
                name: String::from_utf16_lossy(&units),
                unit: unit.unwrap_or(0),
            }
        }
    }
}

/// Repairs invalid times, bits that must be zero, and the bit that must be set.
pub fn others(work: &mut Work<'_, '_>, here: &SetPlace<'_>, set: EntrySet) -> EntrySet {
    let mut set = set;
    let path = path_of(here, &set);
    let times = [set.created(), set.modified(), set.accessed()];
    if let Some(stamp) = times.into_iter().find(|stamp| !stamp.is_sound()) {
        let (value, hundredths) = (stamp.word, stamp.hundredths);
        let check = Check::Time { value, hundredths };
        if work.ask(
            Kind::Time,
            Some(&path),
            (check, here.at),
            "take the nearest moment",
        ) {
            let [created, modified, accessed] = times.map(nearest);
            set.set_created(created);
            set.set_modified(modified);
            set.set_accessed(accessed);
        }
    }
    if let Some(check) = reserved(&set)
        && work.ask(Kind::Reserved, Some(&path), (check, here.at), "clear it")
    {
        let attributes = set.file().file_attributes.get() & attribute::KNOWN;
        set = edited(
            set,
            &[
                (ATTRIBUTES_AT, &attributes.to_le_bytes()),
                (RESERVED1_AT, &[0; 2]),
                (STREAM_RESERVED1_AT, &[0]),
                (STREAM_RESERVED2_AT, &[0; 2]),
                (STREAM_RESERVED3_AT, &[0; 4]),
            ],
        );
    }
    let flags = set.stream().general_secondary_flags;
    let known = flag::ALLOCATION_POSSIBLE | flag::NO_FAT_CHAIN;
    if flags & known != flags || flags & flag::ALLOCATION_POSSIBLE == 0 {
        let check = Check::StreamFlags { found: flags };
        if work.ask(Kind::Reserved, Some(&path), (check, here.at), "correct it") {
            let flags = flags & known | flag::ALLOCATION_POSSIBLE;
            set = edited(set, &[(FLAGS_AT, &[flags])]);
        }
    }
    set
}

fn reserved(set: &EntrySet) -> Option<Check> {
    let (file, stream) = (set.file(), set.stream());
    let attributes = file.file_attributes.get() & !attribute::KNOWN;
    let fields = [
        ("FileAttributes", u64::from(attributes)),
        ("Reserved1", file.reserved1.get().into()),
        ("Reserved1 of the stream", stream.reserved1.into()),
        ("Reserved2 of the stream", stream.reserved2.get().into()),
        ("Reserved3 of the stream", stream.reserved3.get().into()),
    ];
    let mut fields = fields.into_iter();
    let (field, value) = fields.find(|&(_, value)| value != 0)?;
    Some(Check::Reserved { field, value })
}

/// Replaces bytes of the set at the given offsets, and corrects the checksum.
pub fn edited(set: EntrySet, fields: &[(usize, &[u8])]) -> EntrySet {
    let mut bytes = set.bytes().to_vec();
    for &(at, field) in fields {
        for (to, byte) in bytes.iter_mut().skip(at).zip(field) {
            *to = *byte;
        }
    }
    sealed(bytes).unwrap_or(set)
}

pub fn path_of(here: &SetPlace<'_>, set: &EntrySet) -> Vec<u8> {
    let mut path = here.directory.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend(crate::name::to_bytes(&set.name()));
    path
}

/// Clamps each field of a time stamp to its range.
fn nearest(stamp: Stamp) -> Stamp {
    let field = |shift: u32, bits: u32| (stamp.word >> shift) & ((1 << bits) - 1);
    let word = field(25, 7) << 25
        | field(21, 4).clamp(1, 12) << 21
        | field(16, 5).max(1) << 16
        | field(11, 5).min(23) << 11
        | field(5, 6).min(59) << 5
        | field(0, 5).min(29);
    Stamp {
        word,
        hundredths: stamp.hundredths.min(199),
        offset: stamp.offset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_moment_is_one() {
        for word in [0, u32::MAX, 0x5A5A_5A5A, 46 << 25] {
            let stamp = Stamp {
                word,
                hundredths: 255,
                offset: 0,
            };
            assert!(nearest(stamp).is_sound(), "{word:x}");
        }
    }
}
