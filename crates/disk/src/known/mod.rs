//! Contents that a scan identifies although forerun does not open them: a table of magic numbers.
//! Each has a check that random bytes fail. The check returns the length if the bytes tell it.
//!
//! The checks are independent of the scan: they see the source from the start of a candidate on.

mod archives;
mod boot;
mod bytes;
mod filesystems;
mod firmware;
mod keys;
mod streams;
#[cfg(test)]
mod tests;

use std::ops::Range;

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Magic, Result};

pub use bytes::{Budget, Bytes};
pub use streams::decode_stream;

/// A kind of contents.
#[derive(Clone, Copy)]
pub struct Known {
    /// Short stable name, for JSON output.
    pub name: &'static str,
    pub magic: Magic,
    /// Validates a candidate.
    pub check: fn(&mut Bytes<'_>) -> Option<Found>,
    pub role: Role,
}

/// The purpose of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// A filesystem, or other contents of a whole device, which are valuable to their owner; with
    /// its name for people.
    Volume(&'static str),
    /// A stream. Its check decodes it.
    Stream,
}

impl Known {
    /// Returns the kind of a stream that starts with `head`.
    pub fn stream_at(head: &[u8]) -> Option<&'static Self> {
        let mut streams = KNOWN.iter().filter(|it| it.role == Role::Stream);
        streams.find(|it| {
            let bytes = head.get(usize_from(it.magic.offset)..);
            bytes.is_some_and(|bytes| bytes.starts_with(it.magic.bytes))
        })
    }
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The facts about valid contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Length in bytes, which may exceed the source; `None` if the bytes do not tell.
    pub len: Option<u64>,
    pub label: Vec<u8>,
    /// Further facts as text.
    pub details: String,
    pub inside: Inside,
    /// A range with a checksum, and its CRC-32.
    pub sum: Option<(Range<u64>, u32)>,
}

/// What a scan searches for inside of found contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inside {
    /// Nothing: the contents are compressed, encrypted or scattered.
    #[default]
    Nothing,
    /// Only images: the contents are files.
    Images,
    /// Everything after a header of this many bytes.
    All(u64),
}

impl Found {
    fn of(len: impl Into<Option<u64>>) -> Self {
        Self {
            len: len.into(),
            ..Self::default()
        }
    }

    fn label(mut self, label: impl Into<Vec<u8>>) -> Self {
        self.label = label.into();
        self
    }

    fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// Marks everything after a header of `len` bytes as other contents.
    fn around(mut self, len: u64) -> Self {
        self.inside = Inside::All(len);
        self
    }

    /// Marks the contents as uncompressed files.
    const fn of_files(mut self) -> Self {
        self.inside = Inside::Images;
        self
    }
}

const fn kind(
    name: &'static str,
    offset: u64,
    bytes: &'static [u8],
    check: fn(&mut Bytes<'_>) -> Option<Found>,
) -> Known {
    Known {
        name,
        magic: Magic { offset, bytes },
        check,
        role: Role::Plain,
    }
}

const fn volume(title: &'static str, mut known: Known) -> Known {
    known.role = Role::Volume(title);
    known
}

const fn stream(mut known: Known) -> Known {
    known.role = Role::Stream;
    known
}

/// All kinds. A kind with two magic numbers has two rows. No magic number begins with two bytes of
/// 0x00 or 0xFF, which are frequent.
#[rustfmt::skip]
pub const KNOWN: &[Known] = &[
    volume("ext2, ext3 or ext4", kind("ext", 0x438, b"\x53\xef", filesystems::ext)),
    volume("FAT", kind("fat", 0x36, b"FAT1", filesystems::fat)),
    volume("FAT", kind("fat", 0x52, b"FAT32   ", filesystems::fat)),
    volume("NTFS", kind("ntfs", 3, b"NTFS    ", filesystems::ntfs)),
    volume("BitLocker", kind("bitlocker", 3, b"-FVE-FS-", filesystems::bitlocker)),
    volume("xfs", kind("xfs", 0, b"XFSB", filesystems::xfs)),
    volume("btrfs", kind("btrfs", 0x1_0040, b"_BHRfS_M", filesystems::btrfs)),
    volume("f2fs", kind("f2fs", 0x400, b"\x10\x20\xf5\xf2", filesystems::f2fs)),
    volume("HFS+", kind("hfsplus", 0x400, b"H+\x00\x04", filesystems::hfsplus)),
    volume("ReiserFS", kind("reiserfs", 0x1_0034, b"ReIsEr", filesystems::reiserfs)),
    volume("JFS", kind("jfs", 0x8000, b"JFS1", filesystems::jfs)),
    kind("minix", 0x410, b"\x7f\x13", filesystems::minix),
    kind("minix", 0x410, b"\x8f\x13", filesystems::minix),
    kind("minix", 0x410, b"\x68\x24", filesystems::minix),
    kind("minix", 0x410, b"\x78\x24", filesystems::minix),
    volume("ISO 9660", kind("iso9660", 0x8001, b"CD001", filesystems::iso9660)),
    volume("UDF", kind("udf", 0x8001, b"BEA01", filesystems::udf)),
    volume("LUKS", kind("luks", 0, b"LUKS\xba\xbe", filesystems::luks)),
    volume("swap", kind("swap", 0xff6, b"SWAPSPACE2", filesystems::swap)),
    volume("LVM", kind("lvm", 0x200, b"LABELONE", filesystems::lvm)),
    volume("LVM", kind("lvm", 0x218, b"LVM2 001", filesystems::lvm)),
    volume("RAID", kind("raid", 0x1000, b"\xfc\x4e\x2b\xa9", filesystems::raid)),
    kind("verity", 0, b"verity\0\0", filesystems::verity),
    kind("verity", 0, b"\x01\xb0\x01\xb0", filesystems::android_verity),
    kind("vbmeta", 0, b"AVB0", filesystems::vbmeta),
    kind("vbmeta-footer", 0, b"AVBf", filesystems::vbmeta_footer),
    kind("jffs2", 0, b"\x85\x19", filesystems::jffs2),
    kind("jffs2", 0, b"\x19\x85", filesystems::jffs2),
    volume("a UBIFS filesystem", kind("ubifs", 0, b"\x31\x18\x10\x06", filesystems::ubifs)),
    kind("cpio", 0, b"070701", archives::cpio),
    kind("cpio", 0, b"070702", archives::cpio),
    kind("cpio", 0, b"070707", archives::cpio),
    kind("zip", 0, b"PK\x03\x04", archives::zip),
    kind("7z", 0, b"7z\xbc\xaf\x27\x1c", archives::seven_zip),
    kind("rar", 0, b"Rar!\x1a\x07\x00", archives::rar),
    kind("rar", 0, b"Rar!\x1a\x07\x01\x00", archives::rar),
    kind("cab", 0, b"MSCF\0\0\0\0", archives::cab),
    kind("ar", 0, b"!<arch>\n", archives::ar),
    stream(kind("gzip", 0, b"\x1f\x8b\x08", streams::gzip)),
    stream(kind("xz", 0, b"\xfd7zXZ\0", streams::xz)),
    stream(kind("zstd", 0, b"\x28\xb5\x2f\xfd", streams::zstd)),
    stream(kind("bzip2", 4, b"1AY&SY", streams::bzip2)),
    stream(kind("lzma", 0, b"\x5d\x00\x00", streams::lzma)),
    stream(kind("lzma", 0, b"\x5a\x00\x00", streams::lzma)),
    stream(kind("lzma", 0, b"\x6d\x00\x00", streams::lzma)),
    stream(kind("lzma", 0, b"\x6e\x00\x00", streams::lzma)),
    stream(kind("lz4", 0, b"\x04\x22\x4d\x18", streams::lz4)),
    stream(kind("lz4", 0, b"\x02\x21\x4c\x18", streams::lz4_legacy)),
    kind("lzop", 0, b"\x89LZO\0\r\n\x1a\n", streams::lzop),
    kind("uimage", 0, b"\x27\x05\x19\x56", boot::uimage),
    kind("dtb", 0, b"\xd0\x0d\xfe\xed", boot::device_tree),
    kind("bzimage", 0x202, b"HdrS", boot::bzimage),
    kind("zimage", 0x24, b"\x18\x28\x6f\x01", boot::zimage),
    kind("arm64-image", 0x38, b"ARM\x64", boot::arm64),
    kind("riscv-image", 0x38, b"RSC\x05", boot::riscv),
    kind("linux-version", 0, b"Linux version ", boot::version),
    kind("android-boot", 0, b"ANDROID!", boot::android),
    kind("trx", 0, b"HDR0", firmware::trx),
    kind("uefi-volume", 0x28, b"_FVH", firmware::uefi_volume),
    kind("elf", 0, b"\x7fELF", firmware::elf),
    kind("pe", 0, b"MZ", firmware::pe),
    kind("pem", 5, b"BEGIN ", keys::pem),
    kind("certificate", 8, b"\xa0\x03\x02\x01\x02\x02", keys::certificate),
    kind("private-key", 4, b"\x02\x01\x00\x30", keys::pkcs8),
    kind("private-key", 3, b"\x02\x01\x00\x30\x13", keys::pkcs8),
    kind("private-key", 4, b"\x02\x01\x00\x02\x82", keys::pkcs1),
    kind("ssh-public-key", 0, b"ssh-rsa AAAA", keys::ssh),
    kind("ssh-public-key", 0, b"ssh-ed25519 AAAA", keys::ssh),
];

/// Returns the name of the filesystem or other device contents whose magic number `source` starts
/// with. Programs use it before they overwrite a device. Nothing is validated, because a false
/// warning is better than a missing one.
pub fn volume_at_start(source: &dyn ReadAt) -> Result<Option<&'static str>> {
    let volumes = KNOWN.iter().filter_map(|it| match it.role {
        Role::Volume(title) => Some((&it.magic, title)),
        Role::Plain | Role::Stream => None,
    });
    let needed = volumes
        .clone()
        .map(|(magic, _)| magic.offset + u64_from(magic.bytes.len()));
    let mut head = vec![0; usize_from(needed.max().unwrap_or(0).min(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    let mut volumes = volumes.filter(|(magic, _)| {
        let bytes = head.get(usize_from(magic.offset)..);
        bytes.is_some_and(|bytes| bytes.starts_with(magic.bytes))
    });
    Ok(volumes.next().map(|(_, title)| title))
}

/// Formats a time as a date in UTC. Returns `None` for times that images do not have.
pub fn date(seconds: i64) -> Option<String> {
    let time = jiff::Timestamp::from_second(seconds)
        .ok()
        .filter(|_| seconds > 0)?;
    Some(time.strftime("%Y-%m-%d").to_string())
}

fn made(seconds: u64) -> Option<String> {
    Some(format!("made {}", date(seconds.try_into().ok()?)?))
}

/// Joins the known parts with commas.
fn joined(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts = parts.into_iter().flatten().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}
