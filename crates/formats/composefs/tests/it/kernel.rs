//! Linux as the oracle: forerun's image, mounted as EROFS under overlayfs with a data layer, reads
//! like the source and like forerun's own reader.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use forerun_build::{NewNode, NodeKind, ScanOptions, Tree, scan};
use forerun_composefs::{ObjectStore, Objects};
use forerun_testkit::{Keeps, Mounted, TreeModel, require};
use forerun_vfs::{Device, Verity};

use crate::common::{self, make_host_tree, open};

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    let names = xattr::list(path).unwrap();
    names
        .filter_map(|name| Some((name.clone().into_vec(), xattr::get(path, &name).unwrap()?)))
        .collect()
}

#[test]
fn the_kernel_reads_our_images_as_we_do() {
    if !require::root() || require::program("mount").is_none() {
        return;
    }
    let dir = forerun_testkit::temp_dir("composefs-kernel");
    let (host, store) = (dir.path().join("host"), dir.path().join("store"));
    make_host_tree(&host);
    std::fs::hard_link(host.join("size-4097"), host.join("sub/other")).unwrap();
    let mut tree = scan(&host, &ScanOptions::default()).unwrap();
    let file = tree.child(Tree::ROOT, b"size-4097").unwrap();
    for (name, value) in [
        ("user.a", "1"),
        ("trusted.b", "2"),
        ("trusted.overlay.nested", "3"),
    ] {
        let xattrs = &mut tree.node_mut(file).xattrs;
        xattrs.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    let device = NodeKind::CharDevice(Device { major: 1, minor: 3 });
    tree.add(Tree::ROOT, b"null", NewNode::new(device, 0o666))
        .unwrap();
    let whiteout = NodeKind::CharDevice(Device::default());
    let sub = tree.child(Tree::ROOT, b"sub").unwrap();
    tree.add(sub, b"whiteout", NewNode::new(whiteout, 0o600))
        .unwrap();
    let image = dir.path().join("image");
    let bytes = common::pack(&tree, &store);
    std::fs::write(&image, &bytes).unwrap();

    let lower = dir.path().join("lower");
    let metadata = Mounted::new("erofs", "ro,loop", &image, lower.clone());
    let merged = dir.path().join("merged");
    let options = format!(
        "ro,metacopy=on,redirect_dir=on,lowerdir={}::{}",
        lower.display(),
        store.display()
    );
    let overlay = Mounted::new("overlay", &options, Path::new("overlay"), merged.clone());
    let theirs = TreeModel::of_host(&merged).unwrap();

    let objects = Objects::new(ObjectStore::open(&store).unwrap());
    let reader = open(&bytes, Arc::new(objects), Verity::Require).unwrap();
    let limits = reader.limits().clone();
    let read = |node, offset, out: &mut [u8]| reader.read_into(node, offset, out);
    let ours = TreeModel::of_reader(reader.fs(), read).unwrap();
    ours.assert_same(&theirs, &Keeps::EVERYTHING);
    let mut source = TreeModel::of_host(&host).unwrap();
    for added in [&b"null"[..], b"sub/whiteout"] {
        source
            .nodes
            .insert(added.to_vec(), ours.nodes[added].clone());
    }
    source.assert_same(&ours, &Keeps::EVERYTHING);

    for path in ["", "size-4097", "sub", "sub/whiteout", "size-65"] {
        let node = forerun_vfs::resolve(
            reader.fs(),
            path.as_bytes(),
            forerun_vfs::FollowLast::No,
            &limits,
        )
        .unwrap();
        let mut shown = BTreeMap::new();
        let collect = &mut |name: &[u8], value: &[u8]| {
            shown.insert(name.to_vec(), value.to_vec());
        };
        reader.fs().xattrs(node, collect).unwrap();
        assert_eq!(shown, attributes(&merged.join(path)), "/{path}");
    }
    drop(overlay);
    drop(metadata);
}
