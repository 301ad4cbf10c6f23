//! Rows: the work that is measured on container images, what to compare it with, and how much of that time it may take.

use std::fmt;

use clap::ValueEnum;

/// A measured piece of work: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum OciRow {
    /// The first command of an image whose layers are eStargz, through the link
    Estargz,
    /// The same with layers of zstd:chunked
    Chunked,
    /// The same with layers of gzip, whose indexes are kept
    Kept,
    /// The same with layers of gzip of which nothing is known
    Plain,
    /// Reads at random places of a file in a tar.gz whose index is kept
    Random,
    /// The files of three layers listed, warm
    List,
    /// An image converted to SquashFS with Zstandard
    Convert,
    /// A container of an eStargz image of which nothing is here, through the link
    Container,
}

/// The competitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OciContender {
    /// This project.
    Forerun,
    /// The whole image copied by skopeo before the command starts. It is not unpacked.
    Pull,
    /// ratarmount.
    Ratarmount,
    /// The kernel's overlayfs over layers that were extracted.
    Overlayfs,
    /// The image unpacked by umoci, and packed by mksquashfs.
    Umoci,
    /// containerd, which pulls and unpacks the image for its own snapshotter.
    Containerd,
}

impl fmt::Display for OciContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forerun => "forerun",
            Self::Pull => "full pull",
            Self::Ratarmount => "ratarmount",
            Self::Overlayfs => "overlayfs",
            Self::Umoci => "umoci and mksquashfs",
            Self::Containerd => "pull and overlayfs",
        })
    }
}

impl crate::bench::comparison::Row for OciRow {
    type Contender = OciContender;

    const BENCH: &'static str = "oci";
    const OURS: OciContender = OciContender::Forerun;

    fn what(self) -> &'static str {
        match self {
            Self::Estargz => "first command: eStargz",
            Self::Chunked => "first command: zstd:chunked",
            Self::Kept => "first command: gzip, index kept",
            Self::Plain => "first command: gzip, first time",
            Self::Random => "4 KiB at random places of a tar.gz",
            Self::List => "ls -lR of three layers, warm",
            Self::Convert => "conversion to SquashFS (zstd)",
            Self::Container => "ctr run, cold: eStargz",
        }
    }

    fn targets(self) -> &'static [(OciContender, f64)] {
        match self {
            Self::Estargz | Self::Chunked => &[(OciContender::Pull, 0.12)],
            Self::Kept => &[(OciContender::Pull, 0.15)],
            Self::Plain => &[(OciContender::Pull, 1.0)],
            Self::Random => &[(OciContender::Ratarmount, 0.5)],
            Self::List => &[(OciContender::Overlayfs, 1.0)],
            Self::Convert => &[(OciContender::Umoci, 0.5)],
            Self::Container => &[(OciContender::Containerd, 0.3)],
        }
    }

    fn size_target(self) -> Option<f64> {
        None
    }
}

/// A form of the image that is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerForm {
    /// Archives compressed with gzip.
    Gzip,
    /// eStargz.
    Estargz,
    /// zstd:chunked.
    Chunked,
}

impl LayerForm {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gzip, Self::Estargz, Self::Chunked];

    /// Returns the name of the layout and of the repository.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Estargz => "estargz",
            Self::Chunked => "chunked",
        }
    }
}

impl OciRow {
    /// Returns the form of the image whose first command is measured.
    pub const fn form(self) -> Option<LayerForm> {
        match self {
            Self::Estargz => Some(LayerForm::Estargz),
            Self::Chunked => Some(LayerForm::Chunked),
            Self::Kept | Self::Plain => Some(LayerForm::Gzip),
            Self::Random | Self::List | Self::Convert | Self::Container => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::comparison::Row as _;

    #[test]
    fn names_are_those_of_the_option() {
        for row in OciRow::value_variants() {
            assert_eq!(OciRow::from_str(&row.name(), false), Ok(*row));
            assert!(!row.targets().is_empty());
        }
    }
}
