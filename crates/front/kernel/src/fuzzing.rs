//! Entry points for fuzz targets. Not for users.

use crate::filler::{exercise_events, exercise_ledger};

/// Parses bytes as events of a fanotify group, and as the ledger of a filler that has died.
pub fn reads(bytes: &[u8]) {
    exercise_events(bytes);
    exercise_ledger(bytes);
}

/// Returns an event with a range, and a ledger with a read that waits, as seeds for [`reads`].
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let head = [48_u32.to_ne_bytes(), [3, 0, 24, 0], [0; 4], [0; 4]].concat();
    let file = [7_i32.to_ne_bytes(), 1_i32.to_ne_bytes()].concat();
    let range = [&[6, 0, 24, 0, 0, 0, 0, 0][..], &[0; 16]].concat();
    vec![
        [head, file, range].concat(),
        words(&[0, 0, 0, 0, 1, 4096, 8192, 0, 2, 0, 0, 0]),
    ]
}
