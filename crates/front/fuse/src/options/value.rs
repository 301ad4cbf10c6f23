//! Parses values of mount options: sizes, octal masks, numbers.

use forerun_vfs::Verity;

/// Parses a size in bytes: decimal or `0x` hexadecimal digits, with an optional unit K, M, G or T,
/// or KiB and so on, in steps of 1024. Front ends use it for other sizes too.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    // `K` and `KiB` are the same unit; `iB` directly after a digit is invalid.
    let text = text
        .strip_suffix("iB")
        .filter(|rest| !rest.ends_with(|char: char| char.is_ascii_digit()))
        .unwrap_or(text);
    let (digits, shift) = match text.as_bytes().last()? {
        b'k' | b'K' => (text.get(..text.len() - 1)?, 10),
        b'm' | b'M' => (text.get(..text.len() - 1)?, 20),
        b'g' | b'G' => (text.get(..text.len() - 1)?, 30),
        b't' | b'T' => (text.get(..text.len() - 1)?, 40),
        _ => (text, 0),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits)?,
        None => number::<u64>(digits)?,
    };
    number.checked_mul(1 << shift)
}

/// Parses only hexadecimal digits, as in the offsets that messages print after `0x`.
fn hexadecimal(digits: &str) -> Option<u64> {
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Parses only digits: no sign, no blanks.
pub fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Parses octal permission bits, at most 0777.
pub fn mask(text: &str) -> Option<u16> {
    let octal = !text.is_empty() && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let bits = octal.then(|| u16::from_str_radix(text, 8).ok())??;
    (bits <= 0o777).then_some(bits)
}

/// Parses a time zone offset in minutes, at most one day in either direction.
pub fn minutes(text: &str) -> Option<i16> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let minutes = number::<i16>(digits).filter(|minutes| *minutes <= 1440)?;
    Some(if negative { -minutes } else { minutes })
}

/// Returns the current offset of the system's time zone in minutes east of UTC.
pub fn local_offset() -> i16 {
    let seconds = jiff::Zoned::now().offset().seconds();
    i16::try_from(seconds / 60).unwrap_or(0)
}

pub fn digest(text: &str) -> Option<String> {
    let is_digest =
        matches!(text.len(), 64 | 128) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| text.to_ascii_lowercase())
}

pub fn verity(text: &str) -> Option<Verity> {
    match text {
        "off" => Some(Verity::Off),
        "on" => Some(Verity::On),
        "require" => Some(Verity::Require),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("4k", Some(4096)),
            ("4K", Some(4096)),
            ("8M", Some(8 << 20)),
            ("2G", Some(2 << 30)),
            ("1T", Some(1 << 40)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("17179869184G", None),
            ("", None),
            ("K", None),
            ("-1", None),
            ("+1", None),
            ("1 K", None),
            ("1KiB", Some(1024)),
            ("64KiB", Some(65536)),
            ("1iB", None),
            ("iB", None),
            ("1KB", None),
            ("0x10", Some(16)),
            ("0x1E241", Some(123_457)),
            ("0x1e241", Some(123_457)),
            ("0x10K", Some(16 << 10)),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("0x", None),
            ("0xK", None),
            ("0x+1", None),
            ("0x-1", None),
            ("x10", None),
            ("10x", None),
            ("4\u{212a}", None),
        ] {
            assert_eq!(parse_size(text), expected, "{text}");
        }
    }

    #[test]
    fn offsets() {
        for (text, expected) in [
            ("0", Some(0)),
            ("60", Some(60)),
            ("+60", Some(60)),
            ("-1440", Some(-1440)),
            ("1441", None),
            ("--1", None),
            ("", None),
            ("-", None),
            ("1h", None),
        ] {
            assert_eq!(minutes(text), expected, "{text}");
        }
    }

    #[test]
    fn masks() {
        for (text, expected) in [
            ("022", Some(0o22)),
            ("0", Some(0)),
            ("777", Some(0o777)),
            ("1000", None),
            ("8", None),
            ("", None),
            ("-1", None),
        ] {
            assert_eq!(mask(text), expected, "{text}");
        }
    }
}
