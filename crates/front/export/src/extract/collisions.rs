//! Names that differ only in case.
//!
//! Where the target takes them for one name, the second would replace the first or fail; which one
//! is left then would be chance. So they are found before anything is made.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::plan::Plan;

/// A name, and the one before it that it collides with; both as directory index and name.
pub struct Collision {
    pub dir: usize,
    pub path: Vec<u8>,
    pub other: Vec<u8>,
    /// As the plan names it.
    pub name: Vec<u8>,
}

/// Returns whether names in `dir` that differ only in case are one: makes a file, looks for its other case, and removes
/// it. No table of filesystems knows what is behind FUSE or a network.
pub fn folds_case(dir: &OwnedFd) -> bool {
    let pid = std::process::id();
    for attempt in 0..16 {
        let name = format!(".forerun-Case-{pid}-{attempt}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::openat(dir, &*name, flags, Mode::RUSR) {
            Ok(_) => {}
            Err(Errno::EXIST) => continue,
            // Nothing can be made here, so nothing will collide.
            Err(_) => return false,
        }
        let found = rustix::fs::statat(dir, name.to_lowercase(), AtFlags::SYMLINK_NOFOLLOW);
        let _it_was_made_here = rustix::fs::unlinkat(dir, &*name, AtFlags::empty());
        return found.is_ok();
    }
    false
}

/// Finds all names of the plan that collide with an earlier one of their directory.
pub fn find(plan: &Plan<'_>) -> Vec<Collision> {
    // Names are held only where a hash occurs twice: there may be millions, and hardly ever a collision.
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

/// Returns a name without its case. Bytes that are no text are equal only to themselves, or nearly so: an excess of caution.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}
