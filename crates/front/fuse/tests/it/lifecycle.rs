//! How mounts begin and end.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun::unstable::locks::{Locking, for_writing};
use forerun_engine::Volume;
use forerun_fuse::{
    FSTYPE, MountError, MountOptions, Operation, UmountError, UmountOptions, Unmounted,
    mount_reader, mount_volume, umount,
};
use forerun_sys::mount_table::mounts;
use forerun_testkit::{MemFsBuilder, MemImage, MemVolume, Piece, children, eventually};

use crate::common::{self, Place, can_mount, ensure, is_mounted, mount_memory, undisturbed};

fn sample() -> MemImage {
    let mut builder = MemFsBuilder::new();
    builder.file("file", [Piece::Stored(vec![7; 300_000])]);
    builder.build()
}

fn refused(place: &Place, dir: &str) -> MountError {
    let image = sample();
    let options = MountOptions::default();
    let engine = options.open_options().engine;
    let source = Arc::new(image.source.clone());
    let reader = common::reader(image.driver(), source, &engine);
    mount_reader(reader, &place.dir().join(dir), &options).unwrap_err()
}

#[test]
fn shows_what_it_is_and_goes_when_told() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("basics");
    let mut mount = mount_memory(&sample(), &place, "fsname=/a b\\,c");
    let entry = mounts()
        .unwrap()
        .into_iter()
        .rfind(|m| m.mount_point == place.mnt())
        .unwrap();
    assert_eq!(
        (entry.fstype.as_str(), entry.source.as_os_str()),
        (FSTYPE, "/a b,c".as_ref())
    );
    assert_eq!(mount.unmount().unwrap(), Unmounted::Done);
    mount.wait().unwrap();
    assert!(!is_mounted(&place.mnt()));
    assert_eq!(mount.unmount().unwrap(), Unmounted::Done, "twice is once");
}

#[test]
fn a_process_asks_nothing_of_its_own_mount() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("asks-nothing");
    let mount = mount_memory(&sample(), &place, "ro");
    // A process killed while it waits for its own answer could not exit.
    assert_eq!(mount.requests().get(Operation::Statfs), 0);
}

#[test]
fn an_empty_subtype_shows_as_plain_fuse() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("plain");
    let mount = mount_memory(&sample(), &place, "subtype=");
    let all = mounts().unwrap();
    let entry = all.iter().rfind(|m| m.mount_point == place.mnt()).unwrap();
    assert_eq!(entry.fstype, "fuse");
    assert_eq!(fs::read(place.mnt().join("file")).unwrap(), [7; 300_000]);
    drop(mount);
    assert!(!is_mounted(&place.mnt()));
}

/// Checks that umount waits for a volume's lock only with the last mount that writes to it. The
/// lock says nothing about other mounts of the same file.
#[test]
fn umount_waits_for_no_other_mount_of_the_same_file() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let (a, b) = (Place::new("locked"), Place::new("beside"));
    let file = a.dir().join("image");
    let locked = File::create_new(&file).unwrap();
    let beneath = for_writing(&locked, 0..1, Locking::Respect).unwrap();
    let options = format!("fsname={}", file.display());
    let unmounted = |dir: std::path::PathBuf| {
        let (done, finished) = std::sync::mpsc::channel();
        std::thread::spawn(move || done.send(umount(&dir, UmountOptions::default())));
        finished.recv_timeout(Duration::from_secs(30))
    };
    // Read-only, like all images.
    let beside = mount_memory(&sample(), &b, &options);
    unmounted(b.mnt()).unwrap().unwrap();
    drop(beside);
    // Another path of a mount that continues.
    let volume = MemVolume::in_memory(1 << 20, 4096);
    let device = volume.device();
    let volume = Volume::new(Arc::new(volume), device, Arc::default());
    let options = MountOptions::parse(&options).unwrap();
    let mount = mount_volume(Arc::new(volume), &a.mnt(), &options).unwrap();
    rustix::mount::mount_bind(a.mnt(), b.mnt()).unwrap();
    unmounted(b.mnt()).unwrap().unwrap();
    // The last mount waits for the lock.
    let (done, finished) = std::sync::mpsc::channel();
    let last = a.mnt();
    std::thread::spawn(move || done.send(umount(&last, UmountOptions::default())));
    eventually("it has gone", || !is_mounted(&a.mnt()));
    assert!(finished.try_recv().is_err(), "the file is still locked");
    drop((locked, beneath));
    finished.recv().unwrap().unwrap();
    drop(mount);
}

#[test]
fn several_mounts_of_one_image() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let image = sample();
    let (a, b) = (Place::new("several-a"), Place::new("several-b"));
    let first = mount_memory(&image, &a, "");
    let second = mount_memory(&image, &b, "uid=5");
    assert_eq!(fs::read(a.mnt().join("file")).unwrap(), [7; 300_000]);
    drop(first);
    assert_eq!(fs::read(b.mnt().join("file")).unwrap(), [7; 300_000]);
    assert!(!is_mounted(&a.mnt()) && is_mounted(&b.mnt()));
    drop(second);
}

#[test]
fn umount_ends_the_wait() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("umount");
    let mut mount = mount_memory(&sample(), &place, "");
    umount(&place.mnt(), UmountOptions::default()).unwrap();
    mount.wait().unwrap();
    let again = umount(&place.mnt(), UmountOptions::default()).unwrap_err();
    assert!(matches!(again, UmountError::NotMounted { .. }), "{again}");
}

#[test]
fn in_use_it_is_busy_and_lazily_it_ends_with_its_last_user() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("lazy");
    let mut mount = mount_memory(&sample(), &place, "");
    let mut file = File::open(place.mnt().join("file")).unwrap();
    let busy = umount(&place.mnt(), UmountOptions::default()).unwrap_err();
    assert!(matches!(busy, UmountError::Busy { .. }), "{busy}");
    let options = UmountOptions {
        lazy: true,
        ..UmountOptions::default()
    };
    umount(&place.mnt(), options).unwrap();
    assert!(!is_mounted(&place.mnt()));
    let waiting = std::thread::spawn(move || mount.wait().map(|()| mount.requests()));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), 300_000, "served until the end");
    assert!(!waiting.is_finished());
    drop(file);
    waiting.join().unwrap().unwrap();
}

#[test]
fn unmounting_in_use_detaches() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("detach");
    let mut mount = mount_memory(&sample(), &place, "");
    let file = File::open(place.mnt().join("file")).unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::StillInUse);
    assert!(!is_mounted(&place.mnt()));
    drop(file);
    mount.wait().unwrap();
}

#[test]
fn what_was_mounted_there_since_is_left_alone() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("replaced");
    let first = mount_memory(&sample(), &place, "");
    umount(&place.mnt(), UmountOptions::default()).unwrap();
    let second = mount_memory(&sample(), &place, "");
    drop(first);
    assert!(is_mounted(&place.mnt()));
    assert!(fs::read(place.mnt().join("file")).is_ok());
    drop(second);
}

#[test]
fn what_was_mounted_on_top_is_left_alone() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("covered");
    let mut mount = mount_memory(&sample(), &place, "");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("x", place.mnt(), "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
    let covered = mount.unmount().unwrap_err();
    assert!(matches!(covered, UmountError::Covered { .. }), "{covered}");
    let options = UmountOptions {
        force: true,
        ..UmountOptions::default()
    };
    umount(&place.mnt(), options).unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::Done);
    mount.wait().unwrap();
}

fn mount_tmpfs(dir: &Path) {
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("x", dir, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
}

/// Returns the number of mounts on exactly this path.
fn mounts_on(path: &Path) -> usize {
    let all = mounts().unwrap();
    all.iter().filter(|one| one.mount_point == path).count()
}

/// Covers a mount with a bind mount, which has the device number of its source.
#[test]
fn a_bind_mount_of_ours_on_top_is_left_alone() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("bound");
    let mnt = place.mnt();
    let mut mount = mount_memory(&sample(), &place, "");
    rustix::mount::mount_bind(&mnt, &mnt).unwrap();
    let covered = mount.unmount().unwrap_err();
    assert!(matches!(covered, UmountError::Covered { .. }), "{covered}");
    assert_eq!(mounts_on(&mnt), 2);
    umount(&mnt, UmountOptions::default()).unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::Done);
    mount.wait().unwrap();
}

#[test]
fn a_mount_inside_ours_keeps_it() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("inside");
    let mut builder = MemFsBuilder::new();
    builder.dir("dir");
    let mount = mount_memory(&builder.build(), &place, "");
    let inner = place.mnt().join("dir");
    mount_tmpfs(&inner);
    let kept = mount.unmount().unwrap_err();
    assert!(matches!(kept, UmountError::HoldsMount { .. }), "{kept}");
    let lazy = UmountOptions {
        lazy: true,
        ..UmountOptions::default()
    };
    let kept = umount(&place.mnt(), lazy).unwrap_err();
    assert!(matches!(kept, UmountError::HoldsMount { .. }), "{kept}");
    assert!(is_mounted(&inner) && is_mounted(&place.mnt()));
    rustix::mount::unmount(&inner, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(mount.unmount().unwrap(), Unmounted::Done);
}

#[test]
fn a_mount_that_was_moved_is_unmounted_where_it_is() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let (place, other) = (Place::new("moved"), Place::new("moved-to"));
    // Mounts below a shared mount cannot be moved.
    let private = rustix::mount::MountPropagationFlags::PRIVATE;
    mount_tmpfs(&place.mnt());
    rustix::mount::mount_change(place.mnt(), private).unwrap();
    let first = place.mnt().join("first");
    fs::create_dir(&first).unwrap();
    let image = sample();
    let options = MountOptions::default();
    let engine = options.open_options().engine;
    let reader = common::reader(image.driver(), Arc::new(image.source.clone()), &engine);
    let mut mount = mount_reader(reader, &first, &options).unwrap();
    rustix::mount::mount_move(&first, other.mnt()).unwrap();
    mount_tmpfs(&first);
    assert_eq!(mount.unmount().unwrap(), Unmounted::Done);
    assert!(!is_mounted(&other.mnt()) && is_mounted(&first));
    mount.wait().unwrap();
}

/// Uses a FIFO as the source of a mount. Any user may name one, or a file on their own filesystem.
#[test]
fn umount_opens_no_source_but_files_and_block_devices() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("fifo");
    let fifo = place.dir().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    let volume = MemVolume::in_memory(1 << 20, 4096);
    let device = volume.device();
    let volume = Volume::new(Arc::new(volume), device, Arc::default());
    let options = MountOptions::parse(&format!("fsname={}", fifo.display())).unwrap();
    let mount = mount_volume(Arc::new(volume), &place.mnt(), &options).unwrap();
    let (done, finished) = std::sync::mpsc::channel();
    let mnt = place.mnt();
    std::thread::spawn(move || done.send(umount(&mnt, UmountOptions::default())));
    finished
        .recv_timeout(Duration::from_secs(30))
        .unwrap()
        .unwrap();
    drop(mount);
}

#[test]
fn mountpoints_that_cannot_be() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("mountpoints");
    fs::write(place.dir().join("plain"), "").unwrap();
    let missing = refused(&place, "missing");
    assert!(
        matches!(&missing, MountError::Mountpoint { source, .. } if source.kind() == ErrorKind::NotFound),
        "{missing}"
    );
    let file = refused(&place, "plain");
    assert!(matches!(file, MountError::NotADirectory { .. }), "{file}");
    let mount = mount_memory(&sample(), &place, "fsname=/the/image");
    let twice = refused(&place, "mnt");
    assert!(
        matches!(twice, MountError::AlreadyMounted { .. }),
        "{twice}"
    );
    assert!(
        twice
            .to_string()
            .contains("/the/image is already mounted on"),
        "{twice}"
    );
    drop(mount);
}

#[test]
fn on_top_of_files_and_of_another_mount() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("ontop");
    fs::write(place.mnt().join("hidden"), "").unwrap();
    drop(mount_memory(&sample(), &place, ""));
    assert!(place.mnt().join("hidden").exists());
    rustix::mount::mount(
        "tmpfs",
        place.mnt(),
        "tmpfs",
        rustix::mount::MountFlags::empty(),
        None::<&std::ffi::CStr>,
    )
    .unwrap();
    let not_ours = umount(&place.mnt(), UmountOptions::default()).unwrap_err();
    assert!(
        matches!(not_ours, UmountError::NotOurs { .. }),
        "{not_ours}"
    );
    let mount = mount_memory(&sample(), &place, "");
    assert!(place.mnt().join("file").exists());
    drop(mount);
    assert!(!place.mnt().join("file").exists() && is_mounted(&place.mnt()));
    let options = UmountOptions {
        force: true,
        ..UmountOptions::default()
    };
    umount(&place.mnt(), options).unwrap();
    assert!(place.mnt().join("hidden").exists());
}

#[test]
fn readahead_is_lifted_for_root_and_nothing_is_left_behind() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let place = Place::new("bdi");
    let entry = |device: (u32, u32)| {
        std::path::PathBuf::from(format!(
            "/sys/class/bdi/{}:{}/read_ahead_kb",
            device.0, device.1
        ))
    };
    for (options, expected) in [
        ("", "4096"),
        ("readahead=1M", "1024"),
        ("nolargeblocks", "0"),
    ] {
        let mount = mount_memory(&sample(), &place, options);
        let device = mounts()
            .unwrap()
            .into_iter()
            .rfind(|m| m.mount_point == place.mnt());
        let entry = entry(device.unwrap().device);
        if !forerun_testkit::require::that(
            mount.readahead_lifted() || expected == "0",
            "a writable /sys",
        ) {
            return;
        }
        assert_eq!(
            fs::read_to_string(&entry).unwrap().trim(),
            expected,
            "{options}"
        );
        assert!(!mount.pushing());
        drop(mount);
        // The superblock lives until its last reference; a RELEASE may still hold one.
        eventually("the entry is gone", || !entry.exists());
    }
}

#[test]
fn pushed_data_is_the_file_s() {
    let _mounts_are_free = children::forbid();
    if !can_mount() {
        return;
    }
    let len = 20 * 1024 * 1024 + 777;
    let bytes = forerun_testkit::generate::bytes(3, len);
    let mut builder = MemFsBuilder::new();
    builder.file("big", [Piece::Stored(bytes.clone())]);
    let image = builder.build();
    undisturbed(|| {
        let place = Place::new("push");
        let mut options = MountOptions::default();
        options.lift_readahead = false;
        let source = Arc::new(image.source.clone());
        let reader = common::reader(image.driver(), source, &options.open_options().engine);
        let mount = mount_reader(reader, &place.mnt(), &options).unwrap();
        assert!(mount.pushing());
        assert!(fs::read(place.mnt().join("big")).unwrap() == bytes);
        // Read again, now from the page cache: the stored data is correct.
        let first = mount.requests();
        assert!(fs::read(place.mnt().join("big")).unwrap() == bytes);
        assert!(first.get(Operation::Store) > 0, "{first}");
        let again = mount.requests().get(Operation::Read) - first.get(Operation::Read);
        ensure(again == 0, mount.requests())
    });
}
