//! Options that both SquashFS and EROFS have.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use forerun::vfs::Timestamp;

use super::format::{Given, NewFormat};
use super::select::time;
use crate::error::{Failure, Result};
use crate::size;

/// Options that both formats have under the same names.
#[derive(Args, Debug)]
pub struct SharedArgs {
    /// Compressor of SquashFS and EROFS
    ///
    /// The default is gzip for SquashFS and none for EROFS.
    #[arg(help_heading = "Compression", long, value_name = "NAME")]
    pub compressor: Option<Compressor>,
    /// Compression level; higher is smaller and slower
    ///
    /// gzip has levels 1 to 9 [default: 9], lz4hc 1 to 12 [default: 9], deflate 1 to 12 [default: 6], lzma 0 to
    /// 9 [default: 6], zstd 1 to 22 [default: 15 for SquashFS, 3 for EROFS].
    #[arg(help_heading = "Compression", long, value_name = "N")]
    pub level: Option<u8>,
    /// Block size [default: 128K for SquashFS, 4K for EROFS]
    ///
    /// A power of two: from 4K to 1M for SquashFS, from 512 to 64K for EROFS.
    #[arg(help_heading = "Compression", long, value_name = "BYTES", value_parser = parse_block_size)]
    pub block_size: Option<u32>,
    /// Equal data to store only once [default: files]
    #[arg(
        help_heading = "SquashFS and EROFS",
        long,
        value_name = "WHAT",
        hide_short_help = true
    )]
    pub dedupe: Option<Dedupe>,
    /// Compress file tails and small files together with those of other files
    #[arg(
        help_heading = "SquashFS and EROFS",
        long,
        value_name = "WHICH",
        hide_short_help = true
    )]
    pub fragments: Option<PackedTogether>,
    /// Creation time of the image [default: SOURCE_DATE_EPOCH; otherwise the latest file time
    /// (SquashFS) or the most frequent file time (EROFS)]
    #[arg(help_heading = "SquashFS and EROFS", long, value_name = "TIME", value_parser = time)]
    pub mkfs_time: Option<Timestamp>,
    /// Order the data of files by the list in FILE. SquashFS: lines of "PATH PRIORITY"; files with
    /// the highest priority come first. EROFS: lines of "PATH", in the order of the data; a
    /// directory stands for everything below it
    #[arg(help_heading = "SquashFS and EROFS", long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub order: Option<PathBuf>,
}

/// Equal data that is stored once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dedupe {
    /// Nothing: each file has its own data
    None,
    /// Equal files
    Files,
    /// EROFS: equal files and equal compressed extents (Linux 6.1 and later)
    Extents,
}

/// Data that is compressed together with the data of other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PackedTogether {
    /// Nothing: each file has its own blocks (default of EROFS)
    None,
    /// SquashFS: small files (default of SquashFS)
    Small,
    /// Small files and the tails of all files (EROFS: Linux 6.1 and later)
    Tails,
    /// EROFS: all data; smaller, and slower to read (Linux 6.1 and later)
    All,
}

/// The compressors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compressor {
    /// SquashFS: read by every kernel
    Gzip,
    /// SquashFS: fast to read
    Lzo,
    /// Fastest to read
    Lz4,
    /// As lz4, but smaller and slower to make
    Lz4hc,
    /// SquashFS: smallest
    Xz,
    /// EROFS: smallest. SquashFS: obsolete, not read by Linux
    Lzma,
    /// EROFS: as small as gzip
    Deflate,
    /// Small and fast to read
    Zstd,
    /// EROFS: no compression
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

    /// Creates the failure for a compressor that a format does not have.
    pub fn not_in(self, format: &str) -> Failure {
        Failure::usage(format!("{format} has no compressor {}", self.name()))
    }
}

impl SharedArgs {
    pub const fn given(&self) -> [Given; 7] {
        const BOTH: &[NewFormat] = &[NewFormat::Squashfs, NewFormat::Erofs];
        [
            (self.compressor.is_some(), "--compressor", BOTH),
            (self.level.is_some(), "--level", BOTH),
            (self.block_size.is_some(), "--block-size", BOTH),
            (self.dedupe.is_some(), "--dedupe", BOTH),
            (self.fragments.is_some(), "--fragments", BOTH),
            (self.mkfs_time.is_some(), "--mkfs-time", BOTH),
            (self.order.is_some(), "--order", BOTH),
        ]
    }

    pub fn image_time(&self) -> Result<Option<i64>> {
        match self.mkfs_time {
            Some(time) => Ok(Some(time.seconds)),
            None => crate::values::source_date_epoch(),
        }
    }

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
