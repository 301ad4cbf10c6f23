//! The report of an extraction.

use std::io;

use crate::{ExportError, Remains, SalvagedFile};

pub type Failure = ExportError;

/// Maximum number of failures to keep; further ones are only counted.
const FAILURES: usize = 1000;
/// Maximum number of example paths for each kind of loss.
const EXAMPLES: usize = 5;

/// A property that can be lost although the entry is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    Device,
    /// A hard link that became a copy, because the filesystem does not support it.
    HardLink,
    Owner,
    Mode,
    /// The setuid, setgid or sticky bit.
    SpecialBits,
    Xattr,
    /// An extended attribute in `security.` or `trusted.`, which can grant rights like a setuid
    /// bit.
    PrivilegedXattr,
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

#[derive(Debug)]
pub struct Shortfall {
    pub loss: Loss,
    /// Number of entries affected; for attributes, the number of attributes.
    pub count: u64,
    pub examples: Vec<Vec<u8>>,
    /// The first system error. `None` for copies in place of hard links, and if setting was not
    /// attempted because of the options or missing privilege.
    pub error: Option<io::Error>,
}

#[derive(Debug, Default)]
pub struct ExtractReport {
    /// Directories created, or existing and filled.
    pub directories: u64,
    pub files: u64,
    /// Bytes of regular files, including holes.
    pub bytes: u64,
    pub hard_links: u64,
    pub symlinks: u64,
    /// Devices, fifos and sockets created.
    pub specials: u64,
    /// Entries that an earlier run had finished.
    pub skipped: u64,
    /// Entries not created, because they failed or the extraction ended before them. Excludes
    /// omitted devices and collisions.
    pub missing: u64,
    /// Members of the image outside its tree, if the whole tree was selected.
    pub left_out: u64,
    /// Failures of entries, at most the first thousand.
    pub failures: Vec<Failure>,
    pub more_failures: u64,
    /// The outcome of each regular file of a salvage, by path; hard links are not listed.
    pub outcomes: Vec<SalvagedFile>,
    /// Properties lost on created entries, and omitted devices.
    pub shortfalls: Vec<Shortfall>,
    /// Names that differ only in case from another name in their directory, and that other name.
    pub collisions: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the extraction ended early because nothing more could be written.
    pub stopped: bool,
    /// Whether the extraction ended early because the caller stopped it.
    pub interrupted: bool,
}

impl ExtractReport {
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

    #[must_use]
    pub fn failed(&self) -> u64 {
        self.more_failures
            .saturating_add(forerun_io::u64_from(self.failures.len()))
    }

    /// Returns the number of entries that are created, found or deliberately omitted.
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

    /// Sorts losses and outcomes, so that their order does not depend on threads.
    pub(super) fn sort(&mut self) {
        self.outcomes.sort_by(|a, b| a.path.cmp(&b.path));
        self.shortfalls
            .sort_by_key(|lost| (lost.loss, lost.error.is_some()));
        for lost in &mut self.shortfalls {
            lost.examples.sort();
        }
    }
}
