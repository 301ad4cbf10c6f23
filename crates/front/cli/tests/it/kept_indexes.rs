//! Container images whose layers have no tables: fetched whole once, and then read with the indexes
//! that the cache keeps.

use std::fs;

use forerun_testkit::require;
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy};
use forerun_testkit_servers::{Auth, DockerRegistry};
use serde_json::Value;

use crate::common::place::{Place, noise};
use crate::common::sum_of;
use crate::containers::{STORE, run};

/// A container image behind a proxy: a gzip layer, an uncompressed one and a Zstandard one.
struct Stored {
    place: Place,
    proxy: FaultProxy,
    name: String,
    all: u64,
    _registry: DockerRegistry,
}

#[derive(Debug)]
struct Cost {
    fetched: u64,
    again: u64,
    requests: u64,
}

impl Stored {
    /// Returns `None` if a program is missing.
    fn new() -> Option<Self> {
        let registry = DockerRegistry::start(Auth::None)?;
        let programs = ["python3", "zstd"].map(require::program);
        if programs.contains(&None) {
            return None;
        }
        let place = Place::new();
        let bytes = noise(12 << 20);
        let write = |name: &str, part: std::ops::Range<usize>| {
            let path = place.path(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &bytes[part]).unwrap();
        };
        write("layer0/lib/a", 0..3 << 20);
        write("layer0/lib/b", 3 << 20..6 << 20);
        write("layer0/lib/c", 6 << 20..8 << 20);
        write("layer0/lib/small", 100..200);
        write("layer1/opt/a", 8 << 20..10 << 20);
        write("layer1/opt/b", 10 << 20..12 << 20);
        write("layer1/opt/small", 300..400);
        write("layer2/etc/small", 500..600);
        let repository = format!("http://{}/v2/app", registry.authority());
        assert!(run(
            "python3",
            &["-c", STORE, &repository],
            &place.path(".")
        ));
        let proxy = FaultProxy::start(&registry.authority());
        let name = format!("oci://{}/app:1", proxy.authority());
        let mut stored = Self {
            place,
            proxy,
            name,
            all: 0,
            _registry: registry,
        };
        let (_, cost) = stored.run(&["cat", &stored.name, "/etc/small"]);
        stored.all = cost.fetched;
        assert!((12 << 20..13 << 20).contains(&stored.all), "{cost:?}");
        Some(stored)
    }

    /// Runs a command. Returns its output and its cost for all layers.
    fn run(&self, arguments: &[&str]) -> (Vec<u8>, Cost) {
        let ran = self
            .place
            .run(&[arguments, &["--stats", "--json"]].concat());
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        let remotes = ran.remotes();
        assert_eq!(remotes.len(), 3, "{}", ran.stderr);
        let sum = |field| sum_of(&remotes, field);
        let cost = Cost {
            fetched: sum("fetched_bytes"),
            again: sum("refetched_bytes"),
            requests: sum("requests"),
        };
        (ran.stdout, cost)
    }

    /// Drops the layers from the cache, and keeps their indexes. Layers in use are kept, and the
    /// process of an ended mount uses them until it has flushed them, so this waits.
    fn drop_layers(&self) {
        let gc = ["cache", "gc", "--json", "--to", "0"];
        forerun_testkit::eventually("no layer is in use", || {
            self.place.run(&gc).ok().json()["in_use"] == 0
        });
    }
}

fn with_index<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [command, &["--layer-index", "index"]].concat()
}

#[test]
fn what_the_cache_dropped_is_fetched_again_part_by_part() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (name, all) = (&*stored.name, stored.all);
    let (_, cost) = stored.run(&["ls", "-lR", name]);
    assert_eq!(cost.requests, 0, "all is here: {cost:?}");
    stored.drop_layers();
    // The tree is known without any byte of the layers.
    let (_, cost) = stored.run(&["ls", "-lR", name]);
    assert_eq!(cost.requests, 0, "{cost:?}");
    // The locations of its files are known too, in all three layers.
    let (map, cost) = stored.run(&["map", name]);
    assert_eq!(cost.requests, 0, "{cost:?}");
    let map: Value = serde_json::from_slice(&map).unwrap();
    assert_eq!(map["image_bytes"], all);
    let bytes = |name: &str| map["total"][name].as_u64().unwrap();
    assert_eq!((bytes("files"), bytes("outside_bytes")), (8, 0), "{map}");
    assert!(
        bytes("stored_bytes") > 12_500_000 && bytes("stored_bytes") <= all,
        "{map}"
    );
    let kinds = map["kinds"].as_array().unwrap().iter();
    let sum: u64 = kinds.map(|kind| kind["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, all);
    let mut fetched = 0;
    for (path, bytes) in [
        ("/opt/small", 300..400),
        ("/etc/small", 500..600),
        ("/lib/small", 100..200),
    ] {
        let (read, cost) = stored.run(&["cat", name, path]);
        assert_eq!(read, &noise(600)[bytes], "{path}");
        assert_eq!(cost.again, 0);
        fetched += cost.fetched;
    }
    assert!(fetched * 2 < all, "{fetched} of {all}");
    let info = stored.place.run(&["info", "--json", name]).ok().json();
    let described = info["details"]["lowest first"].as_str().unwrap();
    let by_index = described.matches("each part verified by a kept index");
    assert_eq!(by_index.count(), 3, "{described}");
    // All bytes are right, and are fetched once.
    let (_, cost) = stored.run(&["check", "--require-verified", name]);
    assert_eq!(cost.again, 0);
    assert!(fetched + cost.fetched <= all, "{cost:?} of {all}");
    let read = stored.place.run(&["cat", name, "/opt/b"]).ok();
    assert!(read.stdout == noise(12 << 20)[10 << 20..]);
}

#[test]
fn bytes_that_are_not_those_of_the_index_are_an_error_and_not_kept() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let name = &*stored.name;
    stored.drop_layers();
    let wrong = Fault::WrongBytes { offset: 0, len: 9 };
    stored.proxy.faults(move |request| {
        let is_layer = request.path.contains("/blobs/");
        is_layer.then_some(wrong.clone())
    });
    let ran = stored
        .place
        .run(&["cat", "--retries", "1", "--timeout", "2", name, "/lib/b"]);
    assert_ne!(ran.code, Some(0));
    assert!(ran.stderr.contains("sha256:"), "{}", ran.stderr);
    // Files that start before the altered bytes may be printed, but no wrong byte.
    assert!(noise(6 << 20)[3 << 20..].starts_with(&ran.stdout));
    stored.proxy.clear_faults();
    let read = stored.place.run(&["cat", name, "/lib/b"]).ok();
    assert!(read.stdout == noise(6 << 20)[3 << 20..]);
}

#[test]
fn a_layer_that_is_not_what_it_should_be_leaves_no_index() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let name = &*stored.name;
    let cache = stored.place.path("cache");
    // A failed process may have left files without a name.
    let indexes = || {
        let files = fs::read_dir(cache.join("forerun/v1/indexes")).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with('.')).count()
    };
    assert_eq!(indexes(), 6, "two for each layer");
    fs::remove_dir_all(&cache).unwrap();
    // Inside a file, so that the archive can be read and an index made.
    let wrong = Fault::WrongBytes {
        offset: 1_000_000,
        len: 1,
    };
    stored.proxy.faults(move |request| {
        let is_layer = request.path.contains("/blobs/") && request.range.is_some();
        is_layer.then_some(wrong.clone())
    });
    for _ in 0..2 {
        let ran = stored.place.run(&["ls", "--retries", "1", name]);
        assert_ne!(ran.code, Some(0));
        assert_eq!(ran.text(), "");
        assert!(ran.stderr.contains("sha256:"), "{}", ran.stderr);
    }
    // The index of the layer that is too short to be altered.
    assert!(indexes() <= 2, "{}", indexes());
    stored.proxy.clear_faults();
    // The next opening finds and drops the wrong bytes of the remaining layers.
    let mut openings = (0..3).map(|_| stored.place.run(&["ls", name]).code);
    assert!(openings.any(|code| code == Some(0)));
    assert_eq!(indexes(), 6);
}

#[test]
fn a_list_of_what_was_read_is_prefetched_layer_by_layer() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, name) = (&stored.place, &*stored.name);
    if !require::fuse() {
        return;
    }
    fs::remove_dir_all(place.path("cache")).unwrap();
    // Opening reads the whole layers, which is not recorded.
    place.run(&["mount", "--record", "list", name, "mnt"]).ok();
    let read = fs::read(place.path("mnt/lib/c")).unwrap();
    assert!(read == noise(8 << 20)[6 << 20..]);
    let read = fs::read(place.path("mnt/opt/small")).unwrap();
    assert_eq!(read, &noise(400)[300..]);
    place.run(&["umount", "mnt"]).ok();
    // The server of the mount writes the list when it exits, after the mount is gone.
    let recorded = || fs::read_to_string(place.path("list")).unwrap_or_default();
    forerun_testkit::eventually("a list for each layer", || {
        recorded().matches("image: blob sha256:").count() == 3
    });
    let list = recorded();
    stored.drop_layers();
    place
        .run(&["mount", "--prefetch", "list", name, "mnt"])
        .ok();
    let fetched = || {
        let layers = place.run(&["status", "-q", "--json"]).ok().mounts();
        let layers = layers[0]["remote_layers"].as_array().unwrap();
        let local = |layer: &Value| layer["local_bytes"].as_u64().unwrap();
        layers.iter().map(local).sum::<u64>()
    };
    forerun_testkit::eventually("what the list names", || fetched() > 2 << 20);
    // The listed part is cached, and the rest was not fetched.
    stored.proxy.faults(|_| Some(Fault::ResetBeforeHead));
    let read = fs::read(place.path("mnt/lib/c")).unwrap();
    assert!(read == noise(8 << 20)[6 << 20..]);
    let read = fs::read(place.path("mnt/opt/small")).unwrap();
    assert_eq!(read, &noise(400)[300..]);
    let all = fetched();
    place.run(&["umount", "mnt"]).ok();
    assert!(all * 2 < stored.all, "{all} of {}", stored.all);
    // A list of other layers has no effect here.
    stored.proxy.clear_faults();
    stored.drop_layers();
    let other = list.replace("image: blob sha256:", "image: blob sha256:0");
    fs::write(place.path("other"), other).unwrap();
    let (_, cost) = stored.run(&["ls", "--prefetch", "other", name]);
    assert_eq!(cost.requests, 0, "{cost:?}");
    let ran = place.run(&["ls", "--prefetch", "layer0/lib/small", name]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

#[test]
fn an_index_in_a_file_opens_the_image_on_another_machine() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, name, all) = (&stored.place, &*stored.name, stored.all);
    place.run(&["index", "-q", name, "index"]).ok();
    let bytes = fs::read(place.path("index")).unwrap();
    let share = u64::try_from(bytes.len()).unwrap() * 100;
    assert!(share <= all, "{} of {all}", bytes.len());
    assert_eq!(
        place.run(&["index", name, "index"]).code,
        Some(5),
        "is there"
    );
    // Another machine.
    fs::remove_dir_all(place.path("cache")).unwrap();
    let (_, cost) = stored.run(&with_index(&["ls", "-lR", name]));
    assert_eq!(cost.requests, 0, "{cost:?}");
    let (read, cost) = stored.run(&with_index(&["cat", name, "/opt/small"]));
    assert_eq!(read, &noise(400)[300..]);
    assert!(cost.fetched * 4 < all, "{cost:?}");
    let info = place
        .run(&with_index(&["info", "--json", name]))
        .ok()
        .json();
    let described = info["details"]["lowest first"].as_str().unwrap();
    let by_index = described.matches("each part compared with an index that forerun did not make");
    assert_eq!(by_index.count(), 3, "{described}");
    // Everything is fetched once and compared with the digests of the layers. After that the file
    // is no longer needed.
    let (_, rest) = stored.run(&with_index(&["check", name]));
    assert!(cost.fetched + rest.fetched <= all, "{rest:?}");
    let (_, cost) = stored.run(&["check", "--require-verified", name]);
    assert_eq!((cost.fetched, cost.again), (0, 0));
}

#[test]
fn indexes_and_lists_beside_an_image_are_used_on_another_machine() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, name, all) = (&stored.place, &*stored.name, stored.all);
    place.run(&["cat", "--record", "list", name, "/lib/c"]).ok();
    // The second artifact replaces the first.
    place.run(&["index", "-q", "--push", name]).ok();
    let pushed = place.run(&["index", "--push", "--prefetch", "list", name]);
    assert_eq!(pushed.code, Some(0), "{}", pushed.stderr);
    let said = "3 indexes and 1 access list are stored";
    assert!(pushed.stderr.contains(said), "{}", pushed.stderr);
    // Another machine. Prefetching fetches at most the part that the list names.
    fs::remove_dir_all(place.path("cache")).unwrap();
    let (_, listed) = stored.run(&["ls", "-lR", "--referrers", name]);
    assert!(listed.fetched * 3 < all, "{listed:?}");
    let (read, cost) = stored.run(&["cat", "--referrers", name, "/opt/small"]);
    assert_eq!(read, &noise(400)[300..]);
    assert!((listed.fetched + cost.fetched) * 2 < all, "{cost:?}");
    let ran = place.run(&["info", "--json", "--referrers", name]);
    let info = ran.ok().json();
    let described = info["details"]["lowest first"].as_str().unwrap();
    let by_index = described.matches("each part compared with an index that forerun did not make");
    assert_eq!(by_index.count(), 3, "{described}");
    // The artifact is not used without the option. With `--require-verified` only the list is used,
    // because it says nothing about contents.
    for arguments in [
        &["ls", name][..],
        &["ls", "--referrers", "--require-verified", name],
    ] {
        fs::remove_dir_all(place.path("cache")).unwrap();
        let (_, cost) = stored.run(arguments);
        assert_eq!(cost.fetched, all, "{arguments:?}");
    }
    // An image without an artifact, and a registry that does not answer the query.
    fs::remove_dir_all(place.path("cache")).unwrap();
    stored.proxy.faults(|request| {
        let is_beside = request.path.contains("sha256-") || request.path.contains("/referrers/");
        let fault = Fault::Status {
            code: 404,
            retry_after: None,
        };
        is_beside.then_some(fault)
    });
    let (_, cost) = stored.run(&["ls", "--referrers", name]);
    assert_eq!(cost.fetched, all, "nothing beside it");
    for wrong in [
        &["index", "--push", "image"][..],
        &["index", name],
        &["index", "--push", "--offline", name],
        &["index", "--push", "--referrers", name],
    ] {
        let ran = place.run(wrong);
        assert_eq!(ran.code, Some(2), "{wrong:?}: {}", ran.stderr);
    }
}

#[test]
fn an_index_that_lies_serves_no_byte_that_it_does_not_agree_with() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let (place, name) = (&stored.place, &*stored.name);
    place.run(&["index", "-q", name, "index"]).ok();
    fs::remove_dir_all(place.path("cache")).unwrap();
    // A server whose bytes differ from the index.
    stored.proxy.faults(|request| {
        let is_layer = request.path.contains("/blobs/");
        is_layer.then_some(Fault::WrongBytes { offset: 0, len: 9 })
    });
    let read = ["cat", "--retries", "1", "--timeout", "2", name, "/lib/b"];
    let ran = place.run(&with_index(&read));
    assert_ne!(ran.code, Some(0));
    assert!(noise(6 << 20)[3 << 20..].starts_with(&ran.stdout));
    stored.proxy.clear_faults();
    // A damaged file, a file without indexes, and an untrusted file.
    let mut bytes = fs::read(place.path("index")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(place.path("index"), bytes).unwrap();
    let ran = place.run(&with_index(&["ls", name]));
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.contains("it is damaged"), "{}", ran.stderr);
    fs::write(place.path("index"), "other").unwrap();
    let ran = place.run(&with_index(&["ls", name]));
    assert!(ran.stderr.contains("not an index file"), "{}", ran.stderr);
    let ran = place.run(&with_index(&["ls", "--require-verified", name]));
    assert_eq!(ran.code, Some(2));
    let ran = place.run(&["index", "image", "other"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}
