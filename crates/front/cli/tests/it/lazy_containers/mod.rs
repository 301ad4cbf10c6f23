//! Container images whose layers have tables of contents: parts are fetched on demand.

mod on_disk;
mod soci;

use std::fs;
use std::process::Command;

use forerun::unstable::cache::Digest;
use forerun_testkit::indexed::{IndexedArchive, IndexedOptions, estargz, zstd_chunked};
use forerun_testkit::require;
use forerun_testkit_servers::{Auth, DockerRegistry};
use serde_json::{Value, json};

use crate::common::place::Place;
use crate::common::sum_of;

/// Stores layers in a repository: the files `0.blob` and so on, with the descriptors of
/// `layers.json`.
const PUSH: &str = r#"
import hashlib, json, sys, urllib.request
base, tag = sys.argv[1], sys.argv[2]
def send(method, url, data=None, kind='application/octet-stream'):
    request = urllib.request.Request(url, data=data, method=method, headers={'Content-Type': kind})
    return urllib.request.urlopen(request).headers
def blob(data, digest=None):
    digest = 'sha256:' + hashlib.sha256(data).hexdigest()
    place = send('POST', base + '/blobs/uploads/')['Location']
    send('PUT', place + ('&' if '?' in place else '?') + 'digest=' + digest, data)
    return {'digest': digest, 'size': len(data)}
layers = json.load(open('layers.json'))
for number, layer in enumerate(layers):
    layer.update(blob(open('%d.blob' % number, 'rb').read()))
config = {'mediaType': 'application/vnd.oci.image.config.v1+json', **blob(b'{}')}
kind = 'application/vnd.oci.image.manifest.v1+json'
manifest = {'schemaVersion': 2, 'config': config, 'layers': layers}
send('PUT', base + '/manifests/' + tag, json.dumps(manifest).encode(), kind)
"#;

/// Makes archives of random layers, a layout of them, and the tree in `rootfs` that umoci unpacks.
const LAYERS: &str = r#"
set -e
mkdir -p l0/bin l0/etc l0/lib l1/etc l1/lib/new
head -c 3000000 /dev/urandom > l0/lib/large
seq 1 300000 > l0/lib/text
(head -c 3000 /dev/urandom; head -c 300000 /dev/zero; echo end) > l0/lib/holes
for name in a b c d e f g h; do head -c 20000 /dev/urandom > l0/bin/$name; done
echo root > l0/etc/passwd; ln l0/etc/passwd l0/etc/hard; ln -s passwd l0/etc/link; : > l0/etc/empty
echo gone > l0/etc/gone; mkfifo l0/etc/pipe; mkdir l0/lib/new; echo old > l0/lib/new/old
: > l1/etc/.wh.gone; : > l1/lib/new/.wh..wh..opq; seq 1 50000 > l1/lib/new/file; echo app >> l1/etc/passwd
if [ "$(id -u)" = 0 ]; then mknod l0/etc/null c 1 3; fi
umoci init --layout layout; umoci new --image layout:v
for layer in l0 l1; do
    tar --format=posix --pax-option=delete=atime,delete=ctime --mtime=@1700000000 --sort=name --hard-dereference -C $layer -cf $layer.tar .
    umoci raw add-layer --image layout:v $layer.tar
done
umoci unpack --image layout:v unpacked
"#;

/// A container image of two layers in a registry, and its inputs.
struct Stored {
    registry: DockerRegistry,
    place: Place,
    plain: Vec<Vec<u8>>,
}

impl Stored {
    /// Returns `None` if a program is missing.
    fn new() -> Option<Self> {
        let registry = DockerRegistry::start(Auth::None)?;
        if ["python3", "umoci", "tar"]
            .map(require::program)
            .contains(&None)
            || !require::root()
        {
            return None;
        }
        let place = Place::new();
        let made = Command::new("sh")
            .args(["-c", LAYERS])
            .current_dir(place.path("."))
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        let plain = ["l0.tar", "l1.tar"].map(|name| fs::read(place.path(name)).unwrap());
        Some(Self {
            registry,
            place,
            plain: plain.to_vec(),
        })
    }

    /// Converts each layer to an archive with a table.
    fn indexed(&self, make: impl Fn(&[u8]) -> IndexedArchive) -> Vec<IndexedArchive> {
        self.plain.iter().map(|plain| make(plain)).collect()
    }

    fn push(&self, tag: &str, layers: &[IndexedArchive], has_annotations: bool) -> String {
        let descriptors = layers.iter().zip(0..).map(|(layer, number)| {
            fs::write(self.place.path(&format!("{number}.blob")), &layer.blob).unwrap();
            let annotations = if has_annotations {
                annotations_of(layer)
            } else {
                json!({})
            };
            json!({"mediaType": layer.media_type, "annotations": annotations})
        });
        let descriptors: Vec<Value> = descriptors.collect();
        let text = serde_json::to_vec(&descriptors).unwrap();
        fs::write(self.place.path("layers.json"), text).unwrap();
        let repository = format!("http://{}/v2/app", self.registry.authority());
        let pushed = Command::new("python3")
            .args(["-c", PUSH, &repository, tag])
            .current_dir(self.place.path("."))
            .output()
            .unwrap();
        assert!(pushed.status.success(), "{pushed:?}");
        format!("oci://{}/app:{tag}", self.registry.authority())
    }

    /// Runs a command with an empty cache. Returns its output and the sums over all layers of
    /// fetched and refetched bytes.
    fn run_cold(&self, arguments: &[&str]) -> (String, u64, u64) {
        let _there_may_be_none = fs::remove_dir_all(self.place.path("cache"));
        self.run(arguments)
    }

    fn run(&self, arguments: &[&str]) -> (String, u64, u64) {
        let ran = self
            .place
            .run(&[arguments, &["--stats", "--json"]].concat());
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
        let remotes = ran.remotes();
        assert_eq!(remotes.len(), 2, "{}", ran.stderr);
        let sum = |field| sum_of(&remotes, field);
        let (fetched, again) = (sum("fetched_bytes"), sum("refetched_bytes"));
        (ran.text().to_string(), fetched, again)
    }
}

fn annotations_of(layer: &IndexedArchive) -> Value {
    let annotations = layer.annotations.iter().cloned();
    let annotations = annotations.map(|(name, value)| (name, Value::from(value)));
    Value::Object(annotations.collect())
}

/// Converts a plain archive to one with a table.
type Make = fn(&[u8]) -> IndexedArchive;

fn forms() -> [(&'static str, Make); 2] {
    [
        ("estargz", |plain| {
            estargz(plain, &IndexedOptions::default())
        }),
        ("chunked", |plain| {
            zstd_chunked(plain, &IndexedOptions::default())
        }),
    ]
}

#[test]
fn layers_with_tables_are_read_as_umoci_unpacks_them() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let place = &stored.place;
    for (tag, make) in forms() {
        let layers = stored.indexed(make);
        let name = stored.push(tag, &layers, true);
        let same = place.run(&["diff", &name, "unpacked/rootfs"]);
        assert_eq!(
            (same.code, same.text()),
            (Some(0), ""),
            "{tag}: {}",
            same.stderr
        );
        place
            .run(&["check", "-q", "--require-verified", &name])
            .ok();
        let info = place.run(&["info", "--json", &name]).ok().json();
        let described = info["details"]["lowest first"].as_str().unwrap();
        assert_eq!(
            described
                .matches("each part verified by its table of contents")
                .count(),
            2
        );
        let converted = format!("{tag}.sqsh");
        place
            .run(&["convert", "-q", "--format", "squashfs", &name, &converted])
            .ok();
        let same = place.run(&["diff", &converted, "unpacked/rootfs"]);
        assert_eq!((same.code, same.text()), (Some(0), ""), "{tag} converted");
        if require::fuse() {
            place.run(&["mount", &name, "mnt"]).ok();
            let status = place.run(&["status", "--json"]).ok().mounts();
            let mut by = Vec::new();
            each_layer(&status, &mut |layer| by.push(layer["verified_by"].clone()));
            let text = place.run(&["status"]);
            let shown = text.text().matches("  layer: ").count();
            let same = place.run(&["diff", "mnt", "unpacked/rootfs"]);
            place.run(&["umount", "mnt"]).ok();
            assert_eq!((same.code, same.text()), (Some(0), ""), "{tag} mounted");
            // A whole layer may have arrived and been compared with its digest.
            assert_eq!((by.len(), shown), (2, 2), "{status}");
            assert!(
                by.iter().all(|by| *by == "contents" || *by == "whole"),
                "{status}"
            );
        }
    }
}

#[test]
fn a_small_share_is_fetched_for_one_file_and_nothing_twice() {
    let Some(stored) = Stored::new() else {
        return;
    };
    for (tag, make) in forms() {
        let layers = stored.indexed(make);
        let name = stored.push(tag, &layers, true);
        let all: u64 = layers.iter().map(|layer| layer.blob.len() as u64).sum();
        // Fetches the table of each layer, and the chunk of the file.
        let (text, fetched, again) = stored.run_cold(&["cat", &name, "/etc/passwd"]);
        assert_eq!(text, "app\n");
        assert!(fetched * 4 < all, "{tag}: {fetched} of {all}");
        assert_eq!(again, 0);
        // A prefetched part may have been in flight when the process ended; the next process
        // fetches it.
        let mut left = (0..5).map(|_| {
            let (text, more, again) = stored.run(&["cat", &name, "/etc/passwd"]);
            assert_eq!((text.as_str(), again), ("app\n", 0), "{tag}");
            assert!((fetched + more) * 4 < all, "{tag}: {more} more of {all}");
            more
        });
        assert!(left.any(|more| more == 0), "{tag}: fetched each time");
        let (_, listed, _) = stored.run_cold(&["ls", "-lR", &name]);
        assert!(listed * 4 < all, "{tag}: {listed} of {all}");
        // A map fetches no more than a listing, and covers the parts of all layers.
        let (map, mapped, _) = stored.run_cold(&["map", &name]);
        assert!(mapped <= listed, "{tag}: {mapped} and not {listed}");
        let map: Value = serde_json::from_str(&map).unwrap();
        assert_eq!(map["image_bytes"], all, "{tag}");
        let total = &map["total"];
        assert_eq!(
            (&total["outside_bytes"], &map["exact"]),
            (&json!(0), &json!(true)),
            "{tag}: {map}"
        );
        let stored_bytes = total["stored_bytes"].as_u64().unwrap();
        assert!(
            stored_bytes > 3_000_000 && stored_bytes < all,
            "{tag}: {map}"
        );
        // Everything is fetched once.
        let (_, fetched, again) = stored.run_cold(&["check", &name]);
        assert!(fetched <= all && again == 0, "{tag}: {fetched} of {all}");
        // Without its digest in the manifest, a table is not trusted, so each layer is fetched
        // whole.
        let name = stored.push(&format!("{tag}-plain"), &layers, false);
        let (text, fetched, _) = stored.run_cold(&["cat", &name, "/etc/passwd"]);
        assert_eq!((text.as_str(), fetched), ("app\n", all), "{tag}");
        let info = stored.place.run(&["info", "--json", &name]).ok().json();
        let described = info["details"]["lowest first"].as_str().unwrap();
        // They were verified as a whole, and have indexes since then.
        let by_index = described.matches("each part verified by a kept index");
        assert_eq!(by_index.count(), 2, "{described}");
    }
}

#[test]
fn opening_an_image_evicts_none_of_its_own_layers() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let tables = stored.indexed(|plain| estargz(plain, &IndexedOptions::default()));
    for (tag, has_tables) in [("kept", true), ("kept-plain", false)] {
        let name = stored.push(tag, &tables, has_tables);
        let read = [
            "cat",
            "--cache-limit",
            "1",
            "--fetch-ahead",
            "off",
            &name,
            "/lib/text",
            "/etc/passwd",
        ];
        let (text, fetched, _) = stored.run_cold(&read);
        assert!(text.ends_with("app\n") && fetched > 0, "{tag}");
        // The cache exceeds its limit, but everything in it is in use.
        let (again, fetched, _) = stored.run(&read);
        assert!(again == text, "{tag}");
        assert_eq!(fetched, 0, "{tag}");
        let offline = stored.place.run(&[&read[..], &["--offline"]].concat());
        assert_eq!(offline.code, Some(0), "{tag}: {}", offline.stderr);
        assert!(offline.text() == text, "{tag}");
    }
}

#[test]
fn the_part_before_the_landmark_is_fetched_ahead() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let options = IndexedOptions {
        landmark: Some("./lib/large".to_string()),
        ..IndexedOptions::default()
    };
    let layers = stored.indexed(|plain| estargz(plain, &options));
    let name = stored.push("landmark", &layers, true);
    if !require::fuse() {
        return;
    }
    let place = &stored.place;
    place.run(&["mount", &name, "mnt"]).ok();
    let json: Value = serde_json::from_str(&layers[0].json).unwrap();
    let entries = json["entries"].as_array().unwrap();
    let mark = entries
        .iter()
        .find(|entry| entry["name"] == ".prefetch.landmark")
        .unwrap();
    let before = mark["offset"].as_u64().unwrap();
    assert!(before > 100_000);
    let here = || {
        let mut layers = Vec::new();
        let status = place.run(&["status", "--json"]).ok().mounts();
        each_layer(&status, &mut |layer| {
            layers.push(layer["local_bytes"].as_u64().unwrap())
        });
        layers[0]
    };
    forerun_testkit::eventually("the part before the landmark", || here() >= before);
    place.run(&["umount", "mnt"]).ok();
}

#[test]
fn layers_are_prefetched_and_then_used_without_a_server() {
    let Some(stored) = Stored::new() else {
        return;
    };
    let place = &stored.place;
    let layers = stored.indexed(|plain| zstd_chunked(plain, &IndexedOptions::default()));
    for (tag, has_tables) in [("ahead", true), ("ahead-plain", false)] {
        let name = stored.push(tag, &layers, has_tables);
        let _there_may_be_none = fs::remove_dir_all(place.path("cache"));
        // Fetches the listed parts, and nothing of the layers that the list does not name.
        let digest = Digest::of(&layers[1].blob);
        let list = format!("forerun access list 1\nimage: blob {digest}\nchunk: 65536\n0-0\n");
        fs::write(place.path("list"), list).unwrap();
        let listed = place.run(&["cache", "prefetch", "--prefetch", "list", &name]);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        assert!(
            listed.stderr.contains("are in the cache"),
            "{}",
            listed.stderr
        );
        let here = |place: &Place| -> u64 {
            let entries = place.run(&["cache", "ls", "--json"]).ok().json();
            let entries = entries.as_array().unwrap().iter();
            entries
                .map(|entry| entry["local_bytes"].as_u64().unwrap())
                .sum()
        };
        let some = here(place);
        assert!(some < layers[1].blob.len() as u64 + 600_000, "{some}");
        place.run(&["cache", "prefetch", "-q", &name]).ok();
        let all: u64 = layers.iter().map(|layer| layer.blob.len() as u64).sum();
        assert_eq!(here(place), all);
        let same = place.run(&["diff", "--offline", &name, "unpacked/rootfs"]);
        assert_eq!((same.code, same.text()), (Some(0), ""), "{}", same.stderr);
    }
}

/// Visits the layers of all mounts in the output of `status`.
fn each_layer(value: &Value, visit: &mut dyn FnMut(&Value)) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| each_layer(value, visit)),
        Value::Object(fields) => match fields.get("remote_layers").and_then(Value::as_array) {
            Some(layers) => layers.iter().for_each(visit),
            None => fields.values().for_each(|value| each_layer(value, visit)),
        },
        _ => {}
    }
}

#[test]
fn layers_that_lie_serve_nothing_wrong_and_name_the_layer() {
    let Some(stored) = Stored::new() else {
        return;
    };
    for (tag, make) in forms() {
        let layers = stored.indexed(make);
        for (number, at) in [
            layers[0].data_len / 3,
            layers[0].data_len / 2,
            layers[0].data_len + 30,
        ]
        .into_iter()
        .enumerate()
        {
            let mut altered = layers.clone();
            altered[0].blob[at] ^= 4;
            let name = stored.push(&format!("{tag}-{number}"), &altered, true);
            let out = format!("out-{tag}-{number}");
            let ran = stored.place.run(&["extract", "-q", "-C", &out, &name]);
            assert_ne!(ran.code, Some(0), "{tag} {at}");
            assert!(ran.stderr.contains("layer sha256:"), "{}", ran.stderr);
            assert!(ran.stderr.contains("0x"), "{}", ran.stderr);
            // Each written file is correct, or truncated at the damage.
            let Ok(entries) = fs::read_dir(stored.place.path(&out).join("lib")) else {
                continue;
            };
            for entry in entries.map(|entry| entry.unwrap()) {
                let expected = stored
                    .place
                    .path("unpacked/rootfs/lib")
                    .join(entry.file_name());
                if entry.path().is_file() {
                    let (found, expected) =
                        (fs::read(entry.path()).unwrap(), fs::read(expected).unwrap());
                    assert!(expected.starts_with(&found), "{tag}: {:?}", entry.path());
                }
            }
        }
    }
}

#[test]
fn a_table_beyond_the_limits_leaves_the_layer_to_be_fetched_whole() {
    let Some(stored) = Stored::new() else {
        return;
    };
    // A chunk that is longer than a block may be.
    let place = &stored.place;
    fs::create_dir(place.path("long")).unwrap();
    fs::write(place.path("long/file"), vec![7; 20 << 20]).unwrap();
    let made = Command::new("tar")
        .args(["-C", "long", "-cf", "long.tar", "."])
        .current_dir(place.path("."))
        .status();
    assert!(made.unwrap().success());
    let plain = fs::read(place.path("long.tar")).unwrap();
    let options = IndexedOptions {
        chunk_len: 32 << 20,
        ..IndexedOptions::default()
    };
    for (tag, layer) in [
        ("long-gzip", estargz(&plain, &options)),
        ("long-zstd", zstd_chunked(&plain, &options)),
    ] {
        let name = stored.push(tag, &[layer], true);
        place.run(&["check", "-q", &name]).ok();
        let info = place.run(&["info", "--json", &name]).ok().json();
        let described = info["details"]["lowest first"].as_str().unwrap();
        assert!(described.contains("verified as a whole"), "{described}");
    }
}
