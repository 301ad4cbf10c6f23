//! Numbers of bytes, as options take them and as people read them.

use bytesize::ByteSize;

/// What [`parse`] accepts, for messages.
const EXPECTED: &str = "a number of bytes such as 4096, 64K, 8M or 1G";

/// Digits with an optional K, M, G or T, which count in steps of 1024; `KiB` and the like too. As
/// in the mount options, so that `--offset 1M` and `-o offset=1M` are the same place.
pub fn parse(text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(
        text.find(|char: char| !char.is_ascii_digit())
            .unwrap_or(text.len()),
    );
    let shift = match unit.strip_suffix("iB").unwrap_or(unit) {
        "" if unit.is_empty() => Some(0),
        "k" | "K" => Some(10),
        "m" | "M" => Some(20),
        "g" | "G" => Some(30),
        "t" | "T" => Some(40),
        _ => None,
    };
    let bytes = shift.and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("not {EXPECTED}"))
}

/// `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// `1.5 GiB (1610612736 bytes)`; small numbers as they are.
pub fn exact(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_string(),
        0..1024 => format!("{bytes} bytes"),
        _ => format!("{} ({bytes} bytes)", human(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("4k", Some(4096)),
            ("64KiB", Some(65536)),
            ("8M", Some(8 << 20)),
            ("1T", Some(1 << 40)),
            ("18446744073709551616", None),
            ("17179869184G", None),
            ("", None),
            ("K", None),
            ("iB", None),
            ("1iB", None),
            ("-1", None),
            ("1 K", None),
            ("1KB", None),
        ] {
            assert_eq!(parse(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn for_people() {
        assert_eq!(exact(1), "1 byte");
        assert_eq!(exact(1023), "1023 bytes");
        assert_eq!(exact(250 << 20), "250.0 MiB (262144000 bytes)");
    }
}
