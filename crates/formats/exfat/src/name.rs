//! Names: UTF-16 on the volume, bytes for callers.
//!
//! A lone surrogate is not a character, but names may contain one. It becomes the three bytes that
//! UTF-8 would use (WTF-8), so that each name on a volume can be looked up. New names must be
//! UTF-8.

use forerun_vfs::{Error, NameError, Result, check_name};

use crate::ondisk::{MAX_LABEL, MAX_NAME};

/// Longest name in bytes. A UTF-16 unit takes at most three bytes.
pub const MAX_BYTES: usize = 3 * MAX_NAME;

pub fn to_bytes(units: &[u16]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(units.len());
    let mut buffer = [0; 4];
    for unit in char::decode_utf16(units.iter().copied()) {
        match unit {
            Ok(c) => bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
            Err(half) => bytes.extend(surrogate_bytes(half.unpaired_surrogate())),
        }
    }
    bytes
}

fn surrogate_bytes(unit: u16) -> [u8; 3] {
    let low = |value: u16| u8::try_from(value & 0x3F).unwrap_or(0) | 0x80;
    [0xED, low(unit >> 6), low(unit)]
}

/// Returns the UTF-16 units of a name to look up, or `None` if no name can have these bytes.
pub fn to_units(bytes: &[u8]) -> Option<Vec<u16>> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return within(text.encode_utf16().collect());
    }
    let mut units = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        let error = match std::str::from_utf8(rest) {
            Ok(text) => {
                units.extend(text.encode_utf16());
                break;
            }
            Err(error) => error,
        };
        let (valid, after) = rest.split_at_checked(error.valid_up_to())?;
        units.extend(std::str::from_utf8(valid).ok()?.encode_utf16());
        let (half, after) = after.split_first_chunk::<3>()?;
        let [0xED, high @ 0xA0..=0xBF, low @ 0x80..=0xBF] = *half else {
            return None;
        };
        units.push(0xD000 | (u16::from(high) & 0x3F) << 6 | u16::from(low) & 0x3F);
        rest = after;
    }
    // A surrogate pair must not be encoded as two times three bytes.
    let units = within(units)?;
    (to_bytes(&units) == bytes).then_some(units)
}

fn within(units: Vec<u16>) -> Option<Vec<u16>> {
    (units.len() <= MAX_NAME).then_some(units)
}

/// Returns whether a name may contain this unit (7.7.3).
pub const fn is_allowed(unit: u16) -> bool {
    !matches!(
        unit,
        0..=0x1F | 0x22 | 0x2A | 0x2F | 0x3A | 0x3C | 0x3E | 0x3F | 0x5C | 0x7C
    )
}

/// Returns a name of the volume as bytes for callers; fails if it breaks a rule for names of all
/// formats.
pub fn visible(units: &[u16]) -> std::result::Result<Vec<u8>, NameError> {
    let bytes = to_bytes(units);
    check_name(&bytes, MAX_BYTES)?;
    Ok(bytes)
}

/// Returns the UTF-16 units of a new name. Strips dots at the end unless `keep_dots` is set.
pub fn for_new(bytes: &[u8], keep_dots: bool) -> Result<Vec<u16>> {
    let invalid = |why: &str| Err(Error::InvalidName(why.into()));
    check_name(bytes, usize::MAX)?;
    let Ok(text) = std::str::from_utf8(bytes) else {
        return invalid("not UTF-8");
    };
    let text = if keep_dots {
        text
    } else {
        text.trim_end_matches('.')
    };
    let units: Vec<u16> = text.encode_utf16().collect();
    match units.len() {
        0 => return invalid("nothing but dots"),
        1..=MAX_NAME => {}
        _ => {
            let (limit, unit) = (MAX_NAME, "UTF-16 units");
            return Err(Error::NameTooLong { limit, unit });
        }
    }
    match units.iter().find(|&&unit| !is_allowed(unit)) {
        Some(unit) => invalid(&format!("character {unit:#04x}")),
        None => Ok(units),
    }
}

pub fn for_label(bytes: &[u8]) -> Result<Vec<u16>> {
    let invalid = |why: &str| Err(Error::InvalidName(why.into()));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return invalid("not UTF-8");
    };
    let units: Vec<u16> = text.encode_utf16().collect();
    match units.iter().find(|&&unit| !is_allowed(unit)) {
        _ if units.len() > MAX_LABEL => invalid("longer than 11 UTF-16 units"),
        Some(unit) => invalid(&format!("character {unit:#04x}")),
        None => Ok(units),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for units in [
            &[0x61, 0x62][..],
            &[0xE4, 0x20AC],
            &[0xD83D, 0xDE00],
            &[0xD83D],
            &[0xDE00, 0xD83D, 0x61],
            &[0xD83D, 0xD83D, 0xDE00],
        ] {
            let bytes = to_bytes(units);
            assert_eq!(to_units(&bytes).as_deref(), Some(units), "{bytes:x?}");
        }
    }

    #[test]
    fn bytes_that_no_name_has() {
        for bytes in [
            &b"\xff"[..],
            b"a\xed\xa0",
            b"\xed\xa0\xbd\xed\xb8\x80",
            b"\xc0\x80",
        ] {
            assert_eq!(to_units(bytes), None, "{bytes:x?}");
        }
        assert_eq!(to_units(&[b'a'; 256]), None);
    }

    #[test]
    fn new_names() {
        let ok = |name: &str, keep| for_new(name.as_bytes(), keep).map(|u| to_bytes(&u));
        assert_eq!(ok("a.", false).unwrap(), b"a");
        assert_eq!(ok("a.", true).unwrap(), b"a.");
        assert_eq!(ok(&"\u{1F600}".repeat(127), false).unwrap().len(), 508);
        for name in ["...", "a:b", "a\\b", "a/b", "a\tb", "", ".", "..", "a\0"] {
            assert!(ok(name, false).is_err(), "{name:?}");
        }
        assert!(ok(&"\u{1F600}".repeat(128), false).is_err());
        assert!(for_new(b"\xff", false).is_err());
    }
}
