//! Several images as one tree, compared with overlayfs, and with unpacking them one over the other.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use forerun::build::{ErofsOptions, ScanOptions, SquashfsOptions, Tree, scan};
use forerun::vfs::BlobId;
use forerun::{FileType, Image, LayerSource, MemorySource, Observer, OpenOptions, Writer};
use forerun_io::EventLog;
use forerun_testkit::rng::Rng;
use forerun_testkit::{Keeps, TreeModel, memory_dir, require, unmount};
use rustix::fs::{CWD, Mode, XattrFlags, mknodat, setxattr};

use crate::paths::file;

/// How a layer hides entries of lower layers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Markers {
    /// Devices and attributes, as in overlayfs.
    Overlay,
    /// Files, as in the OCI specification.
    Oci,
}

fn make_layer(root: &Path, rng: &mut Rng, markers: Markers) {
    fs::create_dir(root).unwrap();
    let mut files = Vec::new();
    for n in 0..16 {
        let depth = 1 + rng.below(3);
        let names = (0..depth).map(|_| ["a", "b", "c", "d"][rng.below(4) as usize]);
        let path = root.join(names.collect::<PathBuf>());
        let parent = path.parent().unwrap();
        if fs::create_dir_all(parent).is_err() || path.symlink_metadata().is_ok() {
            continue;
        }
        match rng.below(8) {
            0 | 1 => {
                fs::write(&path, vec![n; 1 << rng.below(14)]).unwrap();
                let mode = 0o600 | rng.below(0o200) as u32;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                files.push(path);
            }
            2 => symlink("a/b", &path).unwrap(),
            3 if !files.is_empty() => fs::hard_link(&files[0], &path).unwrap(),
            4 | 5 => whiteout(&path, markers),
            6 => {
                fs::create_dir(&path).unwrap();
                opaque(&path, markers);
            }
            _ => {
                fs::create_dir(&path).unwrap();
                let mode = 0o700 | rng.below(0o100) as u32;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
        }
    }
}

fn whiteout(path: &Path, markers: Markers) {
    match markers {
        Markers::Overlay => {
            let kind = rustix::fs::FileType::CharacterDevice;
            mknodat(CWD, path, kind, Mode::empty(), 0).unwrap();
        }
        Markers::Oci => {
            let name = path.file_name().unwrap().to_str().unwrap();
            fs::write(path.with_file_name(format!(".wh.{name}")), []).unwrap();
        }
    }
}

fn opaque(dir: &Path, markers: Markers) {
    match markers {
        Markers::Overlay => {
            setxattr(dir, "trusted.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
        }
        Markers::Oci => fs::write(dir.join(".wh..wh..opq"), []).unwrap(),
    }
}

fn shell(dir: &Path, command: &str) {
    let mut shell = Command::new("sh");
    let output = shell.arg("-c").arg(command).current_dir(dir);
    let output = output.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command}: {output:?}");
}

/// Makes an image of a layer; the number selects the format.
fn make_image(dir: &Path, layer: &str, number: usize) -> PathBuf {
    let image = dir.join(format!("{layer}.img"));
    let writer = match number % 3 {
        0 => {
            let options = "--format=posix --xattrs --xattrs-include='*' --numeric-owner";
            shell(dir, &format!("tar -C {layer} {options} -cf {layer}.img ."));
            return image;
        }
        1 => Writer::Squashfs(SquashfsOptions::default()),
        _ => Writer::Erofs(ErofsOptions::default()),
    };
    let options = ScanOptions {
        xattrs: true,
        ..ScanOptions::default()
    };
    let tree = scan(&dir.join(layer), &options).unwrap();
    let mut out = fs::File::create(&image).unwrap();
    let observer = Arc::new(Observer::default());
    writer.write(&tree, &mut out, &observer).unwrap();
    image
}

/// Makes random layers below a directory, and images of them. Returns their names, the lowest
/// first, and the tree of the images.
fn random(dir: &Path, seed: u64, markers: Markers) -> (Vec<String>, TreeModel) {
    let mut rng = Rng::new(seed);
    let names: Vec<String> = (0..2 + rng.below(3)).map(|n| format!("layer{n}")).collect();
    let mut images = Vec::new();
    for (number, name) in names.iter().enumerate() {
        make_layer(&dir.join(name), &mut rng, markers);
        images.push(make_image(dir, name, number + seed as usize));
    }
    let image = Image::open_layers(&images, &OpenOptions::new()).unwrap();
    let reader = image.reader();
    let read = |node, offset, out: &mut [u8]| reader.read_into(node, offset, out);
    (names, TreeModel::of_reader(reader.fs(), read).unwrap())
}

#[test]
fn random_layers_look_as_under_overlayfs() {
    if !require::root() || !require::kernel_filesystem("overlay") {
        return;
    }
    for seed in 0..24 {
        // A memory filesystem, because overlayfs, which may hold the temporary files, does not
        // store its own attributes.
        let dir = memory_dir("layers-overlay", 16 << 20);
        let (names, ours) = random(dir.path(), seed, Markers::Overlay);
        overlay(dir.path(), &names).assert_same(&ours, &Keeps::EVERYTHING);
    }
}

/// Returns the tree that overlayfs shows for these layers, the lowest first.
fn overlay(dir: &Path, names: &[String]) -> TreeModel {
    let merged = dir.join("merged");
    fs::create_dir(&merged).unwrap();
    let topmost_first: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    let lower = topmost_first.join(":");
    let mount = format!("mount -t overlay -o ro,lowerdir={lower} overlay merged");
    loop {
        shell(dir, &mount);
        // overlayfs lists a whiteout in a directory that only one layer has, although it cannot be
        // looked up.
        let mut ghosts = Vec::new();
        find_ghosts(&merged, Path::new(""), &mut ghosts);
        let tree = ghosts.is_empty().then(|| TreeModel::of_host(&merged));
        assert!(unmount(&merged));
        if let Some(tree) = tree {
            return tree.unwrap();
        }
        for layer in names {
            ghosts
                .iter()
                .for_each(|ghost| remove_device(&dir.join(layer).join(ghost)));
        }
    }
}

fn find_ghosts(root: &Path, below: &Path, ghosts: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        match root.join(&path).symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => find_ghosts(root, &path, ghosts),
            Ok(_) => {}
            Err(_) => ghosts.push(path),
        }
    }
}

/// Removes a device, and keeps the times of its directory.
fn remove_device(path: &Path) {
    let metadata = path.symlink_metadata();
    if metadata.is_ok_and(|metadata| metadata.file_type().is_char_device()) {
        let parent = fs::File::open(path.parent().unwrap()).unwrap();
        let modified = parent.metadata().unwrap().modified().unwrap();
        fs::remove_file(path).unwrap();
        let times = fs::FileTimes::new().set_modified(modified);
        parent.set_times(times).unwrap();
    }
}

/// Removes from the lower layers' tree what a layer hides or replaces.
fn make_room(layer: &Path, below: &Path, root: &Path) {
    let target = root.join(below);
    for entry in fs::read_dir(layer.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name == ".wh..wh..opq" {
            for hidden in fs::read_dir(&target).unwrap() {
                remove(&hidden.unwrap().path());
            }
        } else if let Some(hidden) = name.strip_prefix(".wh.") {
            remove(&target.join(hidden));
        }
    }
    for entry in fs::read_dir(layer.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = target.join(&name);
        if name.starts_with(".wh.") {
            continue;
        }
        let is_dir = entry.file_type().unwrap().is_dir();
        let old = path.symlink_metadata().ok();
        if !is_dir || old.is_some_and(|old| !old.is_dir()) {
            remove(&path);
        }
        if is_dir {
            fs::create_dir_all(&path).unwrap();
            make_room(layer, &below.join(name), root);
        }
    }
}

fn remove(path: &Path) {
    match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path).unwrap(),
        Ok(_) => fs::remove_file(path).unwrap(),
        Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
    }
}

#[test]
fn random_layers_look_as_unpacked_one_over_the_other() {
    if !require::root() || require::program("tar").is_none() {
        return;
    }
    for seed in 100..124 {
        let dir = memory_dir("layers-oci", 16 << 20);
        let (names, ours) = random(dir.path(), seed, Markers::Oci);
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        for name in names {
            make_room(&dir.path().join(&name), Path::new(""), &root);
            let pack = format!("tar -C {name} --format=posix --exclude='.wh.*' -cf - .");
            shell(
                dir.path(),
                &format!("{pack} | tar -C root --numeric-owner -xpf -"),
            );
        }
        let theirs = TreeModel::of_host(&root).unwrap();
        theirs.assert_same(&ours, &Keeps::EVERYTHING);
    }
}

fn squashfs(name: &str, bytes: &[u8]) -> Arc<MemorySource> {
    let mut tree = Tree::default();
    tree.add(Tree::ROOT, name.as_bytes(), file(bytes)).unwrap();
    let mut out = Vec::new();
    Writer::Squashfs(SquashfsOptions::default())
        .write(&tree, &mut out, &Arc::new(Observer::default()))
        .unwrap();
    Arc::new(MemorySource::new(out))
}

#[test]
fn each_layer_has_a_blob_of_its_own() {
    let events = Arc::new(EventLog::new(10_000));
    let options = OpenOptions {
        events: Some(events.clone()),
        ..OpenOptions::default()
    };
    // Equal images, so that blocks of all layers are at the same offset.
    let text = |n: u8| {
        (0..200_000_u32)
            .map(|k| (k / 999) as u8 ^ n)
            .collect::<Vec<_>>()
    };
    let layers = (0..3_u8).map(|n| {
        let source: Arc<dyn forerun::ReadAt> = squashfs(&n.to_string(), &text(n));
        LayerSource::new(format!("layer{n}"), source)
    });
    let image = Image::from_layers(layers.collect(), &options).unwrap();
    assert_eq!(image.format(), "layers");
    assert!(image.digests().unwrap().is_empty());
    for n in (0..3).chain(0..3) {
        let path = n.to_string();
        assert!(image.read(&path).unwrap() == text(n), "{n}");
    }
    let blobs: std::collections::BTreeSet<BlobId> =
        events.take().iter().map(|event| event.blob).collect();
    assert!(
        blobs.is_superset(&(0..3).map(BlobId).collect()),
        "{blobs:?}"
    );
}

#[test]
fn errors_name_the_layer() {
    let (low, up) = (
        squashfs("low", &[1; 300_000]),
        squashfs("up", &[7; 300_000]),
    );
    let mut damaged = vec![0; forerun::ReadAt::len(&*up) as usize];
    forerun::ReadAt::read_exact_at(&*up, 0, &mut damaged).unwrap();
    // The first block of data follows the superblock.
    damaged[96..160].fill(0x55);
    let layers = |up: Vec<u8>| {
        vec![
            LayerSource::new("base.img", low.clone()),
            LayerSource::new("top.img", Arc::new(MemorySource::new(up))),
        ]
    };
    let image = Image::from_layers(layers(damaged), &OpenOptions::new()).unwrap();
    assert_eq!(image.read("low").unwrap(), vec![1; 300_000]);
    let error = image.read("up").unwrap_err().to_string();
    assert!(
        error.contains("damaged layers image top.img: offset 0x60: "),
        "{error}"
    );
    let unknown = Image::from_layers(layers(vec![0xAA; 4096]), &OpenOptions::new());
    let error = unknown.unwrap_err().to_string();
    assert!(
        error.contains("a known format: top.img: data that starts with aa aa"),
        "{error}"
    );
    for options in [
        OpenOptions::new().offset(512),
        OpenOptions::new().format("squashfs"),
        OpenOptions::new().device("/dev/null"),
    ] {
        let refused = Image::from_layers(layers(vec![0; 512]), &options).unwrap_err();
        assert!(
            refused.to_string().ends_with("for several layers"),
            "{refused}"
        );
    }
    let none: [&str; 0] = [];
    let error = Image::open_layers(none, &OpenOptions::new()).unwrap_err();
    assert_eq!(error.to_string(), "not supported: a stack without layers");
    let error = Image::open_layers(["/nonexistent/a"], &OpenOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(
        error.to_string(),
        "/nonexistent/a: No such file or directory (os error 2)"
    );
}

#[test]
fn one_layer_is_a_stack_too() {
    let mut tree = Tree::default();
    tree.add(Tree::ROOT, b"a", file(b"1")).unwrap();
    tree.add(Tree::ROOT, b".wh.b", file(b"")).unwrap();
    let mut out = Vec::new();
    Writer::Squashfs(SquashfsOptions::default())
        .write(&tree, &mut out, &Arc::new(Observer::default()))
        .unwrap();
    let source: Arc<dyn forerun::ReadAt> = Arc::new(MemorySource::new(out));
    let image =
        Image::from_layers(vec![LayerSource::new("one", source)], &OpenOptions::new()).unwrap();
    let names: Vec<_> = image
        .read_dir("/")
        .unwrap()
        .map(|entry| entry.unwrap().name().to_owned())
        .collect();
    assert_eq!(names, ["a"]);
    assert_eq!(image.metadata("/").unwrap().kind, FileType::Directory);
}

#[test]
fn a_directory_that_an_archive_does_not_describe_is_as_in_lower_layers() {
    if require::program("tar").is_none() {
        return;
    }
    let dir = memory_dir("layers-implied", 1 << 20);
    let at = |name: &str| dir.path().join(name);
    for name in ["base/etc/conf", "app/etc/conf", "app/new"] {
        fs::create_dir_all(at(name)).unwrap();
        fs::write(at(name).join("file"), name).unwrap();
    }
    for (name, mode) in [
        ("base", 0o711),
        ("base/etc", 0o750),
        ("base/etc/conf", 0o700),
    ] {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    shell(dir.path(), "tar -C base -cf base.tar .");
    shell(dir.path(), "tar -C app -cf app.tar etc/conf/file new/file");
    let layers = [at("base.tar"), at("app.tar")];
    let image = Image::open_layers(layers, &OpenOptions::new()).unwrap();
    let modes = ["/", "/etc", "/etc/conf", "/new"];
    let modes = modes.map(|path| image.metadata(path).unwrap().mode);
    assert_eq!(modes, [0o711, 0o750, 0o700, 0o755]);
    assert_eq!(image.read("/etc/conf/file").unwrap(), b"app/etc/conf");
}
