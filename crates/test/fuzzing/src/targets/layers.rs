//! Merges layers that an input describes. Calls every method on every node, and checks the contract
//! if all layers are valid.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun::ReadAt;
use forerun::vfs::{Device, FileType, NodeId, exercise};
use forerun_layers::{Layer, Layers};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{MemFsBuilder, Piece};

use super::Made;
use crate::Seeds;

/// Limits on operations and layers of an input. More would only take longer.
const OPERATIONS: usize = 200;
const LAYERS: usize = 8;

#[derive(Default)]
struct Making {
    builder: MemFsBuilder,
    nodes: BTreeMap<String, (NodeId, bool)>,
}

/// Merges the layers that `bytes` describe. Each operation has three bytes: its kind, a path, and a
/// choice.
pub fn merge(bytes: &[u8]) {
    let (mut made, mut is_sound) = (vec![Making::default()], true);
    for operation in bytes.chunks_exact(3).take(OPERATIONS) {
        let &[kind, path, choice] = operation else {
            continue;
        };
        if kind % 16 == 0 && made.len() < LAYERS {
            made.push(Making::default());
        } else if let Some(layer) = made.last_mut() {
            is_sound &= layer.apply(kind % 16, path, choice);
        }
    }
    let layers = made.into_iter().zip(0..).map(|(making, number)| {
        let image = making.builder.build();
        let source: Arc<dyn ReadAt> = Arc::new(image.source.clone());
        Layer {
            note: None,
            name: format!("layer{number}").into(),
            fs: image.driver(),
            image: source,
        }
    });
    let limits = exercise::limits();
    let Ok(merged) = Layers::new(layers.collect(), &limits) else {
        return;
    };
    exercise::all(&merged, &limits);
    if is_sound {
        check_filesystem(&merged, &limits);
    }
}

impl Making {
    /// Applies an operation. Returns whether the layer is still valid.
    fn apply(&mut self, kind: u8, path: u8, choice: u8) -> bool {
        let path = path_of(path);
        let is_sound = kind < 13;
        match kind {
            // Adds a layer, of which there are already enough.
            0 => {}
            1..=3 => _ = self.dir(&path),
            4 => self.add(&path, |builder, path| {
                builder.file(path, [Piece::Stored(vec![choice; usize::from(choice)])])
            }),
            5 => self.add(&path, |builder, path| {
                builder.special(path, FileType::CharDevice, Device::default())
            }),
            6 => self.add(&path, |builder, path| builder.symlink(path, b"a/b")),
            7 | 8 => self.marker(&path, choice),
            9 => {
                if let Some(dir) = self.dir(&path) {
                    let names: [&[u8]; 4] = [
                        b"trusted.overlay.opaque",
                        b"user.overlay.opaque",
                        b"trusted.overlay.overlay.opaque",
                        b"user.other",
                    ];
                    let name = names[usize::from(choice % 4)];
                    self.builder.xattr(dir, name, b"y");
                }
            }
            10..=12 => {
                let target = self.nodes.values().nth(choice.into()).copied();
                if let Some((target, false)) = target {
                    self.link(&path, target);
                }
            }
            // A directory with two paths, or in a cycle.
            13 => {
                let target = self.nodes.values().nth(choice.into()).copied();
                if let (Some(dir), Some((target, _))) = (self.dir(&path), target) {
                    self.builder.raw_entry(dir, b"again", target);
                }
            }
            14 => {
                if let Some(&(node, _)) = self.nodes.get(&path) {
                    self.builder.damage(node);
                }
            }
            _ => {
                if let Some(dir) = self.dir(&path) {
                    let value: &[u8] = if choice.is_multiple_of(2) {
                        b"x"
                    } else {
                        b"/moved"
                    };
                    let name: &[u8] = match choice % 2 {
                        0 => b"trusted.overlay.opaque",
                        _ => b"trusted.overlay.redirect",
                    };
                    self.builder.xattr(dir, name, value);
                }
            }
        }
        is_sound
    }

    /// Makes a directory, unless another node is in its way.
    fn dir(&mut self, path: &str) -> Option<NodeId> {
        let slashes = path.match_indices('/').map(|(at, _)| at);
        for end in slashes.chain([path.len()]) {
            let path = path.get(..end)?;
            match self.nodes.get(path) {
                Some((_, true)) => {}
                Some((_, false)) => return None,
                None => {
                    let node = self.builder.dir(path);
                    self.nodes.insert(path.to_string(), (node, true));
                }
            }
        }
        self.nodes.get(path).map(|(node, _)| *node)
    }

    /// Makes another node, unless one exists.
    fn add(&mut self, path: &str, make: impl FnOnce(&mut MemFsBuilder, &str) -> NodeId) {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        let has_parent = parent.is_none_or(|parent| self.dir(parent).is_some());
        if has_parent && !self.nodes.contains_key(path) {
            let node = make(&mut self.builder, path);
            self.nodes.insert(path.to_string(), (node, false));
        }
    }

    /// Makes a whiteout: of the last name of the path, of a name that leads outside, or of nothing.
    fn marker(&mut self, path: &str, choice: u8) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let marker = match choice % 8 {
            0 => ".wh..wh..opq".to_string(),
            1 => ".wh...".to_string(),
            2 => ".wh.".to_string(),
            3 => format!(".wh..wh.{name}"),
            _ => format!(".wh.{name}"),
        };
        let path = match parent {
            "" => marker,
            parent => format!("{parent}/{marker}"),
        };
        self.add(&path, |builder, path| builder.file(path, []));
    }

    fn link(&mut self, path: &str, target: NodeId) {
        self.add(path, |builder, path| {
            builder.hard_link(path, target);
            target
        });
    }
}

/// Returns one of 84 paths of up to three names.
fn path_of(byte: u8) -> String {
    let depth = 1 + byte % 3;
    let names = ["a", "b", "c", "d"];
    let digits = [byte / 3, byte / 12, byte / 48].map(|digit| usize::from(digit % 4));
    let path = digits.into_iter().take(depth.into());
    path.map(|digit| names[digit]).collect::<Vec<_>>().join("/")
}

pub fn seeds() -> Made {
    let lower = [[4, 1, 9], [4, 14, 3], [1, 2, 0], [4, 5, 1], [6, 27, 0]];
    let upper: [(&str, &[[u8; 3]]); 6] = [
        ("files", &[[4, 1, 2], [4, 0, 1]]),
        ("whiteouts", &[[7, 1, 4], [5, 5, 0], [7, 14, 1], [8, 2, 2]]),
        ("opaque", &[[7, 1, 0], [9, 2, 0], [4, 26, 7]]),
        ("links", &[[4, 1, 1], [10, 4, 1], [10, 7, 2]]),
        ("circles", &[[1, 2, 0], [13, 2, 0], [13, 1, 1]]),
        ("damage", &[[1, 1, 0], [14, 1, 0], [15, 2, 0], [15, 5, 1]]),
    ];
    let seeds = upper.into_iter().map(|(name, upper)| {
        let next = [[0, 0, 0]];
        let all = [&lower[..], &next, upper, &next, &[[4, 1, 5], [7, 2, 5]]];
        (name.to_string(), all.concat().concat())
    });
    Ok(seeds.collect::<Seeds>())
}
