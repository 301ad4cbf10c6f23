//! Findings of a repair, and the callback that decides which findings are repaired.

use std::collections::HashSet;

use forerun_vfs::Error;
use forerun_vfs::repair::{self, Answer};

/// A kind of finding. A user can give one answer for all findings of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    MainBoot,
    /// The backup boot region is damaged, or differs from the main one.
    BackupBoot,
    /// `VolumeLength` is not the length of the volume. Linux does not use the field.
    VolumeLength,
    /// The first two entries of the FAT are wrong.
    FatHead,
    /// The entry or the chain of the allocation bitmap is damaged.
    BitmapEntry,
    UpcaseTable,
    /// The entry of the volume label is damaged.
    Label,
    /// A second entry of a kind that must occur once.
    Double,
    /// An entry of an invalid type, or of a type that is not allowed there.
    Entry,
    /// A critical entry of unknown type in the root directory. Drivers that do not know it must not
    /// open the volume.
    Unknown,
    /// A critical entry of unknown type within a set. Drivers that do not know it must not open the
    /// file.
    UnknownSecondary,
    /// Entries beyond the end of a directory.
    BehindEnd,
    /// Secondary entries without a primary one.
    LostEntry,
    /// A set that was moving to another sector when the power failed.
    Move,
    /// A set with so much damage that the location of its data is lost.
    LostSet,
    SetForm,
    SetChecksum,
    Name,
    NameHash,
    /// A name that another set of the directory has.
    NameTwice,
    /// Lengths that contradict each other or the volume.
    Length,
    /// A chain that ends too early, leaves the volume, or returns to itself.
    Chain,
    /// A chain that continues beyond the length of its data.
    ChainLong,
    /// Clusters that another set also has. The set gets a copy.
    CrossLink,
    /// Like `CrossLink`, without space for a copy: the set loses the shared clusters.
    CrossLinkCut,
    /// A vendor's entry whose clusters are damaged or belong to another set too.
    Vendor,
    Time,
    /// A field that must be zero, or a flag that must be set.
    Reserved,
    /// A cluster in use that is marked free.
    UsedFree,
    /// Clusters marked used that belong to no entry.
    Leaked,
    Percent,
    Dirty,
    MediaFailure,
    Unreadable,
}

impl Kind {
    /// Returns the kind as one word, for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MainBoot => "main-boot-region",
            Self::BackupBoot => "backup-boot-region",
            Self::VolumeLength => "volume-length",
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

    /// Returns whether the repair removes data that was readable, or that other systems may need. A
    /// caller should not answer yes to such a finding without asking the user.
    #[must_use]
    pub const fn loses_data(self) -> bool {
        matches!(self, Self::CrossLinkCut | Self::Unknown)
    }

    /// Returns whether this damage, while unrepaired, may hide owners of clusters: then no cluster
    /// may be freed, and no chain may be truncated.
    const fn hides_clusters(self) -> bool {
        match self {
            Self::MainBoot
            | Self::BackupBoot
            | Self::VolumeLength
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

    /// Returns whether the volume is consistent despite this finding.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(
            self,
            Self::BackupBoot
                | Self::VolumeLength
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
pub type Summary = repair::Summary<Kind>;

/// The callback for findings, its earlier answers, and the counts.
pub struct Desk<'a> {
    decide: &'a mut dyn FnMut(&Finding) -> Answer,
    /// Declined findings. They are not asked about again.
    declined: HashSet<(Kind, u64)>,
    pub repaired: u64,
    /// The repair dropped references to some data. Lost clusters are therefore kept as files.
    pub gave_up: bool,
    pub summary: Summary,
}

/// Maximum number of remembered declined findings.
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

    /// Begins a new round, which reports unrepaired findings again.
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

    /// Returns whether the owners of all clusters are known, and no cluster has two owners.
    pub fn is_certain(&self) -> bool {
        let mut left = self.summary.left.keys();
        !left.any(|kind| kind.hides_clusters())
    }

    /// Returns whether all unrepaired findings leave the volume consistent.
    pub fn is_consistent(&self) -> bool {
        self.summary.left.keys().all(|kind| kind.is_harmless())
    }

    /// Counts a repair as unrepaired because it did not reach the device.
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
