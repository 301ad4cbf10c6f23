//! Undo files of repairs: hostile ones, and those of interrupted changes.

use forerun_io::undo_fuzzing;

use super::{Made, named};
use crate::input::random_seeds;

pub use undo_fuzzing::changes;

/// Handles bytes as an undo file, and as the records of one with right checksums.
///
/// # Panics
/// If a refused file changes the volume.
pub fn file(bytes: &[u8]) {
    undo_fuzzing::file(bytes);
    undo_fuzzing::file(&undo_fuzzing::sealed(bytes));
}

/// Builds files with two, three and no records, complete and incomplete.
pub fn file_seeds() -> Made {
    let record = |batch: u8, start: u8, last: u8| {
        let head = [batch, start, 0, 1, 0, 1 | last << 1];
        [&head[..], &[7; 520]].concat()
    };
    let two = [&[2 | 16][..], &record(0, 1, 0), &record(0, 5, 1)].concat();
    let three = [
        &[3][..],
        &record(0, 1, 1),
        &record(1, 2, 0),
        &record(1, 9, 1),
    ]
    .concat();
    let mut seeds = vec![("two", two), ("three", three), ("none", vec![16])];
    let whole = undo_fuzzing::sealed(&seeds[0].1);
    seeds.push(("whole", whole));
    Ok(named(seeds))
}

pub fn change_seeds() -> Made {
    Ok(random_seeds(16, 200))
}
