//! The compressor configurations that follow the superblock.

use forerun_io::usize_from;
use forerun_vfs::Result;

use crate::address::{Address, Space};
use crate::error::Check;
use crate::image::Image;
use crate::superblock::ALGORITHMS;

/// Field names of the format with their values.
pub type Settings = Vec<(&'static str, String)>;

const WHAT: &str = "settings of the compressors";

/// Checks that no compressor configuration lacks a field that its length covers, which readers do
/// not mind.
///
/// # Errors
/// `Corrupt` if one is cut off.
pub fn check_end(image: &Image) -> Result<()> {
    let (_, end) = read(image)?;
    image.inside(end, 0, WHAT, None)
}

/// Reads the fields that this version knows.
///
/// # Errors
/// `Corrupt` if one is missing.
pub fn settings(image: &Image) -> Result<Settings> {
    read(image).map(|(settings, _)| settings)
}

/// Returns the settings and where they end.
fn read(image: &Image) -> Result<(Settings, Address)> {
    let superblock = &image.superblock;
    let mut at = Address {
        space: Space::Image,
        offset: superblock.end(),
    };
    let mut out = Settings::new();
    for (bit, (name, need)) in (0..).zip(ALGORITHMS) {
        if superblock.algorithms & (1 << bit) == 0 {
            continue;
        }
        let mut len = [0; 2];
        image.read(at, &mut len, WHAT, None)?;
        let len = u16::from_le_bytes(len);
        if usize::from(len) < need {
            return Err(Check::CompressorConfig { name, len, need }.at(None, at.offset));
        }
        // A later version may append fields.
        let mut bytes = vec![0; need];
        image.read(at.plus(2), &mut bytes, WHAT, None)?;
        at.offset = at.plus(2 + u64::from(len)).offset.next_multiple_of(4);
        out.push((name, describe(name, &bytes)));
    }
    Ok((out, at))
}

/// Reads a 2-byte length and that many bytes. Advances `at` to the next multiple of four.
pub fn record(image: &Image, at: &mut Address, what: &'static str) -> Result<Vec<u8>> {
    let mut len = [0; 2];
    image.read(*at, &mut len, what, None)?;
    let len = u64::from(u16::from_le_bytes(len));
    let start = at.plus(2);
    image.inside(start, len, what, None)?;
    // At most 64 KiB.
    let mut bytes = vec![0; usize_from(len)];
    image.read(start, &mut bytes, what, None)?;
    at.offset = start.plus(len).offset.next_multiple_of(4);
    Ok(bytes)
}

fn describe(name: &str, bytes: &[u8]) -> String {
    let byte = |at: usize| u32::from(bytes.get(at).copied().unwrap_or(0));
    let word = |at: usize| byte(at) | byte(at + 1) << 8;
    match name {
        "lz4" => format!("max_distance {}, max_pclusterblks {}", word(0), word(2)),
        "lzma" => format!("dict_size {}, format {}", word(0) | word(2) << 16, word(4)),
        "deflate" => format!("windowbits {}", byte(0)),
        _ => format!("format {}, windowlog {}", byte(0), byte(1)),
    }
}
