//! The tree that an archive unpacks to. Later members replace earlier ones.
//!
//! No symbolic link is followed: a member below one is skipped.

use forerun_io::u64_from;
use forerun_vfs::{
    Device, FileType, Limits, ListedBuilder, ListedPlace, ListedTree, NodeId, PathRefused, Result,
    is_acl,
};

use crate::error::{Check, lossy};
use crate::node::{Extra, Node, directory};
use crate::parser::{Kind, Member};

pub type Tree = ListedTree<Node>;

/// Visits the hard links to files of other layers, each with the path of its file.
pub fn links_below(tree: &Tree, visit: &mut dyn FnMut(NodeId, &[u8])) {
    for (id, node) in tree.nodes() {
        if let Some(path) = node.extra.as_ref().and_then(|extra| extra.below.as_ref()) {
            visit(id, path);
        }
    }
}

/// Returns whether any node has extended attributes.
pub fn has_xattrs(tree: &Tree) -> bool {
    let mut extras = tree.nodes().filter_map(|(_, node)| node.extra.as_ref());
    extras.any(|extra| !extra.xattrs.is_empty())
}

/// Returns whether any node has an access control list.
pub fn has_acls(tree: &Tree) -> bool {
    let extras = tree.nodes().filter_map(|(_, node)| node.extra.as_ref());
    let mut names = extras.flat_map(|extra| extra.xattrs.iter().map(|(name, _)| name));
    names.any(|name| is_acl(name))
}

/// Builds a tree from members.
pub struct Builder {
    tree: ListedBuilder<Node>,
    /// The archive is a layer, whose hard links may name files of lower layers.
    is_layer: bool,
}

/// The node that a hard link names.
enum Target {
    File(ListedPlace),
    /// A path that the archive lacks.
    Absent,
    /// A directory, or an invalid path.
    Other,
}

impl Builder {
    pub fn new(limits: &Limits, is_layer: bool) -> Self {
        Self {
            tree: ListedBuilder::new(limits, directory()),
            is_layer,
        }
    }

    /// Adds a member. Returns the reason if it was skipped. Fails with `Limit` if the tree would
    /// take too much memory, or is too deep.
    pub fn add(&mut self, mut member: Member) -> Result<Option<Check>> {
        let whole = std::mem::take(&mut member.path);
        let path = lossy(&whole);
        let components = match self.tree.components(&whole)? {
            Ok(components) => components,
            Err(PathRefused::Climbs) => return Ok(Some(Check::Climbs { path })),
            Err(PathRefused::Name(source)) => return Ok(Some(Check::Name { path, source })),
        };
        let Some((name, parents)) = components.split_last() else {
            return Ok(match member.kind {
                Kind::Node(FileType::Directory) => {
                    self.set(ListedPlace::ROOT, member)?;
                    None
                }
                Kind::Node(_) | Kind::HardLink => Some(Check::Root { path }),
            });
        };
        let linked = match member.kind {
            Kind::Node(_) => None,
            Kind::HardLink => match self.target(&member)? {
                Target::File(place) => Some(place),
                Target::Absent if self.is_layer => None,
                Target::Absent | Target::Other => {
                    let target = lossy(&member.link);
                    return Ok(Some(Check::Dangling { path, target }));
                }
            },
        };
        if member.kind == Kind::Node(FileType::Symlink) {
            let target = &member.link;
            let fits = u64_from(target.len()) <= self.tree.limits().symlink_len;
            if target.is_empty() || target.contains(&0) || !fits {
                return Ok(Some(Check::Symlink { path }));
            }
        }
        let Some(parent) = self.tree.directory(parents)? else {
            return Ok(Some(Check::Parent { path }));
        };
        let is_dir = member.kind == Kind::Node(FileType::Directory);
        let old = self.tree.child(parent, name);
        // Programs that unpack a layer remove the directory; tar does not.
        if !is_dir && !self.is_layer && old.is_some_and(|old| self.tree.has_children(old)) {
            return Ok(Some(Check::NotEmpty { path }));
        }
        self.place(parent, name, member, linked)?;
        Ok(None)
    }

    /// Puts a member at a name. An existing directory is kept; anything else is replaced.
    fn place(
        &mut self,
        parent: ListedPlace,
        name: &[u8],
        member: Member,
        linked: Option<ListedPlace>,
    ) -> Result<()> {
        let old = self.tree.child(parent, name);
        let is_dir = member.kind == Kind::Node(FileType::Directory);
        match (old, linked) {
            (Some(old), _) if is_dir && self.tree.is_dir(old) => return self.set(old, member),
            // The link names itself.
            (Some(old), Some(linked)) if old == linked => return Ok(()),
            (Some(old), _) => self.remove(old),
            (None, _) => self.tree.reserve(parent)?,
        }
        let place = match linked {
            Some(place) => {
                // The removal may have removed the file that the link names.
                match self.tree.get_mut(place).filter(|node| node.nlink > 0) {
                    Some(node) => node.nlink += 1,
                    None => {
                        self.tree.unlink(parent, name);
                        return Ok(());
                    }
                }
                place
            }
            None => {
                let kind = if is_dir {
                    FileType::Directory
                } else {
                    FileType::Regular
                };
                let place = self.tree.create(kind)?;
                self.set(place, member)?;
                place
            }
        };
        self.tree.link(parent, name, place)
    }

    /// Returns the file that a hard link names.
    fn target(&self, member: &Member) -> Result<Target> {
        let Ok(components) = self.tree.components(&member.link)? else {
            return Ok(Target::Other);
        };
        Ok(match self.tree.find(&components) {
            None => Target::Absent,
            Some(place) if self.tree.is_dir(place) => Target::Other,
            Some(place) => Target::File(place),
        })
    }

    /// Removes one name of a node, and everything below it.
    fn remove(&mut self, place: ListedPlace) {
        for gone in self.tree.remove(place) {
            let extra = self.tree.get_mut(gone).and_then(|node| node.extra.take());
            self.tree.held.free(extra.map_or(0, |extra| extra.len()));
        }
    }

    fn set(&mut self, place: ListedPlace, member: Member) -> Result<()> {
        let Some(node) = self.tree.get_mut(place) else {
            return Ok(());
        };
        let is_link = member.kind == Kind::HardLink;
        node.kind = match member.kind {
            Kind::Node(kind) => kind,
            Kind::HardLink => FileType::Regular,
        };
        node.header = Some(member.header);
        node.mode = member.mode;
        node.uid = member.uid;
        node.gid = member.gid;
        node.mtime = member.mtime;
        node.size = member.size;
        node.data = member.data;
        let mut extra = Extra {
            device: member.device,
            pieces: member.pieces,
            xattrs: member.xattrs,
            target: Vec::new(),
            below: is_link.then(|| member.link.clone()),
        };
        if node.kind == FileType::Symlink {
            node.size = u64_from(member.link.len());
            extra.target = member.link;
        }
        let is_empty = extra.target.is_empty()
            && extra.device == Device::default()
            && extra.pieces.is_none()
            && extra.below.is_none()
            && extra.xattrs.is_empty();
        let old = node.extra.take().map_or(0, |old| old.len());
        let held = extra.len();
        if !is_empty {
            node.extra = Some(Box::new(extra));
            self.tree.held.add(held)?;
        }
        self.tree.held.free(old);
        Ok(())
    }

    pub fn finish(self) -> Tree {
        self.tree.finish()
    }
}
