//! Chooses the name that determines the location of a node with several names.
//!
//! A dump states this name, because the other names are links to it. Otherwise it is the first name
//! in a depth-first walk with names in byte order, as in dumps of images.

use std::collections::HashMap;

use forerun_build::{NodeIndex, Tree};

use super::data::Files;

/// For each node, the directory and name that determine its location, and the number of its names.
/// The root has no entry.
pub struct Homes<'t> {
    nodes: HashMap<NodeIndex, Home<'t>>,
}

struct Home<'t> {
    dir: NodeIndex,
    name: &'t [u8],
    names: u32,
}

impl<'t> Homes<'t> {
    pub fn new(tree: &'t Tree, files: &Files) -> Self {
        let mut nodes = HashMap::new();
        let mut pending: Vec<(NodeIndex, &'t [u8], NodeIndex)> = Vec::new();
        let children = |dir| {
            let names = tree.children(dir).rev();
            names.map(move |(name, child)| (dir, name, child))
        };
        pending.extend(children(Tree::ROOT));
        while let Some((dir, name, node)) = pending.pop() {
            let names = 0;
            let home = nodes.entry(node).or_insert(Home { dir, name, names });
            home.names += 1;
            if files.is_home(dir, name, node) {
                (home.dir, home.name) = (dir, name);
            }
            pending.extend(children(node));
        }
        Self { nodes }
    }

    /// Returns whether this name determines the location of the node.
    pub fn is_home(&self, dir: NodeIndex, name: &[u8], node: NodeIndex) -> bool {
        let home = self.nodes.get(&node);
        home.is_some_and(|home| home.dir == dir && home.name == name)
    }

    /// Returns the number of names of the node.
    pub fn names(&self, node: NodeIndex) -> u32 {
        self.nodes.get(&node).map_or(1, |home| home.names)
    }
}
