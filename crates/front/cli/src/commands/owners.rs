//! New owners for files on the way out: the same arguments for `extract` and `tar`.

use clap::Args;
use forerun_export::IdMap;

use crate::error::{Failure, Result};

/// Changes of user and group ids.
#[derive(Args, Debug)]
pub struct OwnerMapArgs {
    /// Change users FROM and up, COUNT of them (1 where not given), to TO and up; may be given more
    /// than once. The others stay
    #[arg(
        help_heading = "Owners and permissions",
        long,
        value_name = "FROM:TO[:COUNT]"
    )]
    pub uid_map: Vec<String>,
    /// The same for groups
    #[arg(
        help_heading = "Owners and permissions",
        long,
        value_name = "FROM:TO[:COUNT]"
    )]
    pub gid_map: Vec<String>,
}

impl OwnerMapArgs {
    /// Converts the arguments into the library's maps: users, then groups.
    pub fn maps(&self) -> Result<(IdMap, IdMap)> {
        Ok((
            map("--uid-map", &self.uid_map)?,
            map("--gid-map", &self.gid_map)?,
        ))
    }
}

fn map(option: &str, ranges: &[String]) -> Result<IdMap> {
    let mut map = IdMap::default();
    for range in ranges {
        let added = map.add(range);
        added.map_err(|error| Failure::usage(format!("{option}: {error}")))?;
    }
    Ok(map)
}
