//! The time zone of stored local times: of exFAT without an offset, and of ZIP.

use jiff::Timestamp as Moment;
use jiff::tz::{Offset, TimeZone};

/// A time zone, with its rules for summer time if it has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

impl Default for Zone {
    /// Returns UTC.
    fn default() -> Self {
        Self(TimeZone::UTC)
    }
}

impl Zone {
    /// Returns the zone `minutes` east of UTC, at most a day either way.
    #[must_use]
    pub fn fixed(minutes: i16) -> Self {
        let offset = Offset::from_seconds(i32::from(minutes) * 60);
        offset.map_or_else(|_| Self::default(), |offset| Self(offset.to_time_zone()))
    }

    /// Returns the zone of a name such as `Europe/Berlin`, with the rules of this system
    /// (`/usr/share/zoneinfo`); nothing if the system has none of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_/".contains(&byte);
        // jiff compares names with a list of the directory, so that none leads out of it. This keeps
        // dots away from it all the same.
        if !name.bytes().all(is_plain) || name.starts_with('/') {
            return None;
        }
        TimeZone::get(name).ok().map(Self)
    }

    /// Returns the seconds since 1970 in UTC at a local time, given as if it were UTC. A local time
    /// that occurs twice is the first of the two; one that is skipped is as if the clock had not been
    /// put forward.
    #[must_use]
    pub fn to_utc(&self, local: i64) -> i64 {
        let moment = Moment::from_second(local).ok();
        let utc = moment.and_then(|moment| {
            let civil = TimeZone::UTC.to_datetime(moment);
            self.0.to_ambiguous_timestamp(civil).compatible().ok()
        });
        utc.map_or(local, Moment::as_second)
    }

    /// Returns the minutes between local time and UTC at a moment, in seconds since 1970.
    #[must_use]
    pub fn minutes_at(&self, utc: i64) -> i16 {
        let moment = Moment::from_second(utc).ok();
        let seconds = moment.map_or(0, |moment| self.0.to_offset(moment).seconds());
        i16::try_from(seconds / 60).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2025-01-01 12:00 and 2025-07-01 12:00, as if they were UTC.
    const WINTER: i64 = 1_735_732_800;
    const SUMMER: i64 = 1_751_371_200;

    #[test]
    fn a_named_zone_has_summer_time() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(berlin.to_utc(WINTER), WINTER - 3600);
        assert_eq!(berlin.to_utc(SUMMER), SUMMER - 7200);
        assert_eq!(berlin.minutes_at(WINTER), 60);
        assert_eq!(berlin.minutes_at(SUMMER), 120);
        let east = Zone::fixed(-90);
        assert_eq!(
            (east.to_utc(SUMMER), east.minutes_at(0)),
            (SUMMER + 5400, -90)
        );
        assert_eq!(Zone::default().to_utc(SUMMER), SUMMER);
    }

    #[test]
    fn local_times_at_the_change_of_the_clock() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        // 2025-03-30 02:30 does not exist; 2025-10-26 02:30 exists twice.
        let (skipped, twice) = (1_743_301_800, 1_761_445_800);
        assert_eq!(berlin.to_utc(skipped), skipped - 3600);
        assert_eq!(berlin.to_utc(twice), twice - 7200);
    }

    #[test]
    fn no_name_leads_out_of_the_zones() {
        for name in [
            "",
            "/etc/localtime",
            "../../../etc/passwd",
            "Europe/../Europe/Berlin",
            "Europe",
            "Europe/Berlin/",
            "No/Such",
            "UTC\0",
        ] {
            assert_eq!(Zone::named(name), None, "{name:?}");
        }
    }
}
