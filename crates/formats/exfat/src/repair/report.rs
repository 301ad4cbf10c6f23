//! Findings of a repair, and the callback that decides which of them are repaired.

use std::collections::{BTreeMap, HashSet};

use forerun_vfs::Error;

/// Kinds of findings: what is asked about once for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The main boot region is damaged.
    MainBoot,
    /// The backup boot region is damaged, or differs.
    BackupBoot,
    /// The first two entries of the FAT are not what they must be.
    FatHead,
    /// The allocation bitmap's own entry or chain is damaged.
    BitmapEntry,
    /// The up-case table is damaged.
    UpcaseTable,
    /// The volume label's entry is damaged.
    Label,
    /// A second entry of a kind that is there once.
    Double,
    /// An entry that cannot be where it is, or is of no known type.
    Entry,
    /// An entry of a kind that only another driver knows: the volume cannot be opened with it.
    Unknown,
    /// A critical entry within a set that only another driver knows: the file cannot be opened.
    UnknownSecondary,
    /// Entries behind the end of a directory.
    BehindEnd,
    /// Secondary entries without a primary one.
    LostEntry,
    /// A set on its way to another sector when the power failed.
    Move,
    /// A set of which so much is damaged that its file cannot be told.
    LostSet,
    /// The number or the types of a set's entries.
    SetForm,
    /// A set's checksum.
    SetChecksum,
    /// A name that no file may have.
    Name,
    /// Hash of a name.
    NameHash,
    /// A name that is in its directory already.
    NameTwice,
    /// Lengths that contradict each other or the volume.
    Length,
    /// A chain that ends too early, leads outside or comes back.
    Chain,
    /// A chain that goes on behind its length.
    ChainLong,
    /// Clusters that something else has already: a copy is made.
    CrossLink,
    /// As before, and there is no room for a copy: what is shared is cut off.
    CrossLinkCut,
    /// An entry of another maker within a set that has clusters it cannot have.
    Vendor,
    /// A moment that is none.
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
    /// The kind as one word, for programs.
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

    /// Returns whether the repair of it takes away what could be read before, or what other systems may need.
    /// A caller should not answer yes to such a finding without asking the user.
    #[must_use]
    pub const fn loses_data(self) -> bool {
        matches!(self, Self::CrossLinkCut | Self::Unknown)
    }

    /// Returns whether clusters may belong to something that was not gone through, or to two things, as long
    /// as it stays: then nothing may become free, and no chain be cut.
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

    /// Returns whether it is a deviation that loses nothing.
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

/// Something that is wrong, and what can be done about it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Kind.
    pub kind: Kind,
    /// Path of the file or directory; nothing for the volume as a whole.
    pub path: Option<Vec<u8>>,
    /// The damage and its position.
    pub error: Error,
    /// The change that would repair it; nothing where none can.
    pub remedy: Option<String>,
}

/// The decision on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is to be repaired.
    Yes,
    /// It stays.
    No,
}

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Findings by kind that were repaired; in a dry run those that would be.
    pub repaired: BTreeMap<Kind, u64>,
    /// Findings by kind that are there still.
    pub left: BTreeMap<Kind, u64>,
    /// Directory with the clusters that belonged to nothing, where one was made.
    pub kept_in: Option<Vec<u8>>,
    /// Files and directories met.
    pub entries: u64,
}

impl Summary {
    /// Number of repairs.
    #[must_use]
    pub fn repairs(&self) -> u64 {
        self.repaired.values().sum()
    }

    /// Number of findings that are there still.
    #[must_use]
    pub fn remains(&self) -> u64 {
        self.left.values().sum()
    }
}

/// Where findings go, and answers come from.
pub struct Desk<'a> {
    decide: &'a mut dyn FnMut(&Finding) -> Answer,
    /// Not asked about again.
    declined: HashSet<(Kind, u64)>,
    /// In this round.
    pub repaired: u64,
    /// Data was given up that nothing leads to any more: it is kept where it can be.
    pub gave_up: bool,
    pub summary: Summary,
}

/// Answers that are remembered, so that later rounds do not ask again.
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

    /// A new round: what is left is found again.
    pub fn begin(&mut self) {
        self.repaired = 0;
        self.summary.left.clear();
        self.summary.entries = 0;
    }

    /// Tells a finding with what can be done about it; whether it is to be done.
    pub fn ask(&mut self, finding: Finding) -> bool {
        let key = (finding.kind, offset(&finding.error));
        let yes = !self.declined.contains(&key) && {
            let answer = (self.decide)(&finding);
            if answer == Answer::No && self.declined.len() < MOST_DECLINED {
                self.declined.insert(key);
            }
            answer == Answer::Yes && finding.remedy.is_some()
        };
        let counts = match yes {
            true => {
                self.repaired += 1;
                &mut self.summary.repaired
            }
            false => &mut self.summary.left,
        };
        *counts.entry(finding.kind).or_default() += 1;
        yes
    }

    /// Tells a finding about which nothing can be done.
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

    /// Returns whether all clusters that have an owner are known, each with one.
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
            *count = count.saturating_sub(1);
        }
        self.repaired = self.repaired.saturating_sub(1);
        *self.summary.left.entry(kind).or_default() += 1;
    }
}

fn offset(error: &Error) -> u64 {
    match error {
        Error::Corrupt(corrupt) => corrupt.offset(),
        _ => 0,
    }
}
