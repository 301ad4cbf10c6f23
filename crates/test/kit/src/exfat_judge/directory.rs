//! The root's tables and the tree (sections 7.1 to 7.3 and 6).

use std::collections::BTreeSet;

use forerun_io::{u64_from, usize_from};

use super::clusters::{OwnedClusters, Wanted};
use super::entry_set::{ENTRY, parse};
use super::{Finding, Node, What, finding, u16_at, u32_at, u64_at};

/// Limit of a directory in section 6.2.3.
const LONGEST: u64 = 256 << 20;

pub(super) struct Root {
    entries: Vec<u8>,
    upcase: Vec<u16>,
    pub(super) bitmap: Vec<u8>,
    pub(super) label: String,
}

impl Root {
    pub(super) fn read(
        clusters: &mut OwnedClusters<'_>,
        first: u32,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, Finding> {
        let chain = clusters.take(first, Wanted::Chain, "root", findings);
        let len = u64_from(chain.len()) * clusters.geometry.cluster;
        let entries = clusters.bytes(&chain, len)?;
        let bitmap_entry = only(&entries, 0x81)?;
        let upcase_entry = only(&entries, 0x82)?;
        let bitmap = table(clusters, bitmap_entry, "bitmap", findings)?;
        let wanted = usize_from(u64::from(clusters.geometry.clusters).div_ceil(8));
        if bitmap.len() != wanted {
            let detail = format!("a bitmap of {} bytes for {wanted}", bitmap.len());
            findings.push(finding(What::Table, detail));
        }
        let stored = table(clusters, upcase_entry, "up-case table", findings)?;
        let sum = stored.iter().fold(0_u32, |sum, &byte| {
            sum.rotate_right(1).wrapping_add(byte.into())
        });
        if sum != u32_at(upcase_entry, 4) {
            findings.push(finding(What::Table, "checksum of the up-case table"));
        }
        let label = only(&entries, 0x83).ok().map_or(&[][..], |entry| {
            let len = usize::from(entry[1]).min(11);
            &entry[2..2 + 2 * len]
        });
        let label: Vec<u16> = label.chunks_exact(2).map(|unit| u16_at(unit, 0)).collect();
        Ok(Self {
            upcase: expand(&stored),
            bitmap,
            label: String::from_utf16_lossy(&label),
            entries,
        })
    }
}

fn only(entries: &[u8], kind: u8) -> Result<&[u8], Finding> {
    let mut found = live(entries).filter(|entry| entry[0] == kind);
    match (found.next(), found.next()) {
        (Some(entry), None) => Ok(entry),
        (None, _) => Err(finding(
            What::Table,
            format!("no entry of type {kind:#04x}"),
        )),
        _ => Err(finding(
            What::Table,
            format!("two entries of type {kind:#04x}"),
        )),
    }
}

/// Returns the entries before the end of the directory.
fn live(entries: &[u8]) -> impl Iterator<Item = &[u8]> {
    entries
        .chunks_exact(ENTRY)
        .take_while(|entry| entry[0] != 0)
}

fn table(
    clusters: &mut OwnedClusters<'_>,
    entry: &[u8],
    name: &str,
    findings: &mut Vec<Finding>,
) -> Result<Vec<u8>, Finding> {
    let len = u64_at(entry, 24);
    let wanted = Wanted::Fat(len.div_ceil(clusters.geometry.cluster));
    let chain = clusters.take(u32_at(entry, 20), wanted, name, findings);
    clusters.bytes(&chain, len)
}

/// Expands an up-case table. By section 7.2.5, 0xFFFF and a number mean this many characters that
/// map to themselves.
fn expand(stored: &[u8]) -> Vec<u16> {
    let mut table: Vec<u16> = (0..=u16::MAX).collect();
    let mut units = stored.chunks_exact(2).map(|unit| u16_at(unit, 0));
    let mut at = 0;
    while let Some(unit) = units.next() {
        if unit == 0xFFFF {
            let Some(count) = units.next() else { break };
            at += usize::from(count);
        } else {
            if let Some(slot) = table.get_mut(at) {
                *slot = unit;
            }
            at += 1;
        }
    }
    table
}

pub(super) fn walk(
    clusters: &mut OwnedClusters<'_>,
    root: &Root,
    findings: &mut Vec<Finding>,
) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut todo = vec![(None, root.entries.clone())];
    while let Some((parent, entries)) = todo.pop() {
        let path = path(&nodes, parent);
        let before = nodes.len();
        list(
            clusters, &entries, &path, root, parent, &mut nodes, findings,
        );
        let new = nodes.iter().enumerate().skip(before);
        for (index, node) in new.filter(|(_, node)| node.directory) {
            // A cluster has one owner, so no directory is visited twice, and the walk ends.
            match clusters.bytes(&node.clusters, node.len) {
                Ok(entries) => todo.push((Some(index), entries)),
                Err(error) => findings.push(error),
            }
        }
    }
    nodes
}

fn path(nodes: &[Node], index: Option<usize>) -> String {
    match index {
        Some(index) => path(nodes, nodes[index].parent) + "/" + &nodes[index].name,
        None => String::new(),
    }
}

fn list(
    clusters: &mut OwnedClusters<'_>,
    entries: &[u8],
    path: &str,
    root: &Root,
    parent: Option<usize>,
    nodes: &mut Vec<Node>,
    findings: &mut Vec<Finding>,
) {
    let mut names = BTreeSet::new();
    let count = entries.len() / ENTRY;
    let mut at = 0;
    while at < count {
        let entry = &entries[at * ENTRY..(at + 1) * ENTRY];
        let place = format!("{path}/ entry {at}");
        match entry[0] {
            0 => {
                if entries[at * ENTRY..]
                    .chunks_exact(ENTRY)
                    .any(|entry| entry[0] != 0)
                {
                    findings.push(finding(What::BehindEnd, place));
                }
                return;
            }
            0x81..=0x83 if parent.is_none() => at += 1,
            0x85 => {
                let end = (at + 1 + usize::from(entry[1])) * ENTRY;
                let Some(set) = entries.get(at * ENTRY..end) else {
                    findings.push(finding(What::CutSet, format!("{place}: past the end")));
                    return;
                };
                let Some(set) = parse(set, &root.upcase, &place, findings) else {
                    at += 1;
                    continue;
                };
                if !names.insert(set.folded.clone()) {
                    let detail = format!("{path}/{}", set.name);
                    findings.push(finding(What::Twice, detail));
                }
                let owner = format!("{path}/{}", set.name);
                nodes.push(node(clusters, set, &owner, parent, findings));
                at = end / ENTRY;
            }
            // A benign primary entry is followed by its secondary entries.
            0xA0..=0xBF => at += 1 + usize::from(entry[1]),
            kind if kind & 0x80 == 0 => at += 1,
            0xC1 => {
                findings.push(finding(What::StrayName, place));
                at += 1;
            }
            kind => {
                findings.push(finding(
                    What::CutSet,
                    format!("{place} of type {kind:#04x}"),
                ));
                at += 1;
            }
        }
    }
}

fn node(
    clusters: &mut OwnedClusters<'_>,
    set: super::entry_set::EntrySet,
    owner: &str,
    parent: Option<usize>,
    findings: &mut Vec<Finding>,
) -> Node {
    let cluster = clusters.geometry.cluster;
    let count = set.len.div_ceil(cluster);
    let mut complain = |detail: String| {
        findings.push(finding(What::Length, format!("{owner}: {detail}")));
    };
    if set.valid > set.len {
        complain(format!("{} valid bytes of {}", set.valid, set.len));
    }
    if set.len == 0 && set.first != 0 {
        complain(format!("empty, but in cluster {}", set.first));
    }
    let bad_directory = set.len == 0 || !set.len.is_multiple_of(cluster) || set.valid != set.len;
    if set.directory && (bad_directory || set.len > LONGEST) {
        complain(format!(
            "a directory of {} bytes, {} valid",
            set.len, set.valid
        ));
    }
    let wanted = if set.contiguous {
        Wanted::Contiguous(count)
    } else {
        Wanted::Fat(count)
    };
    let owned = match count {
        0 => Vec::new(),
        _ => clusters.take(set.first, wanted, owner, findings),
    };
    Node {
        parent,
        name: set.name,
        directory: set.directory,
        len: set.len,
        valid: set.valid,
        clusters: owned,
        contiguous: set.contiguous,
    }
}
