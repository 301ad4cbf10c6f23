//! Container images in a registry: pushed layer by layer as other tools do, then read, mounted and
//! converted.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun_testkit::require;
use forerun_testkit_servers::{Auth, DockerRegistry};

use crate::common::place::Place;

/// Makes a container image of the directories `layer0` and so on, with every compression that
/// layers have. Pushes it to a repository, or writes a layout, an archive of it, and an archive as
/// `docker save` does.
pub const STORE: &str = r#"
import gzip, hashlib, io, json, os, subprocess, sys, tarfile, urllib.request
base, blobs, layers, plain = sys.argv[1], {}, [], []
def blob(data):
    digest = 'sha256:' + hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return {'digest': digest, 'size': len(data)}
zstd = lambda data: subprocess.run(['zstd', '-cq'], input=data, stdout=subprocess.PIPE, check=True).stdout
forms = [('+gzip', gzip.compress), ('', bytes), ('+zstd', zstd)]
for number in range(3):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode='w', format=tarfile.PAX_FORMAT) as archive:
        archive.add('layer%d' % number, '.')
    suffix, compress = forms[number]
    plain.append(stream.getvalue())
    layer = blob(compress(stream.getvalue()))
    layers.append({'mediaType': 'application/vnd.oci.image.layer.v1.tar' + suffix, **layer})
config = {'mediaType': 'application/vnd.oci.image.config.v1+json', **blob(b'{}')}
kind = 'application/vnd.oci.image.manifest.v1+json'
manifest = json.dumps({'schemaVersion': 2, 'config': config, 'layers': layers}).encode()
def send(method, url, data=None, kind='application/octet-stream'):
    request = urllib.request.Request(url, data=data, method=method, headers={'Content-Type': kind})
    return urllib.request.urlopen(request).headers
def push():
    for digest, data in blobs.items():
        place = send('POST', base + '/blobs/uploads/')['Location']
        send('PUT', place + ('&' if '?' in place else '?') + 'digest=' + digest, data)
    send('PUT', base + '/manifests/1', manifest, kind)
def write(name, files):
    with tarfile.open(name + '.tar', 'w') as archive:
        for path, data in files.items():
            os.makedirs(os.path.dirname(os.path.join(name, path)), exist_ok=True)
            open(os.path.join(name, path), 'wb').write(data)
            archive.add(os.path.join(name, path), path)
if base.startswith('http'):
    push()
else:
    entry = {'mediaType': kind, **blob(manifest), 'annotations': {'org.opencontainers.image.ref.name': '1'}}
    files = {'blobs/sha256/' + digest[7:]: data for digest, data in blobs.items()}
    files['index.json'] = json.dumps({'schemaVersion': 2, 'manifests': [entry]}).encode()
    write('layout', files)
    ids = ['sha256:' + hashlib.sha256(layer).hexdigest() for layer in plain]
    saved = {'%d/layer.tar' % number: layer for number, layer in enumerate(plain)}
    saved['config.json'] = json.dumps({'rootfs': {'diff_ids': ids}}).encode()
    image = {'Config': 'config.json', 'RepoTags': ['app:1'], 'Layers': ['%d/layer.tar' % number for number in range(3)]}
    saved['manifest.json'] = json.dumps([image]).encode()
    write('saved', saved)
"#;

/// Makes random container images; the script describes them.
pub const RANDOM: &str = include_str!("../images/containers.py");

/// Makes three layers, and the merged tree in `expected`.
pub fn make_layers(place: &Place) {
    let write = |name: &str, bytes: &[u8]| {
        let path = place.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let large: Vec<u8> = (0..400_000_u32).map(|at| (at / 777 % 251) as u8).collect();
    write("layer0/etc/passwd", b"root\n");
    write("layer0/etc/gone", b"gone\n");
    write("layer0/lib/old", b"old\n");
    write("layer0/lib/large", &large);
    write("layer1/etc/.wh.gone", b"");
    write("layer1/lib/.wh..wh..opq", b"");
    write("layer1/lib/new", &large);
    write("layer2/etc/passwd", b"root\napp\n");
    write("layer2/bin/tool", &large);
    write("expected/etc/passwd", b"root\napp\n");
    write("expected/lib/new", &large);
    write("expected/bin/tool", &large);
}

pub fn run(program: &str, arguments: &[&str], dir: &Path) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(dir)
        .status()
        .unwrap()
        .success()
}

/// Asserts that mounting several layers with the kernel is refused, with the reason.
#[track_caller]
fn assert_only_fuse_mounts(place: &Place, image: &[&str]) {
    let told = place.run(&[&["mount", "--via", "kernel"], image, &["mnt"]].concat());
    assert_eq!(told.code, Some(2), "{}", told.stderr);
    let is_named = told
        .stderr
        .contains("and the kernel's drivers do not merge layers")
        || told
            .stderr
            .contains("--layer has no meaning for a mount by the kernel")
        || told.stderr.contains("the image is at a server");
    assert!(is_named, "{}", told.stderr);
    assert!(told.stderr.contains("--via fuse"), "{}", told.stderr);
}

/// Asserts that `forerun status` lists each of the three layers of a mounted image, and their sum.
#[track_caller]
fn assert_status_counts_layers(place: &Place, name: &str) {
    if !require::fuse() {
        return;
    }
    place.run(&["mount", name, "mnt"]).ok();
    let status = place.run(&["status", "-q", "--json"]).ok().mounts();
    place.run(&["umount", "mnt"]).ok();
    let layers = status[0]["remote_layers"].as_array().unwrap();
    let bytes = layers.iter().map(|layer| layer["bytes"].as_u64().unwrap());
    assert_eq!((layers.len(), bytes.clone().min() > Some(0)), (3, true));
    assert_eq!(status[0]["remote"]["bytes"], bytes.sum::<u64>());
    assert_eq!(status[0]["remote"]["complete"], true);
}

/// Asserts that the lowest of three layers can be shown alone, and that an image without layers is
/// refused.
#[track_caller]
fn assert_lowest_layers_are_shown(place: &Place, name: &str) {
    let cat =
        |count: &str, name: &str| place.run(&["cat", "--first-layers", count, name, "/etc/passwd"]);
    for (count, expected) in [("1", "root\n"), ("2", "root\n"), ("3", "root\napp\n")] {
        assert_eq!(cat(count, name).ok().text(), expected);
    }
    let told = format!("forerun: {name}: --first-layers 4: the image has 3 layers");
    cat("4", name).fails(2, &told);
    let told =
        "forerun: image: --first-layers is for container images, and this image has no layers";
    cat("1", "image").fails(2, told);
    assert_eq!(cat("0", name).code, Some(2));
}

#[test]
fn a_container_image_is_read_as_the_container_has_it() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    if require::program("python3").is_none() || require::program("zstd").is_none() {
        return;
    }
    let place = Place::new();
    make_layers(&place);
    let repository = format!("http://{}/v2/app", registry.authority());
    assert!(run(
        "python3",
        &["-c", STORE, &repository],
        &place.path(".")
    ));
    let name = format!("oci://{}/app:1", registry.authority());
    let listed = place.run(&["ls", "-R", &name]).ok();
    let expected = "/:\nbin\netc\nlib\n\n/bin:\ntool\n\n/etc:\npasswd\n\n/lib:\nnew\n";
    assert_eq!(listed.text(), expected);
    assert_eq!(
        place.run(&["cat", &name, "/etc/passwd"]).ok().text(),
        "root\napp\n"
    );
    place
        .run(&["check", "-q", "--require-verified", &name])
        .ok();
    place.run(&["extract", "-q", "-C", "out", &name]).ok();
    assert!(run("diff", &["-r", "expected", "out"], &place.path(".")));
    assert_only_fuse_mounts(&place, &[&name]);
    assert_status_counts_layers(&place, &name);
    // The large files of three layers are converted in one pass, without a tree on disk.
    place
        .run(&["convert", "-q", "--format", "squashfs", &name, "app.sqsh"])
        .ok();
    place.run(&["extract", "-q", "-C", "out2", "app.sqsh"]).ok();
    assert!(run("diff", &["-r", "expected", "out2"], &place.path(".")));
    let info = place.run(&["info", "--json", &name]).ok().json();
    assert_eq!(
        (&info["format"], &info["details"]["layers"]),
        (&"layers".into(), &"3".into())
    );
    assert_lowest_layers_are_shown(&place, &name);
    // Each layer needs open cache files, so more files may be open than the limit allows.
    let limited = format!("ulimit -S -n 30; exec \"$0\" ls {name} > listed");
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited, env!("CARGO_BIN_EXE_forerun")]);
    shell
        .current_dir(place.path("."))
        .env("XDG_CACHE_HOME", place.path("cache"));
    assert!(shell.status().unwrap().success());
    // Commands for a single image explain how to name a layer.
    let scanned = place.run(&["scan", &name]);
    assert_eq!(scanned.code, Some(2), "{}", scanned.stderr);
    assert!(
        scanned.stderr.contains("oci://HOST/REPOSITORY@sha256:"),
        "{}",
        scanned.stderr
    );
    if require::fuse() {
        place.run(&["mount", &name, "mnt"]).ok();
        let same = run("diff", &["-r", "expected", "mnt"], &place.path("."));
        place.run(&["umount", "mnt"]).ok();
        assert!(same);
    }
    // The cache has the layers, and the indexes of the compressed ones.
    let fetched = |arguments: &[&str]| {
        let ran = place.run(&[arguments, &["--stats", "--json"]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stderr.matches("\"fetched_bytes\":0").count()
    };
    assert_eq!(fetched(&["ls", &name]), 3, "one line for each layer");
}

#[test]
fn container_images_on_disk_are_read_as_the_container_has_them() {
    if require::program("python3").is_none() || require::program("zstd").is_none() {
        return;
    }
    let place = Place::new();
    make_layers(&place);
    assert!(run("python3", &["-c", STORE, "disk"], &place.path(".")));
    assert!(run("gzip", &["-k", "layout.tar"], &place.path(".")));
    let names = [
        "oci-layout:layout",
        "oci-layout:layout:1",
        "oci-archive:layout.tar:1",
        "oci-archive:layout.tar.gz",
        "docker-archive:saved.tar",
        "docker-archive:saved.tar:app:1",
    ];
    for name in names {
        let out = format!("out-{}", name.replace([':', '/'], "-"));
        place.run(&["extract", "-q", "-C", &out, name]).ok();
        assert!(
            run("diff", &["-r", "expected", &out], &place.path(".")),
            "{name}"
        );
        place.run(&["check", "-q", name]).ok();
    }
    if require::fuse() {
        place.run(&["mount", "oci-layout:layout", "mnt"]).ok();
        let same = run("diff", &["-r", "expected", "mnt"], &place.path("."));
        place.run(&["umount", "mnt"]).ok();
        assert!(same);
    }
    // A layer on top of a container image.
    fs::create_dir(place.path("more")).unwrap();
    fs::write(place.path("more/file"), "more").unwrap();
    place.run(&["pack", "-q", "more", "more.sqsh"]).ok();
    let layered = [
        "cat",
        "--layer",
        "oci-layout:layout",
        "--layer",
        "more.sqsh",
        "file",
        "etc/passwd",
    ];
    assert_eq!(place.run(&layered).ok().text(), "moreroot\napp\n");
    assert_only_fuse_mounts(&place, &["oci-layout:layout"]);
    assert_only_fuse_mounts(&place, &["docker-archive:saved.tar"]);
    assert_only_fuse_mounts(&place, &layered[1..5]);
}

#[test]
fn mistakes_with_container_images_on_disk_are_told() {
    if require::program("python3").is_none() || require::program("zstd").is_none() {
        return;
    }
    let place = Place::new();
    make_layers(&place);
    assert!(run("python3", &["-c", STORE, "disk"], &place.path(".")));
    let told = |name: &str| {
        let ran = place.run(&["ls", name]);
        (ran.code, ran.stderr)
    };
    let (code, text) = told("oci-layout:layout:2");
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("no image is named \"2\"; there are 1"),
        "{text}"
    );
    let (code, text) = told("docker-archive:saved.tar:other");
    assert_eq!(code, Some(1), "{text}");
    let expected = "no image is named \"other\"; there are app:1";
    assert!(text.contains(expected), "{text}");
    let (code, text) = told("oci-layout:nowhere");
    assert_eq!(code, Some(4), "{text}");
    let (code, text) = told("docker-archive:layout.tar");
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("manifest.json"), "{text}");
    // Like `docker save` since version 25: a layout with compressed layers, and a manifest.json.
    let docker = "import json, os; o = os.path; m = json.load(open('layout/index.json'))['manifests'][0]['digest'][7:]; \
        b = 'blobs/sha256/'; l = json.load(open('layout/' + b + m))['layers']; \
        open('layout/manifest.json', 'w').write(json.dumps([{'Config': 'config.json', 'RepoTags': ['app:1'], \
        'Layers': [b + e['digest'][7:] for e in l]}])); \
        open('layout/config.json', 'wb').write(open('saved/config.json', 'rb').read())";
    assert!(run("python3", &["-c", docker], &place.path(".")));
    let archive = ["-cf", "docker.tar", "-C", "layout", "."];
    assert!(run("tar", &archive, &place.path(".")));
    let (code, text) = told("docker-archive:docker.tar");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("is compressed with gzip"), "{text}");
    assert!(text.contains("oci-archive:"), "{text}");
    assert_eq!(told("oci-archive:docker.tar").0, Some(0));
    // Alters each blob in turn: bytes with another digest are never used.
    for blob in fs::read_dir(place.path("layout/blobs/sha256")).unwrap() {
        let blob = blob.unwrap().path();
        let bytes = fs::read(&blob).unwrap();
        // The configuration is not read.
        if bytes == b"{}" {
            continue;
        }
        let mut altered = bytes.clone();
        altered[bytes.len() / 2] ^= 1;
        fs::write(&blob, &altered).unwrap();
        let (code, text) = told("oci-layout:layout");
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("digest"), "{text}");
        fs::write(&blob, bytes).unwrap();
    }
    assert_eq!(told("oci-layout:layout").0, Some(0));
}

#[test]
fn random_container_images_are_as_umoci_unpacks_them() {
    let needed = ["python3", "umoci"].map(require::program);
    if needed.contains(&None) || !require::root() {
        return;
    }
    let place = Place::new();
    assert!(run("python3", &["-c", RANDOM, "20"], &place.path(".")));
    for number in 0..20 {
        let unpack =
            format!("umoci unpack --image img{number}:v unpacked{number} > umoci.log 2>&1");
        assert!(run("sh", &["-c", &unpack], &place.path(".")));
        let (layout, root) = (
            format!("oci-layout:img{number}"),
            format!("unpacked{number}/rootfs"),
        );
        let compared = place.run(&["diff", &layout, &root]);
        assert_eq!(
            (compared.code, compared.text()),
            (Some(0), ""),
            "image {number}"
        );
        let image = format!("image{number}.sqsh");
        place
            .run(&["convert", "-q", "--format", "squashfs", &layout, &image])
            .ok();
        let compared = place.run(&["diff", &image, &root]);
        assert_eq!(
            (compared.code, compared.text()),
            (Some(0), ""),
            "image {number} converted"
        );
    }
}

/// Makes a layout of an image of two EROFS layers as containerd 2.3 stores them, compressed or not.
const EROFS: &str = r#"
import hashlib, json, os
os.makedirs('erofs/blobs/sha256')
def put(data):
    digest = hashlib.sha256(data).hexdigest()
    open('erofs/blobs/sha256/' + digest, 'wb').write(data)
    return {'digest': 'sha256:' + digest, 'size': len(data)}
read = lambda name: open(name, 'rb').read()
layers = [
    {'mediaType': 'application/vnd.erofs.layer.v1+zstd', **put(read('0.erofs.zst'))},
    {'mediaType': 'application/vnd.erofs.layer.v1', **put(read('1.erofs'))},
]
config = {'mediaType': 'application/vnd.oci.image.config.v1+json', **put(b'{}')}
kind = 'application/vnd.oci.image.manifest.v1+json'
manifest = {'schemaVersion': 2, 'mediaType': kind, 'config': config, 'layers': layers}
manifest = {'mediaType': kind, **put(json.dumps(manifest).encode())}
json.dump({'schemaVersion': 2, 'manifests': [manifest]}, open('erofs/index.json', 'w'))
json.dump({'imageLayoutVersion': '1.0.0'}, open('erofs/oci-layout', 'w'))
"#;

#[test]
fn layers_of_compressed_erofs_are_read() {
    if require::program("python3").is_none() || require::program("zstd").is_none() {
        return;
    }
    let place = Place::new();
    for (number, name) in ["lower", "upper"].into_iter().enumerate() {
        fs::create_dir_all(place.path(&format!("{number}/etc"))).unwrap();
        fs::write(
            place.path(&format!("{number}/etc/{name}")),
            name.repeat(5000),
        )
        .unwrap();
        fs::create_dir_all(place.path("expected/etc")).unwrap();
        fs::write(
            place.path(&format!("expected/etc/{name}")),
            name.repeat(5000),
        )
        .unwrap();
        let args = ["pack", "-q", "--format", "erofs"];
        let (tree, image) = (number.to_string(), format!("{number}.erofs"));
        place.run(&[&args[..], &[&tree, &image]].concat()).ok();
    }
    assert!(run("zstd", &["-q", "0.erofs"], &place.path(".")));
    assert!(run("python3", &["-c", EROFS], &place.path(".")));
    place
        .run(&["extract", "-q", "-C", "out", "oci-layout:erofs"])
        .ok();
    assert!(run("diff", &["-r", "expected", "out"], &place.path(".")));
    place
        .run(&["convert", "-q", "oci-layout:erofs", "whole.sqsh"])
        .ok();
    place
        .run(&["extract", "-q", "-C", "again", "whole.sqsh"])
        .ok();
    assert!(run("diff", &["-r", "expected", "again"], &place.path(".")));
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let base = format!("docker://{}/app:1", registry.authority());
    let args = ["copy", "-q", "--dest-tls-verify=false", "oci:erofs", &base];
    if require::program("skopeo").is_none() || !run("skopeo", &args, &place.path(".")) {
        return;
    }
    let name = format!("oci://{}/app:1", registry.authority());
    place.run(&["extract", "-q", "-C", "fetched", &name]).ok();
    assert!(run(
        "diff",
        &["-r", "expected", "fetched"],
        &place.path(".")
    ));
}
