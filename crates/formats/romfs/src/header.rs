//! Parses a file header.
//!
//! Parsing checks only what is needed to find the next header. Data past the end of the image is
//! checked when the file is used, so that it affects no other entry of the directory.
//! [`Header::deviations`] checks what reading does not need.

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Device, FileType, check_name};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{self, ALIGN, EXECUTABLE, HEADER_LEN, OFFSET_MASK, TYPE_MASK};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another name for the file whose header is at `target`.
    HardLink {
        target: u64,
    },
    /// A directory whose first entry is at `first`; 0 for none.
    Directory {
        first: u64,
    },
    Regular,
    Symlink,
    BlockDevice(Device),
    CharDevice(Device),
    Socket,
    Fifo,
}

/// A header that passed the checks needed to read it safely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub offset: u64,
    pub kind: Kind,
    pub executable: bool,
    /// Offset of the next header in the same directory.
    pub next: Option<u64>,
    pub spec_info: u32,
    pub size: u32,
    pub checksum: u32,
    pub name: Vec<u8>,
    pub data: u64,
    /// Sum of the words of header and name; 0 if the checksum is right.
    pub sum: u32,
}

/// Returns the largest length of a header whose name has at most `name_limit` bytes.
pub fn max_len(name_limit: usize) -> u64 {
    HEADER_LEN.saturating_add(padded(name_limit))
}

/// Returns whether `bytes`, which start with a header, include the NUL that ends its name.
pub fn has_name_end(bytes: &[u8]) -> bool {
    let name = bytes.get(usize_from(HEADER_LEN)..);
    name.unwrap_or_default().contains(&0)
}

impl Header {
    /// Parses a header. `bytes` start at `offset` and have [`max_len`] bytes, or end with the image
    /// of `full_size` bytes, or are shorter and include the end of the name.
    pub fn parse(
        bytes: &[u8],
        offset: u64,
        full_size: u64,
        name_limit: usize,
    ) -> Result<Self, Check> {
        let outside = |_| Check::HeaderOutside { full_size };
        let (raw, rest) = ondisk::FileHeader::read_from_prefix(bytes).map_err(outside)?;
        let name_len = rest
            .iter()
            .take(name_limit.saturating_add(1))
            .position(|&byte| byte == 0);
        let limit = name_limit.min(rest.len());
        let name_len = name_len.ok_or(Check::NameEndless { limit })?;
        let name = rest[..name_len].to_vec();
        let len = HEADER_LEN + padded(name_len);
        let summed = bytes.get(..usize_from(len)).unwrap_or(bytes);
        let spec_info = raw.spec_info.get();
        Ok(Self {
            offset,
            kind: kind(raw.next.get(), spec_info),
            executable: raw.next.get() & EXECUTABLE != 0,
            next: Some(u64::from(raw.next.get() & OFFSET_MASK)).filter(|&next| next != 0),
            spec_info,
            size: raw.size.get(),
            checksum: raw.checksum.get(),
            name,
            data: offset + len,
            sum: ondisk::checksum(summed),
        })
    }

    /// Checks that the data lies in an image of `full_size` bytes. Only regular files and symbolic
    /// links have data, whatever the size field of other types says.
    pub fn check_data(&self, full_size: u64) -> Result<(), Check> {
        let size = u64::from(self.size);
        let has_data = matches!(self.kind, Kind::Regular | Kind::Symlink);
        if has_data && (self.data > full_size || size > full_size - self.data) {
            return Err(Check::DataOutside {
                data: self.data,
                size,
                full_size,
            });
        }
        Ok(())
    }

    pub fn is_dot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }

    pub fn check_name(&self, name_limit: usize) -> Result<(), Check> {
        check_name(&self.name, name_limit).map_err(|source| Check::Name {
            name: self.lossy_name(),
            source,
        })
    }

    pub fn lossy_name(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }

    /// Returns the file type, or `None` for a hard link.
    pub const fn file_type(&self) -> Option<FileType> {
        match self.kind {
            Kind::HardLink { .. } => None,
            Kind::Directory { .. } => Some(FileType::Directory),
            Kind::Regular => Some(FileType::Regular),
            Kind::Symlink => Some(FileType::Symlink),
            Kind::BlockDevice(_) => Some(FileType::BlockDevice),
            Kind::CharDevice(_) => Some(FileType::CharDevice),
            Kind::Socket => Some(FileType::Socket),
            Kind::Fifo => Some(FileType::Fifo),
        }
    }

    /// Returns the violations of the format that reading tolerates.
    pub fn deviations(&self) -> Vec<Check> {
        let mut found = Vec::new();
        if self.sum != 0 {
            found.push(Check::HeaderChecksum { sum: self.sum });
        }
        match self.kind {
            Kind::Regular | Kind::Symlink | Kind::Socket | Kind::Fifo if self.spec_info != 0 => {
                found.push(Check::SpecInfo {
                    found: self.spec_info,
                });
            }
            Kind::HardLink { .. } | Kind::Directory { .. }
                if self.spec_info & !OFFSET_MASK != 0 =>
            {
                found.push(Check::SpecInfoBits {
                    found: self.spec_info,
                });
            }
            _ => {}
        }
        if !matches!(self.kind, Kind::Regular | Kind::Symlink) && self.size != 0 {
            found.push(Check::Size { found: self.size });
        }
        if self.executable && !matches!(self.kind, Kind::Regular | Kind::Directory { .. }) {
            found.push(Check::ExecutableBit);
        }
        found
    }
}

/// Returns the padded length of a name with its NUL.
pub fn padded(name_len: usize) -> u64 {
    u64_from(name_len)
        .saturating_add(1)
        .checked_next_multiple_of(ALIGN)
        .unwrap_or(u64::MAX)
}

fn kind(next: u32, spec_info: u32) -> Kind {
    let offset = u64::from(spec_info & OFFSET_MASK);
    let device = Device {
        major: spec_info >> 16,
        minor: spec_info & 0xFFFF,
    };
    match next & TYPE_MASK {
        0 => Kind::HardLink { target: offset },
        1 => Kind::Directory { first: offset },
        2 => Kind::Regular,
        3 => Kind::Symlink,
        4 => Kind::BlockDevice(device),
        5 => Kind::CharDevice(device),
        6 => Kind::Socket,
        _ => Kind::Fifo,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 0x1000;

    fn bytes(words: [u32; 4], name: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend_from_slice(name);
        bytes
    }

    #[test]
    fn the_fields_of_the_published_example() {
        // A regular executable file "x" of 10 bytes, as genromfs 0.5.2 wrote it.
        let image = bytes(
            [0xBA, 0, 10, 0x87FF_FF3C],
            b"x\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        let header = Header::parse(&image, 0x80, SIZE, 255).unwrap();
        let expected = Header {
            offset: 0x80,
            kind: Kind::Regular,
            executable: true,
            next: Some(0xB0),
            spec_info: 0,
            size: 10,
            checksum: 0x87FF_FF3C,
            name: b"x".to_vec(),
            data: 0xA0,
            sum: 0,
        };
        assert_eq!(header, expected);
        assert_eq!(header.deviations(), []);
    }

    #[test]
    fn types() {
        let device = Device {
            major: 7,
            minor: 300,
        };
        for (bits, kind) in [
            (0, Kind::HardLink { target: 0x7_0120 }),
            (1, Kind::Directory { first: 0x7_0120 }),
            (2, Kind::Regular),
            (3, Kind::Symlink),
            (4, Kind::BlockDevice(device)),
            (5, Kind::CharDevice(device)),
            (6, Kind::Socket),
            (7, Kind::Fifo),
        ] {
            let header = Header::parse(&bytes([bits, 0x7_012C, 0, 0], b"n\0"), 0x20, SIZE, 255);
            let header = header.unwrap();
            assert_eq!((header.kind, header.next), (kind, None), "{bits}");
            assert_eq!(header.file_type().is_none(), bits == 0);
        }
    }

    #[test]
    fn where_data_starts() {
        for (name_len, data) in [
            (0, 0x40),
            (1, 0x40),
            (15, 0x40),
            (16, 0x50),
            (31, 0x50),
            (32, 0x60),
        ] {
            let mut name = vec![b'n'; name_len];
            name.push(0);
            let header = Header::parse(&bytes([2, 0, 0, 0], &name), 0x20, SIZE, 255).unwrap();
            assert_eq!((header.data, header.name.len()), (data, name_len));
        }
    }

    #[test]
    fn names_end_or_are_refused() {
        let endless = |limit| Err(Check::NameEndless { limit });
        for (name, limit, expected) in [
            (&b"abc\0"[..], 3, Ok(b"abc".to_vec())),
            (b"abcd\0", 3, endless(3)),
            (b"abc", 3, endless(3)),
            (b"ab", 255, endless(2)),
            (b"", 255, endless(0)),
        ] {
            let header = Header::parse(&bytes([2, 0, 0, 0], name), 0x20, SIZE, limit);
            assert_eq!(header.map(|header| header.name), expected, "{name:?}");
        }
        assert_eq!(
            Header::parse(&[0; 15], 0x20, 0x2F, 255),
            Err(Check::HeaderOutside { full_size: 0x2F })
        );
    }

    #[test]
    fn data_ends_with_the_image() {
        for (kind, size, full_size, inside) in [
            (2, 0x10, 0x50, true),
            (2, 0x11, 0x50, false),
            (3, u32::MAX, 0x50, false),
            (2, 0, 0x40, true),
            (2, 0, 0x3F, false),
            (1, u32::MAX, 0x50, true),
        ] {
            let header = Header::parse(&bytes([kind, 0, size, 0], b"n\0"), 0x20, full_size, 255);
            let result = header.unwrap().check_data(full_size);
            assert_eq!(result.is_ok(), inside, "{kind} {size} {full_size:#x}");
        }
        // Offsets and sizes have 32 bits.
        let last = u64::from(u32::MAX);
        let header = Header::parse(&bytes([2, 0, u32::MAX, 0], b"n\0"), last, last, 255);
        assert!(header.unwrap().check_data(last).is_err());
    }

    #[test]
    fn what_is_reserved() {
        let found = |words: [u32; 4]| {
            let header = Header::parse(&bytes(words, b"n\0"), 0x20, SIZE, 255).unwrap();
            let mut found = header.deviations();
            found.retain(|check| !matches!(check, Check::HeaderChecksum { .. }));
            found
        };
        for (words, expected) in [
            ([0xA, 0, 1, 0], vec![]),
            ([0x9, 0x40, 0, 0], vec![]),
            ([4, 0x0801_0203, 0, 0], vec![]),
            ([2, 1, 0, 0], vec![Check::SpecInfo { found: 1 }]),
            ([7, 1, 0, 0], vec![Check::SpecInfo { found: 1 }]),
            ([1, 0x41, 0, 0], vec![Check::SpecInfoBits { found: 0x41 }]),
            ([0, 0x48, 0, 0], vec![Check::SpecInfoBits { found: 0x48 }]),
            ([1, 0x40, 9, 0], vec![Check::Size { found: 9 }]),
            ([0xB, 0, 1, 0], vec![Check::ExecutableBit]),
            ([0xF, 0, 0, 0], vec![Check::ExecutableBit]),
        ] {
            assert_eq!(found(words), expected, "{words:x?}");
        }
    }
}
