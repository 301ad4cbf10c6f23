//! The two integer conversions that cannot lose anything, in one place.
//!
//! Everywhere else `as` is linted against: a cast that truncates an image's field is a bug class.

/// Converts a length in memory to a position in a source.
#[must_use]
#[allow(clippy::as_conversions)] // Lossless: no target has addresses over 64 bits.
pub const fn u64_from(n: usize) -> u64 {
    n as u64
}

// On machines with shorter addresses a length could be lost.
const _: () = assert!(usize::BITS == 64, "forerun is for 64-bit machines");

/// Converts a position or a length to an index or a size in memory.
#[must_use]
#[allow(clippy::as_conversions, clippy::cast_possible_truncation)] // Lossless: see above.
pub const fn usize_from(n: u64) -> usize {
    n as usize
}
