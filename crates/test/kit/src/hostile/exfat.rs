//! exFAT: entry sets of 32-byte entries with a checksum per set, a FAT, two boot regions.

use super::{Field, Hostile, LIES, Patch, VICTIM, absurd, index};

const FIELDS: [Field; 11] = [
    (72, 8, "volume length"),
    (80, 4, "FAT offset"),
    (84, 4, "FAT length"),
    (88, 4, "heap offset"),
    (92, 4, "clusters"),
    (96, 4, "root"),
    (104, 2, "revision"),
    (108, 1, "sector shift"),
    (109, 1, "cluster shift"),
    (110, 1, "FATs"),
    (106, 2, "flags"),
];

/// Offsets in an entry set, which starts with the file entry: the stream extension, and the name.
const STREAM: usize = 32;
const NAME: usize = 64;

pub fn lies(sound: &[u8]) -> Vec<Hostile> {
    let mut out = absurd(sound, &FIELDS, seal);
    // exFAT has no symbolic links.
    for (name, lie) in LIES.into_iter().filter(|(_, lie)| *lie != "linkk") {
        let mut patch = Patch::of(sound);
        let set = set_of(&patch, name);
        let units: Vec<u8> = lie.encode_utf16().flat_map(u16::to_le_bytes).collect();
        patch.set(set + NAME + 2, &units);
        finish(&mut patch, set);
        out.push(patch.told(format!("the name {lie:?}")).must_be_found(true));
    }
    let file = set_of(&Patch::of(sound), "victim");
    for size in [u64::MAX, 1 << 63, i64::MAX.unsigned_abs(), 1 << 40] {
        for (at, what) in [(8, "valid bytes"), (24, "bytes"), (0, "of both")] {
            let mut patch = Patch::of(sound);
            assert_eq!(patch.u64(file + STREAM + 24), u64::from(VICTIM));
            for at in [8, 24].into_iter().filter(|&field| at == 0 || field == at) {
                patch.set(file + STREAM + at, &size.to_le_bytes());
            }
            finish(&mut patch, file);
            out.push(patch.told(format!("a file of {size:#x} {what}")));
        }
    }
    let dir = set_of(&Patch::of(sound), "loopdir");
    let root = Patch::of(sound).u32(96);
    for (set, first, what) in [
        (dir, root, "the root below itself"),
        (dir, 0, "a directory without clusters"),
        (file, u32::MAX, "a file behind the end"),
        (file, 1, "a file before the heap"),
    ] {
        let mut patch = Patch::of(sound);
        patch.set(set + STREAM + 20, &first.to_le_bytes());
        finish(&mut patch, set);
        out.push(patch.told(what));
    }
    // Chains in which every cluster points to itself, to the root, or past the end.
    for (next, what) in [
        (None, "itself"),
        (Some(root), "the root"),
        (Some(u32::MAX - 8), "nowhere"),
    ] {
        let mut patch = Patch::of(sound);
        let sector = 1_usize << patch.image[108];
        let fat = index(patch.u32(80)) * sector;
        for cluster in 2..(patch.u32(92) + 2).min(1000) {
            let next = next.unwrap_or(cluster);
            patch.set(fat + index(cluster) * 4, &next.to_le_bytes());
        }
        // The file is then not contiguous.
        let flags = patch.image[file + STREAM + 1] & !2;
        patch.set(file + STREAM + 1, &[flags]);
        finish(&mut patch, file);
        out.push(patch.told(format!("every cluster leads to {what}")));
    }
    out
}

/// Finds the entry set with this name, which must fit into one name entry.
fn set_of(patch: &Patch, name: &str) -> usize {
    let mut entry = vec![0xC1, 0];
    entry.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
    entry.resize(32, 0);
    patch.find(&entry) - NAME
}

/// Corrects the hash of the name and the checksum of the set.
fn finish(patch: &mut Patch, set: usize) {
    let len = usize::from(patch.image[set + STREAM + 3]);
    let hash = (0..len).fold(0_u16, |hash, at| {
        let unit = patch.u16(set + NAME + 2 + 2 * at);
        // The replacement names are ASCII.
        let upper = if (0x61..=0x7a).contains(&unit) {
            unit - 32
        } else {
            unit
        };
        let [low, high] = upper.to_le_bytes();
        let add = |hash: u16, byte: u8| hash.rotate_right(1).wrapping_add(byte.into());
        add(add(hash, low), high)
    });
    patch.set(set + STREAM + 4, &hash.to_le_bytes());
    let end = set + 32 * (1 + usize::from(patch.image[set + 1]));
    let sum = (set..end)
        .filter(|at| !(set + 2..set + 4).contains(at))
        .fold(0_u16, |sum, at| {
            sum.rotate_right(1).wrapping_add(patch.image[at].into())
        });
    patch.set(set + 2, &sum.to_le_bytes());
}

/// Corrects the checksum of the boot region, and copies it to the backup.
fn seal(patch: &mut Patch) {
    // The image's original sector size, because the stored one may be altered.
    const SECTOR: usize = 512;
    let sum = (0..11 * SECTOR)
        .filter(|at| !matches!(at, 106 | 107 | 112))
        .fold(0_u32, |sum, at| {
            sum.rotate_right(1).wrapping_add(patch.image[at].into())
        });
    patch.set(11 * SECTOR, &sum.to_le_bytes().repeat(SECTOR / 4));
    let region = patch.image[..12 * SECTOR].to_vec();
    patch.set(12 * SECTOR, &region);
}
