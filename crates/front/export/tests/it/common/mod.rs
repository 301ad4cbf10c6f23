//! Readers of in-memory images and of romfs images made by genromfs.

use std::path::Path;
use std::sync::Arc;

use forerun_engine::{EngineOptions, Reader};
use forerun_io::{Limits, ReadAt};
use forerun_testkit::{MemImage, Shape, genromfs, opened, require, temp_dir};
use forerun_vfs::FileSystem;

pub fn reader(image: &MemImage) -> Reader {
    reader_on(
        image.driver(),
        Arc::new(image.source.clone()),
        Limits::default(),
    )
}

pub fn reader_on(fs: Arc<dyn FileSystem>, source: Arc<dyn ReadAt>, limits: Limits) -> Reader {
    let options = EngineOptions {
        threads: 2,
        ..EngineOptions::default()
    };
    opened::reader_on(fs, source, options, limits)
}

pub fn romfs(path: &Path) -> Reader {
    let image = forerun::Image::open(path).unwrap();
    image.reader().clone()
}

/// Runs `check` for each small tree shape, with the tree, a romfs image of it made by genromfs, and
/// an unused path.
pub fn each_shape(name: &str, mut check: impl FnMut(&Path, &Path, &Path)) {
    for &shape in Shape::ALL {
        // Other tests cover large files.
        if shape == Shape::BigFile || (shape.needs_root() && !require::root()) {
            continue;
        }
        let dir = temp_dir(name);
        let [tree, image, out] = ["tree", "image", "out"].map(|name| dir.path().join(name));
        std::fs::create_dir(&tree).unwrap();
        shape.populate(&tree);
        if genromfs(&tree, &image, &[]) {
            check(&tree, &image, &out);
        }
    }
}
