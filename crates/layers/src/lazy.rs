//! Directories that are merged step by step, from the topmost layer down.
//!
//! A directory is known by its topmost part as soon as that was found. Which lower layers have it as well is looked up
//! when a name was not found in the parts above, so no lookup waits for more layers than it needs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use forerun_io::{Limits, Unpoisoned as _};
use forerun_vfs::{Held, Result};

use crate::follow;
use crate::ids::LayerNode;
use crate::stack::{Effect, Stack};
use crate::whiteout;

/// Bytes that an entry of the table takes beside its name and nodes.
const ENTRY_LEN: usize = size_of::<LazyDir>() + 128;
/// Most directories between the root and one that is merged in steps. Deeper ones are merged when all layers are known.
pub const DEPTH_MAX: usize = 64;

/// A directory whose parts are found step by step.
#[derive(Debug)]
pub struct LazyDir {
    /// The directory around it, and its name; nothing for the root.
    parent: Option<(Arc<Self>, Box<[u8]>)>,
    pub depth: usize,
    found: Mutex<Parts>,
}

/// The parts so far.
#[derive(Clone, Debug)]
struct Parts {
    /// Topmost first, never empty.
    nodes: Vec<LayerNode>,
    /// Index of the part of the parent, or of the root, to look at next.
    next: usize,
    is_all: bool,
}

/// The result of a look at one layer.
enum Looked {
    Part(LayerNode),
    Nothing,
    /// All parts below, at another path.
    Redirected(Vec<LayerNode>),
    /// Nothing below is in effect.
    End,
}

/// The directories that lookups have met, by their topmost part.
pub struct LazyDirs {
    /// The roots of all layers, topmost first.
    roots: Vec<LayerNode>,
    dirs: Mutex<HashMap<LayerNode, Arc<LazyDir>>>,
    held: Mutex<Held>,
}

impl LazyDirs {
    /// Creates a table with the root only, of at most [`Limits::walk_bytes`].
    pub fn new(stack: &Stack, limits: &Limits) -> Self {
        let layers = stack.layers().iter().zip(0..);
        let mut roots: Vec<_> = layers
            .map(|(layer, number)| LayerNode {
                layer: number,
                node: layer.fs.root(),
            })
            .collect();
        roots.reverse();
        let top = roots.first().copied();
        let root = top.map(|top| (top, Arc::new(LazyDir::new(None, 0, top, 1))));
        Self {
            roots,
            dirs: Mutex::new(root.into_iter().collect()),
            held: Mutex::new(Held::new(limits)),
        }
    }

    /// Returns the root of a layer; topmost first.
    pub fn root(&self, index: usize) -> Option<LayerNode> {
        self.roots.get(index).copied()
    }

    /// Returns a directory that was met.
    pub fn get(&self, top: LayerNode) -> Option<Arc<LazyDir>> {
        self.dirs.lock().unpoisoned().get(&top).map(Arc::clone)
    }

    /// Adds the directory `name` of another one, which was found in its part at `index`.
    ///
    /// # Errors
    /// `Limit` if there are too many.
    pub fn add(
        &self,
        top: LayerNode,
        (parent, name): (&Arc<LazyDir>, &[u8]),
        index: usize,
    ) -> Result<()> {
        let mut dirs = self.dirs.lock().unpoisoned();
        if dirs.contains_key(&top) {
            return Ok(());
        }
        // The parts of all layers, which come later.
        let len = ENTRY_LEN + name.len() + self.roots.len() * size_of::<LayerNode>();
        self.held.lock().unpoisoned().add(len)?;
        let depth = parent.depth + 1;
        let parent = Some((Arc::clone(parent), name.into()));
        dirs.insert(top, Arc::new(LazyDir::new(parent, depth, top, index + 1)));
        Ok(())
    }

    /// Returns the part of a directory at `index`, topmost first, of those that are in effect.
    ///
    /// # Errors
    /// Those of the layers, which may have to be waited for.
    pub fn part(&self, stack: &Stack, dir: &LazyDir, index: usize) -> Result<Option<LayerNode>> {
        loop {
            let parts = dir.found.lock().unpoisoned();
            if let Some(&node) = parts.nodes.get(index) {
                return Ok(Some(node));
            }
            let Some(&last) = parts.nodes.last().filter(|_| !parts.is_all) else {
                return Ok(None);
            };
            let next = parts.next;
            // No lock is held while a layer is waited for.
            drop(parts);
            let looked = self.look(stack, dir, last, next)?;
            let mut parts = dir.found.lock().unpoisoned();
            // Another thread may have come first, with the same result.
            if parts.next != next || parts.is_all {
                continue;
            }
            parts.next = next + 1;
            match looked {
                Looked::Part(node) => parts.nodes.push(node),
                Looked::Nothing => {}
                Looked::Redirected(nodes) => {
                    parts.nodes.extend(nodes);
                    parts.is_all = true;
                }
                Looked::End => parts.is_all = true,
            }
        }
    }

    /// Looks whether the next part of the parent has the directory.
    fn look(&self, stack: &Stack, dir: &LazyDir, last: LayerNode, next: usize) -> Result<Looked> {
        if stack.is_opaque(last)? {
            return Ok(Looked::End);
        }
        let Some((parent, name)) = &dir.parent else {
            let root = self.roots.get(next).copied();
            return Ok(root.map_or(Looked::End, Looked::Part));
        };
        if let Some(redirect) = stack.redirect(last)? {
            let (mut below, mut index) = (Vec::new(), 0);
            while let Some(part) = self.part(stack, parent, index)? {
                below.extend((part.layer < last.layer).then_some(part));
                index += 1;
            }
            let lower = follow::parts(stack, &below, last, redirect)?;
            if lower.is_empty() {
                stack.expect_no_redirect(last)?;
            }
            return Ok(Looked::Redirected(lower));
        }
        if let Some(above) = next.checked_sub(1)
            && let Some(above) = self.part(stack, parent, above)?
            && let Some(whiteout) = whiteout::hiding(name, stack.limits().name_len)
            && stack.lookup(above, &whiteout)?.is_some()
        {
            return Ok(Looked::End);
        }
        let Some(below) = self.part(stack, parent, next)? else {
            return Ok(Looked::End);
        };
        let Some(node) = stack.lookup(below, name)? else {
            return Ok(Looked::Nothing);
        };
        Ok(match stack.effect(node)? {
            Effect::Merges => Looked::Part(node),
            Effect::Hides | Effect::Replaces => Looked::End,
        })
    }
}

impl LazyDir {
    fn new(
        parent: Option<(Arc<Self>, Box<[u8]>)>,
        depth: usize,
        top: LayerNode,
        next: usize,
    ) -> Self {
        let parts = Parts {
            nodes: vec![top],
            next,
            is_all: false,
        };
        Self {
            parent,
            depth,
            found: Mutex::new(parts),
        }
    }
}
