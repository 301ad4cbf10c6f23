//! SETATTR: from what the kernel sends to what a driver changes.

use std::time::SystemTime;

use forerun_vfs::{Changes, Error, NodeId, Result};
use fuser::{Errno, FileAttr, TimeOrNow};

use super::core::{CoreMut, now, timestamp};
use crate::attr::system_time;
use crate::counts::Operation;

/// The attributes that a request sets, as far as volumes keep them. The time of last change of the
/// inode is the front end's own, see [`Known`](super::known::Known).
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
    pub created: Option<SystemTime>,
}

/// Makes the changes that are asked for, and returns the attributes after them.
pub fn setattr(core: &CoreMut, number: u64, wanted: &Wanted) -> Result<FileAttr, Errno> {
    // For fchmod(2) the kernel gives no handle along. A lost node is ESTALE then, for which the kernel looks up the path of chmod(2) again.
    let node = core.node(number);
    if !core.info.has_owners && (wanted.uid.is_some() || wanted.gid.is_some()) {
        let is = core.noted(Operation::Write, number, core.attr(node))?;
        // Owners are the mount's, and stay.
        if wanted.uid.is_some_and(|uid| uid != is.uid)
            || wanted.gid.is_some_and(|gid| gid != is.gid)
        {
            return Err(Errno::EPERM);
        }
    }
    let time = |time: Option<TimeOrNow>| {
        time.map(|time| match time {
            TimeOrNow::Now => now(),
            TimeOrNow::SpecificTime(time) => timestamp(time),
        })
    };
    let owners = core.info.has_owners;
    let changes = Changes {
        size: wanted.size,
        permissions: wanted.mode.map(|mode| mode & 0o7777),
        uid: wanted.uid.filter(|_| owners),
        gid: wanted.gid.filter(|_| owners),
        accessed: time(wanted.accessed),
        // Changing the length changes the contents.
        modified: time(wanted.modified).or_else(|| wanted.size.map(|_| now())),
        created: wanted.created.map(timestamp),
    };
    core.changed(Operation::Write, number, change(core, node, &changes))
}

fn change(core: &CoreMut, node: NodeId, changes: &Changes) -> Result<FileAttr, Error> {
    if *changes != Changes::default() {
        match core.with_room(|| core.volume.change(node, changes)) {
            Err(Error::StaleNode(stale)) => {
                let changed = change_remains(core, node, changes);
                return changed.ok_or(Error::StaleNode(stale));
            }
            changed => changed?,
        };
    }
    core.inode_changed(node);
    core.attr_held(node)
}

/// Changes the times of a node that only the kernel holds: a directory without a name.
fn change_remains(core: &CoreMut, node: NodeId, changes: &Changes) -> Option<FileAttr> {
    let mut attr = core.known.remains(node)?;
    attr.mtime = changes.modified.map_or(attr.mtime, system_time);
    attr.atime = changes.accessed.map_or(attr.atime, system_time);
    attr.ctime = SystemTime::now();
    core.known.removed(node, attr);
    Some(attr)
}
