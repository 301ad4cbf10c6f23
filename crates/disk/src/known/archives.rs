//! Archives. The checks follow the members to the end.

use forerun_io::{u64_from, usize_from};
use libdeflater::crc32;

use super::{Bytes, Found};

pub fn cpio(b: &mut Bytes<'_>) -> Option<Found> {
    let is_new = !b.has(0, b"070707");
    let name = if is_new { "newc" } else { "odc" };
    let (mut at, mut members) = (0_u64, 0_u64);
    loop {
        let member = if is_new { newc(b, at) } else { odc(b, at) };
        let Some((end, is_last)) = member else {
            let details = format!("{name}, {members} members, damaged or cut after them");
            return (members > 1).then(|| Found::of(at.min(b.left())).details(details).of_files());
        };
        at = end;
        if is_last {
            return Some(
                Found::of(at.min(b.left()))
                    .details(format!("{name}, {members} members"))
                    .of_files(),
            );
        }
        members += 1;
    }
}

/// Returns the end of a member, and whether it marks the end of the archive.
fn newc(b: &mut Bytes<'_>, at: u64) -> Option<(u64, bool)> {
    let head = b.array::<110>(at)?;
    let field = |n: usize| {
        let digits = head.get(6 + 8 * n..14 + 8 * n)?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    if !head.starts_with(b"070701") && !head.starts_with(b"070702") {
        return None;
    }
    let (size, name) = (field(6)?, field(11)?);
    let fields = (0..13).map(field).collect::<Option<Vec<_>>>();
    if fields.is_none() || !(1..=4096).contains(&name) {
        return None;
    }
    let is_last = b.has(at + 110, b"TRAILER!!!\0");
    let data = at.checked_add(110 + name)?.checked_next_multiple_of(4)?;
    let end = data.checked_add(size)?.checked_next_multiple_of(4)?;
    Some((end, is_last))
}

fn odc(b: &mut Bytes<'_>, at: u64) -> Option<(u64, bool)> {
    let head = b.array::<76>(at)?;
    let field = |start: usize, len: usize| {
        let digits = head.get(start..start + len)?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
    };
    let (name, size) = (field(59, 6)?, field(65, 11)?);
    if field(0, 6)? != 0o070_707 || field(18, 6).is_none() || !(1..=4096).contains(&name) {
        return None;
    }
    let is_last = b.has(at + 76, b"TRAILER!!!\0");
    Some((at.checked_add(76 + name + size)?, is_last))
}

/// Follows the members, and finds the end of the directory after them.
pub fn zip(b: &mut Bytes<'_>) -> Option<Found> {
    let (mut at, mut members) = (0, 0_u64);
    loop {
        match b.array::<4>(at) {
            Some([b'P', b'K', 3, 4]) => {
                let [version, flags, method] =
                    [b.le(at + 4, 1)?, b.le(at + 6, 2)?, b.le(at + 8, 2)?];
                let [stored, name, extra] =
                    [b.le(at + 18, 4)?, b.le(at + 26, 2)?, b.le(at + 28, 2)?];
                if version > 63 || method > 99 || name == 0 || name > 4096 {
                    break;
                }
                let data = at + 30 + name + extra;
                // The sizes may follow the data, or be in an extra field.
                let is_after = flags & 8 != 0 && stored == 0;
                at = if is_after || stored == 0xffff_ffff {
                    match next_member(b, data) {
                        Some(next) => next,
                        None => break,
                    }
                } else {
                    data + stored
                };
                members += 1;
            }
            Some([b'P', b'K', 7, 8]) => at = next_member(b, at + 4)?,
            Some([b'P', b'K', 1, 2]) => {
                at += 46 + b.le(at + 28, 2)? + b.le(at + 30, 2)? + b.le(at + 32, 2)?;
            }
            Some([b'P', b'K', 6, 6]) => at = at.checked_add(12)?.checked_add(b.le(at + 4, 8)?)?,
            Some([b'P', b'K', 6, 7]) => at += 20,
            Some([b'P', b'K', 5, 6]) => {
                let end = at + 22 + b.le(at + 20, 2)?;
                let details = format!("{members} members");
                return Some(Found::of(end).details(details).of_files());
            }
            // An Android signature and padding may precede the directory.
            Some(_) if members > 0 => match b.find(at, b"PK\x01\x02", 1 << 20) {
                Some(next) => at = next,
                None => break,
            },
            _ => break,
        }
    }
    let details = format!("{members} members, no directory after them: it is cut or damaged");
    let at = at.min(b.left());
    (members > 0 && b.has(0, b"PK\x03\x04")).then(|| Found::of(at).details(details).of_files())
}

/// Returns the offset of the next header of any kind. Bytes of compressed data may only look like
/// one.
fn next_member(b: &mut Bytes<'_>, from: u64) -> Option<u64> {
    let mut at = from;
    loop {
        at = b.find(at, b"PK", u64::MAX)?;
        let kind = b.array::<4>(at)?;
        if matches!(
            kind,
            [.., 3, 4] | [.., 7, 8] | [.., 1, 2] | [.., 5, 6] | [.., 6, 6]
        ) {
            return Some(at);
        }
        at += 2;
    }
}

pub fn seven_zip(b: &mut Bytes<'_>) -> Option<Found> {
    let start = b.array::<20>(12)?;
    if u64::from(crc32(&start)) != b.le(8, 4)? {
        return None;
    }
    let end = b.le(12, 8)?.checked_add(b.le(20, 8)?)?.checked_add(32)?;
    let details = format!("version {}.{}", b.le(6, 1)?, b.le(7, 1)?);
    Some(Found::of(end).details(details))
}

pub fn rar(b: &mut Bytes<'_>) -> Option<Found> {
    let is_new = b.has(6, b"\x01");
    let mut at = if is_new { 8 } else { 0 };
    let mut blocks = 0_u64;
    let len = loop {
        let block = if is_new { rar5(b, at) } else { rar4(b, at) };
        let Some((end, is_last)) = block else {
            break None;
        };
        blocks += 1;
        at = end;
        if is_last {
            break Some(at);
        }
    };
    let details = if is_new { "version 5" } else { "version 4" };
    // The signature of version 4 is a block of its own.
    (blocks > u64::from(!is_new)).then(|| Found::of(len).details(details))
}

/// Returns the end of a block, and whether it is the last.
fn rar4(b: &mut Bytes<'_>, at: u64) -> Option<(u64, bool)> {
    let [crc, kind, flags, len] = [
        b.le(at, 2)?,
        b.le(at + 2, 1)?,
        b.le(at + 3, 2)?,
        b.le(at + 5, 2)?,
    ];
    let head = b.at(at + 2, usize_from(len.checked_sub(2)?))?;
    let is_right = at == 0 || u64::from(crc32(head)) & 0xffff == crc;
    if !is_right || len < 7 {
        return None;
    }
    let data = if flags & 0x8000 == 0 {
        0
    } else {
        b.le(at + 7, 4)?
    };
    Some((at.checked_add(len + data)?, kind == 0x7b))
}

fn rar5(b: &mut Bytes<'_>, at: u64) -> Option<(u64, bool)> {
    let crc = b.le(at, 4)?;
    let (size, after) = rar_number(b, at + 4)?;
    let whole = usize_from(after - at - 4).checked_add(usize_from(size))?;
    if size == 0 || size > 1 << 21 || u64::from(crc32(b.at(at + 4, whole)?)) != crc {
        return None;
    }
    let (kind, next) = rar_number(b, after)?;
    let (flags, mut next) = rar_number(b, next)?;
    if flags & 1 != 0 {
        next = rar_number(b, next)?.1;
    }
    let data = if flags & 2 == 0 {
        0
    } else {
        rar_number(b, next)?.0
    };
    let end = (after + size).checked_add(data)?;
    Some((end, kind == 5))
}

/// Returns a number stored in seven bits per byte, and the offset after it.
fn rar_number(b: &mut Bytes<'_>, at: u64) -> Option<(u64, u64)> {
    let bytes = b.up_to(at, 10);
    let len = bytes.iter().position(|byte| byte & 0x80 == 0)? + 1;
    let digits = bytes.get(..len)?.iter().rev();
    let number = digits.fold(0_u64, |number, &byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, at + u64_from(len)))
}

pub fn cab(b: &mut Bytes<'_>) -> Option<Found> {
    let [len, files, minor] = [b.le(8, 4)?, b.le(16, 4)?, b.le(24, 1)?];
    let [major, folders, count] = [b.le(25, 1)?, b.le(26, 2)?, b.le(28, 2)?];
    let is_valid = (major, minor) == (1, 3) && folders > 0 && (36..len).contains(&files);
    is_valid.then(|| Found::of(len).details(format!("{count} files")))
}

pub fn ar(b: &mut Bytes<'_>) -> Option<Found> {
    let (mut at, mut members) = (8_u64, 0_u64);
    while b.has(at + 58, b"`\n") {
        let size = b.text(at + 48, 10);
        let size: u64 = std::str::from_utf8(&size).ok()?.parse().ok()?;
        at = at
            .checked_add(60)?
            .checked_add(size)?
            .checked_next_multiple_of(2)?;
        members += 1;
    }
    let details = format!("{members} members");
    // The last member may lack its padding.
    let end = if at == b.left() + 1 { b.left() } else { at };
    (members > 0).then(|| Found::of(end).details(details).of_files())
}
