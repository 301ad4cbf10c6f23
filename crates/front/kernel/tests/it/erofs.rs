//! EROFS images mounted by the kernel, from the file and through a loop device, show the same tree
//! as forerun's driver. Ended and failed mounts leave nothing behind.

use std::fs;
use std::path::Path;

use forerun::OpenOptions;
use forerun::build::{Compression, FillEncoding};
use forerun_kernel::{Error, Options, Route, Way, image_of, is_ours};
use forerun_testkit::require;

use crate::common::{Place, Seen, can_mount, end, open, run};

/// ENOTBLK: this kernel or filesystem does not support mounting from a file.
const NOT_FROM_FILES: i32 = 15;

fn by(route: Route) -> Options {
    let mut options = Options::default();
    options.route = route;
    options
}

/// Compares the trees for every route. Returns whether mounting from the file worked.
fn compare(place: &Place, path: &Path) -> bool {
    let image = open(path);
    let ours = Seen::of_image(&image);
    let look = |_: &_| Seen::of_mount(&place.mnt()).assert_same(&ours);
    let from_file = match place.mounted(&image, path, &by(Route::File), look) {
        Ok(()) => true,
        Err(Error::Refused(refusals)) => {
            assert_eq!(refusals[0].error.raw_os_error(), Some(NOT_FROM_FILES));
            false
        }
        Err(error) => panic!("{error}"),
    };
    let looked = place.mounted(&image, path, &by(Route::Loop), |mounted| {
        assert!(matches!(mounted.way, Way::Loop(_)), "{mounted}");
        Seen::of_mount(&place.mnt()).assert_same(&ours);
    });
    looked.unwrap();
    from_file
}

#[test]
fn images_of_ours_and_of_mkfs() {
    if !can_mount("erofs") || require::program("mkfs.erofs").is_none() {
        return;
    }
    let place = Place::new("kernel-erofs");
    let tree = place.path("tree");
    let tree = tree.to_str().unwrap();
    compare(&place, &place.erofs("plain", |_| ()));
    let lz4 = |options: &mut forerun::build::ErofsOptions| {
        options.compression = Some(Compression::new(FillEncoding::Lz4));
    };
    compare(&place, &place.erofs("lz4", lz4));
    // Debian's mkfs.erofs does not support names this long.
    fs::remove_dir(place.path("tree").join("d".repeat(255))).unwrap();
    fs::remove_file(place.path("tree").join("n".repeat(255))).unwrap();
    for (name, more) in [("theirs", &["-d0"][..]), ("theirs-lz4", &["-d0", "-zlz4"])] {
        let path = place.path(name);
        let to = [path.to_str().unwrap(), tree];
        run("mkfs.erofs", &[more, &to].concat());
        compare(&place, &path);
    }
}

#[test]
fn metadata_is_read_ahead_and_mounts_are_known_as_ours() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::new("kernel-erofs-ahead");
    let path = place.erofs("image", |_| ());
    let image = open(&path);
    let metadata: u64 = image
        .reader()
        .fs()
        .metadata_layout()
        .ranges()
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    assert!(metadata > 0);
    for (prefetch, expected) in [(true, metadata), (false, 0)] {
        let mut options = Options::default();
        options.prefetch = prefetch;
        let looked = place.mounted(&image, &path, &options, |mounted| {
            assert_eq!(mounted.prefetched, expected);
            let (fstype, source, flags) = entry(&place.mnt());
            assert!(is_ours(&fstype, source.as_ref()), "{source}");
            match &mounted.way {
                Way::Loop(device) => assert_eq!(image_of(source.as_ref()).unwrap(), *device),
                _ => assert_eq!(image_of(source.as_ref()).unwrap(), path),
            }
            assert_eq!(flags, "ro,nosuid,nodev,relatime");
        });
        looked.unwrap();
    }
    let mut options = Options::default();
    (options.suid, options.dev, options.exec) = (true, true, false);
    let looked = place.mounted(&image, &path, &options, |_| {
        assert_eq!(entry(&place.mnt()).2, "ro,noexec,relatime");
    });
    looked.unwrap();
}

/// Returns the type, source and flags of the mount on `dir`.
fn entry(dir: &Path) -> (String, String, String) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.to_str().unwrap();
    let mut lines = mounts
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some(dir));
    let (mount, filesystem) = lines.next().unwrap().split_once(" - ").unwrap();
    let mut words = filesystem.split(' ').map(str::to_string);
    let flags = mount.split(' ').nth(5).unwrap().to_string();
    (words.next().unwrap(), words.next().unwrap(), flags)
}

#[test]
fn a_part_of_a_file_through_a_loop_device() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::new("kernel-erofs-part");
    let path = place.erofs("image", |_| ());
    let bytes = fs::read(&path).unwrap();
    let part = place.path("part");
    fs::write(&part, [&[7; 1024], &bytes[..], &[9; 5000]].concat()).unwrap();
    let options = OpenOptions {
        offset: 1024,
        size: Some(bytes.len().try_into().unwrap()),
        ..OpenOptions::default()
    };
    let image = forerun::Image::open_with(&part, &options).unwrap();
    let ours = Seen::of_image(&image);
    let looked = place.mounted(&image, &part, &Options::default(), |mounted| {
        assert!(matches!(mounted.way, Way::Loop(_)), "{mounted}");
        Seen::of_mount(&place.mnt()).assert_same(&ours);
    });
    looked.unwrap();
}

#[test]
fn an_image_on_a_block_device() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::new("kernel-erofs-device");
    let path = place.erofs("image", |_| ());
    let device = run(
        "losetup",
        &["--find", "--show", "-r", path.to_str().unwrap()],
    );
    let device = Path::new(device.trim());
    let image = open(device);
    let ours = Seen::of_image(&image);
    let mounted = forerun_kernel::mount(&image, device, &place.mnt(), &Options::default());
    assert_eq!(mounted.unwrap().way, Way::Device);
    Seen::of_mount(&place.mnt()).assert_same(&ours);
    end(&place.mnt());
    drop(image);
    run("losetup", &["--detach", device.to_str().unwrap()]);
    place.nothing_left();
}

#[test]
fn data_on_another_device() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::new("kernel-erofs-blob");
    let blob = place.path("blob");
    let file = fs::File::create(&blob).unwrap();
    let path = place.erofs("image", |options| {
        options.chunk_size = Some(4096);
        options.blob = Some(file.into());
    });
    let mut given = OpenOptions::default();
    given.devices.push(blob.clone());
    let image = forerun::Image::open_with(&path, &given).unwrap();
    let ours = Seen::of_image(&image);
    for route in [Route::Any, Route::Loop] {
        let mut options = by(route);
        options.devices.push(blob.clone());
        let looked = place.mounted(&image, &path, &options, |_| {
            Seen::of_mount(&place.mnt()).assert_same(&ours);
        });
        looked.unwrap();
    }
    // The device named in the image must not be looked up on the host.
    let image = open(&path);
    let looked = place.mounted(&image, &path, &Options::default(), |_| {
        assert!(fs::read(place.mnt().join("sizes/4096")).is_err());
    });
    drop(looked);
    place.nothing_left();
}

#[test]
fn what_the_kernel_does_not_know_is_refused_in_its_words() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::empty("kernel-erofs-refused");
    fs::create_dir(place.path("tree")).unwrap();
    // A block size above the page size.
    let path = place.erofs("image", |options| options.block_size = 64 << 10);
    if !require::that(page_size() < 64 << 10, "pages of less than 64 KiB") {
        return;
    }
    let image = open(&path);
    let mounted = place.mounted(&image, &path, &Options::default(), |_| ());
    let Err(Error::Refused(refusals)) = mounted else {
        panic!("{mounted:?}");
    };
    for refusal in &refusals {
        let words = refusal.words.join("\n");
        assert!(words.contains("blkszbits 16"), "{refusal}");
    }
    assert_eq!(
        refusals.len(),
        2,
        "from the file, and through a loop device"
    );
    place.nothing_left();
}

fn page_size() -> usize {
    rustix::param::page_size()
}

#[test]
fn places_that_are_none() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::new("kernel-erofs-places");
    let path = place.erofs("image", |_| ());
    let image = open(&path);
    let on = |dir: &Path| forerun_kernel::mount(&image, &path, dir, &Options::default());
    assert!(matches!(on(&path), Err(Error::NotADirectory { .. })));
    assert!(matches!(
        on(&place.path("none")),
        Err(Error::Mountpoint { .. })
    ));
    on(&place.mnt()).unwrap();
    let file = fs::File::open(place.mnt().join("sizes/4096")).unwrap();
    assert!(matches!(
        forerun_kernel::umount(&place.mnt(), false),
        Err(Error::Busy { .. })
    ));
    forerun_kernel::umount(&place.mnt(), true).unwrap();
    drop(file);
    place.nothing_left();
}

#[test]
fn paths_longer_than_the_kernel_takes() {
    if !can_mount("erofs") {
        return;
    }
    let place = Place::new("kernel-erofs-long");
    let long = place.path(&"d".repeat(250));
    fs::create_dir(&long).unwrap();
    let path = long.join("image");
    fs::rename(place.erofs("image", |_| ()), &path).unwrap();
    let image = open(&path);
    let ours = Seen::of_image(&image);
    for route in [Route::Any, Route::Loop] {
        let looked = place.mounted(&image, &path, &by(route), |_| {
            let (fstype, source, _) = entry(&place.mnt());
            assert!(is_ours(&fstype, source.as_ref()), "{source}");
            Seen::of_mount(&place.mnt()).assert_same(&ours);
        });
        looked.unwrap();
    }
}
