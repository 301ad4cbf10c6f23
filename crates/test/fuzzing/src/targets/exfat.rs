//! exFAT: entry sets and up-case tables, whole volumes, changes, and repairs.

use forerun_exfat::fuzzing::{self, cluster, mend};

use super::{Made, one};

const ENTRY: usize = 32;

pub use fuzzing::parts;

/// Repairs a volume. The bits of the first eight bytes are the answers.
///
/// # Panics
/// If the repair claims to be complete but `check` finds something.
pub fn repair(bytes: &[u8]) {
    let (answers, image) = bytes.split_first_chunk::<8>().unwrap_or((&[0; 8], bytes));
    let errors = mend(image, u64::from_le_bytes(*answers));
    assert!(errors.is_empty(), "{errors:?}");
}

/// Changes a volume. The first byte is the length of the list of operations, which follows; the
/// rest is the volume.
pub fn operations(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else {
        return;
    };
    if let Some((operations, image)) = rest.split_at_checked(usize::from(count)) {
        fuzzing::operations(operations, image);
    }
}

pub fn images() -> Made {
    one(fuzzing::image())
}

pub fn repair_seeds() -> Made {
    let answers = [
        ("no", 0),
        ("some", 0x5A5A_5A5A_5A5A_5A5A),
        ("yes", u64::MAX),
    ];
    let seeds = answers.map(|(name, answers): (&str, u64)| {
        let bytes = [&answers.to_le_bytes()[..], &fuzzing::image()].concat();
        (name.to_string(), bytes)
    });
    Ok(seeds.into())
}

pub fn part_seeds() -> Made {
    let (image, root) = (fuzzing::image(), cluster(fuzzing::ROOT));
    let seed = |slot: usize| {
        let at = root + slot * ENTRY;
        (format!("set-{slot}"), image[at..at + 3 * ENTRY].to_vec())
    };
    Ok(fuzzing::SLOTS.map(seed).into())
}

pub fn operation_seeds() -> Made {
    let seed = |kind: u8| {
        // Four operations of each kind, in the root, on the first names.
        let operations = (0..4).flat_map(|which| [kind, 0, which, 9]);
        let list: Vec<u8> = std::iter::once(16).chain(operations).collect();
        let bytes = [list, fuzzing::image()].concat();
        (format!("operation-{kind}"), bytes)
    };
    Ok((0..=10).map(seed).collect())
}
