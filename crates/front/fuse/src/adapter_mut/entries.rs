//! Answers that contain names and attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use forerun_vfs::{FileType, NewNode, NodeId, Result};
use fuser::{
    Errno, Generation, INodeNo, ReplyAttr, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyStatfs, Request,
};

use super::core::{AnsweredEntry, CoreMut, LookupAnswer, now};
use super::known::{Created, Name};
use crate::attr;
use crate::counts::Operation;
use crate::directory::{self, VisitEntries};

/// A constant, because IDs are not reused while the kernel references them.
pub const GENERATION: Generation = Generation(0);

pub fn new_node(req: &Request, kind: FileType, mode: u32, umask: u32) -> NewNode {
    NewNode {
        kind,
        permissions: mode & 0o7777 & !umask,
        owner: (req.uid(), req.gid()),
        time: now(),
    }
}

pub fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub fn statfs(core: &CoreMut, number: u64, reply: ReplyStatfs) {
    match core.noted(Operation::Statfs, number, core.fs().space()) {
        Ok(space) => {
            let (size, name_max) = (space.block_size, core.info.name_max);
            let (blocks, free) = (space.blocks, space.free);
            reply.statfs(blocks, free, free, 0, 0, size, name_max, size);
        }
        Err(errno) => reply.error(errno),
    }
}

pub fn reply_entry(result: Result<AnsweredEntry, Errno>, reply: ReplyEntry) {
    match result {
        Ok(entry) => reply_found(&entry, reply),
        Err(errno) => reply.error(errno),
    }
}

fn reply_found(entry: &AnsweredEntry, reply: ReplyEntry) {
    reply.entry_with_ttls(&entry.attr_ttl, &entry.name_ttl, &entry.attr, GENERATION);
}

pub fn make(
    core: &CoreMut,
    (parent, name): (u64, &[u8]),
    new: &NewNode,
    resent: bool,
    reply: ReplyEntry,
) {
    let made = core.with_room(|| core.create(core.node(parent), name, new, (false, resent)));
    let made = core.changed(Operation::Write, parent, made);
    reply_entry(made, reply);
}

pub fn lookup(core: &CoreMut, thread: u32, parent: u64, name: &[u8], reply: ReplyEntry) {
    let found = core.lookup(thread, core.node(parent), name);
    match core.noted(Operation::Lookup, parent, found) {
        Ok(LookupAnswer::Entry(entry)) => reply_found(&entry, reply),
        // Node ID 0 lets the kernel cache that the name does not exist.
        Ok(LookupAnswer::Missing) => {
            let nobody = attr::unknown(0, fuser::FileType::RegularFile);
            reply.entry(&core.missing_ttl(), &nobody, GENERATION);
        }
        Ok(LookupAnswer::Again) => reply.error(Errno::ESTALE),
        Err(errno) => reply.error(errno),
    }
}

pub fn getattr(core: &CoreMut, thread: u32, number: u64, reply: ReplyAttr) {
    let node = core.node(number);
    match core.noted(Operation::Getattr, number, core.attr_held(node)) {
        Ok(attr) => {
            let is_directory = attr.kind == fuser::FileType::Directory;
            core.case_renames.asked_attributes(thread, is_directory);
            core.drop_aliases(node);
            if core.known.is_dropping() {
                core.known.wait_until_dropped(node);
            }
            reply.attr(&core.ttl(), &attr);
        }
        Err(errno) => reply.error(errno),
    }
}

pub fn readdir(core: &CoreMut, number: u64, offset: u64, mut reply: ReplyDirectory) {
    let listed = list(core, number, offset, &mut |entry| {
        let name = OsStr::from_bytes(&entry.name);
        reply.add(INodeNo(entry.number), entry.cookie, entry.kind, name)
    });
    match core.noted(Operation::Readdir, number, listed) {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub fn readdirplus(core: &CoreMut, number: u64, offset: u64, mut reply: ReplyDirectoryPlus) {
    let _until_counted = core.known.looking();
    let dir = core.node(number);
    let listed = list(core, number, offset, &mut |entry| {
        plus(core, dir, entry, &mut reply)
    });
    match core.noted(Operation::Readdirplus, number, listed) {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn list(
    core: &CoreMut,
    number: u64,
    cookie: u64,
    add: &mut dyn FnMut(&directory::ListedEntry) -> bool,
) -> Result<()> {
    let number_of = |node| core.known.numbers.number(node);
    let dir = (number, core.node(number));
    let read_dir = |dir, from, visit: VisitEntries<'_>| core.volume.read_dir(dir, from, visit);
    directory::list(&read_dir, &number_of, dir, cookie, add)
}

/// Adds an entry with attributes. Returns true if the reply is full.
fn plus(
    core: &CoreMut,
    dir: NodeId,
    entry: &directory::ListedEntry,
    reply: &mut ReplyDirectoryPlus,
) -> bool {
    let name = OsStr::from_bytes(&entry.name);
    let child = entry.node.filter(|_| entry.is_child());
    let attr = child.map(|node| core.attr(node));
    let (Some(node), Some(Ok(attr))) = (child, attr) else {
        // With node ID 0 the kernel does not cache the node or count a reference.
        let unknown = attr::unknown(entry.number, entry.kind);
        let (ino, ttl) = (INodeNo(0), Duration::ZERO);
        return reply.add(ino, entry.cookie, name, &ttl, &unknown, GENERATION);
    };
    core.volume.observer().name(node.0, dir.0, &entry.name);
    let told = Name::new(dir, &entry.name);
    let is_directory = attr.kind == fuser::FileType::Directory;
    let alias = !is_directory && core.known.is_alias(node, &told);
    let ttl = if alias {
        Duration::ZERO
    } else {
        core.name_ttl()
    };
    if reply.add(attr.ino, entry.cookie, name, &ttl, &attr, GENERATION) {
        return true;
    }
    core.known.told(node, told, Created::of(&attr));
    false
}
