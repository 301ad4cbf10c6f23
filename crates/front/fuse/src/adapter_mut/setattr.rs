//! SETATTR on writable volumes.

use std::time::SystemTime;

use forerun_vfs::{Changes, Error, NodeId, Result};
use fuser::{Errno, FileAttr, TimeOrNow};

use super::core::{CoreMut, now, timestamp};
use crate::attr::system_time;
use crate::counts::Operation;

/// The attributes in a request, as far as volumes store them. [`Known`](super::known::Known) keeps
/// the inode change time.
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

pub fn setattr(core: &CoreMut, number: u64, wanted: &Wanted) -> Result<FileAttr, Errno> {
    // The kernel sends no handle for fchmod(2). A lost node then returns ESTALE, upon which the
    // kernel repeats the lookup for chmod(2).
    let node = core.node(number);
    if !core.info.has_owners && (wanted.uid.is_some() || wanted.gid.is_some()) {
        let is = core.noted(Operation::Write, number, core.attr(node))?;
        // All files belong to the mount's owner; only a change to that owner succeeds.
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
        // Changing the length modifies the contents.
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

/// Changes the times of a directory without a name, which only the kernel still references.
fn change_remains(core: &CoreMut, node: NodeId, changes: &Changes) -> Option<FileAttr> {
    let mut attr = core.known.remains(node)?;
    attr.mtime = changes.modified.map_or(attr.mtime, system_time);
    attr.atime = changes.accessed.map_or(attr.atime, system_time);
    attr.ctime = SystemTime::now();
    core.known.removed(node, attr);
    Some(attr)
}
