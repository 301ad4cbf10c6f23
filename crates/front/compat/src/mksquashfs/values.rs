//! Values of options: numbers, sizes, modes, users and groups.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use forerun::build::{group_id, user_id};

use super::options::{MakeParsed, mistake};

/// Parses a decimal number without a sign.
pub fn number<N: std::str::FromStr>(word: &OsStr, message: &str) -> MakeParsed<N> {
    let text = word.to_str().filter(|text| !text.starts_with('+'));
    match text.and_then(|text| text.parse().ok()) {
        Some(number) => Ok(number),
        None => mistake(message),
    }
}

/// Parses a number of bytes, which K, M or G may follow.
pub fn size(word: &OsStr, message: &str) -> MakeParsed<u64> {
    let (digits, shift) = match word.as_bytes() {
        [digits @ .., b'k' | b'K'] => (digits, 10),
        [digits @ .., b'm' | b'M'] => (digits, 20),
        [digits @ .., b'g' | b'G'] => (digits, 30),
        digits => (digits, 0),
    };
    let count: u64 = number(OsStr::from_bytes(digits), message)?;
    match count.checked_mul(1 << shift) {
        Some(bytes) => Ok(bytes),
        None => mistake(message),
    }
}

/// Parses permissions in octal.
pub fn mode(word: &OsStr, message: &str) -> MakeParsed<u16> {
    let text = word.to_str().unwrap_or_default();
    let is_octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u16::from_str_radix(text, 8).ok();
    match mode.filter(|mode| is_octal && *mode <= 0o7777) {
        Some(mode) => Ok(mode),
        None => mistake(message),
    }
}

/// Returns the number of a user that is given by number or name.
pub fn user(word: &OsStr) -> MakeParsed<u32> {
    let found = user_id(word.as_bytes());
    found.map_or_else(|| mistake("-force-uid invalid uid or unknown user"), Ok)
}

/// Returns the number of a group that is given by number or name.
pub fn group(word: &OsStr) -> MakeParsed<u32> {
    let found = group_id(word.as_bytes());
    found.map_or_else(|| mistake("-force-gid invalid gid or unknown group"), Ok)
}
