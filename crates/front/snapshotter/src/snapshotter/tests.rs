//! Operations on snapshots, with images that are never really mounted.

#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::HashSet;
use std::process::Command;

use forerun_testkit::{eventually, memory_dir, require};

use super::*;
use crate::labels::TARGET;
use crate::{LayerFacts, ManifestFacts};

const MEMORY: u64 = 16 << 20;

/// Images whose mounts are only recorded in a list.
#[derive(Default)]
struct NotedImages {
    manifests: BTreeMap<String, ManifestFacts>,
    mounted: Mutex<HashSet<PathBuf>>,
    forgotten: Mutex<Vec<String>>,
}

impl Images for NotedImages {
    fn manifest(&self, image: &str) -> std::result::Result<ManifestFacts, String> {
        let known = self.manifests.get(image).cloned();
        known.ok_or_else(|| "the registry does not answer".to_owned())
    }

    fn mount(
        &self,
        image: &str,
        _: usize,
        dir: &Path,
        _: &Path,
    ) -> std::result::Result<(), String> {
        if image.contains("broken") {
            return Err("the layer is altered".to_owned());
        }
        self.mounted.lock().unwrap().insert(dir.to_owned());
        Ok(())
    }

    fn is_mounted(&self, dir: &Path) -> io::Result<bool> {
        Ok(self.mounted.lock().unwrap().contains(dir))
    }

    fn unmount(&self, dir: &Path) -> std::result::Result<(), String> {
        self.mounted.lock().unwrap().remove(dir);
        Ok(())
    }

    fn forget(&self, layers: Vec<String>) -> Vec<String> {
        self.forgotten.lock().unwrap().extend(layers);
        Vec::new()
    }
}

fn images() -> Arc<NotedImages> {
    let manifest = |tables: [Option<&str>; 2]| ManifestFacts {
        digest: "sha256:m".to_owned(),
        layers: tables
            .iter()
            .zip([("l0", "c0"), ("l1", "c1")])
            .map(|(table, (digest, chain))| LayerFacts {
                digest: digest.to_owned(),
                chain: chain.to_owned(),
                table: table.map(str::to_owned),
                is_claimed: false,
            })
            .collect(),
    };
    let manifests = [
        ("oci://h/lazy:1", manifest([Some("t0"), Some("t1")])),
        ("oci://h/liar:1", manifest([Some("other"), Some("t1")])),
        ("oci://h/broken:1", manifest([Some("t0"), Some("t1")])),
        ("oci://h/plain:1", manifest([None, None])),
    ];
    let manifests = manifests.map(|(name, manifest)| (name.to_owned(), manifest));
    Arc::new(NotedImages {
        manifests: manifests.into_iter().collect(),
        ..NotedImages::default()
    })
}

fn labels(image: &str, target: &str, layer: &str) -> Labels {
    let labels = [
        (TARGET, target),
        ("containerd.io/snapshot/cri.image-ref", image),
        ("containerd.io/snapshot/cri.layer-digest", layer),
    ];
    let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
    labels.into_iter().collect()
}

/// Prepares a snapshot as the gRPC service does.
fn prepare(it: &Snapshotter, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
    let named = it.named_layer(&labels);
    it.prepare(key, parent, labels, Kind::Active, named)
}

/// Prepares an image's layers as containerd's unpacker does. Returns for each whether it was
/// committed at once.
fn pull(it: &Snapshotter, image: &str) -> [bool; 2] {
    let mut parent = String::new();
    [("c0", "l0"), ("c1", "l1")].map(|(target, layer)| {
        let key = format!("extract {image} {target}");
        match prepare(it, &key, &parent, labels(image, target, layer)) {
            Err(Error::Exists(name)) => {
                parent = name;
                true
            }
            Ok(_) => {
                let name = format!("{image}/{target}");
                it.commit(&name, &key, Labels::new()).unwrap();
                parent = name;
                false
            }
            Err(error) => panic!("{error}"),
        }
    })
}

fn names_in(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_chain_is_mounted_while_a_container_stands_on_it() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let at = |name: &str| dir.path().join(name);
    let open = || Snapshotter::open(dir.path(), Arc::<NotedImages>::clone(&images)).unwrap();
    let it = open();
    assert_eq!(pull(&it, "h/lazy:1"), [true, true]);
    assert_eq!(images.mounted.lock().unwrap().len(), 0);
    let mounts = it
        .prepare("a", "c1", Labels::new(), Kind::Active, None)
        .unwrap();
    let options = mounts[0].options.join(",");
    let lower = format!("lowerdir={}", at("chains/2").display());
    assert!(options.ends_with(&lower), "{options}");
    let viewed = it
        .prepare("v", "c1", Labels::new(), Kind::View, None)
        .unwrap();
    assert_eq!(viewed[0].source, at("chains/2").display().to_string());
    assert!(matches!(it.remove("c1"), Err(Error::State { .. })));
    it.remove("v").unwrap();
    // A restart must not unmount a chain in use.
    drop(it);
    let it = open();
    assert_eq!(images.mounted.lock().unwrap().len(), 1);
    assert_eq!(it.mounts("a").unwrap(), mounts);
    it.remove("a").unwrap();
    assert_eq!(images.mounted.lock().unwrap().len(), 0);
    it.remove("c1").unwrap();
    it.delete_removed().unwrap();
    assert_eq!(*images.forgotten.lock().unwrap(), ["l1", "t1"]);
    it.remove("c0").unwrap();
    it.delete_removed().unwrap();
    assert_eq!(*images.forgotten.lock().unwrap(), ["l1", "t1", "l0", "t0"]);
    for kept in ["records", "snapshots", "chains", "trash"] {
        assert_eq!(names_in(&at(kept)), 0, "{kept}");
    }
}

#[test]
fn hundreds_of_removed_snapshots_occupy_two_threads() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let it = Arc::new(Snapshotter::open(dir.path(), images).unwrap());
    let deleting = it.deleting.lock().unwrap();
    let started = (0..300).filter(|_| it.starts_deletion()).count();
    assert_eq!(started, 1);
    drop(deleting);
    it.delete_removed().unwrap();
    assert!(it.starts_deletion());
}

#[test]
fn layers_that_no_table_vouches_for_are_unpacked() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let it = Snapshotter::open(dir.path(), images).unwrap();
    for image in ["h/plain:1", "h/unknown:1"] {
        assert_eq!(pull(&it, image), [false, false], "{image}");
    }
    // A mounted layer needs mounted layers below.
    let upper = labels("h/lazy:1", "c1", "l1");
    assert!(prepare(&it, "k", "h/plain:1/c0", upper).is_ok());
    let mounts = it.mounts("k").unwrap();
    assert!(mounts[0].options.join(",").ends_with("snapshots/1/fs"));
}

#[test]
fn an_image_that_claims_the_name_of_another_ones_layer_does_not_pass_for_it() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let it = Snapshotter::open(dir.path(), images).unwrap();
    assert_eq!(pull(&it, "h/lazy:1"), [true, true]);
    // Another containerd namespace pulls the same layer names, with the same contents and then with
    // different contents.
    assert_eq!(pull(&it, "h/lazy:1"), [true, true]);
    assert_eq!(pull(&it, "h/liar:1"), [false, false]);
}

#[test]
fn a_container_whose_layers_cannot_be_mounted_leaves_nothing_behind() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let it = Snapshotter::open(dir.path(), images).unwrap();
    assert_eq!(pull(&it, "h/broken:1"), [true, true]);
    let failed = it.prepare("a", "c1", Labels::new(), Kind::Active, None);
    let failed = failed.unwrap_err().to_string();
    assert_eq!(failed, "oci://h/broken@sha256:m: the layer is altered");
    assert!(matches!(it.stat("a"), Err(Error::NotFound(_))));
    it.clean_up().unwrap();
    for kept in ["snapshots", "chains", "trash"] {
        assert_eq!(names_in(&dir.path().join(kept)), 0, "{kept}");
    }
}

#[test]
fn snapshots_are_committed_listed_updated_and_counted() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let it = Snapshotter::open(dir.path(), images).unwrap();
    let label = |value: &str| Labels::from([("k".to_owned(), value.to_owned())]);
    it.prepare("a", "", label("1"), Kind::Active, None).unwrap();
    fs::write(dir.path().join("snapshots/1/fs/file"), vec![1; 10_000]).unwrap();
    let used = it.usage("a").unwrap();
    assert!(used.inodes == 2 && used.bytes >= 10_000, "{used:?}");
    for refused in [
        it.prepare("b", "a", Labels::new(), Kind::Active, None)
            .err(),
        it.prepare("b", "none", Labels::new(), Kind::View, None)
            .err(),
        it.prepare("a", "", Labels::new(), Kind::Active, None).err(),
        it.prepare("", "", Labels::new(), Kind::Active, None).err(),
        it.commit("n", "none", Labels::new()).err(),
        it.update("a", &label("2"), &["parent".to_owned()]).err(),
    ] {
        assert!(refused.is_some());
    }
    it.commit("n", "a", label("2")).unwrap();
    assert!(matches!(it.mounts("n"), Err(Error::State { .. })));
    assert!(it.usage("n").unwrap().bytes >= 10_000);
    it.prepare("v", "n", Labels::new(), Kind::View, None)
        .unwrap();
    assert_eq!(it.stat("v").unwrap().parent, "n");
    let listed = it
        .list(&["kind==committed,labels.k==2".to_owned()])
        .unwrap();
    assert_eq!(listed.len(), 1);
    let field = ["labels.k".to_owned()];
    let updated = it.update("n", &label("3"), &field).unwrap();
    assert_eq!(updated.snapshot.labels, label("3"));
    let updated = it.update("n", &Labels::new(), &field).unwrap();
    assert_eq!(updated.snapshot.labels, Labels::new());
    // A second process must not use the same directory.
    let second = Snapshotter::open(dir.path(), self::images());
    assert!(matches!(second, Err(Error::Root { .. })));
}

#[test]
fn an_image_with_the_labels_of_another_one_is_unpacked() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let it = Snapshotter::open(dir.path(), images).unwrap();
    // A layer's snapshot name must come from the configuration of the image being pulled.
    let stolen = labels("h/lazy:1", "chain of the author's image", "l0");
    prepare(&it, "a", "", stolen).unwrap();
    let mut both = labels("h/lazy:1", "c0", "l0");
    let theirs = "containerd.io/snapshot/remote/stargz.reference";
    both.insert(theirs.to_owned(), "h/own:1".to_owned());
    prepare(&it, "b", "", both.clone()).unwrap();
    // Restricted to the client's family, the layer is mounted.
    let it = it.with_labels(Some(LabelFamily::Cri));
    assert!(matches!(prepare(&it, "c", "", both), Err(Error::Exists(name)) if name == "c0"));
}

#[test]
fn what_a_killed_process_was_deleting_is_in_the_way_of_nothing() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    let at = |name: &str| dir.path().join(name);
    let open = || {
        let mut opened = None;
        // A program started by a concurrent test holds the lock's descriptor until it execs.
        eventually("no other process has the lock", || {
            opened = Snapshotter::open(dir.path(), Arc::<NotedImages>::clone(&images)).ok();
            opened.is_some()
        });
        opened.unwrap()
    };
    let new = |it: &Snapshotter, key: &str| {
        it.prepare(key, "", Labels::new(), Kind::Active, None)
            .unwrap();
        let record = it.stat(key).unwrap().snapshot;
        fs::write(it.place.files(record.id).join("file"), "x").unwrap();
    };
    // Each process is killed before it deletes the snapshot that it removed.
    for round in 1..4 {
        let it = open();
        new(&it, "a");
        it.remove("a").unwrap();
        assert_eq!(names_in(&at("trash")), 2 * round - 1);
        // Leave a directory without a record, with an ID that is not the next one.
        fs::create_dir_all(at(&format!("snapshots/{}/fs/dir", 100 * round))).unwrap();
    }
    let it = open();
    assert_eq!(names_in(&at("snapshots")), 0);
    new(&it, "a");
    assert_eq!(it.stat("a").unwrap().snapshot.id, Id(301));
    it.clean_up().unwrap();
    assert_eq!((names_in(&at("trash")), names_in(&at("snapshots"))), (0, 1));
}

#[test]
fn what_cannot_be_swept_does_not_end_the_start() {
    let (dir, images) = (memory_dir("snapshotter", MEMORY), images());
    if !require::root() {
        return;
    }
    let stuck = dir.path().join("snapshots/7");
    fs::create_dir_all(&stuck).unwrap();
    let mount = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).arg(&stuck).status();
        assert!(status.unwrap().success());
    };
    // A mountpoint cannot be renamed.
    mount("mount", &["-t", "tmpfs", "none"]);
    let opened = Snapshotter::open(dir.path(), images);
    let cleaned = opened.as_ref().map(Snapshotter::clean_up);
    mount("umount", &[]);
    assert!(cleaned.unwrap().is_err());
    let it = opened.unwrap();
    it.prepare("a", "", Labels::new(), Kind::Active, None)
        .unwrap();
    it.clean_up().unwrap();
    assert!(!stuck.exists());
}
