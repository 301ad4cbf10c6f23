//! Firmware containers, and programs.

use super::{Bytes, Found};

pub fn trx(b: &mut Bytes<'_>) -> Option<Found> {
    let len = b.le(4, 4)?;
    let version = b.le(14, 2)?;
    let parts = match version {
        1 => 3,
        2 => 4,
        _ => return None,
    };
    let head = 16 + 4 * parts;
    let (mut before, mut used) = (0, 0);
    for part in 0..parts {
        let offset = b.le(16 + 4 * part, 4)?;
        if offset == 0 {
            continue;
        }
        // Parts follow the header in order.
        if offset < head || offset <= before || offset >= len {
            return None;
        }
        before = offset;
        used += 1;
    }
    if used == 0 || len > b.left() {
        return None;
    }
    let details = format!("version {version}, parts: {used}");
    let mut found = Found::of(len).details(details).around(head);
    // The checksum is a CRC-32 without the final inversion.
    let crc = u32::try_from(b.le(8, 4)?).ok()?;
    found.sum = Some((12..len, !crc));
    Some(found)
}

pub fn uefi_volume(b: &mut Bytes<'_>) -> Option<Found> {
    let [len, head, revision] = [b.le(32, 8)?, b.le(48, 2)?, b.le(55, 1)?];
    if !(56..4096).contains(&head) || !matches!(revision, 1 | 2) || len <= head {
        return None;
    }
    let mut sum = 0_u64;
    for at in (0..head).step_by(2) {
        sum += b.le(at, 2)?;
    }
    let is_valid = sum & 0xffff == 0 && b.has(0, &[0; 16]);
    is_valid.then(|| Found::of(len).around(head))
}

/// A program or library. It ends with its section headers, or with its last segment or section.
pub fn elf(b: &mut Bytes<'_>) -> Option<Found> {
    let [class, order, version] = [b.le(4, 1)?, b.le(5, 1)?, b.le(6, 1)?];
    let is_wide = class == 2;
    if !matches!(class, 1 | 2) || !matches!(order, 1 | 2) || version != 1 {
        return None;
    }
    let mut number = |at: u64, len: usize| match order {
        1 => b.le(at, len),
        _ => b.be(at, len),
    };
    let word = if is_wide { 8 } else { 4 };
    let pick = |narrow: u64, wide: u64| if is_wide { wide } else { narrow };
    let (kind, machine) = (number(16, 2)?, number(18, 2)?);
    let segments = number(pick(28, 32), word)?;
    let sections = number(pick(32, 40), word)?;
    let counts = pick(42, 54);
    let (segment, segment_count) = (number(counts, 2)?, number(counts + 2, 2)?);
    let (section, section_count) = (number(counts + 4, 2)?, number(counts + 6, 2)?);
    let head = pick(52, 64);
    if !(1..=4).contains(&kind) || number(20, 4)? != 1 || number(counts - 2, 2)? != head {
        return None;
    }
    let mut end = head;
    if segment_count > 0 {
        if segment != pick(32, 56) {
            return None;
        }
        for n in 0..segment_count {
            let at = segments.checked_add(n * segment)?;
            let offset = number(at.checked_add(pick(4, 8))?, word)?;
            let len = number(at.checked_add(pick(16, 32))?, word)?;
            end = end.max(offset.checked_add(len)?);
        }
    }
    if section_count > 0 && section == pick(40, 64) {
        end = end.max(sections.checked_add(section_count * section)?);
    }
    let machine = match machine {
        3 => "x86",
        8 => "MIPS",
        20 | 21 => "PowerPC",
        40 => "ARM",
        62 => "x86-64",
        183 => "ARM64",
        243 => "RISC-V",
        _ => "another machine",
    };
    let kind = ["object", "program", "library", "core"][usize::try_from(kind).ok()? - 1];
    (end > head).then(|| {
        Found::of(end)
            .details(format!("{kind}, {machine}"))
            .of_files()
    })
}

pub fn pe(b: &mut Bytes<'_>) -> Option<Found> {
    let head = b.le(0x3c, 4)?;
    let is_kernel = b.has(0x202, b"HdrS") || b.has(0x38, b"ARM\x64") || b.has(0x38, b"RSC\x05");
    if is_kernel || !(0x40..0x1000).contains(&head) || !b.has(head, b"PE\0\0") {
        return None;
    }
    let [sections, options] = [b.le(head + 6, 2)?, b.le(head + 20, 2)?];
    let kind = b.le(head + 24, 2)?;
    if sections == 0 || sections > 96 || !matches!(kind, 0x10b | 0x20b) {
        return None;
    }
    let mut end = b.le(head + 24 + 60, 4)?;
    for n in 0..sections {
        let at = head + 24 + options + 40 * n;
        end = end.max(b.le(at + 20, 4)? + b.le(at + 16, 4)?);
    }
    // Signatures follow the sections, at the offset that a directory stores.
    let signatures = head + 24 + if kind == 0x10b { 128 } else { 144 };
    let (at, len) = (b.le(signatures, 4)?, b.le(signatures + 4, 4)?);
    if at >= end && at - end < 16 {
        end = at + len;
    }
    (end > 0x200).then(|| Found::of(end).of_files())
}
