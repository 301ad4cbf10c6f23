//! Other forms of container images: pulled into a layout, as composefs, and with hard links between
//! layers.

use std::fs;
use std::path::Path;

use forerun_testkit::require;
use forerun_testkit_servers::{Auth, DockerRegistry};

use crate::common::place::Place;
use crate::containers::{RANDOM, STORE, make_layers, run};

/// Makes a container image `img` whose upper layers have hard links to files of lower ones. With an
/// argument, makes an image of that name with a hard link to a missing file.
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
        // Cached images need no registry.
        let name = format!("oci://{at}");
        place.run(&["ls", "-R", &name]).ok();
        let compared = place.run(&["diff", "--offline", &name, &root]);
        assert_eq!((compared.code, compared.text()), (Some(0), ""), "{number}");
    }
}

fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path))
        } else {
            files.push(path)
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
    // The large file has two paths, in two layers. The small one is inside the image.
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
    // The unpacked tree makes the same objects, so nothing new is stored.
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
    // A hard link to a missing file is omitted with a warning.
    assert!(run("python3", &["-c", &script, "gone"], &place.path(".")));
    let checked = place.run(&["check", "oci-layout:gone"]);
    let told = format!("{}{}", checked.text(), checked.stderr);
    assert!(
        told.contains("no lower layer has a file \"gone\""),
        "{told}"
    );
    let listed = place.run(&["ls", "oci-layout:gone"]);
    assert_eq!((listed.code, listed.text()), (Some(0), "d\nlink\n"));
}
