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
    found.push(Codec::Lzma);
    found.push(Codec::LzmaBare(BareLzma::NoLength));
    found.push(Codec::LzmaBare(BareLzma::PropertiesOnly));
    let usual = LzmaProperties::new(3, 0, 2);
    let all = (0..=4).flat_map(|pb| {
        (0..=4).flat_map(move |lp| (0..=4).filter_map(move |lc| LzmaProperties::new(lc, lp, pb)))
    });
    let properties = usual.into_iter().chain(all.filter(|it| Some(*it) != usual));
    found.extend(properties.map(|it| Codec::LzmaBare(BareLzma::Headerless(it))));
    found
}
