//! Layers in memory, and the tree that a merge of them shows.

use std::collections::BTreeMap;
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, usize_from};
use forerun_layers::{Layer, Layers};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::opened::reader_on;
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{Device, FileSystem, FileType, NodeId, Walk};

/// A node that a walk shows: its kind, and the contents of a file or the target of a link.
pub type Shown = (FileType, Vec<u8>);

/// Creates a layer from lines: `DIR/`, `PATH=CONTENTS`, `PATH>TARGET`, `PATH!` for a device 0:0,
/// `DIR/@VALUE` for a directory with overlayfs's attribute `opaque`.
pub fn layer(lines: &[&str]) -> MemFsBuilder {
    let mut builder = MemFsBuilder::new();
    for line in lines {
        add(&mut builder, line);
    }
    builder
}

pub fn add(builder: &mut MemFsBuilder, line: &str) -> NodeId {
    if let Some((path, contents)) = line.split_once('=') {
        return builder.file(path, [Piece::Stored(contents.into())]);
    }
    if let Some((path, target)) = line.split_once('>') {
        return builder.symlink(path, target.as_bytes());
    }
    if let Some(path) = line.strip_suffix('!') {
        return builder.special(path, FileType::CharDevice, Device::default());
    }
    let (path, opaque) = line.split_once('@').unwrap_or((line, ""));
    let dir = builder.dir(path);
    if !opaque.is_empty() {
        builder.xattr(dir, b"trusted.overlay.opaque", opaque.as_bytes());
    }
    dir
}

/// Names the layers by their numbers, the lowest first.
pub fn named(layers: Vec<(Arc<dyn FileSystem>, Arc<dyn ReadAt>)>) -> Vec<Layer> {
    let layers = layers.into_iter().zip(0..);
    layers
        .map(|((fs, image), number)| Layer {
            note: None,
            name: format!("layer{number}").into(),
            fs,
            image,
        })
        .collect()
}

/// A merge, and the image that its reader starts from.
pub struct Merged {
    pub fs: Arc<Layers>,
    image: Arc<dyn ReadAt>,
}

pub fn merge(builders: impl IntoIterator<Item = MemFsBuilder>) -> Merged {
    let images = builders.into_iter().map(MemFsBuilder::build);
    let layers = images.map(|image| {
        let source: Arc<dyn ReadAt> = Arc::new(image.source.clone());
        (image.driver(), source)
    });
    let layers = named(layers.collect());
    let image = Arc::clone(&layers[0].image);
    let fs = Arc::new(Layers::new(layers, &Limits::default()).unwrap());
    Merged { fs, image }
}

impl Merged {
    /// Returns all paths below the root, and what they show. Also checks that the merge obeys the
    /// contract of drivers.
    pub fn tree(&self) -> BTreeMap<String, Shown> {
        let limits = Limits::default();
        check_filesystem(&*self.fs, &limits);
        let fs: Arc<dyn FileSystem> = Arc::<Layers>::clone(&self.fs);
        let image = Arc::clone(&self.image);
        let reader = reader_on(fs, image, Default::default(), limits.clone());
        let walk = Walk::new(reader.fs(), reader.fs().root(), &limits);
        let entries = walk.map(|entry| {
            let entry = entry.unwrap();
            let metadata = entry.metadata.unwrap();
            let shown = match metadata.kind {
                FileType::Regular => {
                    let len = usize_from(metadata.size);
                    reader.read(entry.node, 0, len).unwrap().to_vec()
                }
                FileType::Symlink => reader.fs().read_link(entry.node).unwrap(),
                _ => Vec::new(),
            };
            let path = String::from_utf8(entry.path).unwrap();
            (path, (metadata.kind, shown))
        });
        entries.filter(|(path, _)| !path.is_empty()).collect()
    }

    /// Returns the tree as lines in the form of [`layer`].
    pub fn lines(&self) -> Vec<String> {
        let tree = self.tree().into_iter();
        tree.map(|(path, (kind, shown))| {
            let shown = String::from_utf8(shown).unwrap();
            match kind {
                FileType::Directory => format!("{path}/"),
                FileType::Symlink => format!("{path}>{shown}"),
                FileType::CharDevice => format!("{path}!"),
                _ => format!("{path}={shown}"),
            }
        })
        .collect()
    }

    pub fn node(&self, path: &str) -> NodeId {
        let mut node = self.fs.root();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = self.fs.lookup(node, name.as_bytes()).unwrap();
            node = found.unwrap_or_else(|| panic!("{path} is not there"));
        }
        node
    }
}
