//! The 32-bit xxHash, which maps attribute names to bits of EROFS's filter.
//!
//! Written from the specification (xxHash fast digest algorithm, version 0.1.1). Names are short,
//! so the code is not optimised.

const P1: u32 = 0x9E37_79B1;
const P2: u32 = 0x85EB_CA77;
const P3: u32 = 0xC2B2_AE3D;
const P4: u32 = 0x27D4_EB2F;
const P5: u32 = 0x1656_67B1;

pub fn xxh32(bytes: &[u8], seed: u32) -> u32 {
    let mut stripes = bytes.chunks_exact(16);
    let mut hash = if bytes.len() < 16 {
        seed.wrapping_add(P5)
    } else {
        let mut lanes = [
            seed.wrapping_add(P1).wrapping_add(P2),
            seed.wrapping_add(P2),
            seed,
            seed.wrapping_sub(P1),
        ];
        for stripe in &mut stripes {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
                let mixed = lane.wrapping_add(read(word).wrapping_mul(P2));
                *lane = mixed.rotate_left(13).wrapping_mul(P1);
            }
        }
        let turned = [1, 7, 12, 18].into_iter().zip(lanes);
        turned.fold(0, |sum: u32, (bits, lane)| {
            sum.wrapping_add(lane.rotate_left(bits))
        })
    };
    // The length counts modulo 2^32.
    let len = forerun_io::u64_from(bytes.len()) & u64::from(u32::MAX);
    hash = hash.wrapping_add(u32::try_from(len).unwrap_or(0));
    let mut words = stripes.remainder().chunks_exact(4);
    for word in &mut words {
        hash = hash.wrapping_add(read(word).wrapping_mul(P3));
        hash = hash.rotate_left(17).wrapping_mul(P4);
    }
    for &byte in words.remainder() {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(P5));
        hash = hash.rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(P2);
    hash = (hash ^ hash >> 13).wrapping_mul(P3);
    hash ^ hash >> 16
}

fn read(word: &[u8]) -> u32 {
    let bytes = word.iter().rev();
    bytes.fold(0, |value, &byte| value << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use super::xxh32;

    #[test]
    fn published_values() {
        assert_eq!(xxh32(b"", 0), 0x02CC_5D05);
        assert_eq!(xxh32(b"a", 0), 0x550D_7456);
        assert_eq!(xxh32(b"abc", 0), 0x32D1_53FF);
        assert_eq!(
            xxh32(b"Nobody inspects the spammish repetition", 0),
            0xE229_3B2F
        );
    }
}
