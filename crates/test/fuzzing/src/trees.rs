//! Small trees for writers, made from the bytes of a fuzzer, and the trees that a reader must show
//! for them.

use std::collections::BTreeMap;

use forerun::build::{Content, NewNode, NodeIndex, NodeKind, Tree};
use forerun::vfs::{Device, FileType, Timestamp};
use forerun_testkit::everything::Xattrs;
use forerun_testkit::tree::{ModelNode, TreeModel, hash_of};

use crate::input::Input;

/// Most nodes.
const NODES: usize = 60;
/// Most bytes of a file.
const CONTENTS: usize = 20_000;
/// Most bytes of all files.
const ALL_CONTENTS: usize = 200_000;
/// Prefixes of attribute names on Linux.
const PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"trusted.overlay."];

/// Kinds of nodes and attributes that a tree may have.
#[derive(Clone, Copy, Debug, Default)]
pub struct Allowed {
    /// Devices, fifos, sockets and links.
    pub special: bool,
    pub xattrs: bool,
    /// Names of lower-case ASCII letters, digits and dots, without a dot at the end.
    pub plain_names: bool,
}

pub fn tree(input: &mut Input<'_>, allowed: Allowed) -> Tree {
    let mut tree = Tree::default();
    let (mut dirs, mut others) = (vec![Tree::ROOT], Vec::new());
    let mut total = 0;
    attributes(input, allowed, tree.node_mut(Tree::ROOT));
    while !input.is_empty() && tree.len() < NODES {
        let dir = dirs[input.below(dirs.len())];
        let name = name(input, allowed);
        let choice = input.byte() % 12;
        let other = others.get(usize::from(input.byte())).copied();
        if let (11, Some(other), true) = (choice, other, allowed.special) {
            let _taken = tree.link(dir, &name, other);
            continue;
        }
        let kind = kind(
            input,
            choice,
            allowed.special,
            ALL_CONTENTS.saturating_sub(total),
        );
        if let NodeKind::File {
            content: Content::Bytes(bytes),
            ..
        } = &kind
        {
            total += bytes.len();
        }
        let is_dir = matches!(kind, NodeKind::Directory(_));
        let mut node = NewNode::new(kind, 0o644);
        attributes(input, allowed, &mut node);
        // The name is invalid or taken.
        let Ok(index) = tree.add(dir, &name, node) else {
            continue;
        };
        if is_dir {
            dirs.push(index);
        } else {
            others.push(index);
        }
    }
    tree
}

fn name(input: &mut Input<'_>, allowed: Allowed) -> Vec<u8> {
    let len = match input.byte() {
        len @ 0..248 => usize::from(len % 20) + 1,
        len => usize::from(len),
    };
    let mut name = input.bytes(len).to_vec();
    if input.flag() {
        name.resize(len, b'n');
    }
    if allowed.plain_names {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        for byte in &mut name {
            *byte = LETTERS[usize::from(*byte) % LETTERS.len()];
        }
    }
    name
}

fn kind(input: &mut Input<'_>, choice: u8, special: bool, room: usize) -> NodeKind {
    let mut device = || Device {
        major: input.word().into(),
        minor: input.long(),
    };
    match choice {
        0..3 => NodeKind::Directory(BTreeMap::new()),
        3 if special => NodeKind::BlockDevice(device()),
        4 if special => {
            let Device { major, minor } = device();
            // The character device 0:0 is a whiteout, which composefs stores differently.
            let major = major.max(1);
            NodeKind::CharDevice(Device { major, minor })
        }
        5 if special => NodeKind::Fifo,
        6 if special => NodeKind::Socket,
        7 if special => {
            let len = usize::from(input.byte()) + 1;
            let target = input.bytes(len).to_vec();
            NodeKind::Symlink(if target.is_empty() {
                b"t".to_vec()
            } else {
                target
            })
        }
        _ => {
            let bytes = input.contents(CONTENTS.min(room));
            NodeKind::File {
                len: forerun_io::u64_from(bytes.len()),
                content: Content::Bytes(bytes.into()),
            }
        }
    }
}

fn attributes(input: &mut Input<'_>, allowed: Allowed, node: &mut NewNode) {
    let flags = input.byte();
    if flags & 1 != 0 {
        node.mode = input.word() & 0o7777;
    }
    if flags & 2 != 0 {
        (node.uid, node.gid) = (input.long(), input.word().into());
    }
    if flags & 4 != 0 {
        node.mtime = Timestamp {
            seconds: input.long().into(),
            nanoseconds: 0,
        };
    }
    if matches!(node.kind, NodeKind::Symlink(_)) {
        // Linux knows no other mode of a symbolic link.
        node.mode = 0o777;
    }
    let count = if allowed.xattrs { flags >> 5 } else { 0 };
    for _ in 0..count {
        let prefix = input.one_of(&PREFIXES);
        let len = usize::from(input.byte() % 40);
        let name = [prefix, input.bytes(len)].concat();
        let value = usize::from(input.word() % 500);
        let value = input.bytes(value).to_vec();
        if name.len() > prefix.len() && !name.contains(&0) {
            node.xattrs.insert(name, value);
        }
    }
}

pub fn model_of(tree: &Tree) -> (TreeModel, Xattrs) {
    let (mut model, mut xattrs) = (TreeModel::default(), Xattrs::new());
    let mut names: BTreeMap<NodeIndex, Vec<Vec<u8>>> = BTreeMap::new();
    let mut left = vec![(Vec::new(), Tree::ROOT)];
    while let Some((path, index)) = left.pop() {
        let node = tree.node(index);
        for (name, child) in tree.children(index) {
            let between: &[u8] = if path.is_empty() { b"" } else { b"/" };
            left.push(([&path[..], between, name].concat(), child));
        }
        if !matches!(node.kind, NodeKind::Directory(_)) {
            names.entry(index).or_default().push(path.clone());
        }
        if !node.xattrs.is_empty() {
            xattrs.insert(path.clone(), node.xattrs.clone());
        }
        model.nodes.insert(path, shown(node));
    }
    for mut paths in names.into_values().filter(|paths| paths.len() > 1) {
        paths.sort();
        for path in &paths {
            if let Some(node) = model.nodes.get_mut(path) {
                node.linked_to = Some(paths[0].clone());
            }
        }
    }
    (model, xattrs)
}

fn shown(node: &NewNode) -> ModelNode {
    let mut shown = ModelNode {
        kind: FileType::Directory,
        mode: node.mode,
        uid: node.uid,
        gid: node.gid,
        mtime: node.mtime,
        size: 0,
        content: None,
        target: None,
        device: Device::default(),
        linked_to: None,
    };
    match &node.kind {
        NodeKind::Directory(_) => {}
        NodeKind::File { len, content } => {
            shown.kind = FileType::Regular;
            shown.size = *len;
            let Content::Bytes(bytes) = content else {
                unreachable!("trees of fuzzers are in memory");
            };
            shown.content = Some(hash_of(bytes));
        }
        NodeKind::Symlink(target) => {
            shown.kind = FileType::Symlink;
            shown.target = Some(target.clone());
        }
        NodeKind::BlockDevice(device) => {
            (shown.kind, shown.device) = (FileType::BlockDevice, *device)
        }
        NodeKind::CharDevice(device) => {
            (shown.kind, shown.device) = (FileType::CharDevice, *device)
        }
        NodeKind::Fifo => shown.kind = FileType::Fifo,
        NodeKind::Socket => shown.kind = FileType::Socket,
    }
    shown
}
