//! The text of `unsquashfs -stat`.

use std::collections::HashMap;

use forerun::Image;
use jiff::tz::TimeZone;

use crate::error::Result;

/// The fields of the superblock, as the driver names them.
struct Fields {
    fields: HashMap<&'static str, String>,
    flags: Vec<String>,
}

impl Fields {
    fn of(image: &Image) -> Result<Self> {
        let fs = image.reader().fs();
        let mut fields: HashMap<_, _> = fs.describe(None)?.into_iter().collect();
        fields.extend(
            fs.volume()
                .details
                .into_iter()
                .filter(|(key, _)| *key != "flags"),
        );
        let flags = fields.get("flags").cloned().unwrap_or_default();
        Ok(Self {
            fields,
            flags: flags.split(' ').map(str::to_string).collect(),
        })
    }

    fn text(&self, key: &str) -> &str {
        self.fields.get(key).map_or("", String::as_str)
    }

    fn number(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    fn is_none(&self, key: &str) -> bool {
        self.text(key) == "none"
    }
}

/// Returns the time when the image was made, in seconds since 1970.
pub fn mkfs_time(image: &Image) -> Result<u64> {
    Ok(Fields::of(image)?.number("mkfs_time"))
}

/// Returns the description of an image that is called `name`.
pub fn describe(image: &Image, name: &str, zone: &TimeZone) -> Result<String> {
    let fields = Fields::of(image)?;
    let version = fields.text("version").replace('.', ":");
    let order = match fields.text("byte order") {
        "big-endian" => "big endian ",
        "little-endian" => "little endian ",
        _ => "",
    };
    let is_legacy = !version.starts_with('4');
    let mut lines = vec![format!(
        "Found a valid {order}SQUASHFS {version} superblock on {name}."
    )];
    let made = i64::try_from(fields.number("mkfs_time")).unwrap_or(0);
    if let Ok(time) = jiff::Timestamp::from_second(made) {
        let time = time.to_zoned(zone.clone());
        let time = time.strftime("%a %b %e %H:%M:%S %Y");
        lines.push(format!("Creation or last append time {time}"));
    }
    lines.push(size(fields.number("bytes_used")));
    if !is_legacy {
        lines.push(format!("Compression {}", fields.text("compression")));
        lines.extend(options(
            fields.text("compression"),
            fields.text("compressor_options"),
        ));
    }
    lines.push(format!("Block size {}", fields.number("block_size")));
    lines.extend(flags(&fields, is_legacy));
    lines.push(format!(
        "Number of fragments {}",
        fields.number("fragments")
    ));
    lines.push(format!("Number of inodes {}", fields.number("inodes")));
    if !is_legacy {
        lines.push(format!("Number of ids {}", fields.number("no_ids")));
        if !fields.has("no-xattrs") {
            lines.push(format!(
                "Number of xattr ids {}",
                fields.number("xattr sets")
            ));
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
fn flags(fields: &Fields, is_legacy: bool) -> Vec<String> {
    let is_exportable = fields.has("exportable") && !fields.is_none("lookup_table_start");
    let not = |holds: bool| if holds { "" } else { "not " };
    let how = |flag: &str| match fields.has(flag) {
        true => "uncompressed",
        false => "compressed",
    };
    let mut lines = vec![
        format!("Filesystem is {}exportable via NFS", not(is_exportable)),
        format!("Inodes are {}", how("uncompressed-inodes")),
        format!("Data is {}", how("uncompressed-data")),
    ];
    if !is_legacy {
        let are = match fields.has("uncompressed-inodes") || fields.has("uncompressed-ids") {
            true => "uncompressed",
            false => "compressed",
        };
        lines.push(format!("Uids/Gids (Id table) are {are}"));
    }
    if fields.has("no-fragments") {
        lines.push("Fragments are not stored".to_string());
    } else {
        lines.push(format!("Fragments are {}", how("uncompressed-fragments")));
        let not = not(fields.has("always-fragments"));
        lines.push(format!("Always-use-fragments option is {not}specified"));
    }
    match (is_legacy, fields.has("no-xattrs")) {
        (true, _) => {
            let not = not(fields.has("check-data"));
            lines.push(format!("Check data is {not}present in the filesystem"));
        }
        (false, true) => lines.push("Xattrs are not stored".to_string()),
        (false, false) => lines.push(format!("Xattrs are {}", how("uncompressed-xattrs"))),
    }
    lines.push(format!(
        "Duplicates are {}removed",
        not(fields.has("duplicates"))
    ));
    lines
}

/// Returns the lines about the options of the compressor, from the driver's words: `level 3 window 15`.
fn options(compressor: &str, text: &str) -> Vec<String> {
    let mut words = text.split(' ');
    let mut pairs = HashMap::new();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        pairs.insert(key, number(value));
    }
    let value = |key: &str| pairs.get(key).copied().unwrap_or(0);
    if pairs.is_empty() {
        return Vec::new();
    }
    match compressor {
        "gzip" => vec![
            format!("\tcompression-level {}", value("level")),
            format!("\twindow-size {}", value("window")),
            format!("\tStrategies selected: {}", strategies(value("strategies"))),
        ],
        "xz" => vec![
            format!("\tDictionary size {}", value("dictionary")),
            match value("filters") {
                0 => "\tNo filters specified".to_string(),
                bits => format!("\tFilters selected: {}", named(bits, FILTERS)),
            },
        ],
        "lz4" if value("flags") & 1 == 1 => {
            vec!["\tHigh Compression option specified (-Xhc)".to_string()]
        }
        "lzo" => lzo(value("algorithm"), value("level")),
        "zstd" => vec![format!("\tcompression-level {}", value("level"))],
        _ => Vec::new(),
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

fn strategies(bits: u64) -> String {
    match bits {
        0 => "default".to_string(),
        bits => named(bits, STRATEGIES),
    }
}

fn lzo(algorithm: u64, level: u64) -> Vec<String> {
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

/// Returns the names of the bits that are set.
fn named(bits: u64, names: &[&str]) -> String {
    let set = names
        .iter()
        .enumerate()
        .filter(|(bit, _)| bits >> bit & 1 == 1);
    let set: Vec<_> = set.map(|(_, name)| *name).collect();
    set.join(", ")
}

fn number(word: &str) -> u64 {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap_or(0),
        None => word.parse().unwrap_or(0),
    }
}
