//! Parses times in the formats that people use.

use forerun_vfs::Timestamp;
use jiff::civil;

/// Parses seconds since 1970, with or without a leading `@`, or a date with an optional time of
/// day, as in `2026-01-31`, `2026-01-31 12:00:00` and `2026-01-31T12:00:00+01:00`. The default time
/// zone is UTC. Returns `None` for any other text.
#[must_use]
pub fn parse_time(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(seconds) = text.strip_prefix('@').unwrap_or(text).parse::<i64>() {
        return Some(Timestamp {
            seconds,
            nanoseconds: 0,
        });
    }
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => time,
        Err(_) => {
            let text = text.strip_suffix("UTC").unwrap_or(text).trim_end();
            let civil = text.parse::<civil::DateTime>().ok()?;
            civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()
        }
    };
    // The fraction counts forward, whatever the sign of the seconds.
    let nanoseconds = time.as_nanosecond().rem_euclid(1_000_000_000);
    let seconds = time.as_nanosecond().div_euclid(1_000_000_000);
    Some(Timestamp {
        seconds: i64::try_from(seconds).ok()?,
        nanoseconds: u32::try_from(nanoseconds).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("0", Some((0, 0))),
            ("-5", Some((-5, 0))),
            ("@1700000000", Some((1_700_000_000, 0))),
            ("2023-11-14", Some((1_699_920_000, 0))),
            ("2023-11-14 22:13:20", Some((1_700_000_000, 0))),
            ("2023-11-14 22:13:20 UTC", Some((1_700_000_000, 0))),
            ("2023-11-14T22:13:20Z", Some((1_700_000_000, 0))),
            (
                "2023-11-14T23:13:20.5+01:00",
                Some((1_700_000_000, 500_000_000)),
            ),
            ("1969-12-31T23:59:59.75Z", Some((-1, 750_000_000))),
            ("", None),
            ("now", None),
            ("2023-13-01", None),
        ] {
            let found = parse_time(text).map(|time| (time.seconds, time.nanoseconds));
            assert_eq!(found, expected, "{text}");
        }
    }
}
