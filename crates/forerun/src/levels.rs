//! Compression levels of each format.

use std::ops::RangeInclusive;

/// Levels and the default by format and compressor. Compressors that are not listed have no levels.
const LEVELS: [(&str, &str, RangeInclusive<u8>, u8); 6] = [
    ("squashfs", "gzip", 1..=9, 9),
    ("squashfs", "zstd", 1..=22, 15),
    ("erofs", "lz4hc", 1..=12, 9),
    ("erofs", "lzma", 0..=9, 6),
    ("erofs", "deflate", 1..=12, 6),
    ("erofs", "zstd", 1..=22, 3),
];

/// Returns the level of a compressor in images of a format: `wanted`, or the default; 0 for a
/// compressor without levels.
///
/// # Errors
/// A message if the compressor has no such level.
pub fn compressor_level(format: &str, compressor: &str, wanted: Option<u8>) -> Result<u8, String> {
    let mut levels = LEVELS.iter();
    let found = levels.find(|(of, name, ..)| *of == format && *name == compressor);
    match (found, wanted) {
        (None, None) => Ok(0),
        (None, Some(level)) => Err(format!("level {level}: {compressor} has no levels")),
        (Some((.., default)), None) => Ok(*default),
        (Some((.., range, _)), Some(level)) if range.contains(&level) => Ok(level),
        (Some((.., range, _)), Some(level)) => Err(format!(
            "level {level}: {compressor} has levels from {} to {}",
            range.start(),
            range.end()
        )),
    }
}
