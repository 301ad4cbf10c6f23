//! Rows: the work that is measured, the drivers to compare with, and how much of their time it may take.

use std::fmt;

use clap::ValueEnum;

/// A measured piece of work: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ErofsRow {
    /// `ls -lR` of the tree right after mounting, image of mkfs.erofs
    Ls,
    /// The same of an image of forerun's
    LsOurs,
    /// The same of an image of forerun's, zstd
    LsZstd,
    /// `ls -lR` once more, image of mkfs.erofs
    LsCached,
    /// `ls -lR` through `mount --via kernel`, the mounting included
    LsVia,
    /// `ls -lR` of the tree as a composefs image, right after mounting
    ComposefsLs,
    /// The same once more
    ComposefsLsCached,
    /// The whole tree read by one process
    Tree,
    /// The whole tree read by one process, as a composefs image
    ComposefsTree,
    /// cat of the large file, uncompressed
    Cat,
    /// cat of the large file, lz4hc
    CatLz4hc,
    /// cat of the large file, zstd
    CatZstd,
    /// 4,000 random reads of 4 KiB in the large file, 2 threads, uncompressed
    Random,
    /// The same, lz4hc
    RandomLz4hc,
    /// The large file as an object of a composefs image, in memory, read in pages
    ObjectSequential,
    /// The same at random places
    ObjectRandom,
    /// The tree extracted and synced, lz4hc
    Extract,
    /// The tree packed, lz4hc
    Pack,
}

/// The drivers and programs that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErofsContender {
    /// This project.
    Forerun,
    /// The kernel's driver, on a loop device.
    KernelLoop,
    /// The kernel's driver, from the file.
    KernelFile,
    /// The kernel's driver from the file, and overlayfs with a layer of data only.
    KernelOverlay,
    /// `erofsfuse`.
    Erofsfuse,
    /// `fsck.erofs`.
    Fsck,
    /// `mkfs.erofs`.
    Mkfs,
    /// The filesystem that the object store is on.
    Backing,
}

impl fmt::Display for ErofsContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forerun => "forerun",
            Self::KernelLoop => "kernel, loop",
            Self::KernelFile => "kernel, file",
            Self::KernelOverlay => "kernel + overlayfs",
            Self::Erofsfuse => "erofsfuse",
            Self::Fsck => "fsck.erofs",
            Self::Mkfs => "mkfs.erofs",
            Self::Backing => "backing filesystem",
        })
    }
}

/// The images that are measured, some with a store beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErofsImage {
    /// The tree, by mkfs.erofs, uncompressed.
    Tree,
    /// The same by forerun.
    Ours,
    /// The same, zstd: Debian's mkfs.erofs cannot.
    TreeZstd,
    /// The tree, by mkfs.erofs, lz4hc.
    TreeLz4hc,
    /// The large file, by mkfs.erofs, uncompressed.
    Big,
    /// The same, lz4hc.
    BigLz4hc,
    /// The large file, by forerun, zstd.
    BigZstd,
    /// The tree, by forerun.
    Composefs,
    /// The large file, by forerun.
    BigComposefs,
}

const BEST_PLAIN: &[(ErofsContender, f64)] = &against_readers(1.0);
const BEST_LZ4HC: &[(ErofsContender, f64)] = &against_readers(0.9);
const BEST_ZSTD: &[(ErofsContender, f64)] = &against_readers(0.7);

/// Returns the same target against each reader: to beat the best is to beat each.
const fn against_readers(target: f64) -> [(ErofsContender, f64); 3] {
    [
        (ErofsContender::KernelLoop, target),
        (ErofsContender::KernelFile, target),
        (ErofsContender::Erofsfuse, target),
    ]
}

impl crate::bench::comparison::Row for ErofsRow {
    type Contender = ErofsContender;

    const BENCH: &'static str = "erofs";
    const OURS: ErofsContender = ErofsContender::Forerun;

    fn what(self) -> &'static str {
        match self {
            Self::Ls => "ls -lR, cold",
            Self::LsOurs => "ls -lR, cold, image of forerun",
            Self::LsZstd => "ls -lR, cold, zstd",
            Self::LsCached => "ls -lR, cached",
            Self::LsVia => "mount --via kernel and ls -lR, cold",
            Self::ComposefsLs => "composefs, ls -lR, cold",
            Self::ComposefsLsCached => "composefs, ls -lR, cached",
            Self::Tree => "read the tree, one process",
            Self::ComposefsTree => "composefs, read the tree, one process",
            Self::Cat => "cat 250 MB",
            Self::CatLz4hc => "cat 250 MB, lz4hc",
            Self::CatZstd => "cat 250 MB, zstd",
            Self::Random => "4,000 random 4 KiB reads, 2 threads",
            Self::RandomLz4hc => "4,000 random 4 KiB reads, 2 threads, lz4hc",
            Self::ObjectSequential => "object in memory, 4 KiB sequential",
            Self::ObjectRandom => "object in memory, 4 KiB random",
            Self::Extract => "extract the tree and sync, lz4hc",
            Self::Pack => "pack the tree, lz4hc",
        }
    }

    fn targets(self) -> &'static [(ErofsContender, f64)] {
        match self {
            Self::Ls | Self::LsOurs | Self::Random => &[(ErofsContender::KernelLoop, 0.5)],
            Self::LsZstd => &[(ErofsContender::KernelLoop, 0.6)],
            Self::LsCached => &[(ErofsContender::KernelLoop, 1.3)],
            Self::LsVia => &[(ErofsContender::KernelFile, 0.5)],
            Self::ComposefsLs => &[(ErofsContender::KernelOverlay, 0.6)],
            Self::ComposefsLsCached => &[(ErofsContender::KernelOverlay, 1.0)],
            Self::Tree => &[(ErofsContender::KernelFile, 0.9)],
            Self::ComposefsTree => &[(ErofsContender::KernelOverlay, 0.9)],
            Self::RandomLz4hc => &[(ErofsContender::Erofsfuse, 0.9)],
            Self::Cat => BEST_PLAIN,
            Self::CatLz4hc => BEST_LZ4HC,
            Self::CatZstd => BEST_ZSTD,
            Self::ObjectSequential | Self::ObjectRandom => &[(ErofsContender::Backing, 1.05)],
            Self::Extract => &[(ErofsContender::Fsck, 0.5)],
            Self::Pack => &[(ErofsContender::Mkfs, 1.0)],
        }
    }

    fn size_target(self) -> Option<f64> {
        (self == Self::Pack).then_some(1.02)
    }
}

impl ErofsRow {
    /// Returns the image that is read; nothing where an image is made.
    pub const fn image(self) -> Option<ErofsImage> {
        match self {
            Self::Ls | Self::LsCached | Self::LsVia | Self::Tree => Some(ErofsImage::Tree),
            Self::LsOurs => Some(ErofsImage::Ours),
            Self::LsZstd => Some(ErofsImage::TreeZstd),
            Self::ComposefsLs | Self::ComposefsLsCached | Self::ComposefsTree => {
                Some(ErofsImage::Composefs)
            }
            Self::Cat | Self::Random => Some(ErofsImage::Big),
            Self::CatLz4hc | Self::RandomLz4hc => Some(ErofsImage::BigLz4hc),
            Self::CatZstd => Some(ErofsImage::BigZstd),
            Self::ObjectSequential | Self::ObjectRandom => Some(ErofsImage::BigComposefs),
            Self::Extract => Some(ErofsImage::TreeLz4hc),
            Self::Pack => None,
        }
    }
}

impl ErofsImage {
    /// Returns the file name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree.erofs",
            Self::Ours => "ours.erofs",
            Self::TreeZstd => "tree-zstd.erofs",
            Self::TreeLz4hc => "tree-lz4hc.erofs",
            Self::Big => "big.erofs",
            Self::BigLz4hc => "big-lz4hc.erofs",
            Self::BigZstd => "big-zstd.erofs",
            Self::Composefs => "tree.cfs",
            Self::BigComposefs => "big.cfs",
        }
    }

    /// Returns whether it is about the large file, and not about the tree.
    pub const fn is_big(self) -> bool {
        match self {
            Self::Big | Self::BigLz4hc | Self::BigZstd | Self::BigComposefs => true,
            Self::Tree | Self::Ours | Self::TreeZstd | Self::TreeLz4hc | Self::Composefs => false,
        }
    }

    /// Returns whether its files are in a store: the name of that.
    pub const fn store(self) -> Option<&'static str> {
        match self {
            Self::Composefs => Some("tree.objects"),
            Self::BigComposefs => Some("big.objects"),
            Self::Tree
            | Self::Ours
            | Self::TreeZstd
            | Self::TreeLz4hc
            | Self::Big
            | Self::BigLz4hc
            | Self::BigZstd => None,
        }
    }

    /// Returns the options with which forerun makes it; nothing for images that mkfs.erofs makes.
    pub const fn by_forerun(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Ours => Some(&["--format", "erofs"]),
            Self::TreeZstd | Self::BigZstd => Some(&["--format", "erofs", "--compressor", "zstd"]),
            Self::Composefs | Self::BigComposefs => Some(&["--format", "composefs"]),
            Self::Tree | Self::TreeLz4hc | Self::Big | Self::BigLz4hc => None,
        }
    }

    /// Images that forerun makes.
    pub const OURS: [Self; 5] = [
        Self::Ours,
        Self::TreeZstd,
        Self::BigZstd,
        Self::Composefs,
        Self::BigComposefs,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::comparison::Row as _;

    #[test]
    fn names_are_those_of_the_option() {
        for row in ErofsRow::value_variants() {
            assert_eq!(ErofsRow::from_str(&row.name(), false), Ok(*row));
            assert!(!row.targets().is_empty());
        }
    }

    #[test]
    fn images_have_names_of_their_own_and_known_makers() {
        let images: Vec<ErofsImage> = ErofsRow::value_variants()
            .iter()
            .filter_map(|row| row.image())
            .collect();
        for one in &images {
            assert_eq!(one.by_forerun().is_some(), ErofsImage::OURS.contains(one));
            assert!(one.store().is_none() || one.by_forerun().is_some());
            for other in &images {
                assert_eq!(one == other, one.name() == other.name());
            }
        }
    }
}
