//! The text of `unsquashfs -stat`.

use forerun::Image;
use forerun::unstable::squashfs::{
    CompressorOptions, Squashfs, SuperblockFacts, superblock_flags as flags,
};
use forerun::vfs::ByteOrder;
use jiff::tz::TimeZone;

use crate::error::{Failure, Result};

/// Returns the fields of an image's superblock.
fn facts(image: &Image) -> Result<SuperblockFacts> {
    let missing = || Failure::usage("the image was opened as another format");
    let driver: &Squashfs = image.driver().ok_or_else(missing)?;
    Ok(driver.superblock()?)
}

/// Returns the creation time of the image, in seconds since 1970.
pub fn mkfs_time(image: &Image) -> Result<u32> {
    Ok(facts(image)?.mkfs_time)
}

/// Returns the description of an image with the name `name`.
pub fn describe(image: &Image, name: &str, zone: &TimeZone) -> Result<String> {
    let facts = facts(image)?;
    let (major, minor) = facts.version;
    let order = match facts.order {
        Some(ByteOrder::Big) => "big endian ",
        Some(ByteOrder::Little) => "little endian ",
        None => "",
    };
    let is_legacy = major < 4;
    let mut lines = vec![format!(
        "Found a valid {order}SQUASHFS {major}:{minor} superblock on {name}."
    )];
    if let Ok(time) = jiff::Timestamp::from_second(facts.mkfs_time.into()) {
        let time = time.to_zoned(zone.clone());
        let time = time.strftime("%a %b %e %H:%M:%S %Y");
        lines.push(format!("Creation or last append time {time}"));
    }
    lines.push(size(facts.bytes_used));
    if !is_legacy {
        lines.push(format!("Compression {}", facts.compressor));
        lines.extend(facts.options.into_iter().flat_map(options));
    }
    lines.push(format!("Block size {}", facts.block_size));
    lines.extend(flag_lines(&facts, is_legacy));
    lines.push(format!("Number of fragments {}", facts.fragments));
    lines.push(format!("Number of inodes {}", facts.inodes));
    if !is_legacy {
        lines.push(format!("Number of ids {}", facts.ids));
        if !facts.has(flags::NO_XATTRS) {
            lines.push(format!("Number of xattr ids {}", facts.xattr_sets));
        }
    }
    Ok(lines.join("\n") + "\n")
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Two digits after the point are shown.
fn size(bytes: u64) -> String {
    let kibibytes = bytes as f64 / 1024.0;
    let mebibytes = kibibytes / 1024.0;
    format!("Filesystem size {bytes} bytes ({kibibytes:.2} Kbytes / {mebibytes:.2} Mbytes)")
}

/// Returns the lines about what is stored and how.
fn flag_lines(facts: &SuperblockFacts, is_legacy: bool) -> Vec<String> {
    let is_exportable = facts.has(flags::EXPORTABLE) && facts.has_export_table;
    let not = |holds: bool| if holds { "" } else { "not " };
    let how = |flag: u16| {
        if facts.has(flag) {
            "uncompressed"
        } else {
            "compressed"
        }
    };
    let mut lines = vec![
        format!("Filesystem is {}exportable via NFS", not(is_exportable)),
        format!("Inodes are {}", how(flags::UNCOMPRESSED_INODES)),
        format!("Data is {}", how(flags::UNCOMPRESSED_DATA)),
    ];
    if !is_legacy {
        let are = if facts.has(flags::UNCOMPRESSED_INODES) || facts.has(flags::UNCOMPRESSED_IDS) {
            "uncompressed"
        } else {
            "compressed"
        };
        lines.push(format!("Uids/Gids (Id table) are {are}"));
    }
    if facts.has(flags::NO_FRAGMENTS) {
        lines.push("Fragments are not stored".to_string());
    } else {
        lines.push(format!(
            "Fragments are {}",
            how(flags::UNCOMPRESSED_FRAGMENTS)
        ));
        let not = not(facts.has(flags::ALWAYS_FRAGMENTS));
        lines.push(format!("Always-use-fragments option is {not}specified"));
    }
    match (is_legacy, facts.has(flags::NO_XATTRS)) {
        (true, _) => {
            let not = not(facts.has(flags::CHECK_DATA));
            lines.push(format!("Check data is {not}present in the filesystem"));
        }
        (false, true) => lines.push("Xattrs are not stored".to_string()),
        (false, false) => lines.push(format!("Xattrs are {}", how(flags::UNCOMPRESSED_XATTRS))),
    }
    lines.push(format!(
        "Duplicates are {}removed",
        not(facts.has(flags::DUPLICATES))
    ));
    lines
}

fn options(options: CompressorOptions) -> Vec<String> {
    match options {
        CompressorOptions::Gzip {
            level,
            window,
            strategies: bits,
        } => vec![
            format!("\tcompression-level {level}"),
            format!("\twindow-size {window}"),
            format!("\tStrategies selected: {}", strategies(bits.into())),
        ],
        CompressorOptions::Xz {
            dictionary,
            filters,
        } => vec![
            format!("\tDictionary size {dictionary}"),
            match filters {
                0 => "\tNo filters specified".to_string(),
                bits => format!("\tFilters selected: {}", named(bits, FILTERS)),
            },
        ],
        CompressorOptions::Lz4 { flags, .. } if flags & 1 == 1 => {
            vec!["\tHigh Compression option specified (-Xhc)".to_string()]
        }
        CompressorOptions::Lz4 { .. } => Vec::new(),
        CompressorOptions::Lzo { algorithm, level } => lzo(algorithm, level),
        CompressorOptions::Zstd { level } => vec![format!("\tcompression-level {level}")],
    }
}

const FILTERS: &[&str] = &["x86", "powerpc", "ia64", "arm", "armthumb", "sparc"];
const STRATEGIES: &[&str] = &[
    "default",
    "filtered",
    "huffman_only",
    "run_length_encoded",
    "fixed",
];
const ALGORITHMS: &[&str] = &[
    "lzo1x_1",
    "lzo1x_1_11",
    "lzo1x_1_12",
    "lzo1x_1_15",
    "lzo1x_999",
];

fn strategies(bits: u32) -> String {
    match bits {
        0 => "default".to_string(),
        bits => named(bits, STRATEGIES),
    }
}

fn lzo(algorithm: u32, level: u32) -> Vec<String> {
    let name = usize::try_from(algorithm).ok();
    let name = name
        .and_then(|index| ALGORITHMS.get(index))
        .unwrap_or(&"unknown");
    let mut lines = vec![format!("\talgorithm {name}")];
    if *name == "lzo1x_999" {
        lines.push(format!("\tcompression level {level}"));
    }
    lines
}

/// Returns the names of the set bits.
fn named(bits: u32, names: &[&str]) -> String {
    let set = names
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1);
    let set: Vec<_> = set.map(|(_, name)| *name).collect();
    set.join(", ")
}
