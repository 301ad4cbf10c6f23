//! Compressed streams divided into spans, and stored indexes of compressed archives.

use std::io::Write;

use forerun_spans::fuzzing;
use forerun_testkit::generate;

use super::Made;

/// Indexes a stream, and decodes each span separately.
pub fn index(bytes: &[u8]) {
    let _errors = fuzzing::index_and_decode(bytes);
}

pub fn streams() -> Made {
    let text = generate::bytes(1, 3000)
        .iter()
        .map(|byte| b'a' + byte % 7)
        .collect::<Vec<_>>();
    let mut gzip = b"\x1f\x8b\x08\0\0\0\0\0\0\xff".to_vec();
    let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::default());
    let mut out = vec![0; compressor.deflate_compress_bound(text.len())];
    let len = compressor.deflate_compress(&text, &mut out)?;
    gzip.write_all(&out[..len])?;
    gzip.write_all(&libdeflater::crc32(&text).to_le_bytes())?;
    gzip.write_all(&u32::try_from(text.len())?.to_le_bytes())?;
    let mut zstd = vec![0; zstd_safe::compress_bound(text.len())];
    let len = zstd_safe::compress(&mut zstd[..], &text, 3).map_err(zstd_safe::get_error_name)?;
    zstd.truncate(len);
    let member = [&[0x4a], &gzip[..]].concat();
    // Linked blocks without checksums: one stored uncompressed, and one that copies 8 bytes of the
    // first and has 5 of its own.
    let mut lz4 = vec![0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0];
    lz4.extend_from_slice(b"\x0a\0\0\x800123456789");
    lz4.extend_from_slice(b"\x09\0\0\0\x04\x0a\0\x50after\0\0\0\0");
    let mut legacy = vec![0x02, 0x21, 0x4c, 0x18];
    legacy.extend_from_slice(b"\x06\0\0\0\x50plain");
    let seeds = [
        ("gzip", member.clone()),
        ("members", [&member[..], &gzip].concat()),
        ("lz4", [&[0x4a], &lz4[..], &legacy].concat()),
        ("zstd", [&[0x4a], &zstd[..], &zstd].concat()),
    ];
    Ok(seeds.map(|(name, bytes)| (name.to_string(), bytes)).into())
}

pub fn kept(bytes: &[u8]) {
    let _errors = forerun_tar::fuzzing::kept(bytes);
}

pub fn kept_indexes() -> Made {
    Ok(vec![(
        "index".to_string(),
        forerun_tar::fuzzing::kept_seed(),
    )])
}
