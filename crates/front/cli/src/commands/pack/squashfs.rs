//! The options of SquashFS, as `mksquashfs` has them.

use clap::{Args, ValueEnum};
use forerun::build::{
    Bcj, BcjSet, Compress, Encoding, Fragments, LzoAlgorithm, SquashfsOptions, ZlibStrategies,
    ZlibStrategy,
};

use super::format::first;
use super::shared::{Compressor, SharedArgs};
use crate::error::{Failure, Result};
use crate::size;

/// The block size where none is given.
const BLOCK_SIZE: u32 = 128 << 10;
/// The one level that the encoder has.
const LZO_LEVEL: u8 = 8;

/// Options of SquashFS.
#[derive(Args, Debug)]
pub struct SquashfsArgs {
    /// Give every file blocks of its own
    #[arg(help_heading = "SquashFS", long, conflicts_with = "always_fragments")]
    no_fragments: bool,
    /// Pack the ends of large files together too, not only small files
    #[arg(help_heading = "SquashFS", long)]
    always_fragments: bool,
    /// Store blocks of zeros
    #[arg(help_heading = "SquashFS", long)]
    no_sparse: bool,
    /// Leave out the table that NFS servers need
    #[arg(help_heading = "SquashFS", long)]
    no_exports: bool,
    /// Do not compress these
    #[arg(
        help_heading = "SquashFS",
        long,
        value_name = "WHAT",
        value_delimiter = ','
    )]
    no_compress: Vec<Part>,
    /// Do not pad the image to a multiple of 4 KiB; loop devices need that
    #[arg(help_heading = "SquashFS", long)]
    no_pad: bool,
    /// gzip: log2 of the window, 8 to 15 [default: 15]
    #[arg(help_heading = "SquashFS", long, value_name = "BITS", value_parser = clap::value_parser!(u8).range(8..=15))]
    window: Option<u8>,
    /// gzip: try each of these on every block, and keep the shortest
    #[arg(
        help_heading = "SquashFS",
        long,
        value_name = "NAME",
        value_delimiter = ','
    )]
    strategy: Vec<Strategy>,
    /// lz4: compress slowly and well
    #[arg(help_heading = "SquashFS", long)]
    lz4_hc: bool,
    /// xz: size of the dictionary, in bytes or as in 75% of a block [default: a block]
    #[arg(help_heading = "SquashFS", long, value_name = "BYTES", value_parser = parse_dictionary)]
    dict_size: Option<Dictionary>,
    /// xz: try the filters for the code of these machines on every block, and keep the shortest
    #[arg(
        help_heading = "SquashFS",
        long,
        value_name = "MACHINE",
        value_delimiter = ','
    )]
    bcj: Vec<Machine>,
}

/// Parts of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Inodes and directories
    Inodes,
    /// Data blocks
    Data,
    /// Blocks that several files share
    Fragments,
    /// Extended attributes
    Xattrs,
    /// Owners
    Ids,
    /// All of these
    All,
}

/// Strategies of zlib.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Strategy {
    Default,
    Filtered,
    HuffmanOnly,
    RunLengthEncoded,
    Fixed,
}

/// Machines that there are BCJ filters for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Machine {
    X86,
    #[value(name = "powerpc")]
    PowerPc,
    /// Refused by the writer, which says why.
    #[value(hide = true)]
    Ia64,
    Arm,
    #[value(name = "armthumb")]
    ArmThumb,
    Sparc,
}

/// A size of the dictionary.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dictionary {
    Bytes(u32),
    /// Tenths of a percent of a block.
    PerMille(u32),
}

impl SquashfsArgs {
    /// Converts the arguments into the library's options, but for what other arguments set. `default` is the
    /// compressor where none is given.
    pub fn options(&self, shared: &SharedArgs, default: Compressor) -> Result<SquashfsOptions> {
        let compressor = shared.compressor.unwrap_or(default);
        let block_size = shared.block_size.unwrap_or(BLOCK_SIZE);
        let mkfs_time = shared.image_time()?;
        let parts =
            |part| !self.no_compress.contains(&part) && !self.no_compress.contains(&Part::All);
        Ok(SquashfsOptions {
            encoding: self.encoding(shared, compressor, block_size)?,
            block_size,
            fragments: match (self.no_fragments, self.always_fragments) {
                (true, _) => Fragments::No,
                (false, true) => Fragments::Always,
                (false, false) => Fragments::Yes,
            },
            duplicates: !shared.no_duplicates,
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

    /// Returns the first option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        let own = first(&[
            (self.no_fragments, "--no-fragments"),
            (self.always_fragments, "--always-fragments"),
            (self.no_sparse, "--no-sparse"),
            (self.no_exports, "--no-exports"),
            (!self.no_compress.is_empty(), "--no-compress"),
            (self.no_pad, "--no-pad"),
        ]);
        let of_codecs = || {
            self.of_compressors(false)
                .map(|(given, flag, _)| (given, flag))
        };
        own.or_else(|| first(&of_codecs()))
    }

    /// Lists the options that only some compressors have.
    const fn of_compressors(
        &self,
        level: bool,
    ) -> [(bool, &'static str, &'static [Compressor]); 6] {
        use Compressor::{Gzip, Lz4, Xz, Zstd};
        [
            (level, "--level", &[Gzip, Zstd]),
            (self.window.is_some(), "--window", &[Gzip]),
            (!self.strategy.is_empty(), "--strategy", &[Gzip]),
            (self.lz4_hc, "--lz4-hc", &[Lz4]),
            (self.dict_size.is_some(), "--dict-size", &[Xz]),
            (!self.bcj.is_empty(), "--bcj", &[Xz]),
        ]
    }

    fn encoding(
        &self,
        shared: &SharedArgs,
        compressor: Compressor,
        block_size: u32,
    ) -> Result<Encoding> {
        for (given, flag, of) in self.of_compressors(shared.level.is_some()) {
            if given && !of.contains(&compressor) {
                let name = compressor.name();
                let of: Vec<_> = of.iter().map(|compressor| compressor.name()).collect();
                let of = of.join(", ");
                let message = format!("{flag} is an option of {of}; the compressor is {name}");
                return Err(Failure::usage(message));
            }
        }
        Ok(match compressor {
            Compressor::Gzip => Encoding::Zlib {
                level: shared.level("squashfs", compressor)?,
                window_bits: self.window.unwrap_or(15),
                strategies: self.strategies(),
            },
            Compressor::Lzo => Encoding::Lzo {
                algorithm: LzoAlgorithm::default(),
                level: LZO_LEVEL,
            },
            Compressor::Lz4 => Encoding::Lz4 { high: self.lz4_hc },
            Compressor::Lz4hc => Encoding::Lz4 { high: true },
            Compressor::Xz => Encoding::Xz {
                dictionary: self.dictionary(block_size),
                filters: self.filters(),
            },
            Compressor::Lzma => Encoding::Lzma,
            Compressor::Deflate | Compressor::None => return Err(compressor.not_in("squashfs")),
            Compressor::Zstd => Encoding::Zstd {
                level: shared.level("squashfs", compressor)?,
            },
        })
    }

    fn strategies(&self) -> ZlibStrategies {
        let strategies = self.strategy.iter().map(|strategy| match strategy {
            Strategy::Default => ZlibStrategy::Default,
            Strategy::Filtered => ZlibStrategy::Filtered,
            Strategy::HuffmanOnly => ZlibStrategy::HuffmanOnly,
            Strategy::RunLengthEncoded => ZlibStrategy::RunLengthEncoded,
            Strategy::Fixed => ZlibStrategy::Fixed,
        });
        strategies.collect()
    }

    fn filters(&self) -> BcjSet {
        let filters = self.bcj.iter().map(|machine| match machine {
            Machine::X86 => Bcj::X86,
            Machine::PowerPc => Bcj::PowerPc,
            Machine::Ia64 => Bcj::Ia64,
            Machine::Arm => Bcj::Arm,
            Machine::ArmThumb => Bcj::ArmThumb,
            Machine::Sparc => Bcj::Sparc,
        });
        filters.collect()
    }

    fn dictionary(&self, block_size: u32) -> Option<u32> {
        self.dict_size.map(|size| match size {
            Dictionary::Bytes(bytes) => bytes,
            Dictionary::PerMille(part) => {
                let bytes = u64::from(block_size) * u64::from(part) / 1000;
                u32::try_from(bytes).unwrap_or(block_size)
            }
        })
    }
}

fn superblock_time(seconds: i64) -> Result<u32> {
    u32::try_from(seconds).map_err(|_| {
        let message = format!("{seconds} is no time that SquashFS can hold: 1970 to 2106");
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
