//! The two integer conversions that cannot lose anything, in one place.
//!
//! Everywhere else `as` is linted against: a cast that truncates an image's field is a bug class.

/// Converts a length in memory to a position in a source.
#[must_use]
#[allow(clippy::as_conversions)] // Lossless: no target has addresses over 64 bits.
pub const fn u64_from(n: usize) -> u64 {
    n as u64
}

/// Converts a length to an allocation size. Saturates where the address space is smaller than 64
/// bits, so that an allocation of that size fails instead of being too short.
#[must_use]
pub fn saturating_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
