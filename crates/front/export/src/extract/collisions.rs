//! Finds names that differ only in case.
//!
//! On a case-insensitive target the second name would replace the first or fail, in an order that
//! depends on timing. So collisions are found before anything is created.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::plan::Plan;

/// A name and the earlier name that it collides with.
pub struct Collision {
    pub dir: usize,
    pub path: Vec<u8>,
    pub other: Vec<u8>,
    pub name: Vec<u8>,
}

/// Returns whether `dir` is case-insensitive: creates a file, looks it up in lower case, and
/// deletes it. The filesystem type would not tell, for instance behind FUSE or a network.
pub fn folds_case(dir: &OwnedFd) -> bool {
    let pid = std::process::id();
    for attempt in 0..16 {
        let name = format!(".forerun-Case-{pid}-{attempt}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, &*name, flags, Mode::RUSR) {
            Ok(_) => {}
            Err(Errno::EXIST) => continue,
            // Nothing can be created here, so nothing can collide.
            Err(_) => return false,
        }
        let found = rustix::fs::statat(dir, name.to_lowercase(), AtFlags::SYMLINK_NOFOLLOW);
        let _it_was_made_here = rustix::fs::unlinkat(dir, &*name, AtFlags::empty());
        return found.is_ok();
    }
    false
}

pub fn find(plan: &Plan<'_>) -> Vec<Collision> {
    // Store names only for hashes that occur twice: there may be millions of names and almost never
    // a collision.
    let state = RandomState::new();
    let (mut hashes, mut repeated) = (HashSet::new(), HashSet::new());
    for (dir, name, _) in plan.names() {
        let hash = state.hash_one((dir, folded(name)));
        if !hashes.insert(hash) {
            repeated.insert(hash);
        }
    }
    drop(hashes);
    let mut found = Vec::new();
    if repeated.is_empty() {
        return found;
    }
    let mut seen: HashMap<(usize, String), &[u8]> = HashMap::new();
    for (dir, name, entry) in plan.names() {
        let key = (dir, folded(name));
        if !repeated.contains(&state.hash_one(&key)) {
            continue;
        }
        let first = *seen.entry(key).or_insert(name);
        if first != name {
            let path = entry.map_or(name, |entry| entry.name()).to_vec();
            let parent = path.strip_suffix(name).unwrap_or_default();
            let other = [parent, first].concat();
            found.push(Collision {
                dir,
                path,
                other,
                name: name.to_vec(),
            });
        }
    }
    found
}

/// Returns a name in lower case. All bytes that are not UTF-8 become the same character, so such
/// names may collide falsely.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}
