//! The up-case table that the specification recommends (7.2.5.1), as runs of characters with the
//! same distance to their upper case. All formatters write its compressed form: 5836 bytes,
//! checksum 0xE619D30D.

use crate::upcase::Upcase;

#[cfg(feature = "write")]
pub const LEN: u64 = 5836;
/// Shortest run of characters mapping to themselves that is compressed. In this table, the longest
/// run that is not compressed has 337 characters, and the shortest compressed run has 843.
const COMPRESSED_FROM: u16 = 512;

/// First character, number of characters, step between characters, and distance to the upper case.
type CaseRun = (u16, u16, u16, i16);

#[rustfmt::skip]
const RUNS: &[CaseRun] = &[
    (0x0061, 26, 1, -32), (0x00E0, 23, 1, -32), (0x00F8, 7, 1, -32), (0x00FF, 1, 1, 121),
    (0x0101, 24, 2, -1), (0x0133, 3, 2, -1), (0x013A, 8, 2, -1), (0x014B, 23, 2, -1),
    (0x017A, 3, 2, -1), (0x0180, 1, 1, 195), (0x0183, 2, 2, -1), (0x0188, 1, 1, -1),
    (0x018C, 1, 1, -1), (0x0192, 1, 1, -1), (0x0195, 1, 1, 97), (0x0199, 1, 1, -1),
    (0x019A, 1, 1, 163), (0x019E, 1, 1, 130), (0x01A1, 3, 2, -1), (0x01A8, 1, 1, -1),
    (0x01AD, 1, 1, -1), (0x01B0, 1, 1, -1), (0x01B4, 2, 2, -1), (0x01B9, 1, 1, -1),
    (0x01BD, 1, 1, -1), (0x01BF, 1, 1, 56), (0x01C6, 1, 1, -2), (0x01C9, 1, 1, -2),
    (0x01CC, 1, 1, -2), (0x01CE, 8, 2, -1), (0x01DD, 1, 1, -79), (0x01DF, 9, 2, -1),
    (0x01F3, 1, 1, -2), (0x01F5, 1, 1, -1), (0x01F9, 20, 2, -1), (0x0223, 9, 2, -1),
    (0x023A, 1, 1, 10_795), (0x023C, 1, 1, -1), (0x023E, 1, 1, 10_792), (0x0242, 1, 1, -1),
    (0x0247, 5, 2, -1), (0x0253, 1, 1, -210), (0x0254, 1, 1, -206), (0x0256, 2, 1, -205),
    (0x0259, 1, 1, -202), (0x025B, 1, 1, -203), (0x0260, 1, 1, -205), (0x0263, 1, 1, -207),
    (0x0268, 1, 1, -209), (0x0269, 1, 1, -211), (0x026B, 1, 1, 10_743), (0x026F, 1, 1, -211),
    (0x0272, 1, 1, -213), (0x0275, 1, 1, -214), (0x027D, 1, 1, 10_727), (0x0280, 1, 1, -218),
    (0x0283, 1, 1, -218), (0x0288, 1, 1, -218), (0x0289, 1, 1, -69), (0x028A, 2, 1, -217),
    (0x028C, 1, 1, -71), (0x0292, 1, 1, -219), (0x037B, 3, 1, 130), (0x03AC, 1, 1, -38),
    (0x03AD, 3, 1, -37), (0x03B1, 17, 1, -32), (0x03C2, 1, 1, -31), (0x03C3, 9, 1, -32),
    (0x03CC, 1, 1, -64), (0x03CD, 2, 1, -63), (0x03D9, 12, 2, -1), (0x03F2, 1, 1, 7),
    (0x03F8, 1, 1, -1), (0x03FB, 1, 1, -1), (0x0430, 32, 1, -32), (0x0450, 16, 1, -80),
    (0x0461, 17, 2, -1), (0x048B, 27, 2, -1), (0x04C2, 7, 2, -1), (0x04CF, 1, 1, -15),
    (0x04D1, 34, 2, -1), (0x0561, 38, 1, -48), (0x1D7D, 1, 1, 3814), (0x1E01, 75, 2, -1),
    (0x1EA1, 45, 2, -1), (0x1F00, 8, 1, 8), (0x1F10, 6, 1, 8), (0x1F20, 8, 1, 8),
    (0x1F30, 8, 1, 8), (0x1F40, 6, 1, 8), (0x1F51, 4, 2, 8), (0x1F60, 8, 1, 8),
    (0x1F70, 2, 1, 74), (0x1F72, 4, 1, 86), (0x1F76, 2, 1, 100), (0x1F78, 2, 1, 128),
    (0x1F7A, 2, 1, 112), (0x1F7C, 2, 1, 126), (0x1F80, 8, 1, 8), (0x1F90, 8, 1, 8),
    (0x1FA0, 8, 1, 8), (0x1FB0, 2, 1, 8), (0x1FB3, 1, 1, 9), (0x1FCC, 1, 1, -9),
    (0x1FD0, 2, 1, 8), (0x1FE0, 2, 1, 8), (0x1FE5, 1, 1, 7), (0x1FFC, 1, 1, -9),
    (0x214E, 1, 1, -28), (0x2170, 16, 1, -16), (0x2184, 1, 1, -1), (0x24D0, 26, 1, -26),
    (0x2C30, 47, 1, -48), (0x2C61, 1, 1, -1), (0x2C68, 3, 2, -1), (0x2C76, 1, 1, -1),
    (0x2C81, 50, 2, -1), (0x2D00, 38, 1, -7264), (0xFF41, 26, 1, -32),
];

pub fn table() -> Upcase {
    Upcase::parse(&compressed()).unwrap_or_else(|_| Upcase::ascii())
}

pub fn compressed() -> Vec<u8> {
    let mut map: Vec<u16> = (0..=u16::MAX).collect();
    for &(first, count, step, distance) in RUNS {
        for index in 0..count {
            let unit = first + index * step;
            if let Some(upper) = map.get_mut(usize::from(unit)) {
                *upper = unit.wrapping_add_signed(distance);
            }
        }
    }
    let mut words = Vec::new();
    let mut same = Vec::new();
    for (unit, &upper) in (0..=u16::MAX).zip(&map) {
        if unit == upper {
            same.push(unit);
        } else {
            put_same(&mut words, &mut same);
            words.push(upper);
        }
    }
    put_same(&mut words, &mut same);
    words.into_iter().flat_map(u16::to_le_bytes).collect()
}

fn put_same(words: &mut Vec<u16>, same: &mut Vec<u16>) {
    match u16::try_from(same.len()) {
        Ok(count) if count >= COMPRESSED_FROM => words.extend([0xFFFF, count]),
        _ => words.extend_from_slice(same),
    }
    same.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_recommended_one() {
        let bytes = compressed();
        assert_eq!(bytes.len(), 5836);
        assert_eq!(crate::upcase::checksum(&bytes), 0xE619_D30D);
        let table = table();
        let upper = |c: char| table.unit(u16::try_from(u32::from(c)).unwrap());
        assert_eq!(upper('a'), 0x41);
        assert_eq!(upper('\u{e4}'), 0xC4);
        assert_eq!(upper('\u{ff}'), 0x178);
        assert_eq!(upper('\u{df}'), 0xDF);
        assert_eq!(upper('\u{451}'), 0x401);
    }
}
