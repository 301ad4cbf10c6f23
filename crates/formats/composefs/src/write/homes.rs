//! Which of its names a node with several stands at.
//!
//! The first one that a walk in depth meets, names in byte order: where the reference
//! implementation's dumps have it, the others being links to it.

use std::collections::HashMap;

use forerun_build::{NodeIndex, Tree};

/// For each node, the directory and name it stands at, and how many it has. The root has none.
pub struct Homes<'t> {
    nodes: HashMap<NodeIndex, Home<'t>>,
}

struct Home<'t> {
    dir: NodeIndex,
    name: &'t [u8],
    names: u32,
}

impl<'t> Homes<'t> {
    pub fn new(tree: &'t Tree) -> Self {
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
            pending.extend(children(node));
        }
        Self { nodes }
    }

    /// Returns whether that is the name the node stands at.
    pub fn is_home(&self, dir: NodeIndex, name: &[u8], node: NodeIndex) -> bool {
        let home = self.nodes.get(&node);
        home.is_some_and(|home| home.dir == dir && home.name == name)
    }

    /// How many names the node has.
    pub fn names(&self, node: NodeIndex) -> u32 {
        self.nodes.get(&node).map_or(1, |home| home.names)
    }
}
