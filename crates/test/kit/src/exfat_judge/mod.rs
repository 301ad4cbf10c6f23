//! A checker of exFAT volumes that shares nothing with the driver it judges.
//!
//! Written from the published specification alone, plainly: the FAT and the bitmap are read whole,
//! the tree is walked, and every cluster gets its owners. It finds what `fsck.exfat` finds, and
//! also clusters without an owner. It repairs nothing, and knows one FAT and one bitmap only.

mod boot;
mod clusters;
mod directory;
mod entry_set;
mod fsck;

use std::collections::BTreeMap;
use std::fmt;

use forerun_io::{ReadAt, u64_from, usize_from};

use crate::powercut::{Found, FoundNode};
pub use boot::Geometry;
use clusters::OwnedClusters;
pub use fsck::{Fsck, Said};

/// How much a finding matters to the owner of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Clusters that are marked and have no owner: space lost, nothing else.
    Leak,
    /// Entries that no system reads: the last of a set whose first are gone.
    Stale,
    /// Marked clusters without another owner follow the end of a complete chain: space lost. Readers
    /// do not come there; `fsck.exfat` cuts the chain, and calls that corrupt.
    Excess,
    /// The volume contradicts itself.
    Repair,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// A field or checksum of a boot region.
    Boot,
    /// The first two entries of the FAT.
    FatHead,
    /// The bitmap, the up-case table, or one of them missing.
    Table,
    /// A directory that cannot be read.
    Directory,
    /// An entry set that is cut short, or a secondary entry without its primary, other than a name.
    CutSet,
    /// A name entry without a primary before it: what is left of a set that was removed. Readers pass
    /// over it, and `fsck.exfat` offers to delete it and calls the volume clean.
    StrayName,
    /// The checksum of an entry set.
    Checksum,
    /// The hash of a name.
    NameHash,
    /// Length or characters of a name.
    Name,
    /// Two entries of one name.
    Twice,
    /// A time that is none.
    Time,
    /// Lengths that contradict each other or the clusters.
    Length,
    /// A chain that ends early, nowhere, or in clusters that are free or others'.
    Chain,
    /// A chain that ends late, in marked clusters that have no other owner.
    LongChain,
    /// A cluster with two owners.
    CrossLink,
    /// A cluster with an owner that is marked free.
    UsedButFree,
    /// A cluster that is marked and has no owner.
    Leak,
    /// Entries behind the end of a directory. Linux refuses to make names there, and `fsck.exfat` from
    /// 1.3 on calls them damage.
    BehindEnd,
}

impl What {
    /// Returns how much it matters.
    pub const fn class(self) -> Class {
        match self {
            Self::Leak => Class::Leak,
            Self::LongChain => Class::Excess,
            Self::StrayName => Class::Stale,
            Self::Boot
            | Self::FatHead
            | Self::Table
            | Self::Directory
            | Self::CutSet
            | Self::Checksum
            | Self::NameHash
            | Self::Name
            | Self::Twice
            | Self::Time
            | Self::Length
            | Self::Chain
            | Self::CrossLink
            | Self::UsedButFree
            | Self::BehindEnd => Class::Repair,
        }
    }
}

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: What,
    /// Where, and the numbers.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.what, self.detail)
    }
}

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index of its directory in [`Report::nodes`]; none for the root.
    pub parent: Option<usize>,
    /// Name in UTF-8.
    pub name: String,
    /// Whether it is a directory.
    pub directory: bool,
    pub len: u64,
    /// Bytes of it that were ever written.
    pub valid: u64,
    /// Its clusters, in order.
    pub clusters: Vec<u32>,
    /// Whether they follow each other without the FAT.
    pub contiguous: bool,
}

/// The state of a volume.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether VolumeDirty is set.
    pub dirty: bool,
    /// Whether MediaFailure is set.
    pub media_failure: bool,
    pub geometry: Geometry,
    pub label: String,
    /// Everything below the root; directories before what is in them.
    pub nodes: Vec<Node>,
    /// Clusters that the bitmap marks.
    pub allocated: u32,
    /// Everything that is wrong.
    pub findings: Vec<Finding>,
}

/// Reads a whole volume.
pub fn judge(device: &dyn ReadAt) -> Result<Report, Finding> {
    let mut findings = Vec::new();
    let boot = boot::read(device, &mut findings)?;
    let mut clusters = OwnedClusters::read(device, &boot.geometry, &mut findings)?;
    let root = directory::Root::read(&mut clusters, boot.geometry.root, &mut findings)?;
    let nodes = directory::walk(&mut clusters, &root, &mut findings);
    clusters.compare(&root.bitmap, &mut findings);
    Ok(Report {
        dirty: boot.dirty,
        media_failure: boot.media_failure,
        geometry: boot.geometry,
        label: root.label,
        nodes,
        allocated: root.bitmap.iter().map(|byte| byte.count_ones()).sum(),
        findings,
    })
}

impl Report {
    /// Returns the findings of a class.
    pub fn of(&self, class: Class) -> impl Iterator<Item = &Finding> {
        let of_class = move |finding: &&Finding| finding.what.class() == class;
        self.findings.iter().filter(of_class)
    }

    /// Checks that a crash may leave the volume like this. Nothing may contradict itself. Only while
    /// VolumeDirty is set may clusters be lost, on no chain or behind the end of one, and name entries be
    /// left over.
    pub fn after_crash(&self) -> Result<(), String> {
        let repair: Vec<String> = self
            .of(Class::Repair)
            .take(4)
            .map(Finding::to_string)
            .collect();
        if !repair.is_empty() {
            return Err(repair.join("; "));
        }
        let only_dirty = |what| matches!(what, What::Leak | What::LongChain | What::StrayName);
        match self
            .findings
            .iter()
            .find(|finding| only_dirty(finding.what))
        {
            Some(found) if !self.dirty => Err(format!("VolumeDirty is not set, but {found}")),
            _ => Ok(()),
        }
    }

    /// Checks that the volume may be like this once its driver has opened it after a crash and synced: as
    /// [`after_crash`](Self::after_crash), and without name entries left over.
    pub fn after_recovery(&self) -> Result<(), String> {
        self.after_crash()?;
        let mut findings = self.findings.iter();
        match findings.find(|finding| finding.what == What::StrayName) {
            Some(stray) => Err(format!("after recovery, {stray}")),
            None => Ok(()),
        }
    }

    /// Returns whether nothing was found and the volume is not dirty.
    pub fn clean(&self) -> bool {
        !self.dirty && self.findings.is_empty()
    }

    /// Counts the findings of each kind.
    pub fn counts(&self) -> BTreeMap<What, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(finding.what).or_default() += 1;
        }
        counts
    }

    /// Reads a file, with zeros behind what was ever written.
    pub fn content(&self, device: &dyn ReadAt, node: &Node, most: u64) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize_from(node.len.min(most))];
        let valid = usize_from(node.valid.min(most)).min(bytes.len());
        let cluster = usize_from(self.geometry.cluster);
        for (part, &number) in bytes[..valid].chunks_mut(cluster).zip(&node.clusters) {
            device.read_exact_at(self.geometry.offset(number), part)?;
        }
        Ok(bytes)
    }

    /// Reads the tree with the contents of its files, to be compared with a model.
    pub fn found(&self, device: &dyn ReadAt) -> std::io::Result<Found> {
        let mut found = Found::default();
        for node in &self.nodes {
            let content = if node.directory {
                Vec::new()
            } else {
                self.content(device, node, Found::SHOWN)?
            };
            found.nodes.push(FoundNode {
                parent: node.parent,
                name: node.name.clone().into_bytes(),
                len: (!node.directory).then_some(node.len),
                content,
            });
        }
        Ok(found)
    }

    /// Finds the node of a path.
    pub fn find(&self, path: &str) -> Option<&Node> {
        let mut parent = None;
        for name in path.split('/') {
            let is_it = |node: &Node| node.parent == parent && node.name == name;
            parent = Some(self.nodes.iter().position(is_it)?);
        }
        parent.map(|index| &self.nodes[index])
    }
}

fn finding(what: What, detail: impl Into<String>) -> Finding {
    let detail = detail.into();
    Finding { what, detail }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("2 bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

fn read(device: &dyn ReadAt, offset: u64, len: u64, what: What) -> Result<Vec<u8>, Finding> {
    if offset.checked_add(len).is_none_or(|end| end > device.len()) {
        return Err(finding(
            what,
            format!("{len} bytes at {offset} lie outside the device"),
        ));
    }
    let mut bytes = vec![0; usize_from(len)];
    device
        .read_exact_at(offset, &mut bytes)
        .map_err(|error| finding(what, format!("{len} bytes at {offset}: {error}")))?;
    debug_assert_eq!(u64_from(bytes.len()), len);
    Ok(bytes)
}
