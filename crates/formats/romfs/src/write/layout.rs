//! The layout of an image.
//!
//! Headers are in depth-first order, each followed by its data, as the format requires. The entries
//! `.` and `..` of each directory are those that the reference tool writes: in the root `.` is the
//! directory itself, elsewhere both are hard links.

use std::collections::HashMap;

use forerun_build::{BuildError, NodeIndex, NodeKind, Tree};
use forerun_io::u64_from;
use forerun_vfs::Device;

use super::{RomfsOptions, cannot};
use crate::header::padded;
use crate::ondisk::{ALIGN, EXECUTABLE, HEADER_LEN, SUPERBLOCK_LEN};

/// The Linux driver reads names into a buffer of 128 bytes, including the NUL.
const NAME_MAX: usize = 127;
/// With a longer name the Linux driver looks for the root in the wrong place.
const VOLUME_NAME_MAX: usize = 127;
const SYMLINK_MAX: usize = 4095;
/// Larger alignments would only waste space.
const ALIGN_MAX: u32 = 1 << 16;

#[derive(Debug)]
pub struct Item {
    pub offset: u64,
    pub name: Vec<u8>,
    /// Offset of the next header in the directory; 0 for the last.
    pub next: u64,
    /// The low four bits of `next`.
    pub bits: u32,
    pub spec_info: u64,
    pub size: u64,
    pub data: Option<NodeIndex>,
    /// The item of its directory, for messages.
    parent: Option<usize>,
}

#[derive(Debug)]
pub struct Layout {
    pub items: Vec<Item>,
    /// The length that the superblock declares.
    pub full_size: u64,
}

impl Layout {
    pub fn path(&self, item: &Item) -> Vec<u8> {
        path(&self.items, &item.name, item.parent)
    }
}

/// Returns the path of `name` in the directory of item `parent`.
fn path(items: &[Item], name: &[u8], mut parent: Option<usize>) -> Vec<u8> {
    let mut names = vec![name];
    while let Some(item) = parent.and_then(|at| items.get(at)) {
        names.push(&item.name);
        parent = item.parent;
    }
    names.reverse();
    names.retain(|name| *name != b".");
    names.join(&b'/')
}

/// A directory whose entries are being placed.
struct Frame<'t> {
    children: Box<dyn Iterator<Item = (&'t [u8], NodeIndex)> + 't>,
    /// The item and the offset of its header.
    item: usize,
    offset: u64,
    /// The entry placed last, whose `next` will point to the next entry.
    last: usize,
}

struct Placer<'t> {
    tree: &'t Tree,
    align: u64,
    items: Vec<Item>,
    end: u64,
    placed: HashMap<NodeIndex, u64>,
}

pub fn layout(tree: &Tree, options: &RomfsOptions) -> Result<Layout, BuildError> {
    check_options(options)?;
    let root = SUPERBLOCK_LEN + padded(options.volume_name.len());
    let align = u64::from(options.align);
    let mut placer = Placer {
        tree,
        align,
        items: Vec::new(),
        end: root,
        placed: HashMap::new(),
    };
    placer.place_all(root)?;
    let full_size = placer.end;
    if full_size > u64::from(u32::MAX) {
        return Err(cannot(format!(
            "the image would be {full_size} bytes long; the limit of romfs is {} (4 GiB)",
            u32::MAX
        )));
    }
    Ok(Layout {
        items: placer.items,
        full_size,
    })
}

impl<'t> Placer<'t> {
    fn place_all(&mut self, root: u64) -> Result<(), BuildError> {
        let bits = 1 | executable(self.tree.node(Tree::ROOT).mode);
        let dot = self.push(b".", bits, root, 0, None, None);
        let dots = self.push(b"..", 0, root, 0, None, Some(dot));
        self.link(dot, dots);
        let mut frames = vec![self.frame(Tree::ROOT, dot, root, dots)];
        while let Some(frame) = frames.last_mut() {
            let Some((name, node)) = frame.children.next() else {
                frames.pop();
                continue;
            };
            let (last, parent, parent_offset) = (frame.last, frame.item, frame.offset);
            let item = self.place(name, node, parent)?;
            frame.last = item;
            self.link(last, item);
            if matches!(self.tree.node(node).kind, NodeKind::Directory(_)) {
                frames.push(self.enter(node, item, parent_offset));
            }
        }
        Ok(())
    }

    /// Starts a directory below the root, with its `.` and `..`.
    fn enter(&mut self, node: NodeIndex, item: usize, parent_offset: u64) -> Frame<'t> {
        let offset = self.items.get(item).map_or(0, |item| item.offset);
        let dot = self.push(b".", 0, offset, 0, None, Some(item));
        let first = self.items.get(dot).map_or(0, |dot| dot.offset);
        if let Some(item) = self.items.get_mut(item) {
            item.spec_info = first;
        }
        let dots = self.push(b"..", 0, parent_offset, 0, None, Some(item));
        self.link(dot, dots);
        self.frame(node, item, offset, dots)
    }

    fn frame(&self, node: NodeIndex, item: usize, offset: u64, last: usize) -> Frame<'t> {
        Frame {
            children: Box::new(self.tree.children(node)),
            item,
            offset,
            last,
        }
    }

    fn place(&mut self, name: &[u8], index: NodeIndex, parent: usize) -> Result<usize, BuildError> {
        let refused = |reason: String| {
            let path = path(&self.items, name, Some(parent));
            cannot(format!("{}: {reason}", String::from_utf8_lossy(&path)))
        };
        if name.len() > NAME_MAX {
            return Err(refused(format!(
                "a name of {} bytes; Linux reads at most {NAME_MAX}",
                name.len()
            )));
        }
        if let Some(&first) = self.placed.get(&index) {
            return Ok(self.push(name, 0, first, 0, None, Some(parent)));
        }
        let node = self.tree.node(index);
        let (kind, spec_info, size) = match &node.kind {
            NodeKind::Directory(_) => (1, 0, 0),
            NodeKind::File { len, .. } => (2, 0, *len),
            NodeKind::Symlink(target) => (3, 0, checked_target(target, &refused)?),
            NodeKind::BlockDevice(device) => (4, packed(*device, &refused)?, 0),
            NodeKind::CharDevice(device) => (5, packed(*device, &refused)?, 0),
            NodeKind::Socket => (6, 0, 0),
            NodeKind::Fifo => (7, 0, 0),
        };
        if size > u64::from(u32::MAX) {
            return Err(refused(format!(
                "a file of {size} bytes; romfs allows at most {}",
                u32::MAX
            )));
        }
        let executes = if kind <= 2 { executable(node.mode) } else { 0 };
        if kind == 2 && size > 0 {
            // Only the data is aligned, so the header goes right before it.
            let header = HEADER_LEN + padded(name.len());
            self.end = (self.end + header).next_multiple_of(self.align) - header;
        }
        let data = (size > 0).then_some(index);
        let item = self.push(name, kind | executes, spec_info, size, data, Some(parent));
        if let (false, Some(item)) = (kind == 1, self.items.get(item)) {
            self.placed.insert(index, item.offset);
        }
        Ok(item)
    }

    fn push(
        &mut self,
        name: &[u8],
        bits: u32,
        spec_info: u64,
        size: u64,
        data: Option<NodeIndex>,
        parent: Option<usize>,
    ) -> usize {
        let offset = self.end;
        // Sizes have 32 bits, so the end of all items cannot overflow.
        let len = HEADER_LEN + padded(name.len()) + size;
        self.end = (offset + len).next_multiple_of(ALIGN);
        self.items.push(Item {
            offset,
            name: name.to_vec(),
            next: 0,
            bits,
            spec_info,
            size,
            data,
            parent,
        });
        self.items.len() - 1
    }

    fn link(&mut self, from: usize, to: usize) {
        let offset = self.items.get(to).map_or(0, |item| item.offset);
        if let Some(from) = self.items.get_mut(from) {
            from.next = offset;
        }
    }
}

fn check_options(options: &RomfsOptions) -> Result<(), BuildError> {
    let align = options.align;
    if !align.is_power_of_two() || u64::from(align) < ALIGN || align > ALIGN_MAX {
        return Err(cannot(format!(
            "alignment {align}; a power of two from {ALIGN} to {ALIGN_MAX} is needed"
        )));
    }
    let name = &options.volume_name;
    if name.len() > VOLUME_NAME_MAX || name.contains(&0) {
        let len = name.len();
        return Err(cannot(format!(
            "volume name of {len} bytes; {VOLUME_NAME_MAX} without NUL are allowed"
        )));
    }
    Ok(())
}

fn checked_target(
    target: &[u8],
    refused: &dyn Fn(String) -> BuildError,
) -> Result<u64, BuildError> {
    let len = target.len();
    if len == 0 || len > SYMLINK_MAX || target.contains(&0) {
        return Err(refused(format!(
            "a link with a target of {len} bytes; 1 to {SYMLINK_MAX} without NUL are allowed"
        )));
    }
    Ok(u64_from(len))
}

fn packed(device: Device, refused: &dyn Fn(String) -> BuildError) -> Result<u64, BuildError> {
    let Device { major, minor } = device;
    if major > 0xFFFF || minor > 0xFFFF {
        return Err(refused(format!(
            "device {major}:{minor}; both numbers end at {}",
            0xFFFF
        )));
    }
    Ok(u64::from(major << 16 | minor))
}

pub const fn executable(mode: u16) -> u32 {
    if mode & 0o111 != 0 { EXECUTABLE } else { 0 }
}
