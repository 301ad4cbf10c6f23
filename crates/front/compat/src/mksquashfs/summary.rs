//! The text about a new image: before and after it is written, and with `-info` its entries.

use std::collections::BTreeSet;
use std::path::Path;

use forerun::build::{Fragments, NodeIndex, NodeKind, Tree};

use super::call::MakeCall;
use super::compressor;
use crate::error::Result;
use crate::escape::escape;
use crate::names::Names;
use crate::output::Output;

/// Prints the text before the image is written.
pub fn begin(call: &MakeCall, output: &Path) -> Result<()> {
    let available = || std::thread::available_parallelism().map_or(1, usize::from);
    let processors = call.processors.map_or_else(available, usize::from);
    let plural = if processors == 1 { "" } else { "s" };
    let (output, block) = (output.display(), call.block_size);
    print(format!(
        "Parallel mksquashfs: Using {processors} processor{plural}\n\
         Creating 4.0 filesystem on {output}, block size {block}.\n"
    ))
}

/// Prints the text after the image is written.
pub fn end(call: &MakeCall, names: &Names, tree: &Tree, len: u64) -> Result<()> {
    let how = |compressed| {
        if compressed {
            "compressed"
        } else {
            "uncompressed"
        }
    };
    let parts = call.compress;
    let exportable = if call.exports { "Exportable " } else { "" };
    let fragments = match call.fragments {
        Fragments::No => "no".to_string(),
        _ => how(parts.fragments).to_string(),
    };
    let xattrs = if call.xattrs { how(parts.xattrs) } else { "no" };
    let not = if call.duplicates { "" } else { "not " };
    let mut lines = vec![
        String::new(),
        format!(
            "{exportable}Squashfs 4.0 filesystem, {} compressed, data block size {}",
            compressor::name(call),
            call.block_size
        ),
        format!(
            "\t{} data, {} metadata, {fragments} fragments,",
            how(parts.data),
            how(parts.inodes)
        ),
        format!("\t{xattrs} xattrs, {} ids", how(parts.ids)),
        format!("\tduplicates are {not}removed"),
        size(len),
    ];
    lines.extend(counts(names, tree));
    print(lines.join("\n") + "\n")
}

#[allow(clippy::as_conversions, clippy::cast_precision_loss)] // Two digits after the point are shown.
fn size(bytes: u64) -> String {
    let kibibytes = bytes as f64 / 1024.0;
    let mebibytes = kibibytes / 1024.0;
    format!("Filesystem size {kibibytes:.2} Kbytes ({mebibytes:.2} Mbytes)")
}

/// Numbers of entries by kind, and of owners.
#[derive(Default)]
struct Counts {
    nodes: BTreeSet<NodeIndex>,
    files: u64,
    links: u64,
    devices: u64,
    fifos: u64,
    sockets: u64,
    dirs: u64,
    hard_links: u64,
    users: BTreeSet<u32>,
    groups: BTreeSet<u32>,
}

impl Counts {
    fn add(&mut self, tree: &Tree, index: NodeIndex) {
        if !self.nodes.insert(index) {
            self.hard_links += 1;
            return;
        }
        let node = tree.node(index);
        self.users.insert(node.uid);
        self.groups.insert(node.gid);
        *match node.kind {
            NodeKind::File { .. } => &mut self.files,
            NodeKind::Symlink(_) => &mut self.links,
            NodeKind::BlockDevice(_) | NodeKind::CharDevice(_) => &mut self.devices,
            NodeKind::Fifo => &mut self.fifos,
            NodeKind::Socket => &mut self.sockets,
            NodeKind::Directory(_) => &mut self.dirs,
        } += 1;
    }
}

fn counts(names: &Names, tree: &Tree) -> Vec<String> {
    let mut counts = Counts::default();
    counts.add(tree, Tree::ROOT);
    walk(tree, &mut |_, index, _| {
        // A directory is visited after its contents; the root was already counted.
        if index != Tree::ROOT {
            counts.add(tree, index);
        }
    });
    let ids = counts.users.union(&counts.groups).count();
    let mut lines = vec![
        format!("Number of inodes {}", counts.nodes.len()),
        format!("Number of files {}", counts.files),
        format!("Number of symbolic links {}", counts.links),
        format!("Number of device nodes {}", counts.devices),
        format!("Number of fifo nodes {}", counts.fifos),
        format!("Number of socket nodes {}", counts.sockets),
        format!("Number of directories {}", counts.dirs),
        format!("Number of hard-links {}", counts.hard_links),
        format!("Number of ids (unique uids + gids) {ids}"),
        format!("Number of uids {}", counts.users.len()),
    ];
    let owner = |name: Option<&str>, id: u32| format!("\t{} ({id})", name.unwrap_or("unknown"));
    lines.extend(counts.users.iter().map(|id| owner(names.user(*id), *id)));
    lines.push(format!("Number of gids {}", counts.groups.len()));
    lines.extend(counts.groups.iter().map(|id| owner(names.group(*id), *id)));
    lines
}

/// Returns a line for each entry. The contents of a directory come before it.
pub fn list(tree: &Tree) -> String {
    let mut text = String::new();
    walk(tree, &mut |path, index, is_repeated| {
        let path = match path {
            b"" => "/".to_string(),
            path => escape(path),
        };
        let end = if is_repeated { " LINK" } else { "" };
        let kind = match &tree.node(index).kind {
            NodeKind::File { len, .. } => {
                let end = if is_repeated { "LINK" } else { "" };
                text.push_str(&format!(
                    "file {path}, uncompressed size {len} bytes {end}\n"
                ));
                return;
            }
            NodeKind::Directory(_) => "directory",
            NodeKind::Symlink(_) => "symbolic link",
            NodeKind::BlockDevice(_) => "block device",
            NodeKind::CharDevice(_) => "character device",
            NodeKind::Fifo => "fifo",
            NodeKind::Socket => "unix domain socket",
        };
        text.push_str(&format!("{kind} {path}{end}\n"));
    });
    text
}

/// Visits each name; directories after their contents, the root last. Says whether the node was
/// visited under another name.
fn walk(tree: &Tree, visit: &mut dyn FnMut(&[u8], NodeIndex, bool)) {
    let mut path = Vec::new();
    let mut seen = BTreeSet::new();
    let mut above = vec![(0, Tree::ROOT, tree.children(Tree::ROOT))];
    while let Some((len, dir, children)) = above.last_mut() {
        let (len, dir) = (*len, *dir);
        path.truncate(len);
        match children.next() {
            None => {
                visit(&path, dir, false);
                above.pop();
            }
            Some((name, node)) => {
                path.push(b'/');
                path.extend_from_slice(name);
                match tree.node(node).kind {
                    NodeKind::Directory(_) => above.push((path.len(), node, tree.children(node))),
                    _ => visit(&path, node, !seen.insert(node)),
                }
            }
        }
    }
}

pub fn print(text: String) -> Result<()> {
    let mut out = Output::stdout()?;
    out.text(text)?;
    out.finish()
}
