//! Columns of listings.

use forerun::vfs::{FileType, Timestamp};
use jiff::tz::TimeZone;

/// Formats a mode, as in `-rwsr-x--t`.
pub fn mode(kind: FileType, mode: u16) -> String {
    let bit = |bit: u16, letter: char| if mode & bit == 0 { '-' } else { letter };
    // The x positions also show setuid, setgid and sticky, in capitals if the x permission is
    // missing.
    let execute = |x: u16, special: u16, letter: char| match (mode & special != 0, mode & x != 0) {
        (true, true) => letter,
        (true, false) => letter.to_ascii_uppercase(),
        (false, _) => bit(x, 'x'),
    };
    String::from_iter([
        kind.letter(),
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        execute(0o100, 0o4000, 's'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        execute(0o010, 0o2000, 's'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        execute(0o001, 0o1000, 't'),
    ])
}

/// Formats local time as `ls --time-style=long-iso` does. Prints the plain number if it is out of
/// the calendar's range.
pub fn time(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(instant) => instant
            .to_zoned(zone.clone())
            .strftime("%Y-%m-%d %H:%M")
            .to_string(),
        Err(_) => format!("@{}", time.seconds),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes() {
        for (kind, bits, expected) in [
            (FileType::Regular, 0o644, "-rw-r--r--"),
            (FileType::Directory, 0o1777, "drwxrwxrwt"),
            (FileType::Regular, 0o4755, "-rwsr-xr-x"),
            (FileType::Regular, 0o7000, "---S--S--T"),
            (FileType::Fifo, 0o2710, "prwx--s---"),
        ] {
            assert_eq!(mode(kind, bits), expected);
        }
    }

    #[test]
    fn times() {
        let at = |seconds| {
            let nanoseconds = 0;
            time(
                Timestamp {
                    seconds,
                    nanoseconds,
                },
                &TimeZone::UTC,
            )
        };
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(-1), "1969-12-31 23:59");
        assert_eq!(at(i64::MAX), "@9223372036854775807");
    }
}
