//! New owners of files: the same arguments for `extract`, `tar`, `pack` and `convert`.

use std::path::Path;

use clap::Args;
use forerun_export::IdMap;

use crate::error::{Failure, Result};

/// Changes of user and group ids.
#[derive(Args, Debug)]
pub struct OwnerMapArgs {
    /// Map user FROM to TO, or COUNT users from FROM on to the users from TO on; repeat for more.
    /// @FILE has lines of "FROM TO COUNT", as in /proc/PID/uid_map
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        value_name = "FROM:TO[:COUNT]|@FILE",
        hide_short_help = true
    )]
    pub uid_map: Vec<String>,
    /// Map groups, as --uid-map maps users
    #[arg(
        help_heading = "Owners, times and attributes",
        long,
        value_name = "FROM:TO[:COUNT]|@FILE",
        hide_short_help = true
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
        if let Some(file) = range.strip_prefix('@') {
            map.add_file(Path::new(file))?;
            continue;
        }
        let added = map.add(range);
        added.map_err(|error| Failure::usage(format!("{option}: {error}")))?;
    }
    Ok(map)
}
