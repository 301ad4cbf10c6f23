//! Writes inodes and listings, directory by directory from the bottom up.
//!
//! An inode holds the position of its listing, and a listing the positions of its inodes, both in
//! encoded blocks. So lower directories come first.

use std::collections::HashMap;

use forerun_build::{BuildError, ImageWriter, NewNode, NodeIndex, NodeKind, Tree};

use super::cannot;
use super::data::Data;
use super::dir::{Entry, Listing, write_listing};
use super::inode::{Common, Kind, encode};
use super::metadata::{MetadataWriter, Place};
use super::options::SquashfsOptions;
use super::plan::Plan;
use super::tables::Ids;
use super::xattr::XattrWriter;
use crate::ondisk::kind;

/// The longest name that Linux looks up.
const LONGEST_NAME: usize = 255;
/// The longest symlink target that Linux follows.
const LONGEST_TARGET: usize = 4095;

pub struct Nodes<'a> {
    pub tree: &'a Tree,
    pub plan: &'a Plan<'a>,
    pub data: &'a Data,
    pub keep_xattrs: bool,
    pub inodes: MetadataWriter,
    pub listings: MetadataWriter,
    pub ids: Ids,
    pub xattrs: XattrWriter,
    places: HashMap<NodeIndex, (Place, u16)>,
    /// Listings of directories whose inodes are not written yet.
    listed: HashMap<NodeIndex, Listing>,
}

/// Rejects a tree that the format or a reader cannot hold, before anything is written.
pub fn check(tree: &Tree, plan: &Plan<'_>) -> Result<(), BuildError> {
    for &dir in &plan.walked.children_first {
        for (name, node) in tree.children(plan.walked.dir(dir).0) {
            let fails = |reason: String| {
                let path = plan.walked.path(dir, name);
                Err(cannot(format!(
                    "{}: {reason}",
                    String::from_utf8_lossy(&path)
                )))
            };
            if name.len() > LONGEST_NAME {
                return fails(format!("a name of {} bytes", name.len()));
            }
            match &tree.node(node).kind {
                NodeKind::Symlink(target) if !(1..=LONGEST_TARGET).contains(&target.len()) => {
                    return fails(format!("a link to {} bytes", target.len()));
                }
                NodeKind::BlockDevice(device) | NodeKind::CharDevice(device)
                    if device.major >= 1 << 12 || device.minor >= 1 << 20 =>
                {
                    let (major, minor) = (device.major, device.minor);
                    return fails(format!("the device number {major}:{minor}"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

impl<'a> Nodes<'a> {
    pub fn new(
        tree: &'a Tree,
        plan: &'a Plan<'a>,
        data: &'a Data,
        options: &SquashfsOptions,
    ) -> Result<Self, BuildError> {
        let table = |compress| MetadataWriter::new(&options.encoding, compress);
        Ok(Self {
            tree,
            plan,
            data,
            keep_xattrs: options.xattrs,
            inodes: table(options.compress.inodes)?,
            listings: table(options.compress.inodes)?,
            ids: Ids::default(),
            xattrs: XattrWriter::new(table(options.compress.xattrs)?),
            places: HashMap::with_capacity(plan.walked.nodes.len()),
            listed: HashMap::new(),
        })
    }

    /// Writes the inode table to `out`, and keeps the listings in memory. Returns the position of
    /// the root's inode.
    pub fn write(&mut self, out: &mut ImageWriter<'_>) -> Result<Place, BuildError> {
        let plan = self.plan;
        for &dir in &plan.walked.children_first {
            let (node, parent) = plan.walked.dir(dir);
            let tree = self.tree;
            for (_, child) in tree.children(node) {
                if !self.places.contains_key(&child) {
                    self.inode(child, plan.walked.nodes.get(node).number)?;
                }
            }
            let places = &self.places;
            let entries = tree.children(node).map(|(name, child)| {
                let (inode, kind) = places.get(&child).copied().unwrap_or_default();
                Ok(Entry {
                    name,
                    inode,
                    number: plan.walked.nodes.get(child).number,
                    kind,
                })
            });
            let listing = write_listing(&mut self.listings, entries)?;
            self.listed.insert(node, listing);
            if node == parent {
                // The root's parent is a number that no inode has.
                self.inode(node, plan.inodes + 1)?;
            }
            out.write(&self.inodes.take())?;
        }
        self.inodes.finish();
        out.write(&self.inodes.take())?;
        Ok(self.places.get(&Tree::ROOT).copied().unwrap_or_default().0)
    }

    pub fn export_table(&self) -> Vec<u8> {
        let mut references = vec![0; self.places.len()];
        for (node, (place, _)) in &self.places {
            let at = self.plan.walked.nodes.get(*node).number - 1;
            references[forerun_io::usize_from(at.into())] = place.reference();
        }
        references
            .iter()
            .flat_map(|reference| reference.to_le_bytes())
            .collect()
    }

    fn inode(&mut self, index: NodeIndex, parent: u32) -> Result<(), BuildError> {
        let node = self.tree.node(index);
        let common = self.common(index, node)?;
        let listing = self.listed.remove(&index).unwrap_or_default();
        let kind = match &node.kind {
            NodeKind::Directory(_) => Kind::Dir {
                listing: &listing,
                parent,
            },
            NodeKind::File { len, .. } => {
                let (body, fragment) = self.data.of(index);
                Kind::File {
                    len: *len,
                    body,
                    fragment,
                }
            }
            NodeKind::Symlink(target) => Kind::Symlink(target),
            NodeKind::BlockDevice(device) => Kind::Device(kind::BLKDEV, *device),
            NodeKind::CharDevice(device) => Kind::Device(kind::CHRDEV, *device),
            NodeKind::Fifo => Kind::Ipc(kind::FIFO),
            NodeKind::Socket => Kind::Ipc(kind::SOCKET),
        };
        let place = self.inodes.place()?;
        self.inodes.write(&encode(&common, &kind)?);
        self.places.insert(index, (place, kind.basic_type()));
        Ok(())
    }

    fn common(&mut self, index: NodeIndex, node: &NewNode) -> Result<Common, BuildError> {
        let planned = self.plan.walked.nodes.get(index);
        let xattr = if self.keep_xattrs {
            self.xattrs.id(&node.xattrs)?
        } else {
            None
        };
        Ok(Common {
            // The format cannot store POSIX ACLs.
            mode: node.mode_without_acl(),
            uid: self.ids.index(node.uid)?,
            gid: self.ids.index(node.gid)?,
            mtime: node.mtime,
            number: planned.number,
            nlink: planned.nlink,
            xattr,
        })
    }
}
