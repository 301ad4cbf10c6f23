//! The seam of repair: a driver finds damage and corrects it, a front end decides.
//!
//! Not a part of [`Format`](crate::Format): few formats can be repaired. The registry has a table
//! of [`Repair`] of its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_io::{BlockDevice, Limits, Observer, ReadAt};

use crate::{Error, Result, Timestamp};

/// A kind of findings, for a front end. A user can answer for all findings of a kind together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    name: &'static str,
    loses_data: bool,
    is_harmless: bool,
}

impl Kind {
    /// Creates a kind. Its name, in words joined by dashes, is unique in the format.
    #[must_use]
    pub const fn new(name: &'static str, loses_data: bool, is_harmless: bool) -> Self {
        Self {
            name,
            loses_data,
            is_harmless,
        }
    }

    /// Returns the kind as one word, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Returns whether repairing such a finding removes data that is readable now, or that other systems may need.
    /// Callers must ask the user before such a repair.
    #[must_use]
    pub const fn loses_data(self) -> bool {
        self.loses_data
    }

    /// Returns whether the volume is consistent although such a finding is left.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        self.is_harmless
    }
}

/// Damage, and its repair. A driver may have its own type of kinds.
#[derive(Clone, Debug)]
pub struct Finding<K = Kind> {
    /// The kind.
    pub kind: K,
    /// Path of the file or directory; `None` for the volume as a whole.
    pub path: Option<Vec<u8>>,
    /// The damage and its position.
    pub error: Error,
    /// The change that would repair it; `None` if none can.
    pub remedy: Option<String>,
}

impl<K: Copy + Into<Kind>> Finding<K> {
    /// Returns the finding for a front end.
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

/// The decision on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Repair it.
    Yes,
    /// Leave it.
    No,
}

/// Options of a repair.
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Write nothing: the summary says what would be repaired.
    pub dry_run: bool,
    /// Make files of clusters that belong to no file. Otherwise they are freed, unless data had to
    /// be given up in the same run.
    pub keep_lost: bool,
    /// Time of the directories that the repair makes; `None` for the time of the machine's clock.
    pub now: Option<Timestamp>,
    /// Bounds on what the volume may ask for.
    pub limits: Limits,
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary<K = Kind> {
    /// Number of findings of each kind that were repaired; in a dry run, of findings that would be.
    pub repaired: BTreeMap<K, u64>,
    /// Number of findings of each kind that are left.
    pub left: BTreeMap<K, u64>,
    /// Directory with the lost clusters, if one was created.
    pub kept_in: Option<Vec<u8>>,
    /// Files and directories met.
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
    /// Returns the number of repairs.
    #[must_use]
    pub fn repairs(&self) -> u64 {
        self.repaired.values().sum()
    }

    /// Returns the number of findings that are left.
    #[must_use]
    pub fn remains(&self) -> u64 {
        self.left.values().sum()
    }
}

impl<K: Into<Kind>> Summary<K> {
    /// Returns the summary for a front end.
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
/// finding, which returns whether to repair it.
pub type RepairVolume = fn(
    &Arc<dyn BlockDevice>,
    &Arc<Observer>,
    &RepairOptions,
    &mut dyn FnMut(&Finding) -> Answer,
) -> Result<Summary>;

/// Repairs the damage that an interrupted commit leaves of the volume on such a device, and nothing else.
pub type RepairAfterKill =
    fn(&Arc<dyn BlockDevice>, &Arc<Observer>, &RepairOptions) -> Result<Summary>;

/// A format whose volumes can be repaired: an entry of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Repair {
    /// Name of the format.
    pub format: &'static str,
    /// Returns whether the source is a volume of the format although its first bytes do not show it.
    pub recognises: fn(&dyn ReadAt) -> bool,
    /// Repairs what the caller decides.
    pub repair: RepairVolume,
    /// Repairs the damage that an interrupted commit leaves, and nothing else.
    pub after_a_kill: RepairAfterKill,
}
