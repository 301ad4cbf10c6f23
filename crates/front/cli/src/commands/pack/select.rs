//! Options that omit entries from a new image, or change their owners, times and extended
//! attributes.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use forerun::build::{Owners, Patterns, Times, Tree, XattrFilter, parse_time};
use forerun::vfs::Timestamp;

use super::format::Keeps;
use crate::commands::owners::OwnerMapArgs;
use crate::error::{Failure, Result};
use crate::values::source_date_epoch;

/// Entries to leave out.
#[derive(Args, Debug)]
pub struct ExcludeArgs {
    /// Leave out paths that match GLOB; repeat for more
    ///
    /// A directory is left out together with everything below it.
    #[arg(help_heading = "Selection", long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Leave out paths that match a GLOB in FILE, which has one on each line; repeat for more
    #[arg(help_heading = "Selection", long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub exclude_from: Vec<PathBuf>,
}

impl ExcludeArgs {
    pub fn patterns(&self) -> Result<Patterns> {
        let mut patterns = self.exclude.clone();
        for path in &self.exclude_from {
            let text = fs::read_to_string(path);
            let text = text.map_err(|error| Failure::source(&error).of(path.display()))?;
            for (line, number) in text.lines().map(str::trim).zip(1..) {
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                // Parses each pattern alone first, so that an error can name its line.
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
    /// Give everything to this user and group
    ///
    /// UID:GID sets both, UID keeps groups, and :GID keeps users. UID and GID are numbers.
    #[arg(help_heading = "Owners, times and attributes", long, value_name = "UID[:GID]", value_parser = parse_owner)]
    pub owner: Option<Owner>,
    #[command(flatten)]
    pub maps: OwnerMapArgs,
    /// Set all modification times
    ///
    /// TIME is seconds since 1970, or a date such as 2026-01-31 or "2026-01-31 12:00:00" in UTC.
    #[arg(help_heading = "Owners, times and attributes", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub mtime: Option<Timestamp>,
    /// Set later modification times to TIME [default: SOURCE_DATE_EPOCH, unless --mtime is given]
    #[arg(help_heading = "Owners, times and attributes", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true, conflicts_with = "mtime", hide_short_help = true)]
    pub mtime_clamp: Option<Timestamp>,
    /// Leave out extended attributes
    #[arg(help_heading = "Owners, times and attributes", long, conflicts_with_all = ["xattrs_include", "xattrs_exclude"])]
    pub no_xattrs: bool,
    /// Keep only extended attributes whose names match, such as '^user\.'
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        value_name = "REGEX",
        hide_short_help = true
    )]
    pub xattrs_include: Option<String>,
    /// Leave out extended attributes whose names match
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        value_name = "REGEX",
        hide_short_help = true
    )]
    pub xattrs_exclude: Option<String>,
}

/// The owner of all entries, as far as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

#[derive(Debug)]
pub struct Changes {
    owners: Owners,
    times: Times,
    xattrs: XattrFilter,
}

impl ChangeArgs {
    /// Checks all changes. A format that stores none of the changed properties refuses them. With
    /// `of_root`, everything belongs to root unless an option says otherwise.
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
        let owner = match self.owner {
            None if of_root && self.first_of_owners().is_none() => Owner {
                uid: Some(0),
                gid: Some(0),
            },
            owner => owner.unwrap_or(Owner {
                uid: None,
                gid: None,
            }),
        };
        self.refuse_forced(owner)?;
        let (uids, gids) = self.maps.maps()?;
        let owners = Owners {
            uid: owner.uid,
            gid: owner.gid,
            uids,
            gids,
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

    /// Refuses to map ids that are all set to the same one.
    fn refuse_forced(&self, owner: Owner) -> Result<()> {
        let uid = owner.uid.is_some() && !self.maps.uid_map.is_empty();
        let gid = owner.gid.is_some() && !self.maps.gid_map.is_empty();
        let flag = match (uid, gid) {
            (true, _) => "--uid-map",
            (false, true) => "--gid-map",
            (false, false) => return Ok(()),
        };
        let message = format!("{flag} has no effect: --owner gives everything to one owner");
        Err(Failure::usage(message))
    }

    fn first_of_owners(&self) -> Option<&'static str> {
        let flags = [
            (self.owner.is_some(), "--owner"),
            (!self.maps.uid_map.is_empty(), "--uid-map"),
            (!self.maps.gid_map.is_empty(), "--gid-map"),
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
    /// Returns whether any extended attribute is kept. Otherwise they need not be read.
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
    Failure::usage(format!("{flag} has no effect: {format} stores no {what}"))
}

pub fn time(text: &str) -> std::result::Result<Timestamp, String> {
    let expected = "not seconds since 1970 nor a time as in 2026-01-31 or \"2026-01-31 12:00:00\"";
    parse_time(text).ok_or_else(|| expected.to_string())
}

fn parse_owner(text: &str) -> std::result::Result<Owner, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    if uid.is_empty() && gid.is_empty() {
        return Err("neither a user nor a group".to_string());
    }
    Ok(Owner {
        uid: parse_id(uid)?,
        gid: parse_id(gid)?,
    })
}

/// Parses a user or group. An empty text sets none.
fn parse_id(text: &str) -> std::result::Result<Option<u32>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(id) if id < u32::MAX => Ok(Some(id)),
        _ => Err(format!("{text:?} is not a number below 4294967295")),
    }
}
