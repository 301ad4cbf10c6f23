//! exFAT through real mounts: volumes made by mkfs.exfat, used with ordinary tools, checked by
//! fsck.exfat.

mod case;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use forerun::Image;
use forerun::unstable::VolumeMut;
use forerun::vfs::OpenMutWith;
use forerun_fuse::MountOptions;
use forerun_io::{BlockDevice, Counter, FileDevice};
use forerun_testkit::eventually;

use crate::common::exfat::Volume;

const SOURCE: &str = "mkdir -p source/deep/er source/empty; \
    for n in $(seq 60); do head -c $((n * 977)) /dev/urandom > source/deep/er/file.$n; done; \
    for n in $(seq 300); do echo $n > source/small.$n; done; \
    head -c 5000000 /dev/urandom > source/large; \
    echo > \"source/$(printf 'a name of \\303\\244\\342\\202\\254 and spaces')\"";

#[test]
fn trees_survive_ordinary_tools_and_a_new_mount() {
    for (name, options) in [
        ("exfat_512", &["-c", "512"][..]),
        ("exfat_4k", &["-c", "4K"]),
        ("exfat_128k", &["-c", "128K", "-L", "LABEL"]),
    ] {
        let Some(volume) = Volume::new(name, 256, options) else {
            return;
        };
        volume.shell(SOURCE);
        let mount = volume.mount("rw");
        let before = rustix::fs::statvfs(volume.path("")).unwrap();
        volume.shell("cp -r source mnt/copy && diff -r source mnt/copy");
        volume.shell("cp -r mnt/copy mnt/second && mv mnt/second mnt/copy/inside");
        volume.shell("rm -r mnt/copy/deep && diff -r source mnt/copy/inside");
        volume.shell("dd if=/dev/zero of=mnt/copy/large bs=1000 seek=9000 count=1 status=none");
        volume.shell("truncate -s 700000 mnt/copy/small.7; truncate -s 3 mnt/copy/inside/large");
        volume.shell("cp -r mnt/copy want");
        volume.done(mount);
        let mount = volume.mount("rw");
        volume.shell("diff -r want mnt/copy && rm -r mnt/copy && test -z \"$(ls mnt)\"");
        let space = rustix::fs::statvfs(volume.path("")).unwrap();
        volume.done(mount);
        assert_eq!(space.f_blocks, before.f_blocks);
        assert!(space.f_bfree + 1 >= before.f_bfree, "{name}");
    }
}

#[test]
fn options_of_the_kernel_s_driver() {
    let Some(volume) = Volume::new("exfat_options", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw,uid=1000,gid=100,fmask=0133,dmask=022,iocharset=utf8,dirsync");
    fs::write(volume.path("file"), b"x").unwrap();
    fs::create_dir(volume.path("dir")).unwrap();
    let file = fs::metadata(volume.path("file")).unwrap();
    let dir = fs::metadata(volume.path("dir")).unwrap();
    assert_eq!(
        (file.uid(), file.gid(), file.mode() & 0o7777),
        (1000, 100, 0o644)
    );
    assert_eq!(dir.mode() & 0o7777, 0o755);
    let then = UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let opened = File::options()
        .write(true)
        .open(volume.path("file"))
        .unwrap();
    opened.set_modified(then).unwrap();
    drop(opened);
    fs::set_permissions(volume.path("file"), fs::Permissions::from_mode(0o444)).unwrap();
    volume.done(mount);
    // Read-only, through the adapter for images.
    let options = MountOptions::parse("ro,uid=7").unwrap();
    let image = Image::open_with(volume.image(), &options.open_options()).unwrap();
    let mount = forerun_fuse::mount(&image, &volume.place.mnt(), &options).unwrap();
    let file = fs::metadata(volume.path("file")).unwrap();
    assert_eq!((file.uid(), file.modified().unwrap()), (7, then));
    assert_eq!(file.mode() & 0o222, 0, "the read-only attribute");
    assert_eq!(fs::read(volume.path("FILE")).unwrap(), b"x");
    drop(mount);
}

#[test]
fn the_driver_keeps_the_contract() {
    for (name, options) in [("exfat_contract_512", "512"), ("exfat_contract_32k", "32K")] {
        let Some(volume) = Volume::new(name, 16, &["-c", options]) else {
            return;
        };
        let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&volume.image()).unwrap());
        let open = forerun::unstable::formats()
            .iter()
            .find(|format| format.name == "exfat");
        let open = open.unwrap().open_mut.unwrap();
        let fs = open(OpenMutWith::new(Arc::clone(&device))).unwrap();
        forerun_testkit::conformance::check_filesystem_mut(&fs, &device);
        drop(fs);
        volume.judge();
    }
}

#[test]
fn a_second_mount_for_writing_is_refused() {
    let Some(volume) = Volume::new("exfat_lock", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    let again = VolumeMut::open(&volume.image(), &Default::default(), &Default::default());
    let error = again.unwrap_err().to_string();
    assert!(error.contains("in use"), "{error}");
    volume.done(mount);
    drop(volume.mount("rw"));
}

#[test]
fn a_full_volume() {
    let Some(volume) = Volume::new("exfat_full", 16, &["-c", "4K"]) else {
        return;
    };
    let mount = volume.mount("rw");
    volume.shell("! cat /dev/zero > mnt/zeros 2> message; grep -q 'No space' message");
    volume.shell("! mkdir mnt/dir 2> message; rm mnt/zeros; mkdir mnt/dir");
    volume.shell("! cp -r /usr/bin mnt/dir 2> message; grep -q 'No space' message");
    assert_eq!(rustix::fs::statvfs(volume.path("")).unwrap().f_bfree, 0);
    volume.done(mount);
}

#[test]
fn names_in_any_case_and_names_that_cannot_be() {
    let Some(volume) = Volume::new("exfat_names", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    fs::write(volume.path("\u{c4}rger.TXT"), b"1").unwrap();
    assert_eq!(fs::read(volume.path("\u{e4}RGER.txt")).unwrap(), b"1");
    fs::remove_file(volume.path("\u{c4}RGER.TXT")).unwrap();
    eventually("it is gone by all names", || {
        ["\u{c4}rger.TXT", "\u{e4}RGER.txt"]
            .iter()
            .all(|name| fs::metadata(volume.path(name)).is_err())
    });
    for bad in ["a:b", "a*b", "a?b", "a\"b", "a<b", "a|b", "a\\b", "a\u{1}b"] {
        let error = fs::write(volume.path(bad), b"").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{bad:?}");
        assert!(fs::metadata(volume.path(bad)).is_err());
    }
    // 85 characters of three bytes: a path component cannot exceed 255 bytes.
    fs::write(volume.path(&"\u{20ac}".repeat(85)), b"").unwrap();
    volume.done(mount);
}

#[test]
fn removing_a_large_file_writes_few_sectors() {
    let Some(volume) = Volume::new("exfat_remove", 512, &["-c", "128K"]) else {
        return;
    };
    let mount = volume.mount("rw,dirsync");
    volume.shell("dd if=/dev/zero of=mnt/large bs=1M count=400 status=none; sync mnt/large");
    let before = mount.stats();
    fs::remove_file(volume.path("large")).unwrap();
    eventually("its space is free", || {
        let space = rustix::fs::statvfs(volume.path("")).unwrap();
        space.f_bfree + 10 > space.f_blocks
    });
    let spent = mount.stats().since(&before);
    assert!(spent.get(Counter::Writes) <= 4, "{spent}");
    assert!(spent.get(Counter::WrittenBytes) <= 6 << 10, "{spent}");
    volume.done(mount);
}

#[test]
fn fatattr_reads_and_changes_attributes() {
    if forerun_testkit::require::program("fatattr").is_none() {
        return;
    }
    let Some(volume) = Volume::new("exfat_fatattr", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    fs::write(volume.path("file"), b"text").unwrap();
    fs::create_dir(volume.path("dir")).unwrap();
    let mode = || {
        fs::metadata(volume.path("file"))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!(mode(), 0o755);
    volume.shell("fatattr +rhs mnt/file; fatattr +h mnt/dir; fatattr -a mnt/file");
    // The kernel knows of the new mode at once.
    assert_eq!(mode(), 0o555);
    volume.shell("! fatattr +h mnt");
    volume.shell("fatattr mnt mnt/file mnt/dir > before");
    volume.done(mount);

    let mount = volume.mount("rw");
    volume.shell("fatattr mnt mnt/file mnt/dir > after; cmp before after");
    volume.shell("fatattr -r mnt/file");
    assert_eq!(mode(), 0o755);
    volume.done(mount);
    let before = fs::read_to_string(volume.place.dir().join("before")).unwrap();
    assert_eq!(
        before,
        "    d    mnt\nrhs      mnt/file\n h  d    mnt/dir\n"
    );
}
