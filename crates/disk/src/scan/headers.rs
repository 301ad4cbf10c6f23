//! Headers that come before an image in firmware: legacy headers of U-Boot, and TRX.

use std::ops::Range;

/// Bytes that show whether a header is valid.
pub const HEADER_LEN: usize = 64;
/// First bytes of a legacy header of U-Boot.
pub const UIMAGE: &[u8] = &[0x27, 0x05, 0x19, 0x56];
/// First bytes of a TRX header.
pub const TRX: &[u8] = b"HDR0";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwareHeader {
    /// Bytes of the header and of everything that it covers.
    pub len: u64,
    pub label: Vec<u8>,
    /// The contents, as text.
    pub details: String,
    /// The bytes with a checksum, counted from the start of the header.
    pub summed: Range<u64>,
    /// Their CRC-32.
    pub crc: u32,
}

/// Parses a legacy header of U-Boot, of which `left` bytes of the source are left from its start on.
pub fn uimage(bytes: &[u8], left: u64) -> Option<FirmwareHeader> {
    let mut head: [u8; HEADER_LEN] = *bytes.first_chunk()?;
    let crc = big(&head, 4)?;
    head.get_mut(4..8)?.fill(0);
    if libdeflater::crc32(&head) != crc {
        return None;
    }
    let len = u64::from(big(&head, 12)?) + 64;
    let name = head.get(32..)?.split(|&byte| byte == 0).next()?;
    let kind = match head.get(30)? {
        1 => "program",
        2 => "kernel",
        3 => "RAM disk",
        4 => "several files",
        5 => "firmware",
        6 => "script",
        7 => "filesystem",
        8 => "device tree",
        _ => "data",
    };
    let packed = match head.get(31)? {
        1 => ", gzip",
        2 => ", bzip2",
        3 => ", lzma",
        4 => ", lzo",
        5 => ", lz4",
        6 => ", zstd",
        _ => "",
    };
    (len <= left).then(|| FirmwareHeader {
        len,
        label: name.to_vec(),
        details: format!("{kind}{packed}"),
        summed: 64..len,
        crc: big(&head, 24).unwrap_or(0),
    })
}

/// Parses a TRX header, of which `left` bytes of the source are left from its start on.
pub fn trx(bytes: &[u8], left: u64) -> Option<FirmwareHeader> {
    let len = u64::from(little(bytes, 4)?);
    let version = little(bytes, 12)? >> 16;
    let parts = match version {
        1 => 3,
        2 => 4,
        _ => return None,
    };
    let end = 16 + 4 * parts;
    let offsets = bytes.get(16..end)?.chunks_exact(4);
    let offsets = offsets.map(|offset| little(offset, 0).map_or(0, u64::from));
    let (mut before, mut used) = (0, 0);
    for offset in offsets.filter(|&offset| offset != 0) {
        // Parts begin behind the header, one after the other.
        if offset < forerun_io::u64_from(end) || offset <= before || offset >= len {
            return None;
        }
        before = offset;
        used += 1;
    }
    (used > 0 && len <= left).then(|| FirmwareHeader {
        len,
        label: Vec::new(),
        details: format!("version {version}, parts: {used}"),
        summed: 12..len,
        // The last step of CRC-32, the inversion, is left out.
        crc: little(bytes, 8).map_or(0, |crc| !crc),
    })
}

fn big(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

fn little(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uimage_of(len: u32, change: Option<usize>) -> Vec<u8> {
        let mut head = vec![0; HEADER_LEN];
        head[..4].copy_from_slice(UIMAGE);
        head[12..16].copy_from_slice(&len.to_be_bytes());
        head[30] = 7;
        head[31] = 1;
        head[32..36].copy_from_slice(b"root");
        let crc = libdeflater::crc32(&head);
        head[4..8].copy_from_slice(&crc.to_be_bytes());
        if let Some(at) = change {
            head[at] ^= 1;
        }
        head
    }

    #[test]
    fn legacy_headers_are_validated() {
        for (head, left, is_valid) in [
            (uimage_of(100, None), 164, true),
            (uimage_of(100, None), 163, false),
            (uimage_of(u32::MAX, None), 1 << 20, false),
            (uimage_of(100, Some(33)), 164, false),
            (uimage_of(100, Some(5)), 164, false),
            (uimage_of(100, None)[..63].to_vec(), 164, false),
        ] {
            let found = uimage(&head, left);
            assert_eq!(found.is_some(), is_valid);
            if let Some(found) = found {
                assert_eq!((found.len, &found.label[..]), (164, &b"root"[..]));
                assert_eq!(found.details, "filesystem, gzip");
            }
        }
    }

    #[test]
    fn trx_headers_are_validated() {
        let head = |len: u32, version: u32, offsets: [u32; 4]| {
            let words = [len, 0, version << 16];
            let words = words.into_iter().chain(offsets);
            let words: Vec<_> = words.flat_map(u32::to_le_bytes).collect();
            [TRX, &words].concat()
        };
        for (bytes, is_valid) in [
            (head(1000, 1, [28, 500, 0, 0]), true),
            (head(1000, 2, [32, 500, 600, 700]), true),
            (head(1001, 1, [28, 500, 0, 0]), false),
            (head(1000, 3, [28, 500, 0, 0]), false),
            (head(1000, 0, [28, 500, 0, 0]), false),
            (head(1000, 1, [0; 4]), false),
            (head(1000, 1, [27, 500, 0, 0]), false),
            (head(1000, 1, [500, 28, 0, 0]), false),
            (head(1000, 1, [500, 500, 0, 0]), false),
            (head(1000, 1, [28, 1000, 0, 0]), false),
            (head(0, 1, [28, 0, 0, 0]), false),
            (head(1000, 1, [28, 500, 0, 0])[..20].to_vec(), false),
        ] {
            assert_eq!(trx(&bytes, 1000).is_some(), is_valid, "{bytes:?}");
        }
    }
}
