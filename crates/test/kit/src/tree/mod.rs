//! Models of trees: on the host, in an image, and their differences.
//!
//! A [`TreeModel`] has everything that a format may store of each node, with a hash of the
//! contents. [`Keeps`] selects what a format does store; only that is compared.

mod diff;
mod host;
mod image;
mod keeps;
mod links;
mod tar;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io;

use forerun_vfs::{Device, FileType, Timestamp};

pub use diff::{Difference, diff};
pub use image::read_extents;
pub use keeps::{Keeps, ModeKept};

/// A tree: every node by its path below the root, without a leading slash. The root has an empty
/// path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeModel {
    pub nodes: BTreeMap<Vec<u8>, ModelNode>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelNode {
    pub kind: FileType,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Timestamp,
    /// Bytes of a regular file; 0 for the others.
    pub size: u64,
    pub content: Option<u64>,
    pub target: Option<Vec<u8>>,
    pub device: Device,
    /// First path, in byte order, that names the same node; `None` if this path is the only one.
    pub linked_to: Option<Vec<u8>>,
}

impl TreeModel {
    /// Fails the test with a list of differences unless both trees agree in the attributes of
    /// `keeps`.
    pub fn assert_same(&self, actual: &Self, keeps: &Keeps) {
        let differences = diff(self, actual, keeps);
        assert!(
            differences.is_empty(),
            "{} differences:\n{}",
            differences.len(),
            report(&differences)
        );
    }

    /// Sets `linked_to` from the identity of nodes: device and inode on the host, node id in an
    /// image.
    fn group_links<K: Ord>(&mut self, mut ids: BTreeMap<K, Vec<Vec<u8>>>) {
        for paths in ids.values_mut() {
            if paths.len() < 2 {
                continue;
            }
            paths.sort();
            for path in paths.iter() {
                if let Some(node) = self.nodes.get_mut(path) {
                    node.linked_to = Some(paths[0].clone());
                }
            }
        }
    }
}

fn report(differences: &[Difference]) -> String {
    const SHOWN: usize = 20;
    let mut lines: Vec<String> = differences
        .iter()
        .take(SHOWN)
        .map(|difference| format!("  {difference}"))
        .collect();
    if differences.len() > SHOWN {
        lines.push(format!("  and {} more", differences.len() - SHOWN));
    }
    lines.join("\n")
}

/// The hash of contents in models: SipHash with a fixed key, fed in any steps.
#[derive(Clone, Debug, Default)]
struct ContentHash(DefaultHasher);

impl ContentHash {
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl io::Write for ContentHash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hash_all(mut from: impl io::Read) -> io::Result<(u64, u64)> {
    let mut hash = ContentHash::default();
    let len = io::copy(&mut from, &mut hash)?;
    Ok((len, hash.finish()))
}

pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = DefaultHasher::default();
    hash.write(bytes);
    hash.finish()
}
