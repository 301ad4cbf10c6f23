//! The options of SquashFS, named as in `mksquashfs`.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use forerun::build::{
    Bcj, BcjSet, Compress, Encoding, Fragments, LzmaTuning, LzoAlgorithm, SquashfsOptions,
    ZlibStrategies, ZlibStrategy,
};

use super::format::{Given, NewFormat};
use super::shared::{Compressor, Dedupe, PackedTogether, SharedArgs};
use crate::error::{Failure, Result};
use crate::size;

const BLOCK_SIZE: u32 = 128 << 10;
/// The only level of the encoder.
const LZO_LEVEL: u8 = 8;

/// Options of SquashFS.
#[derive(Args, Debug)]
pub struct SquashfsArgs {
    /// Options of the compressor, separated by commas
    #[arg(help_heading = "SquashFS", long = "compressor-options", value_name = "KEY=VALUE", value_delimiter = ',', long_help = TUNING)]
    tuning: Vec<Tuning>,
    /// Store blocks of zeros instead of leaving holes
    #[arg(help_heading = "SquashFS", long)]
    no_sparse: bool,
    /// Leave out the export table, which NFS servers need
    #[arg(help_heading = "SquashFS", long)]
    no_exports: bool,
    /// Store these parts uncompressed, separated by commas
    #[arg(
        help_heading = "SquashFS",
        long,
        value_name = "WHAT",
        value_delimiter = ','
    )]
    no_compress: Vec<Part>,
    /// Do not pad the image to a multiple of 4 KiB (loop devices need the padding)
    #[arg(help_heading = "SquashFS", long)]
    no_pad: bool,
}

const TUNING: &str = "\
Options of the compressor, separated by commas

- gzip: window=BITS, log2 of the window size, 8 to 15 [default: 15]
- gzip: strategy=NAME+NAME, of default, filtered, huffman_only, run_length_encoded, fixed
- xz: dict-size=BYTES, or a part of a block such as 75% [default: a block]
- xz: bcj=NAME+NAME, of x86, powerpc, arm, armthumb, sparc, arm64, riscv

If several names are given, each block uses the one that makes it smallest.";

/// Parts of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Inodes and directories
    Inodes,
    /// Data blocks
    Data,
    /// Blocks that small files and tails share
    Fragments,
    /// Extended attributes
    Xattrs,
    /// Owners
    Ids,
    /// All of these
    All,
}

/// An option of a single compressor.
#[derive(Clone, Debug, PartialEq)]
enum Tuning {
    Window(u8),
    Strategy(Vec<ZlibStrategy>),
    Dictionary(Dictionary),
    Bcj(Vec<Bcj>),
}

const STRATEGIES: [(&str, ZlibStrategy); 5] = [
    ("default", ZlibStrategy::Default),
    ("filtered", ZlibStrategy::Filtered),
    ("huffman_only", ZlibStrategy::HuffmanOnly),
    ("run_length_encoded", ZlibStrategy::RunLengthEncoded),
    ("fixed", ZlibStrategy::Fixed),
];

/// Includes ia64, which the writer refuses with a reason.
const MACHINES: [(&str, Bcj); 8] = [
    ("x86", Bcj::X86),
    ("powerpc", Bcj::PowerPc),
    ("ia64", Bcj::Ia64),
    ("arm", Bcj::Arm),
    ("armthumb", Bcj::ArmThumb),
    ("sparc", Bcj::Sparc),
    ("arm64", Bcj::Arm64),
    ("riscv", Bcj::RiscV),
];

impl FromStr for Tuning {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        match key {
            "window" => match value.parse() {
                Ok(bits @ 8..=15) => Ok(Self::Window(bits)),
                _ => Err("window must be a number from 8 to 15".to_string()),
            },
            "strategy" => named(value, &STRATEGIES).map(Self::Strategy),
            "dict-size" => parse_dictionary(value).map(Self::Dictionary),
            "bcj" => named(value, &MACHINES).map(Self::Bcj),
            _ => Err("the options are window, strategy, dict-size and bcj".to_string()),
        }
    }
}

impl Tuning {
    /// Returns the name of the option, and its compressor.
    const fn of(&self) -> (&'static str, Compressor) {
        match self {
            Self::Window(_) => ("window", Compressor::Gzip),
            Self::Strategy(_) => ("strategy", Compressor::Gzip),
            Self::Dictionary(_) => ("dict-size", Compressor::Xz),
            Self::Bcj(_) => ("bcj", Compressor::Xz),
        }
    }
}

/// Parses names that are separated by `+`.
fn named<T: Copy>(text: &str, names: &[(&str, T)]) -> std::result::Result<Vec<T>, String> {
    let find = |word: &str| {
        let found = names.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value)
    };
    let values: Option<Vec<T>> = text.split('+').map(find).collect();
    values.ok_or_else(|| {
        let names: Vec<_> = names.iter().map(|(name, _)| *name).collect();
        format!("not of {}", names.join(", "))
    })
}

/// Size of an XZ dictionary: in bytes, or as a share of the block size.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dictionary {
    Bytes(u32),
    /// Tenths of a percent of a block.
    PerMille(u32),
}

impl SquashfsArgs {
    /// Converts the arguments into the library's options, except for those that other arguments
    /// set. `default` is the compressor if none is given.
    pub fn options(&self, shared: &SharedArgs, default: Compressor) -> Result<SquashfsOptions> {
        let compressor = shared.compressor.unwrap_or(default);
        let block_size = shared.block_size.unwrap_or(BLOCK_SIZE);
        let mkfs_time = shared.image_time()?;
        let parts =
            |part| !self.no_compress.contains(&part) && !self.no_compress.contains(&Part::All);
        Ok(SquashfsOptions {
            encoding: self.encoding(shared, compressor, block_size)?,
            block_size,
            fragments: match shared.fragments {
                Some(PackedTogether::None) => Fragments::No,
                None | Some(PackedTogether::Small) => Fragments::Yes,
                Some(PackedTogether::Tails) => Fragments::Always,
                Some(PackedTogether::All) => {
                    let message = "--fragments takes none, small or tails for squashfs";
                    return Err(Failure::usage(message));
                }
            },
            duplicates: match shared.dedupe {
                Some(Dedupe::None) => false,
                None | Some(Dedupe::Files) => true,
                Some(Dedupe::Extents) => {
                    let message = "--dedupe takes none or files for squashfs";
                    return Err(Failure::usage(message));
                }
            },
            sparse: !self.no_sparse,
            exportable: !self.no_exports,
            compress: Compress {
                inodes: parts(Part::Inodes),
                data: parts(Part::Data),
                fragments: parts(Part::Fragments),
                ids: parts(Part::Ids),
                xattrs: parts(Part::Xattrs),
            },
            mkfs_time: mkfs_time.map(superblock_time).transpose()?,
            pad: !self.no_pad,
            ..SquashfsOptions::default()
        })
    }

    pub const fn given(&self) -> [Given; 5] {
        const OWN: &[NewFormat] = &[NewFormat::Squashfs];
        [
            (!self.tuning.is_empty(), "--compressor-options", OWN),
            (self.no_sparse, "--no-sparse", OWN),
            (self.no_exports, "--no-exports", OWN),
            (!self.no_compress.is_empty(), "--no-compress", OWN),
            (self.no_pad, "--no-pad", OWN),
        ]
    }

    fn encoding(
        &self,
        shared: &SharedArgs,
        compressor: Compressor,
        block_size: u32,
    ) -> Result<Encoding> {
        let refused = |option: &str, of: &str| {
            let name = compressor.name();
            let message = format!("{option} is an option of {of}, but the compressor is {name}");
            Failure::usage(message)
        };
        let has_levels = matches!(compressor, Compressor::Gzip | Compressor::Zstd);
        if shared.level.is_some() && !has_levels {
            return Err(refused("--level", "gzip, zstd"));
        }
        let (mut window_bits, mut strategies) = (15, ZlibStrategies::default());
        let (mut dictionary, mut filters) = (None, BcjSet::default());
        for tuning in &self.tuning {
            let (name, of) = tuning.of();
            if of != compressor {
                let option = format!("--compressor-options {name}");
                return Err(refused(&option, of.name()));
            }
            match tuning {
                Tuning::Window(bits) => window_bits = *bits,
                Tuning::Strategy(names) => strategies = names.iter().copied().collect(),
                Tuning::Dictionary(size) => dictionary = Some(size.bytes(block_size)),
                Tuning::Bcj(machines) => filters = machines.iter().copied().collect(),
            }
        }
        Ok(match compressor {
            Compressor::Gzip => Encoding::Zlib {
                level: shared.level("squashfs", compressor)?,
                window_bits,
                strategies,
            },
            Compressor::Lzo => Encoding::Lzo {
                algorithm: LzoAlgorithm::default(),
                level: LZO_LEVEL,
            },
            Compressor::Lz4 => Encoding::Lz4 { high: false },
            Compressor::Lz4hc => Encoding::Lz4 { high: true },
            Compressor::Xz => Encoding::Xz {
                dictionary,
                filters,
                tuning: LzmaTuning::default(),
            },
            Compressor::Lzma => Encoding::Lzma,
            Compressor::Deflate | Compressor::None => return Err(compressor.not_in("squashfs")),
            Compressor::Zstd => Encoding::Zstd {
                level: shared.level("squashfs", compressor)?,
            },
        })
    }
}

impl Dictionary {
    fn bytes(self, block_size: u32) -> u32 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::PerMille(part) => {
                let bytes = u64::from(block_size) * u64::from(part) / 1000;
                u32::try_from(bytes).unwrap_or(block_size)
            }
        }
    }
}

fn superblock_time(seconds: i64) -> Result<u32> {
    u32::try_from(seconds).map_err(|_| {
        let message = format!("SquashFS cannot store the time {seconds}, only 1970 to 2106");
        Failure::usage(message)
    })
}

fn parse_dictionary(text: &str) -> std::result::Result<Dictionary, String> {
    let Some(percent) = text.strip_suffix('%') else {
        let bytes = size::parse(text)?;
        let bytes = u32::try_from(bytes).map_err(|_| "larger than any block".to_string())?;
        return Ok(Dictionary::Bytes(bytes));
    };
    let bad = || "not a part of a block such as 75% or 37.5%".to_string();
    let (whole, tenths) = percent.split_once('.').unwrap_or((percent, "0"));
    let whole: u32 = whole.parse().map_err(|_| bad())?;
    let tenths: u32 = tenths.parse().map_err(|_| bad())?;
    match (whole, tenths) {
        (0..=100, 0..=9) if (1..=1000).contains(&(whole * 10 + tenths)) => {
            Ok(Dictionary::PerMille(whole * 10 + tenths))
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries() {
        for (text, expected) in [
            ("32K", Some(Dictionary::Bytes(32 << 10))),
            ("75%", Some(Dictionary::PerMille(750))),
            ("37.5%", Some(Dictionary::PerMille(375))),
            ("100%", Some(Dictionary::PerMille(1000))),
            ("100.1%", None),
            ("0%", None),
            ("12.25%", None),
            ("-1%", None),
            ("8G", None),
        ] {
            assert_eq!(parse_dictionary(text).ok(), expected, "{text}");
        }
    }
}
