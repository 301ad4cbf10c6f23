//! Options that leave entries out of a new image, or change them on the way into it: owners, times,
//! extended attributes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use forerun::build::{IdMap, LineError, Owners, Patterns, Times, Tree, XattrFilter, parse_time};
use forerun::vfs::Timestamp;

use super::format::Keeps;
use crate::error::{Failure, Result};
use crate::values::source_date_epoch;

/// Entries to leave out.
#[derive(Args, Debug)]
pub struct ExcludeArgs {
    /// Leave out what matches, with everything below it
    ///
    /// May be given more than once.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Leave out what matches a line of FILE
    ///
    /// May be given more than once.
    #[arg(help_heading = "Selection", long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub exclude_from: Vec<PathBuf>,
}

impl ExcludeArgs {
    /// Reads and parses the patterns.
    pub fn patterns(&self) -> Result<Patterns> {
        let mut patterns = self.exclude.clone();
        for path in &self.exclude_from {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| Failure::source(&error).of(path.display()))?;
            for (line, number) in text.lines().map(str::trim).zip(1..) {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                // By itself first, for an error that says where the pattern is.
                let place = format!("{}:{number}", path.display());
                Patterns::new([line]).map_err(|error| Failure::from(error).of(place))?;
                patterns.push(line.to_string());
            }
        }
        Ok(Patterns::new(&patterns)?)
    }
}

/// Changes of owners, times and attributes.
#[derive(Args, Debug)]
pub struct ChangeArgs {
    /// Give everything to user 0 and group 0
    #[arg(help_heading = "Owners and times", long, conflicts_with_all = ["force_uid", "force_gid", "uid_map", "uid_map_from", "gid_map", "gid_map_from"])]
    pub all_root: bool,
    /// Give everything to this user
    #[arg(help_heading = "Owners and times", long, value_name = "UID", value_parser = parse_id, conflicts_with_all = ["uid_map", "uid_map_from"])]
    pub force_uid: Option<u32>,
    /// Give everything to this group
    #[arg(help_heading = "Owners and times", long, value_name = "GID", value_parser = parse_id, conflicts_with_all = ["gid_map", "gid_map_from"])]
    pub force_gid: Option<u32>,
    /// Change users FROM and up, COUNT of them (1 where not given), to TO and up; may be given more
    /// than once. The others stay
    #[arg(
        help_heading = "Owners and times",
        long,
        value_name = "FROM:TO[:COUNT]"
    )]
    pub uid_map: Vec<String>,
    /// The same for groups
    #[arg(
        help_heading = "Owners and times",
        long,
        value_name = "FROM:TO[:COUNT]"
    )]
    pub gid_map: Vec<String>,
    /// Change users by the lines of FILE, as in /proc/PID/uid_map
    #[arg(help_heading = "Owners and times", long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub uid_map_from: Vec<PathBuf>,
    /// The same for groups
    #[arg(help_heading = "Owners and times", long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub gid_map_from: Vec<PathBuf>,
    /// Date everything so: seconds since 1970, or as in 2026-01-31 or "2026-01-31 12:00:00", in UTC
    #[arg(help_heading = "Owners and times", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub mtime: Option<Timestamp>,
    /// Date so what is later [default: SOURCE_DATE_EPOCH, where it is set and --mtime is not]
    #[arg(help_heading = "Owners and times", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, conflicts_with = "mtime")]
    pub mtime_clamp: Option<Timestamp>,
    /// Keep no extended attributes
    #[arg(help_heading = "Extended attributes", long, conflicts_with_all = ["xattrs_include", "xattrs_exclude"])]
    pub no_xattrs: bool,
    /// Keep only attributes whose names match, as in '^user\.'
    #[arg(help_heading = "Extended attributes", long, value_name = "REGEX")]
    pub xattrs_include: Option<String>,
    /// Leave out attributes whose names match
    #[arg(help_heading = "Extended attributes", long, value_name = "REGEX")]
    pub xattrs_exclude: Option<String>,
}

/// The changes that were asked for.
#[derive(Debug)]
pub struct Changes {
    owners: Owners,
    times: Times,
    xattrs: XattrFilter,
}

impl ChangeArgs {
    /// Checks them all. A format that keeps none of what would be changed has no use for them. With `of_root`
    /// everything belongs to root, unless an option says otherwise.
    pub fn changes(&self, keeps: Keeps, of_root: bool) -> Result<Changes> {
        let owners = self.first_of_owners().filter(|_| !keeps.owners);
        let times = self.first_of_times().filter(|_| !keeps.times);
        if let Some(flag) = owners.or(times) {
            let lost = if keeps.times {
                "owners"
            } else {
                "owners and times"
            };
            return Err(useless(flag, keeps.format, lost));
        }
        if let Some(flag) = self.first_of_xattrs().filter(|_| !keeps.xattrs) {
            return Err(useless(flag, keeps.format, "extended attributes"));
        }
        let of_root = of_root && self.first_of_owners().is_none();
        let root = (self.all_root || of_root).then_some(0);
        let owners = Owners {
            uid: self.force_uid.or(root),
            gid: self.force_gid.or(root),
            uids: map("--uid-map", &self.uid_map, &self.uid_map_from)?,
            gids: map("--gid-map", &self.gid_map, &self.gid_map_from)?,
        };
        let latest = match (self.mtime_clamp, self.mtime) {
            (Some(time), _) => Some(time),
            (None, Some(_)) => None,
            (None, None) => source_date_epoch()?.map(|seconds| Timestamp {
                seconds,
                nanoseconds: 0,
            }),
        };
        let (include, exclude) = (&self.xattrs_include, &self.xattrs_exclude);
        let mut xattrs = XattrFilter::new(include.as_deref(), exclude.as_deref())?;
        xattrs.none = self.no_xattrs;
        Ok(Changes {
            owners,
            times: Times {
                all: self.mtime,
                latest,
            },
            xattrs,
        })
    }

    fn first_of_times(&self) -> Option<&'static str> {
        let flags = [
            (self.mtime.is_some(), "--mtime"),
            (self.mtime_clamp.is_some(), "--mtime-clamp"),
        ];
        flags
            .into_iter()
            .find_map(|(given, flag)| given.then_some(flag))
    }

    fn first_of_owners(&self) -> Option<&'static str> {
        let flags = [
            (self.all_root, "--all-root"),
            (self.force_uid.is_some(), "--force-uid"),
            (self.force_gid.is_some(), "--force-gid"),
            (!self.uid_map.is_empty(), "--uid-map"),
            (!self.gid_map.is_empty(), "--gid-map"),
            (!self.uid_map_from.is_empty(), "--uid-map-from"),
            (!self.gid_map_from.is_empty(), "--gid-map-from"),
        ];
        flags
            .into_iter()
            .find_map(|(given, flag)| given.then_some(flag))
    }

    fn first_of_xattrs(&self) -> Option<&'static str> {
        let flags = [
            (self.no_xattrs, "--no-xattrs"),
            (self.xattrs_include.is_some(), "--xattrs-include"),
            (self.xattrs_exclude.is_some(), "--xattrs-exclude"),
        ];
        flags
            .into_iter()
            .find_map(|(given, flag)| given.then_some(flag))
    }
}

impl Changes {
    /// Returns whether any extended attribute can be kept: where not, none need to be read.
    pub const fn want_xattrs(&self) -> bool {
        !self.xattrs.none
    }

    pub fn apply(&self, tree: &mut Tree) {
        self.owners.apply(tree);
        self.times.apply(tree);
        self.xattrs.apply(tree);
    }
}

fn useless(flag: &str, format: &str, what: &str) -> Failure {
    Failure::usage(format!(
        "{flag} means nothing here: {format} keeps no {what}"
    ))
}

fn map(flag: &str, ranges: &[String], files: &[PathBuf]) -> Result<IdMap> {
    let mut map = IdMap::default();
    for range in ranges {
        let added = map.add(range);
        added.map_err(|error: LineError| Failure::usage(format!("{flag}: {error}")))?;
    }
    for file in files {
        map.add_file(Path::new(file))?;
    }
    Ok(map)
}

/// Parses a time of an option.
pub fn time(text: &str) -> std::result::Result<Timestamp, String> {
    let expected = "not seconds since 1970 nor a time as in 2026-01-31 or \"2026-01-31 12:00:00\"";
    parse_time(text).ok_or_else(|| expected.to_string())
}

fn parse_id(text: &str) -> std::result::Result<u32, String> {
    let id = text.parse().ok().filter(|&id| id < u32::MAX);
    id.ok_or_else(|| "not a number below 4294967295".to_string())
}
