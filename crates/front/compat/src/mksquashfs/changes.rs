//! Owners, modes, attributes and times of a new image.

use std::time::{SystemTime, UNIX_EPOCH};

use forerun::build::{NodeKind, Owners, Times, Tree, XattrFilter, shift_owners};
use forerun::vfs::Timestamp;

use super::call::{MakeCall, MakeTime};
use super::{MakeEnded, stop};

/// The times that options and the environment set.
pub struct MakeTimes {
    image: MakeTime,
    /// The time of entries without their own.
    unset: MakeTime,
    /// Upper bound: later times are set to this.
    latest: Option<u32>,
}

impl MakeTimes {
    /// Reads `SOURCE_DATE_EPOCH`, which excludes options for the same times.
    pub fn new(call: &MakeCall) -> MakeEnded<Self> {
        let is_set = |time| matches!(time, Some(MakeTime::Seconds(_)));
        let latest = match std::env::var_os("SOURCE_DATE_EPOCH") {
            None => None,
            Some(_) if is_set(call.mkfs_time) || is_set(call.all_time) => {
                return stop(
                    "FATAL ERROR: SOURCE_DATE_EPOCH and command line options can't be used at the same time to set timestamp(s)",
                );
            }
            Some(value) => match value.to_str().and_then(|text| text.parse().ok()) {
                Some(seconds) => Some(seconds),
                None => return stop("Env Var SOURCE_DATE_EPOCH has invalid time value"),
            },
        };
        let given = [call.mkfs_time, call.all_time, call.root_time];
        let now = MakeTime::Seconds(now());
        Ok(Self {
            image: latest
                .map(MakeTime::Seconds)
                .or(call.mkfs_time)
                .unwrap_or(now),
            unset: if given.contains(&Some(MakeTime::Latest)) {
                MakeTime::Latest
            } else {
                now
            },
            latest,
        })
    }

    /// Returns the time of the superblock; `None` means the latest time of the entries.
    pub const fn of_image(&self) -> Option<u32> {
        match self.image {
            MakeTime::Seconds(seconds) => Some(seconds),
            MakeTime::Latest => None,
        }
    }

    /// Returns the time of entries without their own.
    pub fn unset(&self, tree: &Tree) -> Timestamp {
        self.unset.of(tree)
    }
}

impl MakeTime {
    fn of(self, tree: &Tree) -> Timestamp {
        let seconds = match self {
            Self::Seconds(seconds) => seconds.into(),
            Self::Latest => {
                let times = tree.nodes().map(|node| node.mtime.seconds);
                times.max().unwrap_or(0).max(0)
            }
        };
        Timestamp {
            seconds,
            nanoseconds: 0,
        }
    }
}

/// Returns the current time in seconds since 1970.
pub fn now() -> u32 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = elapsed.map_or(0, |elapsed| elapsed.as_secs());
    u32::try_from(now).unwrap_or(u32::MAX)
}

/// Changes the tree before definitions are applied.
pub fn begin(call: &MakeCall, tree: &mut Tree) -> MakeEnded<()> {
    let [include, exclude] =
        [&call.xattrs_include, &call.xattrs_exclude].map(|expression| expression.as_deref());
    XattrFilter::new(include, exclude)?.apply(tree);
    if !call.hard_links {
        tree.separate_links();
    }
    if call.definitions_last {
        change_owners_and_modes(call, tree);
    }
    Ok(())
}

/// Changes the whole tree after all definitions.
pub fn finish(call: &MakeCall, times: &MakeTimes, tree: &mut Tree) -> MakeEnded<()> {
    if !call.definitions_last {
        change_owners_and_modes(call, tree);
    }
    for (name, value) in &call.xattrs_add {
        let is_of_user = name.starts_with(b"user.");
        for node in tree.nodes_mut() {
            if !is_of_user || matches!(node.kind, NodeKind::File { .. } | NodeKind::Directory(_)) {
                node.xattrs.insert(name.clone(), value.clone());
            }
        }
    }
    if !shift_owners(tree, call.owner_offset, call.owner_offset) {
        return stop("FATAL ERROR: -uid-gid-offset: an owner is above 4294967295");
    }
    if let Some(time) = call.root_time {
        tree.node_mut(Tree::ROOT).mtime = time.of(tree);
    }
    let at = |seconds| MakeTime::Seconds(seconds).of(tree);
    let times = Times {
        all: call.all_time.map(|time| time.of(tree)),
        latest: times.latest.map(at),
    };
    times.apply(tree);
    Ok(())
}

fn change_owners_and_modes(call: &MakeCall, tree: &mut Tree) {
    let root = tree.node_mut(Tree::ROOT);
    if let (Some(change), None) = (&call.root_mode, &call.dir_mode) {
        root.mode = change.apply(root.mode, true);
    }
    root.uid = call.root_uid.unwrap_or(root.uid);
    root.gid = call.root_gid.unwrap_or(root.gid);
    let owners = Owners {
        uid: call.uid,
        gid: call.gid,
        ..Owners::default()
    };
    owners.apply(tree);
    for node in tree.nodes_mut() {
        let is_dir = matches!(node.kind, NodeKind::Directory(_));
        let change = if is_dir {
            &call.dir_mode
        } else {
            &call.file_mode
        };
        if let Some(change) = change {
            node.mode = change.apply(node.mode, is_dir);
        }
    }
}
