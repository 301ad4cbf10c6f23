//! Checks which objects are removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use forerun_composefs::{Algorithm, Needed, ObjectStore, collect};
use forerun_io::MemorySource;
use forerun_vfs::OpenWith;

use crate::common::{content, objects, pack, tree_of};

#[test]
fn only_what_no_image_refers_to_is_removed() {
    let dir = forerun_testkit::temp_dir("composefs-gc");
    let path = dir.path().join("store");
    let (a, b, c) = (content(100), content(200), content(300));
    let small = content(10);
    pack(
        &tree_of(&[("a", a.clone()), ("b", b.clone()), ("s", small)]),
        &path,
    );
    let two = pack(&tree_of(&[("b", b.clone()), ("c", c.clone())]), &path);
    let names = |contents: &[&Vec<u8>]| -> BTreeSet<String> {
        let digests = contents.iter().map(|bytes| Algorithm::Sha256.digest(bytes));
        digests.map(|digest| digest.object_path()).collect()
    };
    assert_eq!(objects(&path), names(&[&a, &b, &c]));
    // Foreign files stay, and so does a temporary file that a writer is using.
    std::fs::write(path.join("README"), "").unwrap();
    std::fs::write(path.join(".forerun-1-1.tmp"), "").unwrap();
    std::fs::create_dir(path.join("zz")).unwrap();

    let store = ObjectStore::open(&path).unwrap();
    let mut needed = Needed::default();
    let source = Arc::new(MemorySource::new(two));
    needed.add(&store, OpenWith::new(source), None).unwrap();
    let mut told = 0;
    let dry = collect(&store, &needed, true, &mut |_| told += 1).unwrap();
    assert_eq!((dry.kept, dry.removed, told), (2, 1, 1));
    assert!(objects(&path).is_superset(&names(&[&a, &b, &c])));
    assert_eq!(collect(&store, &needed, false, &mut |_| ()).unwrap(), dry);
    let mut left = names(&[&b, &c]);
    left.insert(".forerun-1-1.tmp".into());
    assert_eq!(objects(&path), left);
    assert!(path.join("README").exists() && path.join("zz").exists());
    // Packing the tree again restores the missing object.
    pack(&tree_of(&[("a", a.clone())]), &path);
    assert!(objects(&path).is_superset(&names(&[&a])));
}

#[test]
fn an_image_that_cannot_be_read_is_an_error() {
    let dir = forerun_testkit::temp_dir("composefs-gc-damaged");
    let mut image = pack(&tree_of(&[("a", content(100))]), &dir.path().join("store"));
    let store = ObjectStore::open(&dir.path().join("store")).unwrap();
    let len = image.len();
    // The listing of the root is in the last block.
    image.truncate(len - 4096);
    let source = Arc::new(MemorySource::new(image));
    let with = OpenWith::new(source);
    assert!(Needed::default().add(&store, with, None).is_err());
}

#[test]
fn an_object_that_was_cut_off_is_replaced_and_others_are_left_alone() {
    let dir = forerun_testkit::temp_dir("composefs-repair");
    let path = dir.path().join("store");
    let bytes = content(5000);
    let tree = tree_of(&[("a", bytes.clone())]);
    pack(&tree, &path);
    let object = path.join(Algorithm::Sha256.digest(&bytes).object_path());
    std::fs::write(&object, &bytes[..100]).unwrap();
    pack(&tree, &path);
    assert_eq!(std::fs::read(&object).unwrap(), bytes);
    use std::os::unix::fs::MetadataExt;
    let before = object.metadata().unwrap().ino();
    pack(&tree, &path);
    assert_eq!(object.metadata().unwrap().ino(), before);
}
