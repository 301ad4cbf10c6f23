//! Readers over images in memory and over romfs images made by the reference tool.
// Each test binary uses its own part of this, and none is documented for users.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{BlobId, Counted, Limits, Observer, ReadAt};
use forerun_testkit::MemImage;
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
    let counted = Counted::new(source, BlobId::IMAGE, Arc::new(Observer::default()));
    let geometry = options.geometry(counted.len());
    let metadata = Arc::new(MetadataSource::new(
        counted.clone(),
        geometry,
        options.cache / 8,
    ));
    Reader::new(fs, counted, metadata, options, limits)
}

pub fn romfs(path: &Path) -> Reader {
    let image = forerun::Image::open(path, &forerun::OpenOptions::default()).unwrap();
    image.reader().clone()
}
