//! Rows: the work that is measured, what to compare it with, and how much of that time it may take.

use std::fmt;

use clap::ValueEnum;

/// A measured piece of work: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum OndemandRow {
    /// The large file in pages one after the other, the image all here, nothing in memory
    Sequential,
    /// The same with all of it in memory
    SequentialWarm,
    /// A file of an image from a web server, all here, nothing in memory, read by `dd bs=4k`
    Web,
    /// The large file in pages at random places, the image all here and in memory
    Random,
    /// A file read for the first time, through the link
    First,
    /// An interpreter started from an image, with its library, through the link
    Start,
}

/// The competitors, or ways of this project to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OndemandContender {
    /// This project.
    Forerun,
    /// The same file outside any image.
    Backing,
    /// The same, with as many pages in memory, but none of them together: what the kernel makes of
    /// files in FUSE.
    SinglePages,
    /// The time that the bytes take at the link's speed.
    Link,
    /// This project, whose readers wait for what is read ahead.
    Synchronous,
    /// This project, without a list of what will be needed.
    WithoutList,
    /// This project, which takes chunks from the cache without verifying them.
    Trusting,
    /// Another filesystem in userspace, which hands on the same file outside any image.
    Mirror,
    /// Another filesystem in userspace that loads images on demand, and verifies its metadata.
    Nydus,
    /// The same, which verifies what it takes from its cache, as this project does.
    NydusVerifying,
}

impl fmt::Display for OndemandContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Forerun => "forerun",
            Self::Backing => "backing filesystem",
            Self::SinglePages => "the same in single pages",
            Self::Link => "speed of the link",
            Self::Synchronous => "synchronous readahead",
            Self::WithoutList => "without a recorded list",
            Self::Trusting => "--trust-cache",
            Self::Mirror => "bindfs",
            Self::Nydus => "nydusd",
            Self::NydusVerifying => "nydusd, cache verified",
        })
    }
}

impl crate::bench::comparison::Row for OndemandRow {
    type Contender = OndemandContender;

    const BENCH: &'static str = "ondemand";
    const OURS: OndemandContender = OndemandContender::Forerun;

    fn what(self) -> &'static str {
        match self {
            Self::Sequential => "all here: 4 KiB sequential, cold",
            Self::SequentialWarm => "all here: 4 KiB sequential, warm",
            Self::Web => "all here, of a web server: dd bs=4k of 250 MB, cold",
            Self::Random => "all here: 4 KiB random, warm",
            Self::First => "first read through the link",
            Self::Start => "start of an interpreter through the link",
        }
    }

    fn targets(self) -> &'static [(OndemandContender, f64)] {
        match self {
            // Each chunk is verified at its first use.
            Self::Sequential => &[
                (OndemandContender::Backing, 1.08),
                (OndemandContender::Trusting, 1.05),
            ],
            Self::SequentialWarm => &[
                (OndemandContender::Backing, 1.08),
                (OndemandContender::SinglePages, 1.08),
            ],
            // Where a filesystem in userspace stands that copies the bytes and verifies nothing: the limit.
            Self::Web => &[
                (OndemandContender::Backing, 1.10),
                (OndemandContender::Mirror, 1.10),
                (OndemandContender::Nydus, 0.90),
                (OndemandContender::NydusVerifying, 0.90),
                (OndemandContender::Trusting, 1.05),
            ],
            Self::Random => &[
                (OndemandContender::Backing, 1.05),
                (OndemandContender::SinglePages, 1.05),
            ],
            // Synchronous readahead takes at least 1.5 times as long.
            Self::First => &[
                (OndemandContender::Link, 1.10),
                (OndemandContender::Synchronous, 1.0 / 1.5),
            ],
            Self::Start => &[(OndemandContender::WithoutList, 0.5)],
        }
    }

    fn size_target(self) -> Option<f64> {
        None
    }
}

/// An image that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OndemandImage {
    /// One large file.
    Local,
    /// One file that a web server has, which has no digests.
    Web,
    /// One file that is read through the link.
    Coming,
    /// An interpreter and its library.
    Interpreter,
}

impl OndemandRow {
    /// Returns the image that is read.
    pub const fn image(self) -> OndemandImage {
        match self {
            Self::Sequential | Self::SequentialWarm | Self::Random => OndemandImage::Local,
            Self::Web => OndemandImage::Web,
            Self::First => OndemandImage::Coming,
            Self::Start => OndemandImage::Interpreter,
        }
    }
}

impl OndemandImage {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Local, Self::Web, Self::Coming, Self::Interpreter];

    /// Returns the file name, which is also that of the directory it is made of.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Web => "web",
            Self::Coming => "coming",
            Self::Interpreter => "interpreter",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::comparison::Row as _;

    #[test]
    fn names_are_those_of_the_option() {
        for row in OndemandRow::value_variants() {
            assert_eq!(OndemandRow::from_str(&row.name(), false), Ok(*row));
            assert!(!row.targets().is_empty());
        }
    }
}
