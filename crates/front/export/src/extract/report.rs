//! The report of an extraction.

use std::io;

use crate::{ExportError, Remains, SalvagedFile};

/// The failure of one entry.
pub type Failure = ExportError;

/// Failures that are kept; beyond, they are counted.
const FAILURES: usize = 1000;
/// Paths that are kept of what was lost in one way.
const EXAMPLES: usize = 5;

/// A part of an entry that may be lost while the entry itself is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// A device node that was not made.
    Device,
    /// A further name of a file that is a copy, because the filesystem makes no hard link.
    HardLink,
    /// The owner or the group.
    Owner,
    Mode,
    /// The set-user-id, set-group-id or sticky bit.
    SpecialBits,
    Xattr,
    /// An extended attribute of `security.` or `trusted.`, which may give rights as a set-user-id
    /// bit does.
    PrivilegedXattr,
    /// The time of modification.
    Time,
}

impl Loss {
    /// Returns a short stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::HardLink => "hard_link",
            Self::Owner => "owner",
            Self::Mode => "mode",
            Self::SpecialBits => "special_bits",
            Self::Xattr => "xattr",
            Self::PrivilegedXattr => "privileged_xattr",
            Self::Time => "time",
        }
    }
}

/// One kind of loss, how many entries it affected, and examples of their paths.
#[derive(Debug)]
pub struct Shortfall {
    /// The kind of loss.
    pub loss: Loss,
    /// Of how many entries; of attributes, how many.
    pub count: u64,
    pub examples: Vec<Vec<u8>>,
    /// The first error of the system; nothing where it was not tried, because the options do
    /// not ask for it or because only root can, and for copies in place of hard links.
    pub error: Option<io::Error>,
}

/// The amounts that were extracted, the losses and the failures.
#[derive(Debug, Default)]
pub struct ExtractReport {
    /// Directories made, or found and filled.
    pub directories: u64,
    pub files: u64,
    /// Bytes of regular files, holes included.
    pub bytes: u64,
    /// Further names of files.
    pub hard_links: u64,
    pub symlinks: u64,
    /// Devices, fifos and sockets made.
    pub specials: u64,
    /// Entries that an earlier run had finished.
    pub skipped: u64,
    /// Entries that are missing: those that failed, and those that the extraction had not reached when it
    /// ended. Devices that were left out and collisions do not count.
    pub missing: u64,
    /// Members of the image that are no part of its tree, where all of that was selected.
    pub left_out: u64,
    /// Entries that could not be made. Everything else was. The first thousand of them.
    pub failures: Vec<Failure>,
    /// Further failures, which are not kept.
    pub more_failures: u64,
    /// The outcome of each regular file of a salvage, by path; further names of a file are not in it.
    pub outcomes: Vec<SalvagedFile>,
    /// Losses of entries that were made, and devices left out.
    pub shortfalls: Vec<Shortfall>,
    /// Names that differ from another one of their directory only in case, with that one.
    pub collisions: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the extraction ended early, because nothing more could be written.
    pub stopped: bool,
    /// Whether the extraction ended early, because its caller asked for that.
    pub interrupted: bool,
}

impl ExtractReport {
    /// Returns whether everything that the options ask for was done.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let missing = |lost: &Shortfall| lost.error.is_some() || lost.loss == Loss::Device;
        self.failures.is_empty()
            && self.missing == 0
            && self.left_out == 0
            && self.is_salvaged_whole()
            && !self.interrupted
            && self.collisions.is_empty()
            && !self.shortfalls.iter().any(missing)
    }

    fn is_salvaged_whole(&self) -> bool {
        let is_whole = |file: &SalvagedFile| file.state() == Remains::Whole;
        self.outcomes.iter().all(is_whole)
    }

    /// Counts the entries that could not be made.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.more_failures
            .saturating_add(forerun_io::u64_from(self.failures.len()))
    }

    /// Counts the entries that are done with: made, found, or left out on purpose.
    pub(super) fn done(&self) -> u64 {
        let devices = self.shortfalls.iter();
        let devices = devices.filter(|lost| lost.loss == Loss::Device);
        [
            self.directories,
            self.files,
            self.hard_links,
            self.symlinks,
            self.specials,
            self.skipped,
        ]
        .into_iter()
        .chain(devices.map(|lost| lost.count))
        .fold(0, u64::saturating_add)
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        if self.failures.len() < FAILURES {
            self.failures.push(failure);
        } else {
            self.more_failures += 1;
        }
    }

    pub(super) fn lose(&mut self, loss: Loss, path: &[u8], error: Option<io::Error>) {
        let tried = error.is_some();
        let same = |lost: &&mut Shortfall| lost.loss == loss && lost.error.is_some() == tried;
        match self.shortfalls.iter_mut().find(same) {
            Some(lost) => {
                lost.count += 1;
                if lost.examples.len() < EXAMPLES {
                    lost.examples.push(path.to_vec());
                }
            }
            None => self.shortfalls.push(Shortfall {
                loss,
                count: 1,
                examples: vec![path.to_vec()],
                error,
            }),
        }
    }

    /// Adds what another thread did.
    pub(super) fn add(&mut self, other: Self) {
        self.directories += other.directories;
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.hard_links += other.hard_links;
        self.symlinks += other.symlinks;
        self.specials += other.specials;
        self.skipped += other.skipped;
        self.more_failures += other.more_failures;
        self.stopped |= other.stopped;
        self.interrupted |= other.interrupted;
        self.collisions.extend(other.collisions);
        self.outcomes.extend(other.outcomes);
        for failure in other.failures {
            self.fail(failure);
        }
        for lost in other.shortfalls {
            let count = lost.count;
            let (mut paths, mut error) = (lost.examples.into_iter(), lost.error);
            let tried = error.is_some();
            for path in paths.by_ref() {
                let kind = io::Error::from(io::ErrorKind::Other);
                let error = error.take().or(tried.then_some(kind));
                self.lose(lost.loss, &path, error);
            }
            let same =
                |known: &&mut Shortfall| known.loss == lost.loss && known.error.is_some() == tried;
            if let Some(known) = self.shortfalls.iter_mut().find(same) {
                let told = forerun_io::u64_from(EXAMPLES).min(count);
                known.count += count - told;
            }
        }
    }

    /// Sorts the losses and outcomes, so that their order does not depend on the threads.
    pub(super) fn sort(&mut self) {
        self.outcomes.sort_by(|a, b| a.path.cmp(&b.path));
        self.shortfalls
            .sort_by_key(|lost| (lost.loss, lost.error.is_some()));
        for lost in &mut self.shortfalls {
            lost.examples.sort();
        }
    }
}
