//! Reads through redirects: when objects are looked up, which checks they get, and the errors for
//! objects that are missing, changed, or not objects at all.

use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_build::{NewNode, NodeKind, Tree};
use forerun_composefs::write::{ComposefsOptions, FileData, Files, write_metadata};
use forerun_composefs::{Algorithm, Digest, ObjectStore, Objects};
use forerun_engine::Reader;
use forerun_io::ReadAt;
use forerun_vfs::{
    BlobName, Device, DirCursor, Error, FileType, NodeId, ResolveBlob, Result, Verity,
};

use crate::common::{self, content, open, pack, tree_of};

/// A resolver that counts the opened blobs.
struct Counting {
    objects: Objects,
    opened: AtomicU64,
}

impl Counting {
    fn new(store: &Path) -> Arc<Self> {
        Arc::new(Self {
            objects: Objects::new(ObjectStore::open(store).unwrap()),
            opened: AtomicU64::new(0),
        })
    }

    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl ResolveBlob for Counting {
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.objects.open(blob)
    }

    fn open_file(&self, blob: &BlobName) -> io::Result<Option<File>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.objects.open_file(blob)
    }
}

fn objects(store: &Path) -> Arc<Objects> {
    Arc::new(Objects::new(ObjectStore::open(store).unwrap()))
}

fn node(reader: &Reader, name: &str) -> NodeId {
    let fs = reader.fs();
    fs.lookup(fs.root(), name.as_bytes()).unwrap().unwrap()
}

fn read(reader: &Reader, name: &str) -> Result<Vec<u8>> {
    let node = node(reader, name);
    let size = reader.fs().metadata(node)?.size;
    reader
        .read(node, 0, size as usize)
        .map(|data| data.to_vec())
}

fn is_blob(error: &Error) -> bool {
    matches!(error, Error::Blob { .. })
}

#[test]
fn everything_is_read_back() {
    let dir = forerun_testkit::temp_dir("composefs-read");
    let files: Vec<(String, Vec<u8>)> = common::LENGTHS
        .iter()
        .map(|&len| (format!("size-{len}"), content(len)))
        .collect();
    let named: Vec<_> = files.iter().map(|(n, b)| (n.as_str(), b.clone())).collect();
    let image = pack(&tree_of(&named), &dir.path().join("store"));
    for verity in [Verity::Off, Verity::On, Verity::Require] {
        let reader = open(&image, objects(&dir.path().join("store")), verity).unwrap();
        assert_eq!(reader.fs().volume().format, "composefs");
        for (name, bytes) in &files {
            assert_eq!(&read(&reader, name).unwrap(), bytes, "{name}");
            let node = node(&reader, name);
            reader.open(node).unwrap();
            let backing = reader.fs().backing(node).unwrap();
            assert_eq!(backing.is_some(), bytes.len() > 64, "{name}");
        }
        // The whiteouts that hide the store are not shown.
        let mut names = Vec::new();
        let fs = reader.fs();
        fs.read_dir(fs.root(), DirCursor::START, &mut |entry| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(names.len(), files.len());
        assert!(fs.lookup(fs.root(), b"00").unwrap().is_none());
        assert_eq!(reader.walk(fs.root()).count(), files.len() + 1);
    }
}

#[test]
fn no_object_is_opened_by_lookup_stat_listings_and_attributes() {
    let dir = forerun_testkit::temp_dir("composefs-lazy");
    let store = dir.path().join("store");
    let files: Vec<_> = (0..50)
        .map(|i| (format!("file-{i}"), content(100 + i)))
        .collect();
    let named: Vec<_> = files.iter().map(|(n, b)| (n.as_str(), b.clone())).collect();
    let image = pack(&tree_of(&named), &store);
    let counting = Counting::new(&store);
    let blobs: Arc<dyn ResolveBlob> = Arc::<Counting>::clone(&counting);
    let reader = open(&image, blobs, Verity::On).unwrap();
    for entry in reader.walk(reader.fs().root()) {
        let entry = entry.unwrap();
        entry.metadata.unwrap();
        let mut attributes = 0;
        reader
            .fs()
            .xattrs(entry.node, &mut |_, _| attributes += 1)
            .unwrap();
        assert_eq!(attributes, 0, "redirects are not shown");
    }
    for (name, _) in &files {
        let node = node(&reader, name);
        reader
            .fs()
            .map(node, 0..u64::MAX, &mut |_| ControlFlow::Continue(()))
            .unwrap();
        reader.fs().describe(Some(node)).unwrap();
    }
    assert_eq!(counting.opened(), 0);
    let first = node(&reader, "file-7");
    reader.open(first).unwrap();
    assert_eq!(counting.opened(), 1);
    // An open object stays open.
    reader.open(first).unwrap();
    assert_eq!(read(&reader, "file-7").unwrap(), files[7].1);
    assert!(counting.opened() >= 1);
}

#[test]
fn a_missing_object_fails_at_open_and_stat_does_not_mind() {
    let dir = forerun_testkit::temp_dir("composefs-missing");
    let store = dir.path().join("store");
    let image = pack(
        &tree_of(&[("gone", content(1000)), ("there", content(2000))]),
        &store,
    );
    let path = store.join(Algorithm::Sha256.digest(&content(1000)).object_path());
    std::fs::remove_file(&path).unwrap();
    let reader = open(&image, objects(&store), Verity::Off).unwrap();
    let gone = node(&reader, "gone");
    assert_eq!(reader.fs().metadata(gone).unwrap().size, 1000);
    let error = reader.open(gone).unwrap_err();
    assert!(is_blob(&error), "{error}");
    assert!(is_blob(&read(&reader, "gone").unwrap_err()));
    assert_eq!(read(&reader, "there").unwrap(), content(2000));
    // A failure is not cached.
    std::fs::write(&path, content(1000)).unwrap();
    assert_eq!(read(&reader, "gone").unwrap(), content(1000));
}

#[test]
fn a_changed_object_is_refused_where_digests_count() {
    let dir = forerun_testkit::temp_dir("composefs-changed");
    let store = dir.path().join("store");
    let good = content(300_000);
    let image = pack(&tree_of(&[("file", good.clone())]), &store);
    let path = store.join(Algorithm::Sha256.digest(&good).object_path());
    let mut bad = good.clone();
    bad[299_999] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let off = open(&image, objects(&store), Verity::Off).unwrap();
    assert_eq!(read(&off, "file").unwrap(), bad);
    for verity in [Verity::On, Verity::Require] {
        let reader = open(&image, objects(&store), verity).unwrap();
        let file = node(&reader, "file");
        // Not even bytes before the damage are served.
        let error = reader.read(file, 0, 1).unwrap_err();
        assert!(is_blob(&error), "{error}");
        assert!(reader.open(file).is_err());
        assert!(reader.fs().backing(file).is_err());
        // A corrected object is read again.
        std::fs::write(&path, &good).unwrap();
        assert_eq!(read(&reader, "file").unwrap(), good);
        std::fs::write(&path, &bad).unwrap();
        // A reopened object is verified again, because its identity differs.
        assert!(reader.fs().backing(file).is_err());
    }
    // The length check works without a digest.
    std::fs::write(&path, &good[1..]).unwrap();
    let off = open(&image, objects(&store), Verity::Off).unwrap();
    assert!(is_blob(&read(&off, "file").unwrap_err()));
}

/// Returns an image with one file, with this redirect and digest.
fn redirected(path: Option<&[u8]>, digest: Option<Digest>) -> Vec<u8> {
    let mut tree = tree_of(&[("file", content(1000))]);
    let file = tree.child(Tree::ROOT, b"file").unwrap();
    tree.node_mut(file).mode = 0o600;
    let mut files = Files::default();
    let path = path.map(<[u8]>::to_vec);
    files.insert(file, FileData::Object { path, digest });
    let mut image = Vec::new();
    let options = ComposefsOptions::default();
    write_metadata(&tree, &files, &options, &mut image, &Arc::default()).unwrap();
    image
}

#[test]
fn redirects_that_lead_elsewhere_are_refused_before_anything_is_opened() {
    let dir = forerun_testkit::temp_dir("composefs-hostile");
    let store = dir.path().join("store");
    std::fs::create_dir_all(store.join("aa")).unwrap();
    std::fs::write(dir.path().join("secret"), content(1000)).unwrap();
    let rest = "b".repeat(62);
    let outside: [&[u8]; 6] = [
        b"../secret",
        b"aa/../../secret",
        b"",
        b".",
        format!("../{}", "b".repeat(62)).leak().as_bytes(),
        b"aa/..",
    ];
    for path in outside {
        let image = redirected(Some(path), None);
        let counting = Counting::new(&store);
        let blobs: Arc<dyn ResolveBlob> = Arc::<Counting>::clone(&counting);
        let reader = open(&image, blobs, Verity::Off).unwrap();
        let error = read(&reader, "file").unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)), "{path:?}: {error}");
        // The writer adds a prefix that makes the path absolute.
        let told = format!(
            "{}\" is not the name of an object",
            String::from_utf8_lossy(path)
        );
        assert!(error.to_string().contains(&told), "{error}");
        assert_eq!(counting.opened(), 0);
        // The store itself refuses them too.
        let name = BlobName::Object {
            path: path.to_vec(),
        };
        assert!(counting.objects.open(&name).is_err());
    }
    std::fs::create_dir(store.join("etc")).unwrap();
    std::fs::write(store.join("etc/passwd"), content(1000)).unwrap();
    for path in [
        "etc/passwd".to_string(),
        "/etc/passwd".to_string(),
        "aa".to_string(),
        format!("aa/{rest}b"),
        format!("aa/{rest}/x"),
        format!("AA/{rest}"),
    ] {
        let image = redirected(Some(path.as_bytes()), None);
        let reader = open(&image, objects(&store), Verity::Off).unwrap();
        let error = read(&reader, "file").unwrap_err();
        assert!(is_blob(&error), "{path}: {error}");
        let told =
            "this is not the name of an object; only a base directory has files at other paths";
        assert!(error.to_string().contains(told), "{error}");
    }
    let image = redirected(None, None);
    let reader = open(&image, objects(&store), Verity::Off).unwrap();
    let error = read(&reader, "file").unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    let told = "the contents are in an object, but the image does not name it";
    assert!(error.to_string().contains(told), "{error}");
}

#[test]
fn files_below_a_base_directory_are_read_by_their_paths() {
    let dir = forerun_testkit::temp_dir("composefs-base");
    let base = dir.path().join("base");
    std::fs::create_dir_all(base.join("etc/ssh")).unwrap();
    std::fs::write(base.join("etc/ssh/a file"), content(1000)).unwrap();
    std::fs::write(dir.path().join("secret"), content(1000)).unwrap();
    symlink("../secret", base.join("link")).unwrap();
    symlink("/etc", base.join("elsewhere")).unwrap();
    let below = || Objects::below(ObjectStore::open(&base).unwrap());
    let digest = Algorithm::Sha512.digest(&content(1000));
    for (path, digest) in [
        ("etc/ssh/a file", None),
        ("//etc//ssh/a file", None),
        ("etc/ssh/a file", Some(digest)),
    ] {
        let image = redirected(Some(path.as_bytes()), digest);
        let reader = open(&image, Arc::new(below()), Verity::On).unwrap();
        assert_eq!(read(&reader, "file").unwrap(), content(1000), "{path}");
    }
    let wrong = redirected(Some(b"etc/ssh/a file"), Some(Digest::Sha512([1; 64])));
    let reader = open(&wrong, Arc::new(below()), Verity::On).unwrap();
    assert!(is_blob(&read(&reader, "file").unwrap_err()));
    for path in [
        "link",
        "elsewhere/passwd",
        "etc",
        "etc/none",
        "etc/ssh/a file/",
    ] {
        let image = redirected(Some(path.as_bytes()), None);
        let reader = open(&image, Arc::new(below()), Verity::Off).unwrap();
        let error = read(&reader, "file").unwrap_err();
        assert!(is_blob(&error), "{path}: {error}");
    }
}

#[test]
fn links_and_pipes_in_the_store_are_not_followed() {
    let dir = forerun_testkit::temp_dir("composefs-links");
    let store = dir.path().join("store");
    std::fs::create_dir_all(&store).unwrap();
    std::fs::write(dir.path().join("secret"), content(1000)).unwrap();
    std::fs::create_dir(dir.path().join("shelf")).unwrap();
    let rest = "b".repeat(62);
    std::fs::write(dir.path().join("shelf").join(&rest), content(1000)).unwrap();
    std::fs::create_dir(store.join("aa")).unwrap();
    symlink("../../secret", store.join("aa").join(&rest)).unwrap();
    symlink("../shelf", store.join("bb")).unwrap();
    std::fs::create_dir(store.join("cc")).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, store.join("cc").join(&rest), fifo, mode, 0).unwrap();
    for shelf in ["aa", "bb", "cc"] {
        let image = redirected(Some(format!("{shelf}/{rest}").as_bytes()), None);
        let reader = open(&image, objects(&store), Verity::Off).unwrap();
        let error = read(&reader, "file").unwrap_err();
        assert!(is_blob(&error), "{shelf}: {error}");
    }
}

#[test]
fn objects_without_a_digest_are_for_off_and_on_only() {
    let dir = forerun_testkit::temp_dir("composefs-plain");
    let store = dir.path().join("store");
    pack(&tree_of(&[("file", content(1000))]), &store);
    let path = Algorithm::Sha256.digest(&content(1000)).object_path();
    let image = redirected(Some(path.as_bytes()), None);
    for (verity, allowed) in [
        (Verity::Off, true),
        (Verity::On, true),
        (Verity::Require, false),
    ] {
        let reader = open(&image, objects(&store), verity).unwrap();
        assert_eq!(read(&reader, "file").is_ok(), allowed, "{verity:?}");
    }
    // The names of OSTree's objects are digests of other data.
    std::fs::rename(store.join(&path), store.join(format!("{path}.file"))).unwrap();
    let image = redirected(Some(format!("{path}.file").as_bytes()), None);
    let reader = open(&image, objects(&store), Verity::On).unwrap();
    assert_eq!(read(&reader, "file").unwrap(), content(1000));
}

#[test]
fn attributes_and_whiteouts_are_shown_as_overlayfs_shows_them() {
    let dir = forerun_testkit::temp_dir("composefs-escaped");
    let mut tree = tree_of(&[("file", content(1000))]);
    let file = tree.child(Tree::ROOT, b"file").unwrap();
    let attributes: [&[u8]; 4] = [
        b"trusted.overlay.redirect",
        b"trusted.overlay.overlay.x",
        b"user.overlay.redirect",
        b"user.plain",
    ];
    for name in attributes {
        tree.node_mut(file)
            .xattrs
            .insert(name.to_vec(), b"v".to_vec());
    }
    let kind = NodeKind::CharDevice(Device::default());
    tree.add(Tree::ROOT, b"whiteout", NewNode::new(kind, 0o600))
        .unwrap();
    let image = pack(&tree, &dir.path().join("store"));
    let reader = open(&image, objects(&dir.path().join("store")), Verity::On).unwrap();
    let names = |name: &str| {
        let mut names = Vec::new();
        let collect = &mut |name: &[u8], _: &[u8]| names.push(name.to_vec());
        reader.fs().xattrs(node(&reader, name), collect).unwrap();
        names.sort();
        names
    };
    assert_eq!(
        names("file"),
        attributes
            .map(<[u8]>::to_vec)
            .into_iter()
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    let whiteout = reader.fs().metadata(node(&reader, "whiteout")).unwrap();
    assert_eq!((whiteout.kind, whiteout.size), (FileType::Regular, 0));
    let marks: [&[u8]; 2] = [b"trusted.overlay.whiteout", b"user.overlay.whiteout"];
    assert_eq!(names("whiteout"), marks.map(<[u8]>::to_vec));
}

#[test]
fn an_object_that_was_changed_after_it_was_verified_is_refused_when_it_is_opened_again() {
    let dir = forerun_testkit::temp_dir("composefs-again");
    let store = dir.path().join("store");
    let good = content(300_000);
    let image = pack(&tree_of(&[("file", good.clone())]), &store);
    let path = store.join(Algorithm::Sha256.digest(&good).object_path());
    let age = || {
        // A verified object is trusted if its last change is older than a tick of the clock.
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(long_ago).unwrap();
    };
    for verity in [Verity::On, Verity::Require] {
        let reader = open(&image, objects(&store), verity).unwrap();
        let file = node(&reader, "file");
        reader.open(file).unwrap();
        assert_eq!(reader.read(file, 0, 1).unwrap().to_vec(), &good[..1]);
        // The object is changed in place within the same tick: same file, same length.
        let object = File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&object, b"altered", 200_000).unwrap();
        assert!(is_blob(&reader.open(file).unwrap_err()));
        assert!(reader.fs().backing(file).is_err());
        assert!(is_blob(&reader.read(file, 200_000, 7).unwrap_err()));
        // Restored times do not hide the change.
        age();
        assert!(is_blob(&reader.open(file).unwrap_err()));
        std::fs::write(&path, &good).unwrap();
        reader.open(file).unwrap();
        assert_eq!(read(&reader, "file").unwrap(), good);
        // Another file of the same length replaces the object.
        let other = dir.path().join("other");
        std::fs::write(&other, vec![7; good.len()]).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(is_blob(&reader.open(file).unwrap_err()));
        std::fs::write(&path, &good).unwrap();
    }
    // Without digests, an open object stays valid.
    let off = open(&image, objects(&store), Verity::Off).unwrap();
    let file = node(&off, "file");
    off.open(file).unwrap();
    std::fs::write(&path, vec![7; good.len()]).unwrap();
    off.open(file).unwrap();
}
