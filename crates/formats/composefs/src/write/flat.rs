//! The tree as a list of inodes in the order of the image: breadth first, names in byte order.
//!
//! A node with several names is at its first name in a depth-first walk. This module also adds the
//! entries for overlayfs: escaped names, redirects, whiteouts as empty files, and 256 whiteouts in
//! the root. The latter hide the store from users of kernels that cannot hide it.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use forerun_build::{BuildError, NewNode, NodeIndex, NodeKind, Tree};
use forerun_io::u64_from;
use forerun_vfs::{Device, Timestamp};

use super::data::{FileData, Files};
use super::failed;
use super::homes::Homes;
use super::xattr::keeps;
use crate::ondisk::kind;
use crate::overlay::{
    HAS_WHITEOUTS, METACOPY, OPAQUE, REDIRECT, WHITEOUT, WHITEOUTS, escape, metacopy,
};

pub type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

pub struct Flat {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub mtime: Timestamp,
    pub xattrs: Xattrs,
    pub body: NodeBody,
}

pub enum NodeBody {
    /// Names and positions in the list, including `.` and `..`.
    Directory(Vec<Entry>),
    /// Contents in the image: a small file, or the target of a link.
    Inline(Vec<u8>),
    /// A file whose contents are an object.
    Object {
        size: u64,
    },
    Device(u32),
    Empty,
}

pub struct Entry {
    pub name: Vec<u8>,
    pub inode: usize,
}

/// The list, and facts for the image's header.
pub struct FlatTree {
    pub inodes: Vec<Flat>,
    /// The tree contains whiteouts.
    pub whiteouts: bool,
    /// A node has a POSIX ACL.
    pub acls: bool,
}

/// Mode of the whiteouts that hide the store.
const STUB_MODE: u16 = kind::CHAR | 0o644;

/// The attribute that the whiteouts in the root copy from the root.
const SELINUX: &[u8] = b"security.selinux";

const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Orders the tree. `mark_opaque` is called with whether there are whiteouts, and returns whether
/// their directories also get the newer mark.
pub fn flatten(
    tree: &Tree,
    files: &Files,
    mark_opaque: impl Fn(bool) -> bool,
) -> Result<FlatTree, BuildError> {
    let whiteouts = is_whiteout_anywhere(tree);
    let homes = Homes::new(tree, files);
    let mut flatten = Flatten {
        tree,
        files,
        homes: &homes,
        mark_opaque: mark_opaque(whiteouts),
        inodes: Vec::new(),
        places: HashMap::new(),
        queue: VecDeque::new(),
        acls: false,
    };
    flatten.run()?;
    let acls = flatten.acls;
    let inodes = flatten.inodes;
    Ok(FlatTree {
        inodes,
        whiteouts,
        acls,
    })
}

fn is_whiteout(node: &NewNode) -> bool {
    matches!(
        node.kind,
        NodeKind::CharDevice(Device { major: 0, minor: 0 })
    )
}

fn is_whiteout_anywhere(tree: &Tree) -> bool {
    let mut pending = vec![Tree::ROOT];
    while let Some(dir) = pending.pop() {
        for (_, child) in tree.children(dir) {
            match &tree.node(child).kind {
                NodeKind::Directory(_) => pending.push(child),
                _ if is_whiteout(tree.node(child)) => return true,
                _ => {}
            }
        }
    }
    false
}

struct Flatten<'t> {
    tree: &'t Tree,
    files: &'t Files,
    homes: &'t Homes<'t>,
    mark_opaque: bool,
    inodes: Vec<Flat>,
    /// Position of each node in the list.
    places: HashMap<NodeIndex, usize>,
    queue: VecDeque<(NodeIndex, Vec<u8>)>,
    acls: bool,
}

impl Flatten<'_> {
    fn run(&mut self) -> Result<(), BuildError> {
        let root = self.push(Tree::ROOT, b"")?;
        self.inodes[root]
            .xattrs
            .insert(OPAQUE.to_vec(), b"y".to_vec());
        self.queue.push_back((Tree::ROOT, Vec::new()));
        let mut stubs = Vec::new();
        while let Some((dir, path)) = self.queue.pop_front() {
            let mut missing = if dir == Tree::ROOT {
                self.stub_names()
            } else {
                VecDeque::new()
            };
            let tree = self.tree;
            for (name, child) in tree.children(dir) {
                while let Some(stub) = missing.pop_front_if(|stub| stub.as_slice() < name) {
                    stubs.push(self.stub(stub));
                }
                self.child(dir, &path, name, child)?;
            }
            for stub in missing {
                stubs.push(self.stub(stub));
            }
        }
        self.fill_directories(stubs);
        Ok(())
    }

    fn child(
        &mut self,
        dir: NodeIndex,
        path: &[u8],
        name: &[u8],
        child: NodeIndex,
    ) -> Result<(), BuildError> {
        if name.len() > 255 {
            return Err(failed(format!(
                "the name {} is longer than 255 bytes",
                String::from_utf8_lossy(name)
            )));
        }
        if !self.homes.is_home(dir, name, child) {
            return Ok(());
        }
        let path = [path, b"/", name].concat();
        self.push(child, &path)?;
        if matches!(self.tree.node(child).kind, NodeKind::Directory(_)) {
            self.queue.push_back((child, path));
        }
        Ok(())
    }

    /// Returns the names of the whiteouts in the root, except names that the tree uses itself.
    fn stub_names(&self) -> VecDeque<Vec<u8>> {
        let names = (0..=u8::MAX).map(|byte| format!("{byte:02x}").into_bytes());
        names
            .filter(|name| self.tree.child(Tree::ROOT, name).is_none())
            .collect()
    }

    /// Adds a whiteout that hides the store, and returns its entry.
    fn stub(&mut self, name: Vec<u8>) -> Entry {
        let root = &self.inodes[0];
        let label = root.xattrs.get_key_value(SELINUX);
        let stub = Flat {
            mode: STUB_MODE,
            uid: root.uid,
            gid: root.gid,
            nlink: 1,
            mtime: root.mtime,
            xattrs: label
                .into_iter()
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect(),
            body: NodeBody::Device(0),
        };
        self.inodes.push(stub);
        Entry {
            name,
            inode: self.inodes.len() - 1,
        }
    }

    fn push(&mut self, node: NodeIndex, path: &[u8]) -> Result<usize, BuildError> {
        let new = self.tree.node(node);
        self.acls |= ACLS.iter().any(|name| new.xattrs.contains_key(*name));
        let mut xattrs: Xattrs = new
            .xattrs
            .iter()
            .filter(|(name, _)| keeps(name))
            .map(|(name, value)| (escape(name), value.clone()))
            .collect();
        let (kind, body) = self.body(node, path, &mut xattrs)?;
        let place = self.inodes.len();
        self.places.insert(node, place);
        self.inodes.push(Flat {
            mode: kind | new.mode & !kind::MASK,
            uid: new.uid,
            gid: new.gid,
            nlink: self.nlink(node),
            mtime: new.mtime,
            xattrs,
            body,
        });
        Ok(place)
    }

    fn nlink(&self, node: NodeIndex) -> u32 {
        match &self.tree.node(node).kind {
            NodeKind::Directory(entries) => {
                let is_dir = |child: &&NodeIndex| {
                    matches!(self.tree.node(**child).kind, NodeKind::Directory(_))
                };
                let dirs = entries.values().filter(is_dir).count();
                u32::try_from(dirs).unwrap_or(u32::MAX - 2) + 2
            }
            _ => match self.files.nlink(node) {
                Some(nlink) => nlink,
                None => self.homes.names(node),
            },
        }
    }

    fn body(
        &self,
        node: NodeIndex,
        path: &[u8],
        xattrs: &mut Xattrs,
    ) -> Result<(u16, NodeBody), BuildError> {
        let new = self.tree.node(node);
        Ok(match &new.kind {
            NodeKind::Directory(entries) => {
                let shows = |&child: &NodeIndex| is_whiteout(self.tree.node(child));
                if entries.values().any(shows) {
                    mark(xattrs, WHITEOUTS, b"");
                    if self.mark_opaque {
                        mark(xattrs, HAS_WHITEOUTS, b"x");
                    }
                }
                (kind::DIRECTORY, NodeBody::Directory(Vec::new()))
            }
            NodeKind::File { len, .. } => (kind::REGULAR, self.file(node, *len, path, xattrs)?),
            NodeKind::Symlink(target) => {
                // The kernel's limit on a path, including the NUL at its end.
                if target.is_empty() || target.len() >= 4096 {
                    return Err(failed(format!(
                        "the target of the symbolic link {} has {} bytes; from 1 to 4095 are allowed",
                        String::from_utf8_lossy(path),
                        target.len()
                    )));
                }
                (kind::SYMLINK, NodeBody::Inline(target.clone()))
            }
            NodeKind::CharDevice(_) if is_whiteout(new) => {
                mark(xattrs, WHITEOUT, b"");
                (kind::REGULAR, NodeBody::Empty)
            }
            NodeKind::CharDevice(device) => (kind::CHAR, NodeBody::Device(rdev(*device, path)?)),
            NodeKind::BlockDevice(device) => (kind::BLOCK, NodeBody::Device(rdev(*device, path)?)),
            NodeKind::Fifo => (kind::FIFO, NodeBody::Empty),
            NodeKind::Socket => (kind::SOCKET, NodeBody::Empty),
        })
    }

    fn file(
        &self,
        node: NodeIndex,
        len: u64,
        path: &[u8],
        xattrs: &mut Xattrs,
    ) -> Result<NodeBody, BuildError> {
        match self.files.get(node) {
            _ if len == 0 => Ok(NodeBody::Empty),
            Some(FileData::Inline(bytes)) if u64_from(bytes.len()) == len => {
                Ok(NodeBody::Inline(bytes.clone()))
            }
            Some(FileData::Object { path, digest }) => {
                xattrs.insert(METACOPY.to_vec(), metacopy(digest.as_ref()));
                if let Some(path) = path {
                    xattrs.insert(REDIRECT.to_vec(), [b"/", path.as_slice()].concat());
                }
                Ok(NodeBody::Object { size: len })
            }
            _ => Err(BuildError::Content {
                path: path.to_vec(),
                reason: format!("its {len} bytes were not read"),
            }),
        }
    }

    /// Fills in the names of each directory after all inodes have their positions.
    fn fill_directories(&mut self, stubs: Vec<Entry>) {
        let mut stubs = Some(stubs);
        let mut seen = HashSet::new();
        let mut pending = vec![(Tree::ROOT, 0)];
        while let Some((dir, parent)) = pending.pop() {
            let Some(&place) = self.places.get(&dir).filter(|_| seen.insert(dir)) else {
                continue;
            };
            let mut entries = vec![entry(b".", place), entry(b"..", parent)];
            if dir == Tree::ROOT {
                entries.extend(stubs.take().unwrap_or_default());
            }
            for (name, child) in self.tree.children(dir) {
                entries.extend(self.places.get(&child).map(|&inode| entry(name, inode)));
                if matches!(self.tree.node(child).kind, NodeKind::Directory(_)) {
                    pending.push((child, place));
                }
            }
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            self.inodes[place].body = NodeBody::Directory(entries);
        }
    }
}

fn entry(name: &[u8], inode: usize) -> Entry {
    Entry {
        name: name.to_vec(),
        inode,
    }
}

fn mark(xattrs: &mut Xattrs, names: [&[u8]; 2], value: &[u8]) {
    for name in names {
        xattrs.insert(name.to_vec(), value.to_vec());
    }
}

/// Returns the kernel's 32-bit form of a device number.
fn rdev(device: Device, path: &[u8]) -> Result<u32, BuildError> {
    let Device { major, minor } = device;
    device.pack().ok_or_else(|| {
        failed(format!(
            "the device number {major}:{minor} of {} takes more than 12 and 20 bits",
            String::from_utf8_lossy(path)
        ))
    })
}
