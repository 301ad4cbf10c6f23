//! Contents that boot loaders load: U-Boot images, device trees, kernels.

use forerun_io::{u64_from, usize_from};
use libdeflater::crc32;

use super::{Bytes, Found, joined, made};

pub const UIMAGE_LEN: u64 = 64;

/// Maximum number of bytes of a device tree's structure that are read for node names.
const STRUCTURE: u64 = 4 << 20;

/// A legacy U-Boot image.
pub fn uimage(b: &mut Bytes<'_>) -> Option<Found> {
    let mut head = b.array::<64>(0)?;
    let crc = b.be(4, 4)?;
    head.get_mut(4..8)?.fill(0);
    if u64::from(crc32(&head)) != crc {
        return None;
    }
    let len = b.be(12, 4)? + UIMAGE_LEN;
    let kind = match b.be(30, 1)? {
        1 => "program",
        2 => "kernel",
        3 => "RAM disk",
        4 => "several files",
        5 => "firmware",
        6 => "script",
        7 => "filesystem",
        8 => "device tree",
        _ => "data",
    };
    let packed = match b.be(31, 1)? {
        1 => "gzip",
        2 => "bzip2",
        3 => "lzma",
        4 => "lzo",
        5 => "lz4",
        6 => "zstd",
        _ => "",
    };
    let details = joined([Some(kind.into()), Some(packed.into()), made(b.be(8, 4)?)]);
    let name = b.text(32, 32);
    let mut found = Found::of(len)
        .label(name)
        .details(details)
        .around(UIMAGE_LEN);
    let sum = u32::try_from(b.be(24, 4)?).ok()?;
    found.sum = Some((UIMAGE_LEN..len, sum));
    Some(found)
}

/// A flattened device tree. With a node `images`, it is a FIT image for U-Boot.
pub fn device_tree(b: &mut Bytes<'_>) -> Option<Found> {
    let [len, structure, strings] = [b.be(4, 4)?, b.be(8, 4)?, b.be(12, 4)?];
    let [version, compatible] = [b.be(20, 4)?, b.be(24, 4)?];
    let is_inside = |offset: u64| (28..len).contains(&offset) && len <= b.left();
    if !is_inside(structure) || !is_inside(strings) || !(2..=17).contains(&version) {
        return None;
    }
    if compatible > version || !structure.is_multiple_of(4) {
        return None;
    }
    let facts = tree_facts(b, structure..len.min(structure + STRUCTURE), strings)?;
    let Some(images) = facts.images else {
        return Some(Found::of(len).label(facts.model).details(facts.compatible));
    };
    let images = format!("FIT image: {}", images.join(", "));
    let made = facts.timestamp.and_then(made);
    let details = joined([Some(images), made]);
    Some(
        Found::of(len)
            .label(facts.description)
            .details(details)
            .around(len),
    )
}

#[derive(Default)]
struct TreeFacts {
    model: Vec<u8>,
    description: Vec<u8>,
    compatible: String,
    timestamp: Option<u64>,
    /// The names of the nodes in `/images`.
    images: Option<Vec<String>>,
}

/// Maximum number of images of a FIT image that are listed.
const MOST_IMAGES: usize = 32;

/// Reads the structure to its end. Returns `None` if it is invalid.
fn tree_facts(b: &mut Bytes<'_>, range: std::ops::Range<u64>, strings: u64) -> Option<TreeFacts> {
    let mut facts = TreeFacts::default();
    let (mut at, mut depth, mut is_images) = (range.start, 0_u32, false);
    while at < range.end {
        let token = b.be(at, 4)?;
        at += 4;
        match token {
            1 => {
                let name = b.up_to(at, 256);
                let len = name.iter().position(|&byte| byte == 0)?;
                let name = String::from_utf8_lossy(&name[..len]).into_owned();
                at = (at + u64_from(len) + 1).next_multiple_of(4);
                depth += 1;
                match depth {
                    1 if !name.is_empty() => return None,
                    2 => is_images = name == "images",
                    3 if is_images => {
                        let images = facts.images.get_or_insert_default();
                        if images.len() < MOST_IMAGES {
                            images.push(name);
                        }
                    }
                    _ => {}
                }
            }
            2 => depth = depth.checked_sub(1)?,
            3 => {
                let (len, name) = (b.be(at, 4)?, b.be(at + 4, 4)?);
                at += 8;
                if depth == 1 {
                    let name = b.text(strings + name, 16);
                    let value = b.text(at, usize_from(len.min(200)));
                    match &name[..] {
                        b"model" => facts.model = value,
                        b"description" => facts.description = value,
                        b"compatible" => {
                            facts.compatible = String::from_utf8_lossy(&value).into_owned();
                        }
                        b"timestamp" if len == 4 => facts.timestamp = b.be(at, 4),
                        _ => {}
                    }
                }
                at = at.checked_add(len)?.next_multiple_of(4);
            }
            4 => {}
            9 => return (depth == 0).then_some(facts),
            _ => return None,
        }
    }
    Some(facts)
}

/// An x86 kernel in the form for boot loaders. Its last part is compressed.
pub fn bzimage(b: &mut Bytes<'_>) -> Option<Found> {
    let [sectors, protocol] = [b.le(0x1f1, 1)?, b.le(0x206, 2)?];
    if !b.has(0x1fe, b"\x55\xaa") || !(0x200..0x300).contains(&protocol) || sectors > 64 {
        return None;
    }
    let sectors = if sectors == 0 { 4 } else { sectors };
    let version = match b.le(0x20e, 2)? {
        0 => Vec::new(),
        at => b.text(at + 0x200, 128),
    };
    let len = (sectors + 1) * 512 + b.le(0x1f4, 4)? * 16;
    Some(Found::of(len).details(String::from_utf8_lossy(&version)))
}

pub fn zimage(b: &mut Bytes<'_>) -> Option<Found> {
    let [start, end] = [b.le(0x28, 4)?, b.le(0x2c, 4)?];
    let len = end.checked_sub(start)?;
    (0x400..1 << 28).contains(&len).then(|| Found::of(len))
}

pub fn arm64(b: &mut Bytes<'_>) -> Option<Found> {
    let [offset, memory, flags] = [b.le(8, 8)?, b.le(16, 8)?, b.le(24, 8)?];
    let is_valid = offset < 1 << 24 && memory < 1 << 30 && flags < 16 && b.le(32, 8)? == 0;
    raw_image(b, memory, is_valid)
}

pub fn riscv(b: &mut Bytes<'_>) -> Option<Found> {
    let [offset, memory, flags] = [b.le(8, 8)?, b.le(16, 8)?, b.le(24, 8)?];
    let is_valid =
        offset < 1 << 28 && memory < 1 << 30 && flags < 16 && b.has(0x30, b"RISCV\0\0\0");
    raw_image(b, memory, is_valid)
}

/// An image whose header states only its memory size, which exceeds its file size.
fn raw_image(b: &mut Bytes<'_>, memory: u64, is_valid: bool) -> Option<Found> {
    let details = format!("takes {memory} bytes of memory");
    (is_valid && memory > 0).then(|| Found::of(None).details(details).around(b.left().min(64)))
}

/// The first line of a kernel's output, with the version, the compiler and the date.
pub fn version(b: &mut Bytes<'_>) -> Option<Found> {
    let text = b.up_to(0, 512);
    let text = text.split(|&byte| byte == 0 || byte == b'\n').next()?;
    let is_text = text.len() > 20 && text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    let is_version = is_text && text.get(14)?.is_ascii_digit();
    let details = text.get(14..)?.to_vec();
    is_version.then(|| Found::of(u64_from(text.len())).details(String::from_utf8_lossy(&details)))
}

/// An Android kernel and RAM disk, in pages.
pub fn android(b: &mut Bytes<'_>) -> Option<Found> {
    let version = b.le(40, 4)?;
    let [kernel, disk] = [b.le(8, 4)?, b.le(if version < 3 { 16 } else { 12 }, 4)?];
    let (page, mut parts) = if version < 3 {
        (b.le(36, 4)?, vec![kernel, disk, b.le(24, 4)?])
    } else {
        (4096, vec![kernel, disk])
    };
    let is_page = page.is_power_of_two() && (2048..=1 << 16).contains(&page);
    if !is_page || kernel == 0 {
        return None;
    }
    match version {
        0 | 3 => {}
        1 | 2 => {
            parts.push(b.le(1632, 4)?);
            if version == 2 {
                parts.push(b.le(1648, 4)?);
            }
        }
        4 => parts.push(b.le(1580, 4)?),
        // Old vendor versions store the length of a device tree in this field.
        other => parts.push(other),
    }
    let parts: u64 = parts
        .into_iter()
        .map(|len| len.next_multiple_of(page))
        .sum();
    let name = if version < 3 {
        b.text(48, 16)
    } else {
        Vec::new()
    };
    // Date and patch level of the operating system.
    let level = b.le(if version < 3 { 44 } else { 16 }, 4)? & 0x7ff;
    let (year, month) = (2000 + (level >> 4), level & 15);
    let patched = (month > 0).then(|| format!("patches of {year}-{month:02}"));
    let details = joined([
        (version <= 4).then(|| format!("version {version}")),
        patched,
    ]);
    Some(
        Found::of(page + parts)
            .label(name)
            .details(details)
            .around(page),
    )
}
