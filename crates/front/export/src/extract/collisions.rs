//! Names that differ only in case.
//!
//! Where the target takes them for one name, the second would replace the first or fail; which one
//! is left then would be chance. So they are found before anything is made.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use super::plan::Plan;

/// Filesystems that fold case whatever their flags: FAT, exFAT, NTFS (both drivers), CIFS, SMB 2, HFS,
/// HFS+, and what a virtual machine's host shares.
const FOLDING: [u64; 9] = [
    0x4d44,
    0x2011_bab0,
    0x5346_544e,
    0x7366_746e,
    0xff53_4d42,
    0xfe53_4d42,
    0x4244,
    0x482b,
    0x786f_4256,
];

/// `FS_CASEFOLD_FL` of `linux/fs.h`: a directory of ext4, F2FS or tmpfs that folds case.
const CASEFOLD_FLAG: u32 = 0x4000_0000;

/// A name, and the one before it that it collides with; both as directory index and name.
pub struct Collision {
    pub dir: usize,
    pub path: Vec<u8>,
    pub other: Vec<u8>,
    /// As the plan names it.
    pub name: Vec<u8>,
}

/// Returns whether names in `dir` that differ only in case are one.
pub fn folds_case(dir: &OwnedFd) -> bool {
    let magic = rustix::fs::fstatfs(dir).ok();
    let magic = magic.and_then(|stat| u64::try_from(stat.f_type).ok());
    let by_flag =
        || rustix::fs::ioctl_getflags(dir).is_ok_and(|flags| flags.bits() & CASEFOLD_FLAG != 0);
    magic.is_some_and(|magic| FOLDING.contains(&(magic & 0xffff_ffff))) || by_flag()
}

/// Finds all names of the plan that collide with an earlier one of their directory.
pub fn find(plan: &Plan<'_>) -> Vec<Collision> {
    let mut seen: HashMap<(usize, String), &[u8]> = HashMap::new();
    let mut found = Vec::new();
    for (dir, name, entry) in plan.names() {
        // Bytes that are no text are equal only to themselves, or nearly so: an excess of caution.
        let folded = String::from_utf8_lossy(name).to_lowercase();
        let first = *seen.entry((dir, folded)).or_insert(name);
        if first != name {
            let path = entry.map_or(name, |entry| entry.name()).to_vec();
            let parent = path.len().saturating_sub(name.len());
            let other = [path.get(..parent).unwrap_or_default(), first].concat();
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

/// Collects the names, for looking collisions up.
pub fn names(collisions: &[Collision]) -> HashSet<(usize, &[u8])> {
    let names = collisions.iter();
    names.map(|one| (one.dir, one.name.as_slice())).collect()
}
