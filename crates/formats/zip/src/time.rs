//! Dates and times in the form of MS-DOS (4.4.6): local time, in steps of two seconds.

use forerun_io::u32_from;
use forerun_vfs::{Timestamp, Zone};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Converts a date and a time in the zone `local`. Fields out of range, as in
/// members without a date, mean the first day of 1980.
pub fn of_dos(date: u16, time: u16, local: &Zone) -> Timestamp {
    let moment = civil(date, time).unwrap_or(DateTime::constant(1980, 1, 1, 0, 0, 0, 0));
    let seconds = moment
        .to_zoned(TimeZone::UTC)
        .map_or(0, |zoned| zoned.timestamp().as_second());
    Timestamp {
        seconds: local.to_utc(seconds),
        nanoseconds: 0,
    }
}

fn civil(date: u16, time: u16) -> Option<DateTime> {
    let field =
        |word: u16, shift: u32, bits: u32| i8::try_from((word >> shift) & ((1 << bits) - 1)).ok();
    let year = i16::try_from(1980 + (date >> 9)).ok()?;
    let (month, day) = (field(date, 5, 4)?, field(date, 0, 5)?);
    let (hour, minute, second) = (field(time, 11, 5)?, field(time, 5, 6)?, field(time, 0, 5)?);
    DateTime::new(year, month, day, hour, minute, second.checked_mul(2)?, 0).ok()
}

/// Converts an NTFS time: the number of 100 nanoseconds since 1601.
pub fn of_ntfs(ticks: u64) -> Timestamp {
    /// Seconds from 1601 to 1970.
    const EPOCH: i64 = 11_644_473_600;
    let (seconds, rest) = (ticks / 10_000_000, ticks % 10_000_000);
    Timestamp {
        seconds: seconds.cast_signed() - EPOCH,
        nanoseconds: u32_from(rest * 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments() {
        for (date, time, local, seconds) in [
            (0x0021, 0, 0, 315_532_800),
            // 2024-02-29 23:59:58.
            (0x585d, 0xbf7d, 0, 1_709_251_198),
            (0x585d, 0xbf7d, 60, 1_709_247_598),
            // 2107-12-31 23:59:58.
            (0xff9f, 0xbf7d, 0, 4_354_819_198),
            // No month, the 31st of a short month, the 25th hour.
            (0, 0, 0, 315_532_800),
            (0x585f, 0, 0, 315_532_800),
            (0x585d, 0xffff, 0, 315_532_800),
        ] {
            let found = of_dos(date, time, &Zone::fixed(local));
            assert_eq!(
                found,
                Timestamp {
                    seconds,
                    nanoseconds: 0
                },
                "{date:#x} {time:#x}"
            );
        }
        let found = of_ntfs(133_000_000_000_000_001);
        assert_eq!((found.seconds, found.nanoseconds), (1_655_526_400, 100));
        assert_eq!(of_ntfs(0).seconds, -11_644_473_600);
    }
}
