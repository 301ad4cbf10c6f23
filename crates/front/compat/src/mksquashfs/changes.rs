//! Owners and times of a new image.

use std::time::{SystemTime, UNIX_EPOCH};

use forerun::build::{Owners, Times, Tree};
use forerun::vfs::Timestamp;

use super::call::MakeCall;
use super::{MakeEnded, stop};

/// The times that options and the environment set.
pub struct MakeTimes {
    /// The time of the superblock, where one is set.
    image: Option<u32>,
    all: Option<u32>,
    /// Later times are set to this.
    latest: Option<u32>,
    now: u32,
}

impl MakeTimes {
    /// Reads `SOURCE_DATE_EPOCH`, which options for the same contradict.
    pub fn new(call: &MakeCall) -> MakeEnded<Self> {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = elapsed.map_or(0, |elapsed| elapsed.as_secs());
        let latest = match std::env::var_os("SOURCE_DATE_EPOCH") {
            None => None,
            Some(_) if call.mkfs_time.is_some() || call.all_time.is_some() => {
                return stop(
                    "FATAL ERROR: SOURCE_DATE_EPOCH and command line options can't be used at the same time to set timestamp(s)",
                );
            }
            Some(value) => match value.to_str().and_then(|text| text.parse().ok()) {
                Some(seconds) => Some(seconds),
                None => return stop("Env Var SOURCE_DATE_EPOCH has invalid time value"),
            },
        };
        Ok(Self {
            image: call.mkfs_time.or(latest),
            all: call.all_time,
            latest,
            now: u32::try_from(now).unwrap_or(u32::MAX),
        })
    }

    /// Returns the time of the superblock.
    pub fn of_image(&self) -> u32 {
        self.image.unwrap_or(self.now)
    }

    /// Returns the time of entries that have none of their own.
    pub fn now(&self) -> Timestamp {
        at(self.now)
    }
}

fn at(seconds: u32) -> Timestamp {
    Timestamp {
        seconds: seconds.into(),
        nanoseconds: 0,
    }
}

/// Changes the tree as options say.
pub fn apply(call: &MakeCall, times: &MakeTimes, tree: &mut Tree) {
    let root = tree.node_mut(Tree::ROOT);
    root.mode = call.root_mode.unwrap_or(root.mode);
    root.uid = call.root_uid.unwrap_or(root.uid);
    root.gid = call.root_gid.unwrap_or(root.gid);
    root.mtime = call.root_time.map_or(root.mtime, at);
    let owners = Owners {
        uid: call.uid,
        gid: call.gid,
        ..Owners::default()
    };
    owners.apply(tree);
    let times = Times {
        all: times.all.map(at),
        latest: times.latest.map(at),
    };
    times.apply(tree);
    if !call.hard_links {
        tree.separate_links();
    }
}
