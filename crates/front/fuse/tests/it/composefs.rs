//! composefs mounts: objects are opened by open(2) and passed through if the kernel supports it; an
//! overlayfs on top serves programs that write.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun::build::{ComposefsOptions, Content, NewNode, NodeKind, Tree};
use forerun::unstable::composefs::Algorithm;
use forerun::{Image, Observer, Writer};
use forerun_fuse::{Mount, MountOptions, Operation, mount};
use forerun_testkit::{children, require};

use crate::common::{Place, run};

const EIO: i32 = 5;

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

struct Made {
    place: Place,
    image: PathBuf,
    store: PathBuf,
}

/// Creates an image with files of several lengths, and its object store.
fn make(name: &str) -> Made {
    let place = Place::new(name);
    let mut tree = Tree::default();
    for len in [10, 100, 5000, 3_000_000] {
        let kind = NodeKind::File {
            len: len as u64,
            content: Content::Bytes(content(len).into()),
        };
        let name = format!("file-{len}");
        tree.add(Tree::ROOT, name.as_bytes(), NewNode::new(kind, 0o644))
            .unwrap();
    }
    let (image, store) = (place.dir().join("image"), place.dir().join("store"));
    let mut options = ComposefsOptions::default();
    options.objects = Some(store.clone());
    let mut out = fs::File::create(&image).unwrap();
    let observer = Arc::new(Observer::default());
    Writer::Composefs(options)
        .write(&tree, &mut out, &observer)
        .unwrap();
    Made {
        place,
        image,
        store,
    }
}

impl Made {
    fn mount(&self, more: &str) -> Mount {
        let list = format!("objects={}{more}", self.store.display());
        let options = MountOptions::parse(&list).unwrap();
        let image = Image::open_with(&self.image, &options.open_options()).unwrap();
        mount(&image, &self.place.mnt(), &options).unwrap()
    }

    fn file(&self, len: usize) -> PathBuf {
        self.place.mnt().join(format!("file-{len}"))
    }

    fn object(&self, len: usize) -> PathBuf {
        self.store
            .join(Algorithm::Sha256.digest(&content(len)).object_path())
    }
}

#[test]
fn files_are_read_and_objects_passed_through() {
    if !require::root() || !require::fuse() {
        return;
    }
    let made = make("composefs-mount");
    for more in ["", ",verity=require"] {
        let mount = made.mount(more);
        for len in [10, 100, 5000, 3_000_000] {
            assert_eq!(fs::read(made.file(len)).unwrap(), content(len));
        }
        let names = fs::read_dir(made.place.mnt()).unwrap().count();
        assert_eq!(names, 4);
        // The small file is inline in the image; the kernel reads the others directly.
        assert_eq!(
            mount.requests().get(Operation::Read),
            1,
            "{}",
            mount.requests()
        );
        assert_eq!(mount.requests().get(Operation::Open), 4);
        // Two handles of one file, of which one is closed first.
        let mut first = fs::File::open(made.file(5000)).unwrap();
        drop(fs::File::open(made.file(5000)).unwrap());
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut first, &mut bytes).unwrap();
        assert_eq!(bytes, content(5000));
        drop(mount);
    }
}

#[test]
fn missing_and_changed_objects_are_eio_at_open_and_no_matter_for_stat() {
    if !require::root() || !require::fuse() {
        return;
    }
    let made = make("composefs-eio");
    fs::remove_file(made.object(5000)).unwrap();
    let mut changed = content(100);
    changed[99] ^= 1;
    fs::write(made.object(100), &changed).unwrap();
    let mount = made.mount(",verity=on");
    for len in [5000, 100] {
        assert_eq!(made.file(len).metadata().unwrap().size(), len as u64);
        let error = fs::File::open(made.file(len)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(EIO), "{len}");
    }
    assert_eq!(fs::read(made.file(3_000_000)).unwrap(), content(3_000_000));
    drop(mount);
    let mount = made.mount(",verity=off");
    assert_eq!(fs::read(made.file(100)).unwrap(), changed);
    drop(mount);
}

#[test]
fn an_object_that_was_changed_after_it_was_verified_is_eio_when_it_is_opened_again() {
    if !require::root() || !require::fuse() {
        return;
    }
    let made = make("composefs-again");
    let mount = made.mount(",verity=require");
    let refused = |len| fs::File::open(made.file(len)).unwrap_err().raw_os_error();
    assert_eq!(fs::read(made.file(5000)).unwrap(), content(5000));
    let object = fs::File::options().write(true).open(made.object(5000));
    object.unwrap().write_all_at(b"altered", 2000).unwrap();
    assert_eq!(refused(5000), Some(EIO));
    // The same while another handle is open and the kernel reads it directly.
    let held = fs::File::open(made.file(3_000_000)).unwrap();
    let path = made.object(3_000_000);
    let object = fs::File::options().write(true).open(&path).unwrap();
    object.write_all_at(b"altered", 2000).unwrap();
    assert_eq!(refused(3_000_000), Some(EIO));
    // A correct replacement is not the file that the kernel reads for the open handle.
    fs::remove_file(&path).unwrap();
    fs::write(&path, content(3_000_000)).unwrap();
    assert_eq!(refused(3_000_000), Some(EIO));
    drop(held);
    // The kernel sends RELEASE some time after close(2) has returned.
    let deadline = Instant::now() + Duration::from_secs(30);
    let read = loop {
        match fs::read(made.file(3_000_000)) {
            Err(error) if error.raw_os_error() == Some(EIO) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            read => break read.unwrap(),
        }
    };
    assert_eq!(read, content(3_000_000));
    drop(mount);
}

/// A mounted overlayfs; dropping it unmounts.
struct Overlay(PathBuf);

impl Overlay {
    fn new(lower: &Path, dir: &Path) -> Self {
        let [upper, work, merged] = ["upper", "work", "merged"].map(|name| dir.join(name));
        for dir in [&upper, &work, &merged] {
            fs::create_dir(dir).unwrap();
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "overlay", "overlay", "-o", &options])
            .arg(&merged);
        let output = children::output(&mut mount).unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "mount -t overlay -o {options}: {text}"
        );
        Self(merged)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _detached = children::output(Command::new("umount").arg("-l").arg(&self.0));
    }
}

#[test]
fn an_overlay_on_top_can_be_written_to() {
    if !require::root() || !require::fuse() || require::program("mount").is_none() {
        return;
    }
    let made = make("composefs-overlay");
    // The upper directory cannot be on an overlayfs, where the temporary directory may be.
    let upper = made.place.dir().join("tmpfs");
    fs::create_dir(&upper).unwrap();
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "tmpfs"]).arg(&upper);
    assert!(run(&mut tmpfs).0);
    let mount = made.mount("");
    let overlay = Overlay::new(&made.place.mnt(), &upper);
    let path = |len: usize| overlay.0.join(format!("file-{len}"));
    assert_eq!(fs::read(path(3_000_000)).unwrap(), content(3_000_000));
    fs::write(path(5000), b"new").unwrap();
    fs::remove_file(path(100)).unwrap();
    assert_eq!(fs::read(path(5000)).unwrap(), b"new");
    assert!(!path(100).exists());
    assert_eq!(fs::read(made.file(5000)).unwrap(), content(5000));
    drop(overlay);
    drop(mount);
    assert!(run(Command::new("umount").arg("-l").arg(&upper)).0);
}
