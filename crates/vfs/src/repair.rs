//! The interface of repair: a driver finds damage and corrects it, and a front end decides what to
//! correct.
//!
//! Not a part of [`Format`](crate::Format), because few formats can be repaired. The registry has a
//! separate table of [`Repair`].

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_io::{BlockDevice, Limits, Observer, ReadAt};

use crate::{Error, Result, Timestamp};

/// A kind of findings. A user can answer for all findings of a kind together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    name: &'static str,
    loses_data: bool,
    is_harmless: bool,
}

impl Kind {
    /// Creates a kind. Its name, words joined by dashes, is unique in the format.
    #[must_use]
    pub const fn new(name: &'static str, loses_data: bool, is_harmless: bool) -> Self {
        Self {
            name,
            loses_data,
            is_harmless,
        }
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns whether repairing such a finding removes data that is readable now, or that other
    /// systems may need. Callers must ask the user before such a repair.
    #[must_use]
    pub const fn loses_data(self) -> bool {
        self.loses_data
    }

    /// Returns whether the volume stays consistent if such a finding is not repaired.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        self.is_harmless
    }
}

/// Damage, and its repair. A driver may use its own type for kinds.
#[derive(Clone, Debug)]
pub struct Finding<K = Kind> {
    pub kind: K,
    /// Path of the file or directory; `None` for the volume as a whole.
    pub path: Option<Vec<u8>>,
    pub error: Error,
    /// The change that would repair it; `None` if it cannot be repaired.
    pub remedy: Option<String>,
}

impl<K: Copy + Into<Kind>> Finding<K> {
    /// Converts the finding for a front end, with the common type of kinds.
    #[must_use]
    pub fn to_shown(&self) -> Finding {
        Finding {
            kind: self.kind.into(),
            path: self.path.clone(),
            error: self.error.clone(),
            remedy: self.remedy.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Yes,
    No,
}

#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Whether to write nothing: the summary then says what would be repaired.
    pub dry_run: bool,
    /// Whether to make files of clusters that belong to no file. Otherwise they are freed, unless
    /// data had to be given up in the same run.
    pub keep_lost: bool,
    /// Timestamp of directories that the repair creates; `None` for the time of the machine's
    /// clock.
    pub now: Option<Timestamp>,
    pub limits: Limits,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary<K = Kind> {
    /// Number of repaired findings per kind; in a dry run, of findings that would be repaired.
    pub repaired: BTreeMap<K, u64>,
    /// Number of unrepaired findings per kind.
    pub left: BTreeMap<K, u64>,
    /// Directory with the lost clusters, if one was created.
    pub kept_in: Option<Vec<u8>>,
    /// Number of files and directories that the repair examined.
    pub entries: u64,
}

impl<K> Default for Summary<K> {
    fn default() -> Self {
        Self {
            repaired: BTreeMap::new(),
            left: BTreeMap::new(),
            kept_in: None,
            entries: 0,
        }
    }
}

impl<K> Summary<K> {
    #[must_use]
    pub fn repairs(&self) -> u64 {
        self.repaired.values().sum()
    }

    #[must_use]
    pub fn remains(&self) -> u64 {
        self.left.values().sum()
    }
}

impl<K: Into<Kind>> Summary<K> {
    /// Converts the summary for a front end, with the common type of kinds.
    #[must_use]
    pub fn into_shown(self) -> Summary {
        let shown = |counts: BTreeMap<K, u64>| {
            let counts = counts.into_iter();
            counts.map(|(kind, count)| (kind.into(), count)).collect()
        };
        Summary {
            repaired: shown(self.repaired),
            left: shown(self.left),
            kept_in: self.kept_in,
            entries: self.entries,
        }
    }
}

/// Repairs the volume on a device that no other code has open. Calls the last argument for each
/// finding; its result says whether to repair.
pub type RepairVolume = fn(
    &Arc<dyn BlockDevice>,
    &Arc<Observer>,
    &RepairOptions,
    &mut dyn FnMut(&Finding) -> Answer,
) -> Result<Summary>;

/// Repairs the damage that an interrupted commit leaves on a volume that no other code has open,
/// and nothing else.
pub type RepairAfterKill =
    fn(&Arc<dyn BlockDevice>, &Arc<Observer>, &RepairOptions) -> Result<Summary>;

#[derive(Clone, Copy, Debug)]
pub struct Repair {
    pub format: &'static str,
    /// Returns whether the source is a volume of the format although its first bytes do not show
    /// it.
    pub recognises: fn(&dyn ReadAt) -> bool,
    pub repair: RepairVolume,
    pub after_a_kill: RepairAfterKill,
}
