use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_composefs::write::{ComposefsOptions, write};
use forerun_composefs::{Composefs, ObjectStore, Stored};
use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{BlobId, Counted, MemorySource};
use forerun_vfs::{Limits, OpenWith, ResolveBlob, Result, Verity};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

/// Returns bytes that differ from file to file and from block to block.
pub fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 7 + len) & 0xff) as u8).collect()
}

/// Lengths around every limit: of inline files, of blocks, of blocks of hashes.
pub const LENGTHS: [usize; 12] = [
    0,
    1,
    63,
    64,
    65,
    4095,
    4096,
    4097,
    128 * 4096,
    128 * 4096 + 1,
    129 * 4096,
    (1 << 20) + 1,
];

/// Creates a small host directory with fixed contents.
pub fn make_host_tree(path: &Path) {
    let sub = path.join("sub");
    std::fs::create_dir_all(sub.join("deep")).unwrap();
    for len in LENGTHS {
        std::fs::write(path.join(format!("size-{len}")), content(len)).unwrap();
    }
    std::fs::write(sub.join("same-as-65"), content(65)).unwrap();
    std::os::unix::fs::symlink("size-65", sub.join("link")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(CWD, sub.join("fifo"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    date(path);
}

fn date(path: &Path) {
    let metadata = path.symlink_metadata().unwrap();
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            date(&entry.unwrap().path());
        }
    }
    if !metadata.is_symlink() {
        let mode = if metadata.is_dir() { 0o750 } else { 0o640 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let time = Timespec {
        tv_sec: 1_500_000_000,
        tv_nsec: 123,
    };
    let times = Timestamps {
        last_access: time,
        last_modification: time,
    };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn objects(store: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let store = ObjectStore::open(store).unwrap();
    store
        .list(&mut |stored| {
            names.insert(match stored {
                Stored::Object { digest, .. } => digest.object_path(),
                Stored::Temporary { name, .. } => name,
            });
        })
        .unwrap();
    names
}

/// Writes `tree` as an image, with its objects in `store`.
pub fn pack(tree: &Tree, store: &Path) -> Vec<u8> {
    let mut options = ComposefsOptions::default();
    options.objects = Some(store.to_path_buf());
    let mut image = Vec::new();
    write(tree, &options, &mut image, &Arc::default()).unwrap();
    image
}

pub fn tree_of(files: &[(&str, Vec<u8>)]) -> Tree {
    let mut tree = Tree::default();
    for (name, bytes) in files {
        let kind = NodeKind::File {
            len: bytes.len() as u64,
            content: Content::Bytes(bytes.clone().into()),
        };
        tree.add(Tree::ROOT, name.as_bytes(), NewNode::new(kind, 0o644))
            .unwrap();
    }
    tree
}

/// Opens an image in memory through the engine.
pub fn open(image: &[u8], blobs: Arc<dyn ResolveBlob>, verity: Verity) -> Result<Reader> {
    let source = Arc::new(MemorySource::new(image.to_vec()));
    let counted = Counted::new(source, BlobId::IMAGE, Arc::default());
    let options = EngineOptions::default();
    let geometry = options.geometry(image.len() as u64);
    let metadata = Arc::new(MetadataSource::new(counted.clone(), geometry, 1 << 20));
    let mut with = OpenWith::new(Arc::<MetadataSource>::clone(&metadata));
    with.blobs.resolve = blobs;
    with.blobs.verity = verity;
    let fs = Arc::new(Composefs::open(with)?);
    Ok(Reader::new(
        fs,
        counted,
        metadata,
        options,
        Limits::default(),
    ))
}
