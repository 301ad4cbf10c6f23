//! Findings of a repair, and the callback that decides which of them are repaired.

use std::collections::HashSet;

use forerun_vfs::Error;
use forerun_vfs::repair::{self, Answer};

/// A kind of findings. A user can answer for all findings of a kind at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The main boot region is damaged.
    MainBoot,
    /// The backup boot region is damaged, or differs.
    BackupBoot,
    /// The first two entries of the FAT are wrong.
    FatHead,
    /// The allocation bitmap's own entry or chain is damaged.
    BitmapEntry,
    /// The up-case table is damaged.
    UpcaseTable,
    /// The volume label's entry is damaged.
    Label,
    /// A second entry of a kind of which there is only one.
    Double,
    /// An entry of a type that is invalid, or not allowed in its place.
    Entry,
    /// A critical entry of unknown type in the root directory: no driver that does not know it may open
    /// the volume.
    Unknown,
    /// A critical entry of unknown type within a set: no driver that does not know it may open the file.
    UnknownSecondary,
    /// Entries behind the end of a directory.
    BehindEnd,
    /// Secondary entries without a primary one.
    LostEntry,
    /// A set on its way to another sector when the power failed.
    Move,
    /// A set with so much damage that the place of its data is lost.
    LostSet,
    /// The number or the types of a set's entries.
    SetForm,
    SetChecksum,
    /// A name that is not allowed.
    Name,
    /// Hash of a name.
    NameHash,
    /// A name that is in its directory already.
    NameTwice,
    /// Lengths that contradict each other or the volume.
    Length,
    /// A chain that ends too early, leads outside of the volume or comes back to itself.
    Chain,
    /// A chain that continues behind its length.
    ChainLong,
    /// Clusters that something else has already: the set gets a copy.
    CrossLink,
    /// The same without room for a copy: the shared clusters are cut off.
    CrossLinkCut,
    /// An entry of a vendor with clusters that are damaged or that something else has.
    Vendor,
    Time,
    /// A field that must be zero, or a flag that must be set.
    Reserved,
    /// A cluster in use that is marked free.
    UsedFree,
    /// Clusters marked used that belong to nothing.
    Leaked,
    /// `PercentInUse`.
    Percent,
    /// `VolumeDirty`.
    Dirty,
    /// `MediaFailure`.
    MediaFailure,
    /// A part of the volume cannot be read through.
    Unreadable,
}

impl Kind {
    /// Returns the kind as one word, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MainBoot => "main-boot-region",
            Self::BackupBoot => "backup-boot-region",
            Self::FatHead => "fat-head",
            Self::BitmapEntry => "bitmap-entry",
            Self::UpcaseTable => "upcase-table",
            Self::Label => "label",
            Self::Double => "second-entry",
            Self::Entry => "entry",
            Self::Unknown => "unknown-entry",
            Self::UnknownSecondary => "unknown-secondary",
            Self::BehindEnd => "behind-end",
            Self::LostEntry => "lost-entry",
            Self::Move => "move",
            Self::LostSet => "lost-set",
            Self::SetForm => "set-form",
            Self::SetChecksum => "set-checksum",
            Self::Name => "name",
            Self::NameHash => "name-hash",
            Self::NameTwice => "name-twice",
            Self::Length => "length",
            Self::Chain => "chain",
            Self::ChainLong => "chain-long",
            Self::CrossLink => "cross-link",
            Self::CrossLinkCut => "cross-link-cut",
            Self::Vendor => "vendor-entry",
            Self::Time => "time",
            Self::Reserved => "reserved",
            Self::UsedFree => "used-free",
            Self::Leaked => "leaked",
            Self::Percent => "percent",
            Self::Dirty => "dirty",
            Self::MediaFailure => "media-failure",
            Self::Unreadable => "unreadable",
        }
    }

    /// Returns whether its repair removes data that could be read before, or that other systems may need.
    /// A caller should not answer yes to such a finding without asking the user.
    #[must_use]
    pub const fn loses_data(self) -> bool {
        matches!(self, Self::CrossLinkCut | Self::Unknown)
    }

    /// Returns whether clusters may belong to something that could not be read, or to two owners, as long
    /// as the damage stays: then no cluster may become free, and no chain may be cut.
    const fn hides_clusters(self) -> bool {
        match self {
            Self::MainBoot
            | Self::BackupBoot
            | Self::FatHead
            | Self::Label
            | Self::LostEntry
            | Self::Name
            | Self::NameHash
            | Self::NameTwice
            | Self::Time
            | Self::Reserved
            | Self::UsedFree
            | Self::Leaked
            | Self::ChainLong
            | Self::Percent
            | Self::Dirty
            | Self::MediaFailure => false,
            Self::BitmapEntry
            | Self::UpcaseTable
            | Self::Double
            | Self::Entry
            | Self::Unknown
            | Self::UnknownSecondary
            | Self::BehindEnd
            | Self::Move
            | Self::LostSet
            | Self::SetForm
            | Self::SetChecksum
            | Self::Length
            | Self::Chain
            | Self::CrossLink
            | Self::CrossLinkCut
            | Self::Vendor
            | Self::Unreadable => true,
        }
    }

    /// Returns whether it is a deviation that leaves the volume consistent.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::BackupBoot
                | Self::Time
                | Self::Reserved
                | Self::Leaked
                | Self::Percent
                | Self::Dirty
                | Self::MediaFailure
                | Self::LostEntry
        )
    }
}

impl From<Kind> for repair::Kind {
    fn from(kind: Kind) -> Self {
        Self::new(kind.name(), kind.loses_data(), kind.is_harmless())
    }
}

/// Damage, and how to repair it.
pub type Finding = repair::Finding<Kind>;
/// The result of a repair.
pub type Summary = repair::Summary<Kind>;

/// The callback for findings, with its answers and the counts.
pub struct Desk<'a> {
    decide: &'a mut dyn FnMut(&Finding) -> Answer,
    /// Findings that were declined, which are not asked about again.
    declined: HashSet<(Kind, u64)>,
    /// Repairs in this round.
    pub repaired: u64,
    /// Some data is no longer referenced: lost clusters are kept as files.
    pub gave_up: bool,
    pub summary: Summary,
}

/// Most declined findings that are remembered, so that later rounds do not ask again.
const MOST_DECLINED: usize = 1 << 20;

impl<'a> Desk<'a> {
    pub fn new(decide: &'a mut dyn FnMut(&Finding) -> Answer) -> Self {
        Self {
            decide,
            declined: HashSet::new(),
            repaired: 0,
            gave_up: false,
            summary: Summary::default(),
        }
    }

    /// Begins a new round, which finds again what is left.
    pub fn begin(&mut self) {
        self.repaired = 0;
        self.summary.left.clear();
        self.summary.entries = 0;
    }

    /// Reports a finding with its remedy, and returns whether to repair it.
    pub fn ask(&mut self, finding: Finding) -> bool {
        let key = (finding.kind, offset(&finding.error));
        let yes = !self.declined.contains(&key) && {
            let answer = (self.decide)(&finding);
            if answer == Answer::No && self.declined.len() < MOST_DECLINED {
                self.declined.insert(key);
            }
            answer == Answer::Yes && finding.remedy.is_some()
        };
        let counts = if yes {
            self.repaired += 1;
            &mut self.summary.repaired
        } else {
            &mut self.summary.left
        };
        *counts.entry(finding.kind).or_default() += 1;
        yes
    }

    /// Reports a finding that cannot be repaired.
    pub fn leave(&mut self, kind: Kind, path: Option<Vec<u8>>, error: Error) {
        let key = (kind, offset(&error));
        *self.summary.left.entry(kind).or_default() += 1;
        if self.declined.contains(&key) {
            return;
        }
        if self.declined.len() < MOST_DECLINED {
            self.declined.insert(key);
        }
        let remedy = None;
        let finding = Finding {
            kind,
            path,
            error,
            remedy,
        };
        (self.decide)(&finding);
    }

    /// Returns whether the owners of all clusters are known, and no cluster has two.
    pub fn is_certain(&self) -> bool {
        let mut left = self.summary.left.keys();
        !left.any(|kind| kind.hides_clusters())
    }

    /// Returns whether nothing is left that makes the volume inconsistent.
    pub fn is_consistent(&self) -> bool {
        self.summary.left.keys().all(|kind| kind.is_harmless())
    }

    /// Counts a repair as left, because it did not reach the device after all.
    pub fn undo(&mut self, kind: Kind) {
        if let Some(count) = self.summary.repaired.get_mut(&kind) {
            *count -= 1;
        }
        self.repaired -= 1;
        *self.summary.left.entry(kind).or_default() += 1;
    }
}

fn offset(error: &Error) -> u64 {
    match error {
        Error::Corrupt(corrupt) => corrupt.offset(),
        _ => 0,
    }
}
