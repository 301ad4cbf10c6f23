//! The results of a part: lines that are compared, and remarks on them.

use clap::ValueEnum;

/// A part of the demo, named for the format that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartName {
    /// Requests of 1 KiB against large ones
    Romfs,
    /// Blocks decoded again for each page against once
    Squashfs,
    /// A large file removed: a write for each cluster against one for each sector
    Exfat,
    /// An image behind a link: synchronous against asynchronous readahead
    Link,
    /// A tree listed without and with its metadata read ahead
    Composefs,
}

impl PartName {
    /// All parts, in the order in which they are shown.
    pub const ALL: &'static [Self] = &[
        Self::Romfs,
        Self::Squashfs,
        Self::Exfat,
        Self::Link,
        Self::Composefs,
    ];

    /// Returns the name on the command line and in JSON.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Romfs => "romfs",
            Self::Squashfs => "squashfs",
            Self::Exfat => "exfat",
            Self::Link => "link",
            Self::Composefs => "composefs",
        }
    }

    /// Returns the heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Romfs => "romfs: many small requests, or few large ones",
            Self::Squashfs => "SquashFS: each block decoded for every page, or once",
            Self::Exfat => "exFAT: each freed cluster written, or each sector once",
            Self::Link => "An image behind a link: waiting for each fetch, or reading ahead",
            Self::Composefs => "composefs: metadata read as it is needed, or ahead",
        }
    }

    /// Returns what is counted beside the time.
    pub const fn counts(self) -> &'static str {
        match self {
            Self::Romfs | Self::Composefs => "requests",
            Self::Squashfs => "decodes",
            Self::Exfat => "writes",
            Self::Link => "fetches",
        }
    }

    /// Returns the figures of the work on Linux that the part shows from userspace.
    pub const fn original(self) -> Original {
        let (before, after, unit, text) = match self {
            Self::Romfs => (
                60.0,
                22.0,
                "s",
                "the option largeblocks: md5sum of a file of 250 MB, on an i.MX6 with eMMC",
            ),
            Self::Squashfs => (
                39.0,
                1.8,
                "s",
                "readahead in SquashFS: reading pack files of 300 KB, on arm64",
            ),
            Self::Exfat => (
                32_775.0,
                13.0,
                "writes",
                "exFAT: rm of a file of 4 GB with dirsync, on an SD card",
            ),
            Self::Link => (
                202_654.0,
                407_213.0,
                "KB/s",
                "EROFS on demand: synchronous, then asynchronous readahead (ext4: 439,912)",
            ),
            Self::Composefs => (
                523.0,
                404.0,
                "ms",
                "composefs: ls -lR without, then with its metadata read ahead",
            ),
        };
        Original {
            before,
            after,
            unit,
            text,
        }
    }
}

/// Figures of the work on Linux.
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// The figure before that work.
    pub before: f64,
    /// The figure after it.
    pub after: f64,
    /// The unit of both.
    pub unit: &'static str,
    /// The work, and the machine.
    pub text: &'static str,
}

impl Original {
    /// Returns by how many times the figure became better.
    pub fn gain(&self) -> f64 {
        match self.unit {
            "KB/s" => self.after / self.before,
            _ => self.before / self.after,
        }
    }
}

/// The role of a line in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRole {
    /// The way without what the part shows.
    Legacy,
    /// forerun.
    Ours,
    /// A limit, or another reader.
    Reference,
}

impl RowRole {
    /// Returns the name in JSON and in the classes of the page.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Ours => "ours",
            Self::Reference => "reference",
        }
    }
}

/// A measured line.
#[derive(Clone, Debug)]
pub struct Row {
    /// Stable name for JSON.
    pub id: &'static str,
    /// Its role.
    pub role: RowRole,
    /// The name of the line, for people.
    pub what: String,
    /// Seconds that all of the work takes.
    pub seconds: f64,
    /// The count for all of the work; nothing where nothing is counted.
    pub count: Option<u64>,
    /// Whether the work was stopped before its end, and figures are extrapolated.
    pub extrapolated: bool,
}

/// The measurements of a part.
#[derive(Clone, Debug)]
pub struct DemoPart {
    /// Its name.
    pub name: PartName,
    /// The work, in a sentence.
    pub what: String,
    /// The lines, the legacy one first.
    pub rows: Vec<Row>,
    /// Remarks on the figures.
    pub notes: Vec<String>,
    /// Work that this machine or user cannot do.
    pub left_out: Vec<String>,
}

impl DemoPart {
    /// Creates a part without lines.
    pub fn new(name: PartName, what: impl Into<String>) -> Self {
        Self {
            name,
            what: what.into(),
            rows: Vec::new(),
            notes: Vec::new(),
            left_out: Vec::new(),
        }
    }

    /// Returns the comparison in a sentence, as in `forerun: 150 times as fast`. Nothing where a line is
    /// missing.
    pub fn summary(&self) -> Option<String> {
        let of = |role| self.rows.iter().find(|row| row.role == role);
        let (legacy, ours) = (of(RowRole::Legacy)?, of(RowRole::Ours)?);
        let faster = times(legacy.seconds / ours.seconds.max(1e-9));
        let mut text = format!("forerun: {faster} times as fast");
        if let (Some(before), Some(after)) = (legacy.count, ours.count) {
            let (before, after) = (grouped(before), grouped(after));
            let counts = self.name.counts();
            text += &format!(", {after} {counts} in place of {before}");
        }
        Some(text)
    }

    /// Returns the figures of the work on Linux in a sentence.
    pub fn original(&self) -> String {
        let original = self.name.original();
        let Original {
            before,
            after,
            unit,
            text,
        } = original;
        let (before, after) = (figure(before), figure(after));
        let gain = times(original.gain());
        format!("Linux: {before} -> {after} {unit}, {gain} times better; {text}")
    }

    /// Returns the remarks, with the one on extrapolation where a line needs it.
    pub fn all_notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        if self.rows.iter().any(|row| row.extrapolated) {
            let counts = self.name.counts();
            notes.push(format!(
                "* stopped after some seconds; time and {counts} are extrapolated"
            ));
        }
        notes
    }
}

/// Formats a factor: few digits, more where it is small.
pub fn times(factor: f64) -> String {
    match factor {
        0.0..10.0 => format!("{factor:.1}"),
        _ => figure(factor.round()),
    }
}

/// Formats a time for a table.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        0.0..0.01 => format!("{seconds:.4} s"),
        0.0..0.1 => format!("{seconds:.3} s"),
        _ => format!("{seconds:.2} s"),
    }
}

/// Formats a number with groups of three digits.
pub fn grouped(n: u64) -> String {
    indicatif::HumanCount(n).to_string()
}

/// Formats a figure: whole numbers in groups of three digits, others as they are.
#[allow(clippy::as_conversions)] // Whole numbers lose nothing; the guard lets no others in.
fn figure(n: f64) -> String {
    match n {
        n if n >= 0.0 && n.fract().abs() < 1e-9 => grouped(n as u64),
        n => format!("{n}"),
    }
}

/// Returns `a / b` for display.
#[allow(clippy::as_conversions)] // For display; no integer of this size loses what is shown of it.
pub fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}

/// Returns `n`, counted for `done` of `total`, for all of `total`.
pub fn extrapolate(n: u64, total: u64, done: u64) -> u64 {
    let all = u128::from(n) * u128::from(total) / u128::from(done.max(1));
    u64::try_from(all).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(role: RowRole, seconds: f64, count: u64) -> Row {
        Row {
            id: "x",
            role,
            what: "x".into(),
            seconds,
            count: Some(count),
            extrapolated: role == RowRole::Legacy,
        }
    }

    #[test]
    fn the_comparison_in_a_sentence() {
        let mut part = DemoPart::new(PartName::Romfs, "Reads.");
        assert_eq!(part.summary(), None);
        part.rows.push(row(RowRole::Legacy, 42.0, 256_000));
        part.rows.push(row(RowRole::Ours, 0.25, 68));
        let expected = "forerun: 168 times as fast, 68 requests in place of 256,000";
        assert_eq!(part.summary().as_deref(), Some(expected));
        assert!(
            part.original()
                .starts_with("Linux: 60 -> 22 s, 2.7 times better; ")
        );
        assert_eq!(part.all_notes().len(), 1);
    }

    #[test]
    fn numbers() {
        assert_eq!(extrapolate(10, 1000, 100), 100);
        assert_eq!(extrapolate(10, 1000, 0), 10_000);
        assert_eq!(times(2.04), "2.0");
        assert_eq!(times(2521.4), "2,521");
        assert_eq!(seconds(0.002), "0.0020 s");
        assert_eq!(seconds(12.345), "12.35 s");
        assert_eq!(PartName::Link.original().gain().round(), 2.0);
    }
}
