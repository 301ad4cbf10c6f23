//! Measures opening images in memory, and walking them with all metadata: `cargo bench -p forerun`.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use forerun::build::{
    Content, ErofsOptions, ExfatOptions, NewNode, NodeKind, RomfsOptions, SquashfsOptions, Tree,
};
use forerun::{Image, MemorySource, Observer, OpenOptions, Writer};

const FORMATS: [&str; 4] = ["romfs", "squashfs", "erofs", "exfat"];
const FILES: usize = 4096;

fn main() {
    divan::main();
}

fn image(format: &str) -> MemorySource {
    let (mut tree, mut dir) = (Tree::default(), Tree::ROOT);
    for n in 0..FILES {
        if n % 64 == 0 {
            let name = format!("directory-{n}");
            dir = tree
                .add(Tree::ROOT, name.as_bytes(), NewNode::directory())
                .unwrap();
        }
        let content = Content::Bytes(b"contents"[..].into());
        let node = NewNode::new(NodeKind::File { len: 8, content }, 0o644);
        tree.add(dir, format!("file-{n}").as_bytes(), node).unwrap();
    }
    let writer = match format {
        "romfs" => Writer::Romfs(RomfsOptions::default()),
        "squashfs" => Writer::Squashfs(SquashfsOptions::default()),
        "erofs" => Writer::Erofs(ErofsOptions::default()),
        _ => Writer::Exfat(ExfatOptions {
            size: Some(64 << 20),
            ..ExfatOptions::default()
        }),
    };
    let mut bytes = Vec::new();
    let observer = Arc::new(Observer::default());
    writer.write(&tree, &mut bytes, &observer).unwrap();
    MemorySource::new(bytes)
}

fn opened(source: &MemorySource) -> Image {
    Image::from_source(Arc::new(source.clone()), &OpenOptions::default()).unwrap()
}

#[divan::bench(args = FORMATS)]
fn open(bencher: Bencher<'_, '_>, format: &str) {
    let source = image(format);
    bencher.bench_local(|| opened(&source));
}

#[divan::bench(args = FORMATS)]
fn open_and_walk(bencher: Bencher<'_, '_>, format: &str) {
    let source = image(format);
    bencher.counter(ItemsCount::new(FILES)).bench_local(|| {
        let image = opened(&source);
        let reader = image.reader();
        let entries = reader.walk(reader.fs().root());
        let files = entries.filter(|entry| entry.as_ref().unwrap().metadata.is_ok());
        assert!(files.count() > FILES);
    });
}
