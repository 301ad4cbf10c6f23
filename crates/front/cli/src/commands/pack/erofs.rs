//! The options of EROFS, most of them named as in `mkfs.erofs`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueHint};
use forerun::build::{Compression, ErofsFragments, ErofsOptions, FillEncoding, Order};

use super::exfat::ClusterArgs;
use super::format::{Given, NewFormat, first};
use super::shared::{Compressor, Dedupe, PackedTogether, SharedArgs};
use crate::error::{Failure, Result};
use crate::size;
use crate::values::parse_uuid;

/// LZMA dictionary bytes per byte of a cluster, and the limits of the dictionary.
const DICTIONARY: (u32, std::ops::RangeInclusive<u32>) = (8, 32 << 10..=8 << 20);

/// Options of EROFS.
#[derive(Args, Debug)]
pub struct ErofsArgs {
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// Store small data beside inodes. EROFS: tails of no files, of plain (uncompressed) files, or
    /// of all files [default: plain]. composefs: files of up to BYTES, at most 4095 [default: 64];
    /// the digest of the image depends on this
    #[arg(
        help_heading = "EROFS and composefs",
        long,
        value_name = "none|plain|all|BYTES"
    )]
    pub inline: Option<Inline>,
    /// Write the indexes of compressed files in the format of Linux 5.4; the default format needs 5.5
    #[arg(help_heading = "EROFS", long)]
    full_indexes: bool,
    /// Divide files into chunks of this size, a power of two. Equal chunks are stored once, chunks of zeros not at all
    #[arg(help_heading = "EROFS", long, value_name = "BYTES", value_parser = size::parse)]
    chunk_size: Option<u64>,
    /// Write the chunks to this file instead of the image; mount both with -o device=FILE
    #[arg(help_heading = "EROFS", long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "chunk_size")]
    pub blobdev: Option<PathBuf>,
    /// Shorten names of extended attributes that start with PREFIX; repeat for more (Linux 6.4 and later)
    #[arg(help_heading = "EROFS", long, value_name = "PREFIX")]
    xattr_prefix: Vec<String>,
    /// Store an extended attribute once if more than N inodes have it [default: 2]
    #[arg(help_heading = "EROFS", long, value_name = "N")]
    share_xattrs: Option<u32>,
    /// UUID of the image [default: derived from its contents]
    #[arg(help_heading = "EROFS", long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
}

/// Data that is stored beside inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inline {
    /// No tails of files.
    None,
    /// Tails of uncompressed files.
    Plain,
    /// Tails of compressed files too.
    All,
    /// Files of up to this many bytes.
    Bytes(u64),
}

impl FromStr for Inline {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "plain" => Ok(Self::Plain),
            "all" => Ok(Self::All),
            bytes => size::parse(bytes)
                .map(Self::Bytes)
                .map_err(|_| "not none, plain, all or a number of bytes".to_string()),
        }
    }
}

impl ErofsArgs {
    pub fn options(&self, shared: &SharedArgs) -> Result<ErofsOptions> {
        let defaults = ErofsOptions::default();
        let block_size = shared.block_size.unwrap_or(defaults.block_size);
        Ok(ErofsOptions {
            block_size,
            compression: self.compression(shared, block_size)?,
            chunk_size: self
                .chunk_size
                .map(|size| bytes("--chunk-size", size))
                .transpose()?,
            inline_tails: self.inline()? != Inline::None,
            duplicates: shared.dedupe != Some(Dedupe::None),
            share_xattrs_above: self.share_xattrs.unwrap_or(defaults.share_xattrs_above),
            xattr_prefixes: self
                .xattr_prefix
                .iter()
                .map(|prefix| prefix.clone().into())
                .collect(),
            mkfs_time: shared.image_time()?,
            uuid: self.uuid,
            label: self.clusters.label.clone().unwrap_or_default().into_bytes(),
            order: match &shared.order {
                Some(file) => Order::from_file(file)?,
                None => Order::default(),
            },
            ..defaults
        })
    }

    pub const fn given(&self) -> [Given; 7] {
        use NewFormat::{Composefs, Erofs};
        [
            (self.inline.is_some(), "--inline", &[Erofs, Composefs]),
            (self.full_indexes, "--full-indexes", &[Erofs]),
            (self.chunk_size.is_some(), "--chunk-size", &[Erofs]),
            (self.blobdev.is_some(), "--blobdev", &[Erofs]),
            (!self.xattr_prefix.is_empty(), "--xattr-prefix", &[Erofs]),
            (self.share_xattrs.is_some(), "--share-xattrs", &[Erofs]),
            (self.uuid.is_some(), "--uuid", &[Erofs]),
        ]
    }

    /// Lists the given options that have no effect without a compressor.
    fn of_compressed(&self, shared: &SharedArgs) -> [(bool, &'static str); 6] {
        let together = shared.fragments.unwrap_or(PackedTogether::None);
        [
            (self.clusters.cluster_size.is_some(), "--cluster-size"),
            (self.inline == Some(Inline::All), "--inline all"),
            (together != PackedTogether::None, "--fragments"),
            (shared.dedupe == Some(Dedupe::Extents), "--dedupe extents"),
            (self.full_indexes, "--full-indexes"),
            (shared.level.is_some(), "--level"),
        ]
    }

    fn inline(&self) -> Result<Inline> {
        match self.inline.unwrap_or(Inline::Plain) {
            Inline::Bytes(_) => {
                let message =
                    "--inline takes none, plain or all for erofs; bytes are for composefs";
                Err(Failure::usage(message))
            }
            inline => Ok(inline),
        }
    }

    fn compression(&self, shared: &SharedArgs, block_size: u32) -> Result<Option<Compression>> {
        let compressor = shared.compressor.unwrap_or(Compressor::None);
        let cluster_size = match self.clusters.cluster_size {
            Some(size) => bytes("--cluster-size", size)?,
            None => block_size,
        };
        let encoding = match encoding(shared, compressor, cluster_size)? {
            Some(encoding) => encoding,
            None => {
                return match first(&self.of_compressed(shared)) {
                    Some(flag) => {
                        let message = format!("{flag} has no effect without a compressor");
                        Err(Failure::usage(message))
                    }
                    None => Ok(None),
                };
            }
        };
        Ok(Some(Compression {
            cluster_size,
            inline_tails: self.inline == Some(Inline::All),
            full_indexes: self.full_indexes,
            share_extents: shared.dedupe == Some(Dedupe::Extents),
            fragments: match shared.fragments {
                None | Some(PackedTogether::None) => ErofsFragments::None,
                Some(PackedTogether::Tails) => ErofsFragments::Tails,
                Some(PackedTogether::All) => ErofsFragments::All,
                Some(PackedTogether::Small) => {
                    let message = "--fragments takes none, tails or all for erofs";
                    return Err(Failure::usage(message));
                }
            },
            ..Compression::new(encoding)
        }))
    }
}

fn encoding(
    shared: &SharedArgs,
    compressor: Compressor,
    cluster_size: u32,
) -> Result<Option<FillEncoding>> {
    let level = || shared.level("erofs", compressor);
    Ok(Some(match compressor {
        Compressor::None => return Ok(None),
        Compressor::Lz4 if shared.level.is_some() => {
            let message = "--level has no effect with lz4; lz4hc has levels";
            return Err(Failure::usage(message));
        }
        Compressor::Lz4 => FillEncoding::Lz4,
        Compressor::Lz4hc => FillEncoding::Lz4Hc { level: level()? },
        Compressor::Lzma => {
            let (times, range) = DICTIONARY;
            let dictionary = cluster_size.saturating_mul(times);
            FillEncoding::MicroLzma {
                level: level()?,
                dictionary: dictionary.clamp(*range.start(), *range.end()),
            }
        }
        Compressor::Deflate => FillEncoding::Deflate { level: level()? },
        Compressor::Zstd => FillEncoding::Zstd {
            level: level()?,
            // The largest window that Linux accepts.
            window_log: 20,
        },
        other => return Err(other.not_in("erofs")),
    }))
}

fn bytes(flag: &str, size: u64) -> Result<u32> {
    u32::try_from(size)
        .map_err(|_| Failure::usage(format!("{flag} {size}: at most 2147483648 is allowed")))
}
