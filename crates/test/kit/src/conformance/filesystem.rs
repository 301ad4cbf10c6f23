//! The conformance suite of drivers, for valid images.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::thread;

use forerun_vfs::{
    DirCursor, Error, FileSystem, FileType, Limits, Metadata, NodeId, Walk, check_name, is_acl,
};

use super::{extents, names};

/// Checks a driver, opened on a valid image, against the contract of [`FileSystem`].
pub fn check_filesystem(fs: &dyn FileSystem, limits: &Limits) {
    volume(fs);
    let nodes = collect(fs, limits);
    for (&node, metadata) in &nodes {
        check_metadata(fs, node, metadata);
        match metadata.kind {
            FileType::Directory => {
                names::check_directory(fs, node, limits);
                refuses_a_directory(fs, node);
            }
            FileType::Regular => {
                refuses_a_non_directory(fs, node);
                extents::check_file(fs, node, metadata.size);
            }
            FileType::Symlink => {
                refuses_a_non_directory(fs, node);
                check_link(fs, node, metadata, limits);
            }
            FileType::BlockDevice | FileType::CharDevice | FileType::Fifo | FileType::Socket => {
                refuses_a_non_directory(fs, node);
                not_a_file(fs, node);
            }
        }
        if metadata.kind != FileType::Symlink {
            let error = fs.read_link(node).expect_err("read_link of no link");
            assert!(
                matches!(error, Error::NotASymlink),
                "read_link of node {node}, a {}: {error}",
                metadata.kind.name()
            );
        }
    }
    check_reports_nothing(fs, nodes.keys().copied());
    garbage_ids(fs, &nodes);
    same_from_all_threads(fs, limits);
}

fn volume(fs: &dyn FileSystem) {
    let volume = fs.volume();
    assert!(!volume.format.is_empty(), "the volume names no format");
    assert!(volume.block_size > 0, "a block size of 0");
    assert!(volume.name_max > 0, "a longest name of 0");
    for range in fs.metadata_layout().ranges() {
        assert!(
            range.start <= range.end && range.end <= volume.image_len,
            "metadata range {range:?} is not inside the image of {} bytes",
            volume.image_len
        );
    }
    let root = fs.metadata(fs.root()).expect("metadata of the root");
    assert_eq!(root.kind, FileType::Directory, "kind of the root");
    fs.describe(None).expect("describe of the volume");
}

fn collect(fs: &dyn FileSystem, limits: &Limits) -> BTreeMap<NodeId, Metadata> {
    let mut nodes = BTreeMap::new();
    for entry in Walk::new(fs, fs.root(), limits) {
        let entry = entry.expect("a directory that can be read");
        let path = String::from_utf8_lossy(&entry.path).into_owned();
        match entry.metadata {
            Ok(metadata) => nodes.insert(entry.node, metadata),
            Err(error) => panic!("metadata of {path:?}, node {}: {error}", entry.node),
        };
    }
    nodes
}

fn check_metadata(fs: &dyn FileSystem, node: NodeId, metadata: &Metadata) {
    assert!(
        metadata.mode <= 0o7777,
        "node {node}: mode {:o}",
        metadata.mode
    );
    assert!(metadata.nlink >= 1, "node {node}: no links");
    assert!(
        metadata.mtime.nanoseconds < 1_000_000_000,
        "node {node}: {} nanoseconds",
        metadata.mtime.nanoseconds
    );
    if !matches!(metadata.kind, FileType::BlockDevice | FileType::CharDevice) {
        assert_eq!(
            metadata.device,
            forerun_vfs::Device::default(),
            "node {node}"
        );
    }
    let again = fs.metadata(node).expect("metadata, the second time");
    assert_eq!(&again, metadata, "node {node}: metadata changed");
    fs.describe(Some(node)).expect("describe of a node");
    let mut xattrs = Vec::new();
    fs.xattrs(node, &mut |name, value| {
        assert!(!name.is_empty(), "node {node}: an attribute without a name");
        xattrs.push((name.to_vec(), value.to_vec()));
    })
    .expect("xattrs");
    assert!(
        fs.volume().has_xattrs || xattrs.is_empty(),
        "node {node} has attributes on a volume that says it has none"
    );
    assert!(
        fs.volume().has_acls || !xattrs.iter().any(|(name, _)| is_acl(name)),
        "node {node} has an access control list on a volume that says it has none"
    );
}

fn check_link(fs: &dyn FileSystem, node: NodeId, metadata: &Metadata, limits: &Limits) {
    let target = fs.read_link(node).expect("target of a symbolic link");
    let len = forerun_io::u64_from(target.len());
    assert!(!target.is_empty(), "node {node}: empty target");
    assert!(!target.contains(&0), "node {node}: NUL in the target");
    assert!(
        len <= limits.symlink_len,
        "node {node}: target of {len} bytes"
    );
    assert_eq!(metadata.size, len, "node {node}: size of a symbolic link");
    not_a_file(fs, node);
}

fn refuses_a_directory(fs: &dyn FileSystem, node: NodeId) {
    let error = extents::map(fs, node, 0..1).expect_err("extents of a directory");
    assert!(
        matches!(error, Error::IsADirectory),
        "map of directory {node}: {error}"
    );
}

fn not_a_file(fs: &dyn FileSystem, node: NodeId) {
    let error = extents::map(fs, node, 0..1).expect_err("extents of what has no data");
    assert!(
        matches!(error, Error::NotAFile),
        "map of node {node}: {error}"
    );
}

fn refuses_a_non_directory(fs: &dyn FileSystem, node: NodeId) {
    let error = fs.lookup(node, b"x").expect_err("lookup in a file");
    assert!(
        matches!(error, Error::NotADirectory),
        "lookup in node {node}: {error}"
    );
    let error = names::list(fs, node, DirCursor::START).expect_err("entries of a file");
    assert!(
        matches!(error, Error::NotADirectory),
        "read_dir of node {node}: {error}"
    );
}

fn check_reports_nothing(fs: &dyn FileSystem, nodes: impl Iterator<Item = NodeId>) {
    for node in [None].into_iter().chain(nodes.map(Some)) {
        fs.check(node, &mut |problem| {
            assert!(
                !problem.fatal,
                "check of a sound image, node {node:?}: {}",
                problem.error
            );
        })
        .expect("check of a sound image");
    }
}

/// Passes ids that the driver never returned, because users of a mount can send any number. Some
/// may happen to name a node, but none may cause a panic, and an id beyond every image is always
/// stale.
fn garbage_ids(fs: &dyn FileSystem, nodes: &BTreeMap<NodeId, Metadata>) {
    let near = nodes
        .keys()
        .take(64)
        .flat_map(|node| [node.0.wrapping_sub(1), node.0.wrapping_add(1), node.0 ^ 8]);
    let image_len = fs.volume().image_len;
    let far = [0, 1, image_len, image_len.wrapping_sub(1), 1 << 32, 1 << 63];
    let mut rng = crate::rng::Rng::new(1);
    let random: Vec<u64> = (0..64).map(|_| rng.below(image_len)).collect();
    for id in near.chain(far).chain(random) {
        probe(fs, NodeId(id));
    }
    probe(fs, NodeId(u64::MAX));
    let error = fs.metadata(NodeId(u64::MAX)).expect_err("no such node");
    assert!(
        matches!(error, Error::StaleNode(_)),
        "metadata of a node past every image: {error}"
    );
}

/// Calls every method, only to detect panics.
fn probe(fs: &dyn FileSystem, node: NodeId) {
    let _outcome = fs.metadata(node);
    let _outcome = fs.lookup(node, b"x");
    let _outcome = fs.read_link(node);
    let _outcome = names::first(fs, node);
    let _outcome = extents::map(fs, node, 0..u64::MAX);
    let _outcome = fs.xattrs(node, &mut |_, _| {});
    let _outcome = fs.describe(Some(node));
    let _outcome = fs.check(Some(node), &mut |_| {});
    let _answers = (fs.is_guess(node), fs.is_implied(node));
    let _outcome = fs.file_sum(node);
    let _outcome = fs.backing(node);
    if let Some(layout) = fs.capabilities().layout {
        let _answer = layout.inode_offset(node);
        let _outcome = layout.regions_of(node, &mut |_| ControlFlow::Continue(()));
    }
}

fn same_from_all_threads(fs: &dyn FileSystem, limits: &Limits) {
    let expected = digest(fs, limits);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| digest(fs, limits))).collect();
        for thread in threads {
            let got = thread.join().expect("no panic under concurrent use");
            assert_eq!(got, expected, "concurrent walks see different trees");
        }
    });
}

/// Hashes everything that a walk sees into one number.
fn digest(fs: &dyn FileSystem, limits: &Limits) -> u64 {
    let mut hasher = DefaultHasher::new();
    for entry in Walk::new(fs, fs.root(), limits) {
        let entry = entry.expect("a directory that can be read");
        let metadata = entry.metadata.as_ref().expect("metadata");
        entry.path.hash(&mut hasher);
        entry.node.hash(&mut hasher);
        (metadata.kind, metadata.mode, metadata.size).hash(&mut hasher);
        match metadata.kind {
            FileType::Symlink => fs.read_link(entry.node).unwrap().hash(&mut hasher),
            FileType::Regular => {
                let extents = extents::map(fs, entry.node, 0..metadata.size).unwrap();
                for extent in extents {
                    extent.logical.hash(&mut hasher);
                }
            }
            _ => {}
        }
        if !entry.path.is_empty() {
            assert!(check_name(entry.name(), limits.name_len).is_ok());
        }
    }
    hasher.finish()
}
