//! Conversions between lengths in memory and offsets in a source, in one place.
//!
//! Elsewhere `as` is linted against, because a cast that truncates an image's field is a bug.

/// Converts a length in memory to an offset in a source.
#[must_use]
#[allow(clippy::as_conversions)] // Lossless: no target has addresses over 64 bits.
pub const fn u64_from(n: usize) -> u64 {
    n as u64
}

// On a machine with shorter addresses these conversions could truncate.
const _: () = assert!(usize::BITS == 64, "forerun is for 64-bit machines");

/// Converts an offset or a length to an index or a size in memory.
#[must_use]
#[allow(clippy::as_conversions, clippy::cast_possible_truncation)] // Lossless: see above.
pub const fn usize_from(n: u64) -> usize {
    n as usize
}

/// Converts a number of our own that an earlier check has limited to 32 bits.
///
/// # Panics
/// If the number has more bits, so that the check is wrong.
#[must_use]
#[allow(clippy::as_conversions, clippy::cast_possible_truncation)] // Checked here.
#[track_caller]
pub const fn u32_from(n: u64) -> u32 {
    assert!(n >> u32::BITS == 0, "a number of at most 32 bits");
    n as u32
}

/// Converts a number of our own that an earlier check has limited to 16 bits.
///
/// # Panics
/// If the number has more bits, so that the check is wrong.
#[must_use]
#[allow(clippy::as_conversions, clippy::cast_possible_truncation)] // Checked here.
#[track_caller]
pub const fn u16_from(n: u64) -> u16 {
    assert!(n >> u16::BITS == 0, "a number of at most 16 bits");
    n as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_fits_is_kept() {
        assert_eq!(u32_from(u32::MAX.into()), u32::MAX);
        assert_eq!(u16_from(u16::MAX.into()), u16::MAX);
    }

    #[test]
    #[should_panic(expected = "32 bits")]
    fn a_number_of_33_bits_stops() {
        let _ = u32_from(1 << 32);
    }

    #[test]
    #[should_panic(expected = "16 bits")]
    fn a_number_of_17_bits_stops() {
        let _ = u16_from(1 << 16);
    }
}
