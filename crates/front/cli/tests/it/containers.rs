//! Container images in a registry: pushed layer by layer as other tools do, then read, mounted and converted.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun_testkit::require;
use forerun_testkit_servers::{Auth, DockerRegistry};

use crate::common::place::Place;

/// Makes a container image of the directories `layer0` and so on, of every compression that layers have. Pushes it
/// to a repository, or writes a layout, an archive of it, and an archive as `docker save` does.
const STORE: &str = r#"
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

/// Makes random container images: see the file.
const RANDOM: &str = include_str!("../images/containers.py");

/// Makes a container image `img` whose upper layers have hard links to files of lower ones; with an argument, one of
/// this name with a hard link to that name, which is nothing.
const LINKS: &str = r#"
import sys
sys.argv[1:], names = ['0'], sys.argv[1:]
exec(RANDOM)
class Links(Image):
    def __init__(self, layers):
        self.random, self.blobs, self.live = random.Random(0), {}, {}
        self.layers = [self.of(members) for members in layers]
    def of(self, members):
        layer = Layer(self)
        for path, kind, data, link in members:
            layer.put(path, kind, data, link)
        return layer.fill(0)
first = [('d', 'd', b'', ''), ('d/file', 'f', b'lower\n', ''), ('s', 'l', b'', 'd')]
second = [('link', 'h', b'', 'd/file'), ('symbolic', 'h', b'', 's'), ('d/again', 'h', b'', 'link')]
third = [('d/file', 'f', b'upper\n', ''), ('third', 'h', b'', 'd/again')]
if names:
    Links([first[:2], [('.wh.x', 'f', b'', ''), ('y', 'h', b'', names[0]), ('link', 'h', b'', 'd/file')]]).write(names[0])
else:
    Links([first, second, third]).write('img')
"#;

/// Makes three layers, and what a container of them has in `expected`.
fn make_layers(place: &Place) {
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

fn run(program: &str, arguments: &[&str], dir: &Path) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(dir)
        .status()
        .unwrap()
        .success()
}

/// Asserts that a mount of several layers by the kernel is refused, with the reason.
#[track_caller]
fn assert_only_fuse_mounts(place: &Place, image: &[&str]) {
    let told = place.run(&[&["mount", "--via", "kernel"], image, &["mnt"]].concat());
    assert_eq!(told.code, Some(2), "{}", told.stderr);
    let is_named = told
        .stderr
        .contains("whose layers the kernel's drivers do not merge")
        || told
            .stderr
            .contains("--layer has no meaning for a mount by the kernel");
    assert!(is_named, "{}", told.stderr);
    assert!(told.stderr.contains("use --via fuse"), "{}", told.stderr);
}

/// Asserts that `forerun status` has each of the three layers of a mounted image, and their sum.
#[track_caller]
fn assert_status_counts_layers(place: &Place, name: &str) {
    if !require::fuse() {
        return;
    }
    place.run(&["mount", name, "mnt"]).ok();
    let status = place.run(&["status", "-q", "--json"]).ok().json();
    place.run(&["umount", "mnt"]).ok();
    let layers = status[0]["remote_layers"].as_array().unwrap();
    let bytes = layers.iter().map(|layer| layer["bytes"].as_u64().unwrap());
    assert_eq!((layers.len(), bytes.clone().min() > Some(0)), (3, true));
    assert_eq!(status[0]["remote"]["bytes"], bytes.sum::<u64>());
    assert_eq!(status[0]["remote"]["complete"], true);
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
    // The large files of three layers: in one pass, without a tree on disk.
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
    // Each layer takes files of the cache: more may be open than usual.
    let limited = format!("ulimit -S -n 30; exec \"$0\" ls {name} > listed");
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited, env!("CARGO_BIN_EXE_forerun")]);
    shell
        .current_dir(place.path("."))
        .env("XDG_CACHE_HOME", place.path("cache"));
    assert!(shell.status().unwrap().success());
    // What takes one image says how to name a layer.
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
    // The cache has the layers and the indexes of the compressed ones.
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
    assert!(text.contains("say which of app:1"), "{text}");
    let (code, text) = told("oci-layout:nowhere");
    assert_eq!(code, Some(4), "{text}");
    let (code, text) = told("docker-archive:layout.tar");
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("manifest.json"), "{text}");
    // Each blob in turn: nothing of other bytes than the documents name is read.
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
fn a_container_image_is_pulled_into_a_layout_that_other_tools_read() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let needed = ["python3", "umoci", "skopeo"].map(require::program);
    if needed.contains(&None) || !require::root() {
        return;
    }
    let place = Place::new();
    assert!(run("python3", &["-c", RANDOM, "3"], &place.path(".")));
    let copy = |from: &str, to: &str| {
        let arguments = ["--insecure-policy", "copy", "-q"];
        let plain = [
            "--dest-tls-verify=false",
            "--src-tls-verify=false",
            from,
            to,
        ];
        run(
            "skopeo",
            &[&arguments[..], &plain].concat(),
            &place.path("."),
        )
    };
    for number in 0..3 {
        let at = format!("{}/app:v{number}", registry.authority());
        assert!(copy(
            &format!("oci:img{number}:v"),
            &format!("docker://{at}")
        ));
        let pulled = place
            .run(&["pull", "--json", &format!("oci://{at}"), "layout"])
            .ok();
        assert_eq!(pulled.json()["container"], true);
        let name = format!("layout:v{number}");
        let unpack = format!("umoci unpack --image {name} out{number} > umoci.log 2>&1");
        assert!(run("sh", &["-c", &unpack], &place.path(".")));
        assert!(copy(&format!("oci:{name}"), &format!("oci:copy:v{number}")));
        let root = format!("out{number}/rootfs");
        for image in [
            format!("oci-layout:{name}"),
            format!("oci-layout:copy:v{number}"),
        ] {
            let compared = place.run(&["diff", &image, &root]);
            assert_eq!((compared.code, compared.text()), (Some(0), ""), "{image}");
        }
        // What is in the cache needs no registry.
        let name = format!("oci://{at}");
        place.run(&["ls", "-R", &name]).ok();
        let compared = place.run(&["diff", "--offline", &name, &root]);
        assert_eq!((compared.code, compared.text()), (Some(0), ""), "{number}");
    }
}

/// Returns the paths of the files in a directory.
fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

#[test]
fn a_container_image_becomes_a_composefs_image_whose_objects_are_shared() {
    if require::program("python3").is_none() || require::program("zstd").is_none() {
        return;
    }
    let place = Place::new();
    make_layers(&place);
    assert!(run("python3", &["-c", STORE, "disk"], &place.path(".")));
    let make = |source: &str, image: &str, store: &str| {
        let made = ["--format", "composefs", source, image, "--objects", store];
        place.run(&[&["convert", "-q"], &made[..]].concat()).ok();
        files_below(&place.path(store))
    };
    let objects = make("oci-layout:layout", "app.cfs", "store");
    // The large file is at two paths, in two layers. The small one is in the image.
    assert_eq!(objects.len(), 1, "{objects:?}");
    place
        .run(&[
            "extract",
            "-q",
            "-C",
            "out",
            "app.cfs",
            "--objects",
            "store",
        ])
        .ok();
    assert!(run("diff", &["-r", "expected", "out"], &place.path(".")));
    // The unpacked tree makes the same objects, and once more nothing new.
    place
        .run(&["extract", "-q", "-C", "tree2", "oci-layout:layout"])
        .ok();
    let made = [
        "--format",
        "composefs",
        "tree2",
        "tree.cfs",
        "--objects",
        "store",
    ];
    place.run(&[&["pack", "-q"], &made[..]].concat()).ok();
    assert_eq!(files_below(&place.path("store")), objects);
    let compared = place.run(&["diff", "app.cfs", "tree.cfs", "--objects", "store"]);
    assert_eq!((compared.code, compared.text()), (Some(0), ""));
}

#[test]
fn a_hard_link_to_a_lower_layer_is_a_name_of_its_file() {
    let needed = ["python3", "umoci"].map(require::program);
    if needed.contains(&None) || !require::root() {
        return;
    }
    let place = Place::new();
    let script = LINKS.replace("exec(RANDOM)", RANDOM);
    assert!(run("python3", &["-c", &script], &place.path(".")));
    assert!(run(
        "umoci",
        &["unpack", "--image", "img:v", "out"],
        &place.path(".")
    ));
    let compared = place.run(&["diff", "oci-layout:img", "out/rootfs"]);
    assert_eq!((compared.code, compared.text()), (Some(0), ""));
    let read = place
        .run(&["cat", "oci-layout:img", "link", "d/again", "d/file"])
        .ok();
    assert_eq!(read.text(), "lower\nlower\nupper\n");
    place
        .run(&[
            "convert",
            "-q",
            "--format",
            "squashfs",
            "oci-layout:img",
            "img.sqsh",
        ])
        .ok();
    let compared = place.run(&["diff", "img.sqsh", "out/rootfs"]);
    assert_eq!((compared.code, compared.text()), (Some(0), ""));
    let checked = place.run(&["check", "-q", "oci-layout:img"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    // One that names nothing is left out with a warning.
    assert!(run("python3", &["-c", &script, "gone"], &place.path(".")));
    let checked = place.run(&["check", "oci-layout:gone"]);
    let told = format!("{}{}", checked.text(), checked.stderr);
    assert!(
        told.contains("lower layers have no file \"gone\""),
        "{told}"
    );
    let listed = place.run(&["ls", "oci-layout:gone"]);
    assert_eq!((listed.code, listed.text()), (Some(0), "d\nlink\n"));
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
