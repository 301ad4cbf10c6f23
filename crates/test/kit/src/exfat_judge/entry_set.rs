//! An entry set of a file: primary, stream extension, names (sections 7.4, 7.6 and 7.7).

use super::{Finding, What, finding, u16_at, u32_at, u64_at};

pub(super) const ENTRY: usize = 32;
const DIRECTORY: u16 = 0x10;

pub(super) struct EntrySet {
    pub(super) name: String,
    /// The name folded by the volume's table, for comparisons.
    pub(super) folded: Vec<u16>,
    pub(super) directory: bool,
    pub(super) contiguous: bool,
    pub(super) first: u32,
    pub(super) len: u64,
    pub(super) valid: u64,
}

/// Parses the set at the start of `entries`, which must have all entries that its primary counts.
/// Returns `None` if the set is invalid.
pub(super) fn parse(
    entries: &[u8],
    upcase: &[u16],
    place: &str,
    findings: &mut Vec<Finding>,
) -> Option<EntrySet> {
    let mut complain = |what, detail: String| {
        findings.push(finding(what, format!("{place}: {detail}")));
    };
    let types: Vec<u8> = entries.chunks_exact(ENTRY).map(|entry| entry[0]).collect();
    if types.get(1) != Some(&0xC0) || types[1..].iter().any(|&kind| kind & 0xC0 != 0xC0) {
        complain(What::CutSet, format!("a set of {types:02x?}"));
        return None;
    }
    if checksum(entries) != u16_at(entries, 2) {
        complain(What::Checksum, "the set's checksum is wrong".to_owned());
    }
    let stream = &entries[ENTRY..2 * ENTRY];
    let length = usize::from(stream[3]);
    let units: Vec<u16> = entries[2 * ENTRY..]
        .chunks_exact(ENTRY)
        .take_while(|entry| entry[0] == 0xC1)
        .flat_map(|entry| entry[2..].chunks_exact(2).map(|unit| u16_at(unit, 0)))
        .collect();
    let Some(name) = units.get(..length).filter(|name| !name.is_empty()) else {
        complain(
            What::Name,
            format!("{length} units in {} of entries", units.len()),
        );
        return None;
    };
    if units.len() >= length + 15 {
        complain(
            What::Name,
            format!("{} units for a name of {length}", units.len()),
        );
    }
    if name.iter().any(|&unit| !allowed(unit)) {
        complain(What::Name, format!("{:?}", String::from_utf16_lossy(name)));
    }
    let folded: Vec<u16> = name.iter().map(|&unit| upcase[usize::from(unit)]).collect();
    if name_hash(&folded) != u16_at(stream, 4) {
        complain(What::NameHash, "the hash of the name is wrong".to_owned());
    }
    for (at, tens) in [(8, Some(20)), (12, Some(21)), (16, None)] {
        if !is_time(u32_at(entries, at)) || tens.is_some_and(|tens| entries[tens] > 199) {
            complain(What::Time, format!("the time at byte {at}"));
        }
    }
    Some(EntrySet {
        name: String::from_utf16_lossy(name),
        folded,
        directory: u16_at(entries, 4) & DIRECTORY != 0,
        contiguous: stream[1] & 2 != 0,
        first: u32_at(stream, 20),
        len: u64_at(stream, 24),
        valid: u64_at(stream, 8),
    })
}

fn allowed(unit: u16) -> bool {
    unit >= 0x20 && !"\"*/:<>?\\|".encode_utf16().any(|bad| bad == unit)
}

/// Returns whether a timestamp is valid. Section 7.4.8 has double-second counts of 0 to 29, and
/// months and days that start at 1.
fn is_time(stamp: u32) -> bool {
    let field = |from: u32, bits: u32| stamp >> from & ((1 << bits) - 1);
    field(0, 5) <= 29
        && field(5, 6) <= 59
        && field(11, 5) <= 23
        && (1..=31).contains(&field(16, 5))
        && (1..=12).contains(&field(21, 4))
}

/// Computes the checksum of section 6.3.3.
fn checksum(entries: &[u8]) -> u16 {
    let bytes = entries.iter().enumerate();
    let covered = bytes.filter(|(at, _)| !matches!(at, 2 | 3));
    covered.fold(0, |sum: u16, (_, &byte)| {
        sum.rotate_right(1).wrapping_add(byte.into())
    })
}

/// Computes the hash of section 7.6.4.
fn name_hash(folded: &[u16]) -> u16 {
    let bytes = folded.iter().flat_map(|unit| unit.to_le_bytes());
    bytes.fold(0, |hash: u16, byte| {
        hash.rotate_right(1).wrapping_add(byte.into())
    })
}
