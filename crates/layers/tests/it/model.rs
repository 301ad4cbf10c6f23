//! Random layers against a model: a map of paths to which each layer is applied in turn.

use std::collections::BTreeMap;

use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{Device, FileType};
use proptest::prelude::*;

use crate::common::{Shown, merge};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Directory,
    /// A directory with the marker file of an opaque one.
    Opaque,
    /// A directory that overlayfs marks as opaque.
    OverlayOpaque,
    File,
    Symlink,
    /// A whiteout file, with the path that it hides.
    Whiteout,
    Device,
}

type Entries = Vec<(Vec<String>, Item)>;
type Tree = BTreeMap<Vec<String>, Shown>;

fn entries() -> impl Strategy<Value = Entries> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(str::to_string);
    let path = proptest::collection::vec(name, 1..4);
    let item = prop_oneof![
        3 => Just(Item::Directory),
        1 => Just(Item::Opaque),
        1 => Just(Item::OverlayOpaque),
        3 => Just(Item::File),
        1 => Just(Item::Symlink),
        2 => Just(Item::Whiteout),
        1 => Just(Item::Device),
    ];
    proptest::collection::vec((path, item), 0..12)
}

/// The entries of one layer, without those that contradict others of the layer.
#[derive(Debug, Default)]
struct Possible {
    /// Directories with their marks, files, links and devices.
    nodes: BTreeMap<Vec<String>, Item>,
    whiteouts: Vec<Vec<String>>,
}

impl Possible {
    fn of(entries: &Entries) -> Self {
        let mut possible = Self::default();
        for (path, item) in entries {
            let is_dir =
                |item: &Item| matches!(item, Item::Directory | Item::Opaque | Item::OverlayOpaque);
            let parents: Vec<_> = (1..path.len()).map(|len| path[..len].to_vec()).collect();
            let mut above = parents.iter().filter_map(|path| possible.nodes.get(path));
            if above.any(|item| !is_dir(item)) {
                continue;
            }
            match (item, possible.nodes.get(path)) {
                (Item::Whiteout, _) if possible.whiteouts.contains(path) => continue,
                (Item::Whiteout, _) => possible.whiteouts.push(path.clone()),
                (item, None) => _ = possible.nodes.insert(path.clone(), *item),
                (Item::Opaque | Item::OverlayOpaque, Some(Item::Directory)) => {
                    possible.nodes.insert(path.clone(), *item);
                }
                (_, Some(_)) => continue,
            }
            for parent in parents {
                possible.nodes.entry(parent).or_insert(Item::Directory);
            }
        }
        possible
    }

    /// Creates the layer. The contents of files name the layer and the path.
    fn build(&self, layer: usize) -> MemFsBuilder {
        let mut builder = MemFsBuilder::new();
        for (path, item) in &self.nodes {
            let joined = path.join("/");
            match item {
                Item::Directory => _ = builder.dir(&joined),
                Item::Opaque => {
                    builder.file(&format!("{joined}/.wh..wh..opq"), []);
                }
                Item::OverlayOpaque => {
                    let dir = builder.dir(&joined);
                    builder.xattr(dir, b"trusted.overlay.opaque", b"y");
                }
                Item::File => {
                    builder.file(&joined, [Piece::Stored(contents(layer, path))]);
                }
                Item::Symlink => _ = builder.symlink(&joined, &contents(layer, path)),
                Item::Device => {
                    builder.special(&joined, FileType::CharDevice, Device::default());
                }
                Item::Whiteout => unreachable!("kept apart"),
            }
        }
        for path in &self.whiteouts {
            let (name, parents) = path.split_last().unwrap();
            let mut parents = parents.to_vec();
            parents.push(format!(".wh.{name}"));
            builder.file(&parents.join("/"), []);
        }
        builder
    }

    /// Applies the layer to the tree of the layers below: first what it hides, then what it has.
    fn apply(&self, layer: usize, tree: &mut Tree) {
        for path in &self.whiteouts {
            tree.retain(|below, _| !below.starts_with(path));
        }
        for (path, item) in &self.nodes {
            if matches!(item, Item::Opaque | Item::OverlayOpaque) {
                tree.retain(|below, _| below == path || !below.starts_with(path));
            }
        }
        for (path, item) in &self.nodes {
            let kind = match item {
                Item::Directory | Item::Opaque | Item::OverlayOpaque => FileType::Directory,
                Item::File => FileType::Regular,
                Item::Symlink => FileType::Symlink,
                Item::Device => FileType::CharDevice,
                Item::Whiteout => unreachable!("kept apart"),
            };
            if kind == FileType::Directory {
                tree.insert(path.clone(), (kind, Vec::new()));
                continue;
            }
            tree.retain(|below, _| !below.starts_with(path));
            if kind != FileType::CharDevice {
                tree.insert(path.clone(), (kind, contents(layer, path)));
            }
        }
    }
}

fn contents(layer: usize, path: &[String]) -> Vec<u8> {
    format!("{layer}:{}", path.join("/")).into_bytes()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_layers_show_what_the_model_says(
        layers in proptest::collection::vec(entries(), 1..5)
    ) {
        let layers: Vec<Possible> = layers.iter().map(Possible::of).collect();
        let mut tree = Tree::new();
        for (number, layer) in layers.iter().enumerate() {
            layer.apply(number, &mut tree);
        }
        let expected: BTreeMap<String, Shown> =
            tree.into_iter().map(|(path, shown)| (path.join("/"), shown)).collect();
        let built = layers.iter().enumerate().map(|(number, layer)| layer.build(number));
        prop_assert_eq!(merge(built).tree(), expected);
    }
}
