//! The options of EROFS, most of them as `mkfs.erofs` has them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use forerun::build::{Compression, ErofsFragments, ErofsOptions, FillEncoding, Order};

use super::exfat::ClusterArgs;
use super::format::first;
use super::shared::{Compressor, SharedArgs};
use crate::error::{Failure, Result};
use crate::size;
use crate::values::parse_uuid;

/// The dictionary of LZMA for each byte of a cluster, and its bounds.
const DICTIONARY: (u32, std::ops::RangeInclusive<u32>) = (8, 32 << 10..=8 << 20);

/// Options of EROFS.
#[derive(Args, Debug)]
pub struct ErofsArgs {
    #[command(flatten)]
    pub clusters: ClusterArgs,
    /// Put compressed ends of files behind their inodes; Linux 5.17 reads that
    #[arg(help_heading = "EROFS", long)]
    inline_compressed: bool,
    /// Compress what does not fill a cluster, the tails of files and small files, together with those
    /// of other files, or all data so: smaller, and slower to read. Linux 6.1 reads that
    #[arg(help_heading = "EROFS", long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "tails", conflicts_with = "inline_compressed")]
    fragments: Option<Packed>,
    /// Store equal compressed extents once, in whatever files they are; Linux 6.1 reads that
    #[arg(help_heading = "EROFS", long)]
    share_extents: bool,
    /// Write indexes of compressed files as the oldest readers need them
    #[arg(help_heading = "EROFS", long)]
    full_indexes: bool,
    /// Give the end of every file blocks of its own, in place of room behind its inode
    #[arg(help_heading = "EROFS", long)]
    no_inline: bool,
    /// Store files in chunks of this size, a power of two: equal ones once, zeros not at all
    #[arg(help_heading = "EROFS", long, value_name = "BYTES", value_parser = size::parse)]
    chunk_size: Option<u64>,
    /// Put the chunks into this file, not into the image; mount both with device=FILE
    #[arg(help_heading = "EROFS", long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "chunk_size")]
    pub blobdev: Option<PathBuf>,
    /// Put data in the order of the paths that FILE lists, one a line: of those that are read first,
    /// for instance. A directory stands for all below it
    #[arg(help_heading = "EROFS", long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    order: Option<PathBuf>,
    /// Store names of extended attributes that start with this in short; may be given more than
    /// once. Linux 6.4 reads that
    #[arg(help_heading = "EROFS", long, value_name = "PREFIX")]
    xattr_prefix: Vec<String>,
    /// Store extended attributes that are in more than this many inodes once for all [default: 2]
    #[arg(help_heading = "EROFS", long, value_name = "N")]
    share_xattrs: Option<u32>,
    /// UUID of the image [default: one made from its contents]
    #[arg(help_heading = "EROFS", long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
}

/// Data that is compressed together with the data of other files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Packed {
    /// Tails of files
    Tails,
    /// All data
    All,
}

impl ErofsArgs {
    /// Converts the arguments into the library's options, but for what other arguments set.
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
            inline_tails: !self.no_inline,
            duplicates: !shared.no_duplicates,
            share_xattrs_above: self.share_xattrs.unwrap_or(defaults.share_xattrs_above),
            xattr_prefixes: self
                .xattr_prefix
                .iter()
                .map(|prefix| prefix.clone().into())
                .collect(),
            mkfs_time: shared.image_time()?,
            uuid: self.uuid,
            label: self.clusters.label.clone().unwrap_or_default().into_bytes(),
            order: match &self.order {
                Some(file) => Order::from_file(Path::new(file))?,
                None => Order::default(),
            },
            ..defaults
        })
    }

    /// Returns the first option that was given and that only EROFS has.
    pub fn first_given(&self) -> Option<&'static str> {
        let [_cluster_size, of_compressed @ ..] = self.of_compressed();
        first(&of_compressed).or_else(|| {
            first(&[
                (self.no_inline, "--no-inline"),
                (self.chunk_size.is_some(), "--chunk-size"),
                (self.blobdev.is_some(), "--blobdev"),
                (self.order.is_some(), "--order"),
                (!self.xattr_prefix.is_empty(), "--xattr-prefix"),
                (self.share_xattrs.is_some(), "--share-xattrs"),
                (self.uuid.is_some(), "--uuid"),
            ])
        })
    }

    /// Lists the options that have no meaning without a compressor.
    const fn of_compressed(&self) -> [(bool, &'static str); 5] {
        [
            (self.clusters.cluster_size.is_some(), "--cluster-size"),
            (self.inline_compressed, "--inline-compressed"),
            (self.fragments.is_some(), "--fragments"),
            (self.share_extents, "--share-extents"),
            (self.full_indexes, "--full-indexes"),
        ]
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
                let given = first(&self.of_compressed());
                let given = given.or_else(|| shared.level.map(|_| "--level"));
                return match given {
                    Some(flag) => {
                        let message = format!("{flag} means nothing without a compressor");
                        Err(Failure::usage(message))
                    }
                    None => Ok(None),
                };
            }
        };
        Ok(Some(Compression {
            cluster_size,
            inline_tails: self.inline_compressed,
            full_indexes: self.full_indexes,
            share_extents: self.share_extents,
            fragments: match self.fragments {
                None => ErofsFragments::None,
                Some(Packed::Tails) => ErofsFragments::Tails,
                Some(Packed::All) => ErofsFragments::All,
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
            let message = "--level means nothing with lz4; lz4hc has levels";
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
            // The most that Linux takes.
            window_log: 20,
        },
        other => return Err(other.not_in("erofs")),
    }))
}

fn bytes(flag: &str, size: u64) -> Result<u32> {
    u32::try_from(size).map_err(|_| Failure::usage(format!("{flag} {size}: 2147483648 at most")))
}
