//! Candidate codecs for images that do not declare theirs, or declare it wrongly.

use forerun_codec::{BareLzma, Codec, LzmaProperties};

use crate::superblock::Superblock;

/// Returns the codecs to try, the likeliest first. The image has the first one with which the root
/// can be read and listed.
pub fn candidates(superblock: &Superblock, first: &[u8]) -> Vec<Codec> {
    // A zlib header is a multiple of 31 with method 8, but LZMA data can look like that too.
    let is_zlib = matches!(first, [head, next, ..] if head & 0xf == 8
        && (u16::from(*head) << 8 | u16::from(*next)) % 31 == 0);
    let mut found = Vec::new();
    if superblock.legacy.is_some() && is_zlib {
        found.push(Codec::Zlib);
    }
    found.extend(with_headers());
    let usual = LzmaProperties::new(3, 0, 2);
    let mut properties: Vec<_> = (0..=u8::MAX)
        .filter_map(LzmaProperties::from_byte)
        .collect();
    // Wide properties take longer to try.
    properties.sort_by_key(|it| (Some(*it) != usual, it.is_wide()));
    found.extend(properties.into_iter().map(headerless));
    found
}

/// Returns the LZMA variants whose blocks store their properties.
pub fn with_headers() -> Vec<Codec> {
    let bare = [
        BareLzma::Parameters,
        BareLzma::NoLength,
        BareLzma::PropertiesOnly,
    ];
    std::iter::once(Codec::Lzma)
        .chain(bare.map(Codec::LzmaBare))
        .collect()
}

fn headerless(properties: LzmaProperties) -> Codec {
    Codec::LzmaBare(BareLzma::Headerless(properties))
}
