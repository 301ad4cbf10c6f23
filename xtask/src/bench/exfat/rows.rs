//! Rows: the work that is measured, the drivers to compare with, and how much of their time it may take.

use std::fmt;

use clap::ValueEnum;

/// A measured piece of work: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExfatRow {
    /// A contiguous file of 4 GB removed with dirsync, volume of 256 GB, clusters of 128 KiB
    RemoveBig,
    /// The same of a file in pieces of one cluster
    RemovePieces,
    /// 1 GB written and made durable
    Write,
    /// 1 GB read
    Read,
    /// 10,000 files of 4,000 bytes read, cold
    ReadSmall,
    /// The same, cold but for names and metadata, which `ls -lR` has read
    ReadSmallListed,
    /// 10,000 files of 4,000 bytes made in 100 directories
    Create,
    /// These removed
    Remove,
    /// These removed with dirsync
    RemoveDirsync,
}

/// The drivers that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExfatContender {
    /// This project.
    Forerun,
    /// `mount.exfat-fuse`.
    ExfatFuse,
    /// The same, and the device is flushed after each removal.
    ExfatFuseFlushed,
}

impl fmt::Display for ExfatContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forerun => "forerun",
            Self::ExfatFuse => "exfat-fuse",
            Self::ExfatFuseFlushed => "exfat-fuse + flushes",
        })
    }
}

impl crate::bench::comparison::Row for ExfatRow {
    type Contender = ExfatContender;

    const BENCH: &'static str = "exfat";
    const OURS: ExfatContender = ExfatContender::Forerun;

    fn what(self) -> &'static str {
        match self {
            Self::RemoveBig => "remove 4 GB, dirsync",
            Self::RemovePieces => "remove 4 GB in pieces, dirsync",
            Self::Write => "write 1 GB",
            Self::Read => "read 1 GB",
            Self::ReadSmall => "read 10,000 files",
            Self::ReadSmallListed => "read 10,000 files after ls -lR",
            Self::Create => "create 10,000 files and sync",
            Self::Remove => "remove 10,000 files",
            Self::RemoveDirsync => "remove 10,000 files, dirsync",
        }
    }

    fn targets(self) -> &'static [(ExfatContender, f64)] {
        match self {
            Self::RemoveBig | Self::RemovePieces => &[
                (ExfatContender::ExfatFuse, 1.0),
                (ExfatContender::ExfatFuseFlushed, 1.0),
            ],
            Self::Write | Self::Read => &[(ExfatContender::ExfatFuse, 0.8)],
            Self::ReadSmall | Self::ReadSmallListed => &[(ExfatContender::ExfatFuse, 0.7)],
            Self::Create => &[(ExfatContender::ExfatFuse, 0.5)],
            Self::Remove => &[(ExfatContender::ExfatFuse, 1.0)],
            Self::RemoveDirsync => &[
                (ExfatContender::ExfatFuse, 0.2),
                (ExfatContender::ExfatFuseFlushed, 0.2),
            ],
        }
    }

    fn size_target(self) -> Option<f64> {
        None
    }
}

impl ExfatRow {
    /// Returns the mount options of the row.
    pub const fn options(self) -> &'static str {
        match self {
            Self::RemoveBig | Self::RemovePieces | Self::RemoveDirsync => "rw,dirsync",
            Self::Write
            | Self::Read
            | Self::ReadSmall
            | Self::ReadSmallListed
            | Self::Create
            | Self::Remove => "rw",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::comparison::Row as _;

    #[test]
    fn names_are_those_of_the_option() {
        for row in ExfatRow::value_variants() {
            assert_eq!(ExfatRow::from_str(&row.name(), false), Ok(*row));
            assert!(!row.targets().is_empty());
        }
    }
}
