//! The up-case table, with which names are compared without case.

use crate::error::Check;

/// Longest table in bytes: 65,536 characters of one word each, and the same again for the pairs of
/// the compressed form.
pub const MAX_TABLE: u64 = 4 * 65_536;
/// In the compressed form, starts a run of characters that map to themselves.
const IDENTITY: u16 = 0xFFFF;

/// The table, with one word per 16-bit character.
#[derive(Clone, PartialEq, Eq)]
pub struct Upcase {
    map: Vec<u16>,
}

impl Upcase {
    /// Returns a table for ASCII only, for use before the volume's own table is read.
    pub fn ascii() -> Self {
        let upper = |unit: u16| u8::try_from(unit).map_or(unit, |c| c.to_ascii_uppercase().into());
        Self {
            map: (0..=u16::MAX).map(upper).collect(),
        }
    }

    /// Parses a table in either form (7.2.5). Characters after its end map to themselves. The
    /// mapping of the first 128 characters is mandatory.
    pub fn parse(bytes: &[u8]) -> Result<Self, Check> {
        let mut map: Vec<u16> = (0..=u16::MAX).collect();
        let words = bytes.chunks_exact(2);
        let mut words = words.map(|word| word.try_into().map_or(0, u16::from_le_bytes));
        let mut at = 0_usize;
        while let Some(word) = words.next() {
            // In the plain form, the last character may map to itself.
            if word == IDENTITY && at < usize::from(u16::MAX) {
                at += usize::from(words.next().unwrap_or(0));
            } else {
                *map.get_mut(at).ok_or(Check::UpcaseLen)? = word;
                at += 1;
            }
            if at > map.len() {
                return Err(Check::UpcaseLen);
            }
        }
        for unit in 0..128_u8 {
            let found = map[usize::from(unit)];
            if found != u16::from(unit.to_ascii_uppercase()) {
                let unit = u16::from(unit);
                return Err(Check::UpcaseMandatory { unit, found });
            }
        }
        Ok(Self { map })
    }

    pub fn unit(&self, unit: u16) -> u16 {
        self.map[usize::from(unit)]
    }

    pub fn name(&self, name: &[u16]) -> Vec<u16> {
        name.iter().map(|&unit| self.unit(unit)).collect()
    }

    /// Returns whether two names are equal apart from case.
    pub fn same(&self, a: &[u16], b: &[u16]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| self.unit(a) == self.unit(b))
    }

    /// Returns the `NameHash` of a name (7.6.4).
    pub fn hash(&self, name: &[u16]) -> u16 {
        let bytes = name.iter().flat_map(|&unit| self.unit(unit).to_le_bytes());
        bytes.fold(0_u16, |hash, byte| {
            hash.rotate_right(1).wrapping_add(u16::from(byte))
        })
    }
}

/// Returns the `TableChecksum` of an encoded table (7.2.2).
pub fn checksum(table: &[u8]) -> u32 {
    table.iter().fold(0_u32, |sum, &byte| {
        sum.rotate_right(1).wrapping_add(u32::from(byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compressed() -> Vec<u8> {
        let mut words = vec![0xFFFF, 0x61];
        words.extend(0x41..=0x5A_u16);
        words.extend([0xFFFF, 0x85]);
        words.extend([0xC0, 0xC1]);
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn both_forms_say_the_same() {
        let short = Upcase::parse(&compressed()).unwrap();
        assert_eq!(short.unit(0x61), 0x41);
        assert_eq!(short.unit(0x7B), 0x7B);
        assert_eq!(short.unit(0x100), 0xC0);
        assert_eq!(short.unit(0xFFFF), 0xFFFF);
        let plain: Vec<u8> = short.map.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert!(Upcase::parse(&plain).unwrap() == short);
    }

    #[test]
    fn wrong_tables() {
        let ascii = Upcase::parse(&[]).err();
        let (unit, found) = (0x61, 0x61);
        assert_eq!(ascii, Some(Check::UpcaseMandatory { unit, found }));
        let long = [0xFF, 0xFF, 0xFF, 0xFF].repeat(2);
        assert_eq!(Upcase::parse(&long).err(), Some(Check::UpcaseLen));
        let longer: Vec<u8> = (0..=u16::MAX)
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect();
        assert_eq!(Upcase::parse(&longer).err(), Some(Check::UpcaseLen));
    }
}
