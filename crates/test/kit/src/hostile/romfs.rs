//! romfs: big-endian headers of 16 bytes, each followed by a name, with checksums that add up to
//! zero.

use super::{Hostile, LIES, Patch, VICTIM, index};

const ROOT: usize = 0x20;

pub fn lies(sound: &[u8]) -> Vec<Hostile> {
    let mut out = Vec::new();
    for (name, lie) in LIES {
        let mut patch = Patch::of(sound);
        let at = header(&patch, name);
        patch.set(at + 16, lie.as_bytes());
        seal(&mut patch, at);
        // Each directory has entries with these names, and names end with a NUL.
        let is_usual = matches!(lie, "." | "..") || lie.contains('\0');
        out.push(
            patch
                .told(format!("the name {lie:?}"))
                .must_be_found(!is_usual),
        );
    }
    for size in [u32::MAX, 1 << 31, 0x7fff_ffff] {
        let mut patch = Patch::of(sound);
        let at = header(&patch, "victim");
        assert_eq!(patch.bytes(at + 8), VICTIM.to_be_bytes());
        patch.set(at + 8, &size.to_be_bytes());
        seal(&mut patch, at);
        out.push(patch.told(format!("a file of {size} bytes")));
    }
    let dir = header(&Patch::of(sound), "loopdir");
    for (first, what) in [(ROOT, "the root"), (dir, "itself")] {
        let mut patch = Patch::of(sound);
        patch.set(dir + 4, &word(first));
        seal(&mut patch, dir);
        out.push(patch.told(format!("a directory that begins with {what}")));
    }
    let file = header(&Patch::of(sound), "vi");
    for (next, what) in [(ROOT, "the root"), (file, "itself")] {
        let mut patch = Patch::of(sound);
        let kind = patch.image[file + 3] & 15;
        patch.set(file, &word(next | usize::from(kind)));
        seal(&mut patch, file);
        out.push(patch.told(format!("a file that {what} follows")));
    }
    let mut patch = Patch::of(sound);
    patch.set(file, &[0, 0, 0, patch.image[file + 3] & 15 & !7]);
    patch.set(file + 4, &word(file));
    seal(&mut patch, file);
    out.push(patch.told("a hard link to itself"));
    for size in [u32::MAX, 1 << 31, 0] {
        let mut patch = Patch::of(sound);
        patch.set(8, &size.to_be_bytes());
        sum(&mut patch, 0, 12, 512);
        out.push(patch.told(format!("an image of {size} bytes")));
    }
    out
}

fn header(patch: &Patch, name: &str) -> usize {
    let mut field = name.as_bytes().to_vec();
    field.resize(16, 0);
    let found = patch.find_all(&field);
    let mut found = found.into_iter().filter(|at| at.is_multiple_of(16));
    found.next().expect("the name is there") - 16
}

fn word(offset: usize) -> [u8; 4] {
    u32::try_from(offset).expect("a small image").to_be_bytes()
}

/// Corrects the checksums of a header and of the superblock.
fn seal(patch: &mut Patch, header: usize) {
    sum(patch, header, header + 12, 32);
    sum(patch, 0, 12, 512);
}

fn sum(patch: &mut Patch, start: usize, field: usize, len: usize) {
    patch.set(field, &[0; 4]);
    let end = (start + len).min(patch.image.len());
    let words = patch.image[start..end].chunks_exact(4);
    let sum = words.fold(0_u32, |sum, word| {
        sum.wrapping_add(u32::from_be_bytes(word.try_into().expect("four bytes")))
    });
    patch.set(index(field), &sum.wrapping_neg().to_be_bytes());
}
