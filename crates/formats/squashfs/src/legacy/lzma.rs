//! The codecs that an image may have which does not say, or not rightly, which one it has.

use forerun_codec::{BareLzma, Codec, LzmaProperties};

use crate::superblock::Superblock;

/// Returns the codecs to try, the likeliest first. The first one with which the root can be read and
/// listed is the image's.
pub fn candidates(superblock: &Superblock, first: &[u8]) -> Vec<Codec> {
    // zlib's first two bytes are a multiple of 31, with method 8; LZMA alone may look the same.
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
    // The wide ones take longer to try.
    properties.sort_by_key(|it| (Some(*it) != usual, it.is_wide()));
    found.extend(properties.into_iter().map(headerless));
    found
}

/// Returns the forms of LZMA whose blocks say their properties.
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
