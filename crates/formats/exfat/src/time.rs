//! Time stamps: local date and time in steps of two seconds, additional hundredths of a second, and
//! the offset from UTC in quarters of an hour.

use std::time::{SystemTime, UNIX_EPOCH};

use forerun_vfs::{Timestamp, Zone};

/// A time as an entry stores it (7.4.8 to 7.4.10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub word: u32,
    pub hundredths: u8,
    pub offset: u8,
}

const OFFSET_VALID: u8 = 0x80;
const DAY: i64 = 86_400;
/// 1980-01-01 and the end of 2107-12-31, in seconds of local time.
const FIRST: i64 = 315_532_800;
const LAST: i64 = 4_354_819_199;

/// Returns the current time.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(0),
        nanoseconds: since.subsec_nanos(),
    }
}

impl Stamp {
    /// Converts to a time. If the entry has no UTC offset, the zone is `local`. Fields out of range
    /// overflow: the 31st of a short month is a day of the next.
    pub fn to_timestamp(self, local: &Zone) -> Timestamp {
        let field = |shift: u32, bits: u32| i64::from((self.word >> shift) & ((1 << bits) - 1));
        let days = days_from_civil(
            1980 + field(25, 7),
            field(21, 4).max(1),
            field(16, 5).max(1),
        );
        let time = field(11, 5) * 3600 + field(5, 6) * 60 + field(0, 5) * 2;
        let hundredths = u32::from(self.hundredths);
        let seconds = days * DAY + time + i64::from(hundredths / 100);
        Timestamp {
            seconds: match self.offset & OFFSET_VALID {
                0 => local.to_utc(seconds),
                _ => seconds - i64::from(quarters(self.offset)) * 900,
            },
            nanoseconds: hundredths % 100 * 10_000_000,
        }
    }

    /// Returns whether every field is in its range.
    pub fn is_sound(self) -> bool {
        let field = |shift: u32, bits: u32| (self.word >> shift) & ((1 << bits) - 1);
        let (month, day) = (field(21, 4), field(16, 5));
        (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && field(11, 5) < 24
            && field(5, 6) < 60
            && field(0, 5) < 30
            && self.hundredths < 200
    }

    /// Returns `time` in the zone `local`, clamped to the years 1980 to 2107.
    pub fn from_timestamp(time: Timestamp, local: &Zone) -> Self {
        let local = local.minutes_at(time.seconds);
        let quarter = i8::try_from(local / 15).ok();
        let quarter = quarter.filter(|q| (-64..64).contains(q) && local % 15 == 0);
        // An offset that the field cannot store is replaced by UTC (7.4.10.1).
        let quarter = quarter.unwrap_or(0);
        let wanted = time.seconds.saturating_add(i64::from(quarter) * 900);
        let seconds = wanted.clamp(FIRST, LAST);
        let nanoseconds = if seconds == wanted {
            time.nanoseconds
        } else {
            0
        };
        let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
        let (year, month, day) = civil_from_days(days);
        let fields = [
            (year - 1980, 25),
            (month, 21),
            (day, 16),
            (rest / 3600, 11),
            (rest / 60 % 60, 5),
            (rest % 60 / 2, 0),
        ];
        let word = fields.into_iter().fold(0, |word, (value, shift)| {
            word | u32::try_from(value).unwrap_or(0) << shift
        });
        let odd = u32::try_from(rest % 2).unwrap_or(0) * 100;
        let hundredths = odd + nanoseconds.min(999_999_999) / 10_000_000;
        Self {
            word,
            hundredths: u8::try_from(hundredths).unwrap_or(199),
            offset: OFFSET_VALID | quarter.to_le_bytes()[0] & 0x7F,
        }
    }
}

/// Returns whether a time in UTC is in the years 1980 to 2107.
#[cfg(feature = "write")]
pub const fn can_keep(time: Timestamp) -> bool {
    time.seconds >= FIRST && time.seconds <= LAST
}

/// Returns the seven bits of `OffsetFromUtc` as a signed number.
const fn quarters(offset: u8) -> i8 {
    (offset << 1).cast_signed() >> 1
}

/// Returns the days from 1970-01-01 to a Gregorian date, counting years from March.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanoseconds: u32) -> Timestamp {
        Timestamp {
            seconds,
            nanoseconds,
        }
    }

    #[test]
    fn known_moments() {
        // 2026-11-21 15:25:13 UTC, stored in UTC+05:45 and UTC-08:00.
        for local in [0, 345, -480, 60] {
            let time = at(1_795_274_713, 340_000_000);
            let stamp = Stamp::from_timestamp(time, &Zone::fixed(local));
            assert!(stamp.is_sound());
            assert_eq!(stamp.hundredths, 134);
            assert_eq!(stamp.to_timestamp(&Zone::fixed(999)), time, "{local}");
        }
        let stamp = Stamp {
            word: (46 << 25) | (11 << 21) | (21 << 16) | (15 << 11) | (25 << 5) | 6,
            hundredths: 0,
            offset: 0,
        };
        assert_eq!(stamp.to_timestamp(&Zone::default()), at(1_795_274_712, 0));
        assert_eq!(stamp.to_timestamp(&Zone::fixed(60)), at(1_795_271_112, 0));
    }

    #[test]
    fn the_ends_of_the_range() {
        for (seconds, expected) in [
            (i64::MIN, FIRST),
            (0, FIRST),
            (i64::MAX, LAST),
            (LAST, LAST),
        ] {
            let stamp = Stamp::from_timestamp(at(seconds, 0), &Zone::default());
            assert_eq!(stamp.to_timestamp(&Zone::default()).seconds, expected);
            assert!(stamp.is_sound());
        }
        // An offset that is not a multiple of a quarter hour is not stored.
        assert_eq!(
            Stamp::from_timestamp(at(FIRST, 0), &Zone::fixed(7)).offset,
            0x80
        );
        assert_eq!(quarters(0xC0), -64);
        assert_eq!(quarters(0xBF), 63);
    }

    #[test]
    fn every_day() {
        for day in 3652..50_403 {
            let (year, month, of_month) = civil_from_days(day);
            assert_eq!(days_from_civil(year, month, of_month), day);
        }
    }
}
