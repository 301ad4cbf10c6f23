//! Rows: the work that is measured, the drivers to compare with, and how much of their time it may take.

use std::fmt;

use clap::ValueEnum;

/// A measured piece of work: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SquashfsRow {
    /// cat of the large file, gzip
    CatGzip,
    /// cat of the large file, zstd
    CatZstd,
    /// The whole tree read by one process, gzip
    Tree,
    /// The whole tree read by one process, zstd
    TreeZstd,
    /// The whole tree read by four processes, gzip
    #[value(name = "tree4")]
    TreeFour,
    /// `ls -lR` of the tree right after mounting, gzip
    Ls,
    /// The same once more
    LsCached,
    /// 4,000 random reads of 4 KiB in the large file, 2 threads, gzip
    Random,
    /// The same, zstd
    RandomZstd,
    /// The tree extracted and synced, gzip
    ExtractGzip,
    /// The tree extracted and synced, zstd
    ExtractZstd,
    /// The tree extracted by an ordinary user and synced, gzip
    ExtractUser,
    /// The tree packed, gzip
    Pack,
    /// 20 starts of an AppImage of 200 MB, until the application runs
    #[value(name = "appimage")]
    AppImage,
    /// 5,000 modules imported by Python, compiled before
    Import,
    /// The same without what was compiled
    ImportSource,
}

/// The drivers and programs that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SquashfsContender {
    /// This project.
    Forerun,
    /// The kernel's driver, on a loop device.
    Kernel,
    /// `squashfuse_ll`.
    Squashfuse,
    /// `unsquashfs`.
    Unsquashfs,
    /// `mksquashfs`.
    Mksquashfs,
    /// The type 2 runtime of the AppImage project.
    OtherRuntime,
    /// The same files, written from memory: the limit of an extraction.
    FromMemory,
    /// The same, with the image's blocks read and decoded.
    DecodedAndWritten,
    /// The same blocks, read from the disk, decoded into the page cache and read: the limit of a filesystem in userspace.
    Decoded,
    /// The same blocks, read from the disk and decoded when a page of them is asked for first: the limit of random reads.
    DecodedWhereAsked,
    /// The same files, read from the page cache of the disk's filesystem: the limit of any other.
    FilesInMemory,
}

impl fmt::Display for SquashfsContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forerun => "forerun",
            Self::Kernel => "kernel",
            Self::Squashfuse => "squashfuse_ll",
            Self::Unsquashfs => "unsquashfs",
            Self::Mksquashfs => "mksquashfs",
            Self::OtherRuntime => "type 2 runtime",
            Self::FromMemory => "writing from memory",
            Self::DecodedAndWritten => "decoding and writing",
            Self::Decoded => "decoding alone",
            Self::DecodedWhereAsked => "decoding where asked",
            Self::FilesInMemory => "files in memory",
        })
    }
}

/// A compressor of the images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressor {
    /// zlib.
    Gzip,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// Returns mksquashfs's name for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

impl crate::bench::comparison::Row for SquashfsRow {
    type Contender = SquashfsContender;

    const BENCH: &'static str = "squashfs";
    const OURS: SquashfsContender = SquashfsContender::Forerun;

    fn what(self) -> &'static str {
        match self {
            Self::CatGzip => "cat 250 MB, gzip",
            Self::CatZstd => "cat 250 MB, zstd",
            Self::Tree => "read the tree, one process",
            Self::TreeZstd => "read the tree, one process, zstd",
            Self::TreeFour => "read the tree, 4 processes",
            Self::Ls => "ls -lR of the tree, cold",
            Self::LsCached => "ls -lR of the tree, cached",
            Self::Random => "4,000 random 4 KiB reads, 2 threads",
            Self::RandomZstd => "4,000 random 4 KiB reads, 2 threads, zstd",
            Self::ExtractGzip => "extract the tree and sync, gzip",
            Self::ExtractZstd => "extract the tree and sync, zstd",
            Self::ExtractUser => "extract the tree as an ordinary user and sync, gzip",
            Self::Pack => "pack the tree, gzip",
            Self::AppImage => "start an AppImage of 200 MB, 20 times",
            Self::Import => "import 5,000 compiled modules",
            Self::ImportSource => "import 5,000 modules from source",
        }
    }

    fn targets(self) -> &'static [(SquashfsContender, f64)] {
        match self {
            Self::CatGzip => &[
                (SquashfsContender::Kernel, 0.40),
                (SquashfsContender::Squashfuse, 0.65),
            ],
            Self::CatZstd => &[
                (SquashfsContender::Kernel, 0.40),
                (SquashfsContender::Squashfuse, 0.80),
                (SquashfsContender::Decoded, 1.10),
            ],
            Self::Tree | Self::TreeZstd => &[(SquashfsContender::Kernel, 0.45)],
            Self::TreeFour => &[
                (SquashfsContender::Kernel, 0.45),
                (SquashfsContender::Squashfuse, 0.75),
            ],
            Self::Ls => &[(SquashfsContender::Kernel, 0.80)],
            Self::LsCached => &[(SquashfsContender::Kernel, 1.30)],
            Self::Random => &[
                (SquashfsContender::Kernel, 0.60),
                (SquashfsContender::Squashfuse, 0.40),
            ],
            Self::RandomZstd => &[
                (SquashfsContender::Kernel, 0.80),
                (SquashfsContender::Squashfuse, 0.40),
                (SquashfsContender::DecodedWhereAsked, 1.10),
            ],
            Self::ExtractGzip => &[
                (SquashfsContender::Unsquashfs, 0.75),
                (SquashfsContender::FromMemory, 1.40),
            ],
            Self::ExtractZstd => &[
                (SquashfsContender::Unsquashfs, 0.85),
                (SquashfsContender::FromMemory, 1.40),
                (SquashfsContender::DecodedAndWritten, 1.10),
            ],
            Self::ExtractUser => &[(SquashfsContender::Unsquashfs, 0.80)],
            Self::Pack => &[(SquashfsContender::Mksquashfs, 1.00)],
            Self::AppImage => &[
                (SquashfsContender::OtherRuntime, 0.80),
                (SquashfsContender::Squashfuse, 0.80),
            ],
            Self::Import | Self::ImportSource => &[
                (SquashfsContender::Squashfuse, 0.80),
                (SquashfsContender::FilesInMemory, 2.20),
            ],
        }
    }

    fn size_target(self) -> Option<f64> {
        (self == Self::Pack).then_some(1.01)
    }

    fn cpu_target(self) -> Option<f64> {
        matches!(self, Self::Import | Self::ImportSource).then_some(0.50)
    }
}

impl SquashfsRow {
    /// Returns the compressor of the row's image.
    pub const fn compressor(self) -> Compressor {
        match self {
            Self::CatZstd
            | Self::TreeZstd
            | Self::RandomZstd
            | Self::ExtractZstd
            | Self::AppImage => Compressor::Zstd,
            Self::CatGzip
            | Self::Tree
            | Self::TreeFour
            | Self::Ls
            | Self::LsCached
            | Self::Random
            | Self::ExtractGzip
            | Self::ExtractUser
            | Self::Pack
            | Self::Import
            | Self::ImportSource => Compressor::Gzip,
        }
    }

    /// Returns whether it is about the image with the large file, and not the one with the tree.
    pub const fn is_big(self) -> bool {
        matches!(
            self,
            Self::CatGzip | Self::CatZstd | Self::Random | Self::RandomZstd
        )
    }

    /// Returns whether Python imports modules.
    pub const fn is_import(self) -> bool {
        matches!(self, Self::Import | Self::ImportSource)
    }

    /// Returns whether no special rights are used.
    pub const fn is_by_user(self) -> bool {
        matches!(self, Self::ExtractUser)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::comparison::Row as _;

    #[test]
    fn names_are_those_of_the_option() {
        for row in SquashfsRow::value_variants() {
            assert_eq!(SquashfsRow::from_str(&row.name(), false), Ok(*row));
            assert!(!row.targets().is_empty());
        }
    }
}
