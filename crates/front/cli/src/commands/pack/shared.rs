//! Options that SquashFS and EROFS both have.

use clap::{Args, ValueEnum};
use forerun::vfs::Timestamp;

use super::format::first;
use super::select::time;
use crate::error::{Failure, Result};
use crate::size;

/// Options that both formats have under the same names.
#[derive(Args, Debug)]
pub struct SharedArgs {
    /// Compressor of the image [default: gzip for SquashFS, none for EROFS]
    #[arg(help_heading = "SquashFS and EROFS", long, value_name = "NAME")]
    pub compressor: Option<Compressor>,
    /// Effort: 1 to 9 for gzip [default: 9], 1 to 12 for lz4hc [default: 9] and deflate [default:
    /// 6], 0 to 9 for lzma [default: 6], 1 to 22 for zstd [default: 15 for SquashFS, 3 for EROFS]
    #[arg(help_heading = "SquashFS and EROFS", long, value_name = "N")]
    pub level: Option<u8>,
    /// Bytes of a block, a power of two: of SquashFS data from 4K to 1M [default: 128K], of EROFS
    /// from 512 to 64K [default: 4K]
    #[arg(help_heading = "SquashFS and EROFS", long, value_name = "BYTES", value_parser = parse_block_size)]
    pub block_size: Option<u32>,
    /// Store files of the same contents each by itself
    #[arg(help_heading = "SquashFS and EROFS", long)]
    pub no_duplicates: bool,
    /// Date of the image itself [default: SOURCE_DATE_EPOCH, else the latest time of a file in it
    /// for SquashFS, the most frequent one for EROFS]
    #[arg(help_heading = "SquashFS and EROFS", long, value_name = "TIME", value_parser = time)]
    pub mkfs_time: Option<Timestamp>,
}

/// The compressors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compressor {
    /// SquashFS: DEFLATE, read everywhere
    Gzip,
    /// SquashFS: fast to read
    Lzo,
    /// Fastest to read
    Lz4,
    /// As lz4, made slowly and smaller
    Lz4hc,
    /// SquashFS: smallest
    Xz,
    /// EROFS: smallest. SquashFS: old; Linux does not read it
    Lzma,
    /// EROFS: as small as gzip
    Deflate,
    /// Small and fast to read
    Zstd,
    /// EROFS: stored as it is
    None,
}

impl Compressor {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Lzo => "lzo",
            Self::Lz4 => "lz4",
            Self::Lz4hc => "lz4hc",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
            Self::None => "none",
        }
    }

    /// Creates the failure that a format does not have this compressor.
    pub fn not_in(self, format: &str) -> Failure {
        Failure::usage(format!("{format} has no compressor {}", self.name()))
    }
}

impl SharedArgs {
    /// Returns the first option that was given.
    pub fn first_given(&self) -> Option<&'static str> {
        first(&[
            (self.compressor.is_some(), "--compressor"),
            (self.level.is_some(), "--level"),
            (self.block_size.is_some(), "--block-size"),
            (self.no_duplicates, "--no-duplicates"),
            (self.mkfs_time.is_some(), "--mkfs-time"),
        ])
    }

    /// Returns the time of the image, where it was given.
    pub fn image_time(&self) -> Result<Option<i64>> {
        match self.mkfs_time {
            Some(time) => Ok(Some(time.seconds)),
            None => crate::values::source_date_epoch(),
        }
    }

    /// Returns the level for a compressor of a format.
    pub fn level(&self, format: &str, compressor: Compressor) -> Result<u8> {
        let level = forerun::build::compressor_level(format, compressor.name(), self.level);
        level.map_err(|message| Failure::usage(format!("--{message}")))
    }
}

fn parse_block_size(text: &str) -> std::result::Result<u32, String> {
    let bytes = size::parse(text)?;
    match u32::try_from(bytes) {
        Ok(size) if size.is_power_of_two() && (512..=1 << 20).contains(&size) => Ok(size),
        _ => Err("not a power of two from 512 to 1M".to_string()),
    }
}
