//! EROFS: sorted entries of 12 bytes followed by all names, and inodes in slots of 32 bytes.

use super::{Field, Hostile, LIES, NAMES, Patch, VICTIM, absurd, index};

const SUPERBLOCK: usize = 1024;

const FIELDS: [Field; 14] = [
    (SUPERBLOCK + 12, 1, "block bits"),
    (SUPERBLOCK + 13, 1, "extension slots"),
    (SUPERBLOCK + 14, 2, "root"),
    (SUPERBLOCK + 16, 8, "inodes"),
    (SUPERBLOCK + 36, 4, "blocks"),
    (SUPERBLOCK + 40, 4, "metadata block"),
    (SUPERBLOCK + 44, 4, "xattr block"),
    (SUPERBLOCK + 80, 4, "features"),
    (SUPERBLOCK + 84, 2, "algorithms"),
    (SUPERBLOCK + 86, 2, "devices"),
    (SUPERBLOCK + 88, 2, "device table"),
    (SUPERBLOCK + 90, 1, "directory block bits"),
    (SUPERBLOCK + 91, 1, "xattr prefixes"),
    (SUPERBLOCK + 96, 8, "packed inode"),
];

pub fn lies(sound: &[u8]) -> Vec<Hostile> {
    let mut sound = Patch::of(sound);
    unseal(&mut sound);
    let sound = sound.image;
    let mut out = absurd(&sound, &FIELDS, |_| ());
    for (name, lie) in LIES {
        let mut patch = Patch::of(&sound);
        let at = Listing::of(&patch).name(name);
        patch.set(at, lie.as_bytes());
        out.push(patch.told(format!("the name {lie:?}")).must_be_found(true));
    }
    let file = inode_of(&Patch::of(&sound), "victim");
    let is_extended = sound[file] & 1 == 1;
    for size in [u64::MAX, 1 << 63 | 1 << 31, 1 << 62 | 0x7fff_ffff, 0] {
        let mut patch = Patch::of(&sound);
        assert_eq!(patch.u32(file + 8), VICTIM, "the size");
        let len = if is_extended { 8 } else { 4 };
        patch.set(file + 8, &size.to_le_bytes()[..len]);
        out.push(patch.told(format!("a file of {size} bytes, cut to the field")));
    }
    for (at, len, what) in [
        (0, 2, "a format of ones"),
        (2, 2, "xattrs of 256 KiB"),
        (16, 4, "data behind the end"),
    ] {
        let mut patch = Patch::of(&sound);
        patch.set(file + at, &[0xff; 4][..len]);
        out.push(patch.told(what));
    }
    for (node, what) in [(root(&sound), "the root"), (u64::MAX, "the last node")] {
        let mut patch = Patch::of(&sound);
        let at = Listing::of(&patch).entry("loopdir");
        patch.set(at, &node.to_le_bytes());
        out.push(patch.told(format!("{what} below the root")));
    }
    let mut patch = Patch::of(&sound);
    let at = Listing::of(&patch).entry("samea");
    patch.set(at + 8, &u16::MAX.to_le_bytes());
    out.push(patch.told("names behind the block"));
    let dir = inode_of(&Patch::of(&sound), "loopdir");
    let mut patch = Patch::of(&sound);
    patch.set(dir + 8, &0x7fff_ffff_u32.to_le_bytes());
    out.push(patch.told("a directory of 2 GiB"));
    out
}

/// Removes the checksum from the superblock's features.
fn unseal(patch: &mut Patch) {
    let features = patch.u32(SUPERBLOCK + 8) & !1;
    patch.set(SUPERBLOCK + 8, &features.to_le_bytes());
}

fn root(image: &[u8]) -> u64 {
    Patch::of(image).u16(SUPERBLOCK + 14).into()
}

fn inode(patch: &Patch, nid: u64) -> usize {
    let blocks = u64::from(patch.u32(SUPERBLOCK + 40)) << patch.image[SUPERBLOCK + 12];
    index(blocks + nid * 32)
}

fn inode_of(patch: &Patch, name: &str) -> usize {
    inode(patch, patch.u64(Listing::of(patch).entry(name)))
}

/// The consecutive entries of the tree's root.
struct Listing {
    /// Offsets of the first entry and of the first name.
    entries: usize,
    names: usize,
}

impl Listing {
    fn of(patch: &Patch) -> Self {
        let names = patch.find(NAMES.concat().as_bytes());
        let is_first = |at: usize| {
            let mut expected = patch.u16(at + 8);
            NAMES.iter().enumerate().all(|(position, name)| {
                let found = patch.u16(at + 12 * position + 8);
                let is_next = found == expected && patch.image[at + 12 * position + 11] == 0;
                expected = found.wrapping_add(u16::try_from(name.len()).expect("a name"));
                is_next
            })
        };
        let nearest = (0..names - 12 * NAMES.len() + 1).rev();
        let mut entries = nearest.filter(|at| at.is_multiple_of(4) && is_first(*at));
        Self {
            entries: entries.next().expect("the entries of the names"),
            names,
        }
    }

    fn position(name: &str) -> usize {
        let found = NAMES.iter().position(|other| *other == name);
        found.expect("a name of the tree")
    }

    fn entry(&self, name: &str) -> usize {
        self.entries + 12 * Self::position(name)
    }

    fn name(&self, name: &str) -> usize {
        self.names + NAMES[..Self::position(name)].concat().len()
    }
}
