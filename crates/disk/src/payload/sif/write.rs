//! Encodes a SIF file with one partition: the bytes before the image.

use forerun_io::u64_from;

use super::{
    DESCRIPTOR, EXTRA, HEADER, MAGIC, MAGIC_AT, PARTITION, PRIMARY_SYSTEM, VERSION, VERSION_AT,
};

const LAUNCH: &[u8] = b"#!/usr/bin/env run-singularity\n";
/// Number of descriptors to reserve. Other programs add signatures in the free ones.
const DESCRIPTORS: usize = 48;
const TABLE: usize = 4096;
const DATA: usize = TABLE + DESCRIPTORS * DESCRIPTOR;
/// Alignment of partitions.
const ALIGN: usize = 4096;
const DEFINITION: u32 = 0x4001;
const SQUASHFS: u32 = 1;
/// The first group of objects.
const GROUP: u32 = 0xf000_0001;

/// The time in reproducible files: the first second of the year 1.
pub const ZERO_TIME: i64 = -62_135_596_800;

/// Go's names of architectures, and their numbers in a SIF file.
const ARCHITECTURES: [(&str, &[u8; 3]); 13] = [
    ("386", b"01\0"),
    ("amd64", b"02\0"),
    ("arm", b"03\0"),
    ("arm64", b"04\0"),
    ("ppc64", b"05\0"),
    ("ppc64le", b"06\0"),
    ("mips", b"07\0"),
    ("mipsle", b"08\0"),
    ("mips64", b"09\0"),
    ("mips64le", b"10\0"),
    ("s390x", b"11\0"),
    ("riscv64", b"12\0"),
    ("loong64", b"13\0"),
];

/// Returns the names of the architectures that a SIF file can have.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHITECTURES.iter().map(|(name, _)| *name)
}

/// A new SIF file with a SquashFS image as its primary partition.
#[derive(Clone, Debug)]
pub struct NewSif {
    definition: Option<Vec<u8>>,
    arch: &'static [u8; 3],
    time: i64,
}

impl NewSif {
    /// Describes a file for this architecture with this definition file. `time` is in seconds since
    /// 1970. Returns
    /// `None` for an unknown architecture.
    #[must_use]
    pub fn new(arch: &str, definition: Option<Vec<u8>>, time: i64) -> Option<Self> {
        let (_, arch) = ARCHITECTURES.iter().find(|(name, _)| *name == arch)?;
        Some(Self {
            definition,
            arch,
            time,
        })
    }

    /// Returns the bytes before the image. Their length does not depend on `image_len`.
    #[must_use]
    pub fn front(&self, image_len: u64) -> Vec<u8> {
        let definition = self.definition.as_deref().unwrap_or_default();
        let end = DATA + definition.len();
        let image = end.next_multiple_of(ALIGN);
        let padded = u64_from(image - end) + image_len;
        let mut out = vec![0; image];
        out[DATA..end].copy_from_slice(definition);

        let mut used = 0;
        if self.definition.is_some() {
            let object = (DEFINITION, DATA, u64_from(definition.len()));
            self.describe(&mut out, used, object, u64_from(definition.len()));
            used += 1;
        }
        self.describe(&mut out, used, (PARTITION, image, image_len), padded);
        let extra = TABLE + used * DESCRIPTOR + EXTRA;
        put(&mut out, extra, &SQUASHFS.to_le_bytes());
        put(&mut out, extra + 4, &PRIMARY_SYSTEM.to_le_bytes());
        put(&mut out, extra + 8, self.arch);
        used += 1;

        put(&mut out, 0, LAUNCH);
        put(&mut out, MAGIC_AT, MAGIC);
        put(&mut out, VERSION_AT, VERSION);
        put(&mut out, super::ARCH_AT, self.arch);
        let numbers = [
            u64_from(DESCRIPTORS - used),
            u64_from(DESCRIPTORS),
            u64_from(TABLE),
            u64_from(DATA - TABLE),
            u64_from(DATA),
            u64_from(definition.len()) + padded,
        ];
        // The identifier before the times stays 0, as in other reproducible files.
        let times = [self.time; 2].map(i64::to_le_bytes);
        let numbers = numbers.map(u64::to_le_bytes);
        let fields = times.as_flattened().iter().chain(numbers.as_flattened());
        let fields: Vec<u8> = fields.copied().collect();
        put(&mut out, HEADER - fields.len(), &fields);
        out
    }

    /// Writes the descriptor of an object.
    fn describe(
        &self,
        out: &mut [u8],
        index: usize,
        (kind, offset, len): (u32, usize, u64),
        padded: u64,
    ) {
        let at = TABLE + index * DESCRIPTOR;
        let id = u32::try_from(index).unwrap_or(u32::MAX) + 1;
        put(out, at, &kind.to_le_bytes());
        put(out, at + 4, &[1]);
        put(out, at + 5, &id.to_le_bytes());
        put(out, at + 9, &GROUP.to_le_bytes());
        put(out, at + 17, &u64_from(offset).to_le_bytes());
        put(out, at + 25, &len.to_le_bytes());
        put(out, at + 33, &padded.to_le_bytes());
        put(out, at + 41, &self.time.to_le_bytes());
        put(out, at + 49, &self.time.to_le_bytes());
    }
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use forerun_io::MemorySource;

    use super::*;
    use crate::payload::Sif;

    #[test]
    fn a_new_file_has_the_image_as_its_root() {
        for (definition, offset) in [(None, 32_768), (Some(vec![b'#'; 5000]), 40_960)] {
            let sif = NewSif::new("arm64", definition.clone(), ZERO_TIME).unwrap();
            let front = sif.front(4096);
            assert_eq!(front.len(), offset);
            assert_eq!(sif.front(0).len(), offset);
            assert_eq!(&front[45..48], b"04\0");
            if let Some(definition) = definition {
                assert_eq!(front[DATA..DATA + definition.len()], definition);
            }
            let file = MemorySource::new([front, vec![0; 4096]].concat());
            let read = Sif::read(&file).unwrap().unwrap();
            let root = read.root().unwrap();
            assert_eq!((root.offset, root.size), (u64_from(offset), Some(4096)));
            assert_eq!(read.overlays().unwrap(), []);
        }
        assert!(NewSif::new("x86_64", None, 0).is_none());
    }
}
