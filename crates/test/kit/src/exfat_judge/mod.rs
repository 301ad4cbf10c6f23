//! A checker of exFAT volumes that shares no code with the driver.
//!
//! It is written from the published specification alone: it reads the whole FAT and bitmap, walks
//! the tree, and assigns owners to every cluster. It finds what `fsck.exfat` finds, and also
//! clusters without an owner. It repairs nothing, and supports only one FAT and one bitmap.

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

/// How severe a finding is for the owner of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Marked clusters without an owner: only space is lost.
    Leak,
    /// Entries that no system reads: the last of a set whose first are gone.
    Stale,
    /// Marked clusters without another owner follow the end of a complete chain: only space is
    /// lost. Readers ignore them; `fsck.exfat` truncates the chain, and calls it corrupt.
    Excess,
    /// The volume contradicts itself.
    Repair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    Boot,
    /// The first two entries of the FAT.
    FatHead,
    /// The bitmap or the up-case table is invalid or missing.
    Table,
    /// A directory that cannot be read.
    Directory,
    /// A truncated entry set, or a secondary entry without its primary, other than a name.
    CutSet,
    /// A name entry without a primary before it: the remains of a removed set. Readers ignore it,
    /// and `fsck.exfat` offers to delete it and calls the volume clean.
    StrayName,
    Checksum,
    NameHash,
    Name,
    /// Two entries with the same name.
    Twice,
    Time,
    /// Lengths that contradict each other or the clusters.
    Length,
    /// A chain that ends early, at an invalid entry, or in clusters that are free or have another
    /// owner.
    Chain,
    /// A chain that ends late, in marked clusters without another owner.
    LongChain,
    /// A cluster with two owners.
    CrossLink,
    /// A cluster with an owner that is marked free.
    UsedButFree,
    /// A marked cluster without an owner.
    Leak,
    /// Entries after the end of a directory. Linux refuses to create names there, and `fsck.exfat`
    /// calls them damage since version 1.3.
    BehindEnd,
}

impl What {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub what: What,
    /// The place on the volume, and the wrong values.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.what, self.detail)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Index of its directory in [`Report::nodes`]; `None` for the root.
    pub parent: Option<usize>,
    pub name: String,
    pub directory: bool,
    pub len: u64,
    /// Bytes of it that were ever written.
    pub valid: u64,
    pub clusters: Vec<u32>,
    /// Whether they are contiguous without the FAT.
    pub contiguous: bool,
}

#[derive(Clone, Debug)]
pub struct Report {
    pub dirty: bool,
    pub media_failure: bool,
    pub geometry: Geometry,
    pub label: String,
    /// Everything below the root; directories before their entries.
    pub nodes: Vec<Node>,
    /// Clusters that the bitmap marks.
    pub allocated: u32,
    pub findings: Vec<Finding>,
}

/// Checks a whole volume.
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
    pub fn of(&self, class: Class) -> impl Iterator<Item = &Finding> {
        let of_class = move |finding: &&Finding| finding.what.class() == class;
        self.findings.iter().filter(of_class)
    }

    /// Checks that a crash may leave the volume in this state. Nothing may contradict itself. Only
    /// while VolumeDirty is set may clusters be lost (in no chain, or after the end of one) and
    /// name entries be left over.
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

    /// Checks that the volume is valid after its driver has opened it after a crash and synced:
    /// like [`after_crash`](Self::after_crash), but without left-over name entries.
    pub fn after_recovery(&self) -> Result<(), String> {
        self.after_crash()?;
        let mut findings = self.findings.iter();
        match findings.find(|finding| finding.what == What::StrayName) {
            Some(stray) => Err(format!("after recovery, {stray}")),
            None => Ok(()),
        }
    }

    pub fn clean(&self) -> bool {
        !self.dirty && self.findings.is_empty()
    }

    pub fn counts(&self) -> BTreeMap<What, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(finding.what).or_default() += 1;
        }
        counts
    }

    /// Reads a file, with zeros after the written part.
    pub fn content(&self, device: &dyn ReadAt, node: &Node, most: u64) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize_from(node.len.min(most))];
        let valid = usize_from(node.valid.min(most)).min(bytes.len());
        let cluster = usize_from(self.geometry.cluster);
        for (part, &number) in bytes[..valid].chunks_mut(cluster).zip(&node.clusters) {
            device.read_exact_at(self.geometry.offset(number), part)?;
        }
        Ok(bytes)
    }

    /// Reads the tree with the contents of its files, for comparison with a model.
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
