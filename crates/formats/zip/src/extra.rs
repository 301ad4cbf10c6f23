//! Extra fields (4.5): attributes of members that do not fit into the headers.

use forerun_vfs::Timestamp;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use crate::time;

/// The extra fields that the driver uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra<'b> {
    /// Contents of the zip64 field (4.5.3).
    pub zip64: Option<&'b [u8]>,
    /// Last modification, from the extended timestamp or else from the NTFS field.
    pub mtime: Option<Timestamp>,
    pub owner: Option<(u32, u32)>,
    /// The name in UTF-8, and the CRC-32 of the original name (4.6.9).
    pub unicode: Option<(u32, &'b [u8])>,
}

const ZIP64: u16 = 0x0001;
const NTFS: u16 = 0x000a;
/// Info-ZIP's extended timestamp, "UT".
const TIMES: u16 = 0x5455;
const UNICODE_PATH: u16 = 0x7075;
const OWNER: u16 = 0x7875;

impl<'b> Extra<'b> {
    /// Parses the fields. Ignores truncated and unknown fields, as all programs do. Of several
    /// fields of a kind the first counts.
    pub fn parse(mut bytes: &'b [u8]) -> Self {
        let mut extra = Self::default();
        let mut ntfs = None;
        while let Some((id, contents, rest)) = field(bytes) {
            match id {
                ZIP64 => extra.zip64 = extra.zip64.or(Some(contents)),
                TIMES => extra.mtime = extra.mtime.or_else(|| extended(contents)),
                NTFS => ntfs = ntfs.or_else(|| of_ntfs(contents)),
                OWNER => extra.owner = extra.owner.or_else(|| owner(contents)),
                UNICODE_PATH => extra.unicode = extra.unicode.or_else(|| unicode(contents)),
                _ => {}
            }
            bytes = rest;
        }
        extra.mtime = extra.mtime.or(ntfs);
        extra
    }
}

/// Splits off the first field: its number, its contents, and the remaining fields.
fn field(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let (id, rest) = U16::read_from_prefix(bytes).ok()?;
    let (len, rest) = U16::read_from_prefix(rest).ok()?;
    let (contents, rest) = rest.split_at_checked(usize::from(len.get()))?;
    Some((id.get(), contents, rest))
}

/// Returns the modification time of an extended timestamp, the only time that the directory stores
/// in it.
fn extended(contents: &[u8]) -> Option<Timestamp> {
    let (&flags, rest) = contents.split_first()?;
    let (seconds, _) = U32::read_from_prefix(rest).ok()?;
    (flags & 1 != 0).then(|| Timestamp {
        // Signed, contrary to Info-ZIP's specification, as unzip and libarchive read it.
        seconds: i64::from(seconds.get().cast_signed()),
        nanoseconds: 0,
    })
}

/// Returns the modification time from attribute 1 of an NTFS field (4.5.5).
fn of_ntfs(contents: &[u8]) -> Option<Timestamp> {
    let mut attributes = contents.get(4..)?;
    while let Some((tag, times, rest)) = field(attributes) {
        if tag == 1 {
            let (ticks, _) = U64::read_from_prefix(times).ok()?;
            return Some(time::of_ntfs(ticks.get()));
        }
        attributes = rest;
    }
    None
}

/// Returns owner and group: a version, and two numbers, each preceded by its length.
fn owner(contents: &[u8]) -> Option<(u32, u32)> {
    let (&version, rest) = contents.split_first()?;
    let (uid, rest) = number(rest)?;
    let (gid, _) = number(rest)?;
    (version == 1).then_some((uid, gid))
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (&len, rest) = bytes.split_first()?;
    let (digits, rest) = rest.split_at_checked(usize::from(len))?;
    let (low, high) = digits.split_at(digits.len().min(4));
    let mut number = [0; 4];
    number.get_mut(..low.len())?.copy_from_slice(low);
    let fits = high.iter().all(|&byte| byte == 0);
    fits.then_some((u32::from_le_bytes(number), rest))
}

fn unicode(contents: &[u8]) -> Option<(u32, &[u8])> {
    let (&version, rest) = contents.split_first()?;
    let (crc, name) = U32::read_from_prefix(rest).ok()?;
    (version == 1 && std::str::from_utf8(name).is_ok()).then_some((crc.get(), name))
}

/// Reads the values of a zip64 field in their order, one for each header field that has its maximum
/// value.
pub struct Zip64<'b> {
    left: Option<&'b [u8]>,
}

impl<'b> Zip64<'b> {
    pub const fn new(extra: &Extra<'b>) -> Self {
        Self { left: extra.zip64 }
    }

    /// Returns the value of a 32-bit field. If the field has its maximum, its value is in the zip64
    /// field; returns `None` if that lacks it.
    pub fn long(&mut self, field: u32) -> Option<u64> {
        if field != u32::MAX {
            return Some(u64::from(field));
        }
        // Programs that write exactly this size add no zip64 field.
        let Some(left) = self.left else {
            return Some(u64::from(field));
        };
        let (value, rest) = U64::read_from_prefix(left).ok()?;
        self.left = Some(rest);
        Some(value.get())
    }

    /// Returns the value of a disk number in the same way.
    pub fn disk(&mut self, field: u16) -> Option<u32> {
        let Some(left) = self.left.filter(|_| field == u16::MAX) else {
            return Some(u32::from(field));
        };
        let (value, _) = U32::read_from_prefix(left).ok()?;
        Some(value.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(list: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (id, contents) in list {
            bytes.extend(id.to_le_bytes());
            bytes.extend(u16::try_from(contents.len()).unwrap_or(0).to_le_bytes());
            bytes.extend_from_slice(contents);
        }
        bytes
    }

    #[test]
    fn known_fields() {
        let ntfs = [&[0; 4][..], &fields(&[(1, &[0; 24])])].concat();
        let bytes = fields(&[
            (0x1234, b"other"),
            (NTFS, &ntfs),
            (TIMES, &[3, 0xff, 0xff, 0xff, 0xff, 1, 1, 1, 1]),
            (OWNER, &[1, 4, 1, 2, 0, 0, 2, 7, 0]),
            (UNICODE_PATH, b"\x01\x01\x00\x00\x00name"),
            (ZIP64, &[9; 8]),
            (ZIP64, &[8; 8]),
        ]);
        let seconds = |seconds| {
            let nanoseconds = 0;
            Some(Timestamp {
                seconds,
                nanoseconds,
            })
        };
        let expected = Extra {
            zip64: Some(&[9; 8]),
            mtime: seconds(-1),
            owner: Some((0x201, 7)),
            unicode: Some((1, b"name")),
        };
        assert_eq!(Extra::parse(&bytes), expected);
        let of_windows = fields(&[(NTFS, &ntfs)]);
        assert_eq!(Extra::parse(&of_windows).mtime, seconds(-11_644_473_600));
    }

    #[test]
    fn damaged_fields_are_ignored() {
        let none = Extra::default();
        for bytes in [
            &[1][..],
            &[1, 0, 8, 0, 1],
            &fields(&[(TIMES, &[]), (TIMES, &[2, 1, 1, 1, 1]), (TIMES, &[1, 1])]),
            &fields(&[
                (OWNER, &[2, 1, 1, 1, 1]),
                (OWNER, &[1, 9, 1]),
                (OWNER, &[1, 5, 0, 0, 0, 0, 1, 0]),
            ]),
            &fields(&[(NTFS, &[0; 3]), (NTFS, &[0, 0, 0, 0, 1, 0, 8, 0, 1])]),
            &fields(&[
                (UNICODE_PATH, b"\x01\x01\x00\x00\x00\xff"),
                (UNICODE_PATH, b"\x02\x01\x00\x00\x00a"),
            ]),
        ] {
            assert_eq!(Extra::parse(bytes), none, "{bytes:02x?}");
        }
    }

    #[test]
    fn zip64_values_come_in_order() {
        let mut contents = Vec::new();
        contents.extend(1_u64.to_le_bytes());
        contents.extend(2_u64.to_le_bytes());
        contents.extend(3_u32.to_le_bytes());
        let extra = Extra {
            zip64: Some(&contents),
            ..Extra::default()
        };
        let mut zip64 = Zip64::new(&extra);
        let found = [u32::MAX, 7, u32::MAX].map(|field| zip64.long(field));
        assert_eq!(found, [Some(1), Some(7), Some(2)]);
        assert_eq!(zip64.disk(u16::MAX), Some(3));
        assert_eq!(zip64.long(u32::MAX), None);
        let mut none = Zip64::new(&Extra::default());
        assert_eq!(none.long(u32::MAX), Some(u64::from(u32::MAX)));
        assert_eq!((none.disk(u16::MAX), none.disk(0)), (Some(0xffff), Some(0)));
    }
}
