//! Executables of every class and byte order, constructed and then damaged.
#![allow(clippy::as_conversions)]

use forerun_io::MemorySource;
use forerun_vfs::Error;

use super::*;
use crate::payload::{self, HEAD};

/// The header fields of an executable that the tests vary.
struct Elf {
    layout: Layout,
    /// Offset, size and type of each section; offset and size of each segment.
    sections: Vec<(u64, u64, u64)>,
    segments: Vec<(u64, u64)>,
    section_table: u64,
    segment_table: u64,
    len: usize,
}

impl Elf {
    fn usual(layout: Layout) -> Self {
        Self {
            layout,
            sections: vec![(0, 0, 0), (1000, 2000, 1), (3000, 1 << 40, SHT_NOBITS)],
            segments: vec![(0, 3000), (1000, 500)],
            section_table: 4000,
            segment_table: 100,
            len: 5000,
        }
    }

    fn put(&self, out: &mut [u8], at: usize, size: usize, value: u64) {
        let bytes = value.to_le_bytes();
        let target = &mut out[at..at + size];
        target.copy_from_slice(&bytes[..size]);
        if self.layout.big_endian {
            target.reverse();
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        let wide = self.layout.wide;
        out[..4].copy_from_slice(b"\x7fELF");
        out[4] = if wide { 2 } else { 1 };
        out[5] = if self.layout.big_endian { 2 } else { 1 };
        let (word, fields) = if wide {
            (8, [32, 40, 54, 56, 58, 60])
        } else {
            (4, [28, 32, 42, 44, 46, 48])
        };
        let (section, segment) = if wide { (64, 56) } else { (40, 32) };
        let counts = [self.segments.len() as u64, self.sections.len() as u64];
        self.put(&mut out, fields[0], word, self.segment_table);
        self.put(&mut out, fields[1], word, self.section_table);
        self.put(&mut out, fields[2], 2, segment as u64);
        self.put(&mut out, fields[3], 2, counts[0]);
        self.put(&mut out, fields[4], 2, section as u64);
        self.put(&mut out, fields[5], 2, counts[1]);
        for (n, &(offset, size, kind)) in self.sections.iter().enumerate() {
            let at = self.section_table as usize + n * section;
            let (offset_at, size_at) = if wide { (24, 32) } else { (16, 20) };
            self.put(&mut out, at + 4, 4, kind);
            self.put(&mut out, at + offset_at, word, offset);
            let size = if wide {
                size
            } else {
                size.min(u32::MAX.into())
            };
            self.put(&mut out, at + size_at, word, size);
        }
        for (n, &(offset, size)) in self.segments.iter().enumerate() {
            let at = self.segment_table as usize + n * segment;
            let (offset_at, size_at) = if wide { (8, 32) } else { (4, 16) };
            self.put(&mut out, at + offset_at, word, offset);
            self.put(&mut out, at + size_at, word, size);
        }
        out
    }
}

const LAYOUTS: [Layout; 4] = [
    layout(false, false),
    layout(false, true),
    layout(true, false),
    layout(true, true),
];

const fn layout(wide: bool, big_endian: bool) -> Layout {
    Layout { wide, big_endian }
}

fn places(bytes: &[u8]) -> Result<Vec<u64>> {
    let file = MemorySource::new(bytes);
    let head = &bytes[..HEAD.min(bytes.len())];
    let found = find(&file, head, Container::Elf)?;
    Ok(found.into_iter().map(|payload| payload.offset).collect())
}

#[test]
fn the_end_in_every_class_and_byte_order() {
    for layout in LAYOUTS {
        let entry = if layout.wide { 64 } else { 40 };
        let elf = Elf::usual(layout);
        assert_eq!(
            places(&elf.bytes()).unwrap(),
            [4000 + 3 * entry],
            "{layout:?}"
        );
        let data_last = Elf {
            sections: vec![(0, 0, 0), (1000, 3500, 1)],
            section_table: 4600,
            ..Elf::usual(layout)
        };
        let end = 4600 + 2 * entry;
        assert_eq!(places(&data_last.bytes()).unwrap(), [end], "{layout:?}");
        let table_first = Elf {
            sections: vec![(0, 0, 0), (1000, 3500, 1)],
            section_table: 500,
            ..Elf::usual(layout)
        };
        let ends = [500 + 2 * entry, 4500];
        assert_eq!(places(&table_first.bytes()).unwrap(), ends, "{layout:?}");
        let stripped = Elf {
            sections: vec![],
            section_table: 0,
            ..Elf::usual(layout)
        };
        assert_eq!(places(&stripped.bytes()).unwrap(), [3000], "{layout:?}");
        let nothing_behind = Elf {
            len: 4000 + 3 * entry as usize,
            ..Elf::usual(layout)
        };
        assert!(places(&nothing_behind.bytes()).unwrap().is_empty());
    }
}

fn check(elf: &Elf, edit: impl FnOnce(&mut Vec<u8>), expected: &str) {
    let mut bytes = elf.bytes();
    edit(&mut bytes);
    let error = places(&bytes).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("damaged ELF image: {expected}"));
}

#[test]
fn fields_are_held_against_the_file() {
    let usual = || Elf::usual(layout(true, false));
    check(
        &usual(),
        |bytes| bytes[4] = 3,
        "offset 0x0: the ELF class is 3 and the byte order 1; each must be 1 or 2",
    );
    check(
        &usual(),
        |bytes| bytes[5] = 0,
        "offset 0x0: the ELF class is 2 and the byte order 0; each must be 1 or 2",
    );
    check(
        &usual(),
        |bytes| bytes.truncate(60),
        "offset 0x0: the file is 60 bytes long; the header takes 64",
    );
    check(
        &usual(),
        |bytes| bytes[58] = 65,
        "offset 0x0: entries of the table of sections are 65 bytes long, not 64",
    );
    check(
        &usual(),
        |bytes| bytes[47] = 0xff,
        "offset 0x0: table of sections lies at 0xff00000000000fa0 and is 192 bytes long; the file \
         has 5000",
    );
    check(
        &usual(),
        |bytes| bytes[61] = 0xff,
        "offset 0x0: table of sections lies at 0xfa0 and is 4178112 bytes long; the file has 5000",
    );
    let far = Elf {
        sections: vec![(1, u64::MAX, 1)],
        ..usual()
    };
    check(
        &far,
        |_| (),
        "offset 0xfa0: a section lies at 0x1 and is 18446744073709551615 bytes long; the file has \
         5000",
    );
    let far = Elf {
        segments: vec![(4000, 2000)],
        ..usual()
    };
    check(
        &far,
        |_| (),
        "offset 0x64: a segment lies at 0xfa0 and is 2000 bytes long; the file has 5000",
    );
}

#[test]
fn any_byte_may_be_anything() {
    for layout in LAYOUTS {
        let bytes = Elf::usual(layout).bytes();
        for at in (0..64).chain(4000..4192) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut mutated = bytes.clone();
                mutated[at] = value;
                let file = MemorySource::new(mutated.clone());
                let found = payload::find(&file);
                let len = mutated.len() as u64;
                let inside = |places: Vec<Payload>| places.iter().all(|place| place.offset < len);
                assert!(found.is_ok_and(inside), "byte {at} as {value}");
            }
        }
        for len in 0..bytes.len() {
            let _either = payload::find(&MemorySource::new(&bytes[..len]));
        }
    }
}

#[test]
fn appimages_are_told_by_three_bytes() {
    for (mark, expected) in [
        (b"AI\x02", Ok(Container::AppImage)),
        (b"AI\x03", Ok(Container::Elf)),
        (b"\0\0\0", Ok(Container::Elf)),
        (
            b"AI\x01",
            Err("not supported: an AppImage of type 1, which is an ISO 9660 image"),
        ),
    ] {
        let mut bytes = Elf::usual(layout(true, false)).bytes();
        bytes[8..11].copy_from_slice(mark);
        let found = payload::find(&MemorySource::new(bytes));
        let found = found.map(|places| places[0].container);
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_string));
    }
}
