//! SquashFS: entries of 8 bytes, each followed by a name. Inodes are addressed by their location.

use super::{Field, Hostile, LIES, Patch, VICTIM, absurd, index};

const FIELDS: [Field; 14] = [
    (4, 4, "inodes"),
    (12, 4, "block size"),
    (16, 4, "fragments"),
    (20, 2, "compressor"),
    (22, 2, "block log"),
    (26, 2, "ids"),
    (32, 8, "root inode"),
    (40, 8, "bytes used"),
    (48, 8, "id table"),
    (56, 8, "xattr table"),
    (64, 8, "inode table"),
    (72, 8, "directory table"),
    (80, 8, "fragment table"),
    (88, 8, "export table"),
];

pub fn lies(sound: &[u8]) -> Vec<Hostile> {
    let mut out = absurd(sound, &FIELDS, |_| ());
    for (name, lie) in LIES {
        let mut patch = Patch::of(sound);
        let at = entry(&patch, name);
        patch.set(at + 8, lie.as_bytes());
        out.push(patch.told(format!("the name {lie:?}")).must_be_found(true));
    }
    for size in [u32::MAX, 1 << 31, 0] {
        let mut patch = Patch::of(sound);
        let at = inode_of(&patch, "victim");
        assert_eq!(patch.u32(at + 28), VICTIM, "a basic file");
        patch.set(at + 28, &size.to_le_bytes());
        out.push(patch.told(format!("a file of {size} bytes")));
    }
    let mut patch = Patch::of(sound);
    let file = inode_of(&patch, "victim");
    patch.set(file + 32, &u32::MAX.to_le_bytes());
    out.push(patch.told("a block of 4 GiB"));
    let mut patch = Patch::of(sound);
    patch.set(file + 16, &u32::MAX.to_le_bytes());
    out.push(patch.told("data behind the end"));
    let mut patch = Patch::of(sound);
    let dir = inode_of(&patch, "loopdir");
    patch.set(dir + 24, &u16::MAX.to_le_bytes());
    out.push(patch.told("a listing that goes past its table"));
    let mut patch = Patch::of(sound);
    let root = patch.bytes::<2>(32);
    let at = entry(&patch, "loopdir");
    patch.set(at, &root);
    out.push(patch.told("the root below itself"));
    let mut patch = Patch::of(sound);
    let run = entry(&patch, "linkk") - 12;
    patch.set(run, &u32::MAX.to_le_bytes());
    out.push(patch.told("a run of 4 billion entries"));
    out
}

/// Finds the entry with this name: offset of the inode, number, kind, length of the name minus one,
/// name.
fn entry(patch: &Patch, name: &str) -> usize {
    let len = u16::try_from(name.len() - 1).expect("a name");
    let wanted = [&len.to_le_bytes(), name.as_bytes()].concat();
    // Times of inodes may contain the same bytes.
    let listings = index(patch.u64(72));
    let mut found = patch.find_all(&wanted);
    found.retain(|at| *at >= listings);
    assert_eq!(found.len(), 1, "{name:?} at {found:?}");
    found[0] - 6
}

/// Finds the inode with this name. All inodes are in the first block, after the two bytes of its
/// length.
fn inode_of(patch: &Patch, name: &str) -> usize {
    let offset = patch.u16(entry(patch, name));
    index(patch.u64(64)) + 2 + usize::from(offset)
}
