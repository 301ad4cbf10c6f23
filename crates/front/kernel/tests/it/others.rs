//! SquashFS and composefs images mounted by the kernel's drivers.

use std::fs;
use std::path::PathBuf;

use forerun::build::RomfsOptions;
use forerun::vfs::Verity;
use forerun::{Image, OpenOptions, Writer};
use forerun_kernel::{Error, Options, Route, Way};
use forerun_testkit::Keeps;

use crate::common::{Place, Seen, can_mount, open};

/// ENOENT and EIO: kernel versions differ in overlayfs's error for a missing object.
const NO_OBJECT: [Option<i32>; 2] = [Some(2), Some(5)];

#[test]
fn squashfs_through_a_loop_device() {
    if !can_mount("squashfs") {
        return;
    }
    let place = Place::new("kernel-squashfs");
    let path = place.squashfs("image");
    let image = open(&path);
    let ours = Seen::of_image(&image);
    let looked = place.mounted(&image, &path, &Options::default(), |mounted| {
        assert!(matches!(mounted.way, Way::Loop(_)), "{mounted}");
        assert!(mounted.prefetched > 0);
        Seen::of_mount(&place.mnt()).assert_same(&ours);
    });
    looked.unwrap();
    let mut options = Options::default();
    options.route = Route::File;
    let refused = place.mounted(&image, &path, &options, |_| ());
    assert!(matches!(refused, Err(Error::NotFromFile { .. })));
    // The image does not end at a sector boundary.
    let bytes = fs::read(&path).unwrap();
    let used = usize::try_from(image.reader().fs().volume().image_len).unwrap();
    assert_ne!(used % 512, 0);
    fs::write(&path, &bytes[..used]).unwrap();
    let cut = place.mounted(&open(&path), &path, &Options::default(), |_| ());
    assert!(matches!(cut, Err(Error::Cut { .. })), "{cut:?}");
    place.nothing_left();
}

#[test]
fn romfs_through_a_loop_device_where_the_kernel_has_it() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::empty("kernel-romfs");
    fs::create_dir_all(place.path("tree/sub")).unwrap();
    for (name, len) in [("tree/empty", 0), ("tree/sub/large", 100_000)] {
        fs::write(place.path(name), vec![b'x'; len]).unwrap();
    }
    let path = place.write("image", &Writer::Romfs(RomfsOptions::default()));
    let image = open(&path);
    let ours = Seen::of_image(&image);
    let looked = place.mounted(&image, &path, &Options::default(), |mounted| {
        assert!(matches!(mounted.way, Way::Loop(_)), "{mounted}");
        let theirs = Seen::of_mount(&place.mnt());
        ours.model.assert_same(&theirs.model, &Keeps::ROMFS);
    });
    let known = fs::read_to_string("/proc/filesystems").unwrap();
    match known.contains("\tromfs\n") {
        true => looked.unwrap(),
        // Debian's kernels have romfs, others may not.
        false => assert!(matches!(looked, Err(Error::NoDriver { fstype: "romfs" }))),
    }
    place.nothing_left();
}

struct Composefs {
    place: Place,
    path: PathBuf,
    store: PathBuf,
}

impl Composefs {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        let path = place.composefs("image", "store");
        let store = place.path("store");
        Self { place, path, store }
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        options.stores = vec![self.store.clone()];
        options
    }

    fn image(&self) -> Image {
        let options = OpenOptions {
            objects: Some(self.store.clone()),
            ..OpenOptions::default()
        };
        Image::open_with(&self.path, &options).unwrap()
    }
}

#[test]
fn composefs_shows_what_we_show() {
    if !can_mount("erofs") || !can_mount("overlay") {
        return;
    }
    let made = Composefs::new("kernel-composefs");
    let ours = Seen::of_image(&made.image());
    for route in [Route::Any, Route::Loop] {
        let mut options = made.options();
        options.route = route;
        let image = made.image();
        let looked = made.place.mounted(&image, &made.path, &options, |mounted| {
            assert!(mounted.overlay);
            assert_eq!(mounted.prefetched, image.source_len());
            Seen::of_mount(&made.place.mnt()).assert_same(&ours);
        });
        looked.unwrap();
    }
}

#[test]
fn objects_are_looked_for_when_a_file_is_opened() {
    if !can_mount("erofs") || !can_mount("overlay") {
        return;
    }
    let made = Composefs::new("kernel-composefs-missing");
    fs::remove_dir_all(&made.store).unwrap();
    fs::create_dir(&made.store).unwrap();
    let (image, mnt) = (made.image(), made.place.mnt());
    let looked = made
        .place
        .mounted(&image, &made.path, &made.options(), |_| {
            let file = mnt.join("sizes/8192");
            assert_eq!(file.metadata().unwrap().len(), 8192);
            let error = fs::File::open(&file).unwrap_err();
            assert!(NO_OBJECT.contains(&error.raw_os_error()), "{error}");
            // Small files are inline in the image.
            assert_eq!(fs::read(mnt.join("z")).unwrap(), b"deep");
        });
    looked.unwrap();
}

#[test]
fn objects_without_fs_verity_are_not_promised_to_be_checked() {
    if !can_mount("erofs") || !can_mount("overlay") {
        return;
    }
    let made = Composefs::new("kernel-composefs-verity");
    for verity in [Verity::On, Verity::Require] {
        let mut options = made.options();
        options.verity = verity;
        let mounted = made
            .place
            .mounted(&made.image(), &made.path, &options, |_| ());
        let Err(Error::NoVerity { object }) = mounted else {
            panic!("{mounted:?}");
        };
        assert!(object.starts_with(&made.store));
    }
    let mounted = made
        .place
        .mounted(&made.image(), &made.path, &Options::default(), |_| ());
    assert!(matches!(mounted, Err(Error::NoObjects)), "{mounted:?}");
    made.place.nothing_left();
}
