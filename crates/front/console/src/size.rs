//! Numbers of bytes, as options take them and as people read them.

use bytesize::ByteSize;
use indicatif::HumanCount;

const EXPECTED: &str = "a number of bytes such as 4096, 0x1000, 64K, 8M or 1G";

/// Parses a size as the mount options do, so that `--offset 1M` and `-o offset=1M` are equal.
pub fn parse(text: &str) -> Result<u64, String> {
    forerun_fuse::parse_size(text).ok_or_else(|| format!("not {EXPECTED}"))
}

/// Formats a size, as in `1.5 GiB`.
pub fn human(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

/// Formats a size, as in `1.5 GiB (1610612736 bytes)`. Small sizes have no unit.
pub fn exact(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_string(),
        0..1024 => format!("{bytes} bytes"),
        _ => format!("{} ({bytes} bytes)", human(bytes)),
    }
}

/// Formats a count with its noun, as in `1 file` and `16,310 files`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(n), if n == 1 { one } else { many })
}

/// Converts the length of a list to a count.
pub fn count_of(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(0, "file", "files"), "0 files");
        assert_eq!(counted(16_310, "file", "files"), "16,310 files");
    }

    #[test]
    fn for_people() {
        assert_eq!(exact(1), "1 byte");
        assert_eq!(exact(1023), "1023 bytes");
        assert_eq!(exact(250 << 20), "250.0 MiB (262144000 bytes)");
    }
}
