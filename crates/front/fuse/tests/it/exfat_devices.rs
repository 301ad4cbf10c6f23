//! exFAT on devices that fail, are full, or disappear; the label by ioctl.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use forerun::unstable::VolumeMut;
use forerun_fuse::{Mount, MountOptions, mount_volume};
use forerun_io::BlockDevice;
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::exfat_tools::{self, assert_clean};
use forerun_testkit::{Request, TestDevice, require};
use rustix::io::Errno;

use crate::common::{self, Place, can_mount, refused, run};

/// Offset of `VolumeFlags`, and its bits.
const FLAGS_AT: usize = 106;
const DIRTY: u8 = 2;
const MEDIA_FAILURE: u8 = 4;

/// Creates a volume with mkfs.exfat. Returns whether this machine can.
fn mkfs(path: &Path, mib: u64, options: &[&str]) -> bool {
    can_mount() && exfat_tools::mkfs(path, mib << 20, options)
}

fn mounted(device: Arc<dyn BlockDevice>, at: &Path, options: &str) -> Mount {
    let options = MountOptions::parse(options).unwrap();
    let open = options.open_options();
    let volume = VolumeMut::from_device(device, &open, &options.write).unwrap();
    mount_volume(volume.volume().clone(), at, &options).unwrap()
}

fn ended(mut mount: Mount) {
    mount.unmount().unwrap();
    mount.wait().unwrap();
}

/// Unmounts a volume whose last changes cannot be written.
fn lost(mut mount: Mount) {
    mount.unmount().unwrap();
    let error = mount.wait().unwrap_err().to_string();
    assert!(error.contains("the last changes are lost"), "{error}");
}

/// Fails requests of a kind that touch these bytes.
fn fail(device: &TestDevice, of_kind: fn(&Request) -> bool, bytes: Range<u64>) {
    device.hook(move |request| {
        if of_kind(request) && request.touches(&bytes) {
            return Err(Errno::IO.into());
        }
        Ok(())
    });
}

struct Test {
    device: Arc<TestDevice>,
    place: Place,
    mount: Option<Mount>,
}

impl Test {
    /// Mounts a new volume with a 100,000-byte file `old` that is not in the kernel's cache.
    fn new(name: &str, options: &str) -> Option<Self> {
        let place = Place::new(name);
        let image = place.dir().join("image");
        if !mkfs(&image, 16, &["-c", "4K"]) {
            return None;
        }
        let device = TestDevice::new(&fs::read(&image).unwrap());
        let mut test = Self {
            device,
            place,
            mount: None,
        };
        test.mount("rw");
        fs::write(test.path("old"), vec![7; 100_000]).unwrap();
        test.unmount();
        test.mount(options);
        Some(test)
    }

    fn mount(&mut self, options: &str) {
        let device = Arc::<TestDevice>::clone(&self.device);
        self.mount = Some(mounted(device, &self.place.mnt(), options));
    }

    fn unmount(&mut self) {
        ended(self.mount.take().unwrap());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.mnt().join(name)
    }

    fn volume_flags(&self) -> u8 {
        self.device.to_vec()[FLAGS_AT]
    }

    fn data_of_old(&self) -> u64 {
        let image = self.device.to_vec();
        let at = image.windows(4096).position(|bytes| bytes == [7; 4096]);
        at.unwrap() as u64
    }

    /// Checks that the volume has no defects except lost clusters, and those only if `VolumeDirty`
    /// is set.
    #[track_caller]
    fn judge(&self) {
        let bytes = self.device.to_vec();
        let report = judge(&forerun_io::MemorySource::new(&bytes[..])).unwrap();
        report.after_crash().unwrap();
        let image = self.place.dir().join("after");
        fs::write(&image, bytes).unwrap();
        assert_clean(&image);
    }
}

#[test]
fn contents_that_cannot_be_read() {
    let Some(mut test) = Test::new("exfat_unreadable", "rw") else {
        return;
    };
    let at = test.data_of_old();
    fail(&test.device, Request::is_read, at + 40_000..at + 40_001);
    let file = File::open(test.path("old")).unwrap();
    let mut page = [0; 4096];
    refused(file.read_exact_at(&mut page, 36_864), Errno::IO);
    assert_eq!(test.volume_flags(), DIRTY | MEDIA_FAILURE);
    // Everything else still works.
    file.read_exact_at(&mut page, 8192).unwrap();
    drop(file);
    fs::write(test.path("new"), b"new").unwrap();
    fs::remove_file(test.path("old")).unwrap();
    test.unmount();
    assert_eq!(
        test.volume_flags(),
        DIRTY | MEDIA_FAILURE,
        "nobody has checked it"
    );
    test.judge();
}

#[test]
fn contents_that_cannot_be_written() {
    let Some(mut test) = Test::new("exfat_unwritable", "rw") else {
        return;
    };
    let end = test.data_of_old() + 102_400;
    fail(&test.device, Request::is_write, end..16 << 20);
    refused(fs::write(test.path("new"), [1; 30_000]), Errno::IO);
    assert_eq!(fs::read(test.path("new")).unwrap(), b"");
    let old = File::options().write(true).open(test.path("old")).unwrap();
    old.write_all_at(&[9; 5000], 0).unwrap();
    drop(old);
    test.device.unhook();
    fs::write(test.path("new"), [1; 30_000]).unwrap();
    test.unmount();
    assert_eq!(test.volume_flags(), DIRTY | MEDIA_FAILURE);
    test.judge();
    test.mount("rw");
    assert_eq!(fs::read(test.path("new")).unwrap(), [1; 30_000]);
    let old = fs::read(test.path("old")).unwrap();
    assert!(old[..5000] == [9; 5000] && old[5000..] == [7; 95_000]);
    test.unmount();
}

#[test]
fn metadata_that_cannot_be_written() {
    let Some(mut test) = Test::new("exfat_metadata", "rw,dirsync") else {
        return;
    };
    fs::write(test.path("before"), b"").unwrap();
    // All bytes except the boot sector.
    fail(&test.device, Request::is_write, 512..16 << 20);
    refused(fs::create_dir(test.path("dir")), Errno::IO);
    test.device.unhook();
    // The state on the device is unknown, so the volume is read-only from here on.
    refused(fs::create_dir(test.path("other")), Errno::ROFS);
    refused(fs::remove_file(test.path("old")), Errno::ROFS);
    assert_eq!(fs::read(test.path("old")).unwrap(), [7; 100_000]);
    let error = File::open(test.place.mnt()).unwrap().sync_all();
    assert!(error.is_err());
    lost(test.mount.take().unwrap());
    assert_eq!(test.volume_flags(), DIRTY | MEDIA_FAILURE);
    test.judge();
    test.mount("rw");
    let mut names: Vec<_> = fs::read_dir(test.place.mnt())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(
        names == ["before", "old"] || names == ["before", "dir", "old"],
        "{names:?}"
    );
    test.unmount();
}

#[test]
fn a_device_that_goes_away() {
    let Some(mut test) = Test::new("exfat_gone", "rw") else {
        return;
    };
    fs::write(test.path("synced"), b"synced").unwrap();
    File::open(test.path("synced")).unwrap().sync_all().unwrap();
    fs::write(test.path("lost"), b"lost").unwrap();
    let mut file = File::open(test.path("old")).unwrap();
    test.device.hook(|_| Err(Errno::NODEV.into()));
    let mut bytes = Vec::new();
    refused(file.read_to_end(&mut bytes), Errno::IO);
    drop(file);
    let file = File::options()
        .write(true)
        .open(test.path("synced"))
        .unwrap();
    refused(file.write_all_at(&[1; 9000], 0), Errno::IO);
    refused(file.sync_all(), Errno::IO);
    drop(file);
    let error = fs::create_dir(test.path("dir")).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(5 | 30)), "{error}");
    // It unmounts like any other mount, with an error.
    lost(test.mount.take().unwrap());
    test.device.unhook();
    assert_eq!(test.volume_flags() & DIRTY, DIRTY);
    test.judge();
    test.mount("ro");
    assert_eq!(fs::read(test.path("synced")).unwrap(), b"synced");
    test.unmount();
}

#[test]
fn a_full_device_is_no_failed_one() {
    let Some(mut test) = Test::new("exfat_full_device", "rw,dirsync") else {
        return;
    };
    let error = fs::write(test.path("zeros"), vec![0; 20 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    refused(fs::create_dir(test.path("dir")), Errno::NOSPC);
    let file = File::options().write(true).open(test.path("old")).unwrap();
    refused(file.set_len(10 << 20), Errno::NOSPC);
    drop(file);
    fs::remove_file(test.path("zeros")).unwrap();
    fs::create_dir(test.path("dir")).unwrap();
    test.unmount();
    assert_eq!(test.volume_flags(), 0);
    test.judge();
}

/// Checks that a request on a full volume gets the clusters of a file that is closed late, as if a
/// thread were slow to answer its RELEASE.
#[test]
fn a_full_volume_waits_for_files_without_a_name() {
    let Some(mut test) = Test::new("exfat_burials", "rw,dirsync") else {
        return;
    };
    fs::write(test.path("zeros"), vec![0; 20 << 20]).unwrap_err();
    let open = File::open(test.path("zeros")).unwrap();
    fs::remove_file(test.path("zeros")).unwrap();
    refused(fs::create_dir(test.path("stays open")), Errno::NOSPC);
    drop(open);
    fs::write(test.path("zeros"), vec![0; 20 << 20]).unwrap_err();
    let open = File::open(test.path("zeros")).unwrap();
    fs::remove_file(test.path("zeros")).unwrap();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(open);
    });
    fs::create_dir(test.path("dir")).unwrap();
    later.join().unwrap();
    test.unmount();
    test.judge();
}

/// Checks that damage makes the volume read-only, or not with `errors=continue`.
#[test]
fn errors_remount_ro_and_continue() {
    for (options, goes_on) in [
        ("rw,errors=remount-ro", false),
        ("rw,errors=continue", true),
    ] {
        let Some(mut test) = Test::new("exfat_errors", "rw") else {
            return;
        };
        // Fragmented, so that removing the file needs the FAT.
        let (a, b) = (test.path("a"), test.path("b"));
        for n in 0..4 {
            for path in [&a, &b] {
                let file = File::options()
                    .create(true)
                    .append(true)
                    .open(path)
                    .unwrap();
                file.write_all_at(&[1; 4096], n * 4096).unwrap();
            }
        }
        test.unmount();
        let mut image = test.device.to_vec();
        let fat = u32::from_le_bytes(image[80..84].try_into().unwrap()) as usize * 512;
        let clusters = u32::from_le_bytes(image[92..96].try_into().unwrap()) as usize;
        // End all chains at once, except that of the root directory, which mkfs.exfat made last.
        let root = u32::from_le_bytes(image[96..100].try_into().unwrap()) as usize;
        for entry in root + 1..clusters + 2 {
            let at = fat + entry * 4;
            if image[at..at + 4] != [0; 4] {
                image[at..at + 4].fill(0xFF);
            }
        }
        test.device.memory.write_all_at(0, &image).unwrap();
        test.mount(options);
        let removed = fs::remove_file(&a);
        let then = fs::create_dir(test.path("dir"));
        if goes_on {
            removed.unwrap();
            then.unwrap();
        } else {
            refused(removed, Errno::IO);
            refused(then, Errno::ROFS);
            assert_eq!(fs::read(test.path("old")).unwrap(), [7; 100_000]);
        }
        test.unmount();
        assert_eq!(test.volume_flags() & DIRTY, DIRTY, "{options}");
    }
}

#[test]
fn a_driver_that_panics_writes_nothing_more() {
    let Some(mut test) = Test::new("exfat_panics", "rw") else {
        return;
    };
    test.unmount();
    test.mount("rw");
    fs::create_dir(test.path("kept")).unwrap();
    let synced = || File::open(test.path("kept")).unwrap().sync_all();
    synced().unwrap();
    fs::create_dir(test.path("lost")).unwrap();
    // The second write of the commit.
    test.device.panic_after(2);
    refused(synced(), Errno::IO);
    test.device.take_log();
    refused(fs::create_dir(test.path("more")), Errno::ROFS);
    refused(fs::write(test.path("old"), b"more"), Errno::ROFS);
    refused(synced(), Errno::ROFS);
    assert_eq!(fs::read(test.path("old")).unwrap(), [7; 100_000]);
    lost(test.mount.take().unwrap());
    assert_eq!(test.device.take_changes(), [], "the end of the mount wrote");
    assert_eq!(test.volume_flags(), DIRTY);
    test.judge();
}

/// Calls `FS_IOC_GETFSLABEL` and `FS_IOC_SETFSLABEL` like programs do.
#[test]
fn the_label_by_ioctl() {
    let Some(perl) = require::program("perl") else {
        return;
    };
    let Some(mut test) = Test::new("exfat_label", "rw") else {
        return;
    };
    let file = test.path("old");
    let call = |script: &str| run(Command::new(&perl).args(["-we", script]).arg(&file));
    let get = "open my $f, '<', $ARGV[0] or die $!; my $label = \"\\0\" x 256; \
               ioctl($f, 0x81009431, $label) or die $!; $label =~ s/\\0.*//s; print $label;";
    assert_eq!(call(get), (true, String::new()));
    let set = |label: &str| {
        format!(
            "open my $f, '<', $ARGV[0] or die $!; my $label = pack('a256', '{label}'); \
             ioctl($f, 0x41009432, $label) or die $!;"
        )
    };
    assert_eq!(call(&set("f\u{fc}nf")), (true, String::new()));
    assert_eq!(call(get), (true, "f\u{fc}nf".to_owned()));
    let (ok, text) = call(&set("longer than 11"));
    assert!(!ok && text.contains("Invalid argument"), "{text}");
    test.unmount();
    test.mount("rw");
    assert_eq!(call(get), (true, "f\u{fc}nf".to_owned()));
    test.unmount();
    test.judge();
}

/// Checks that users who can read and write but did not mount cannot set the label or trim.
#[test]
fn ioctls_that_change_the_volume_are_for_root_and_the_mounting_user() {
    let Some(perl) = require::program("perl") else {
        return;
    };
    let Some(mut test) = Test::new("exfat_ioctl_callers", "rw,allow_other,umask=0") else {
        return;
    };
    test.place.open_to_all();
    let script = "open my $f, '<', $ARGV[1] or die $!; my $bytes = pack($ARGV[2], 0, ~0, 0); \
                  ioctl($f, hex $ARGV[0], $bytes) or die $!;";
    let call = |mut command: Command, ioctl: [&str; 2]| {
        let [number, bytes] = ioctl;
        command.args(["-we", script, number]).arg(test.path("old"));
        run(command.arg(bytes))
    };
    let (trim, get, set) = (
        ["C0185879", "Q3"],
        ["81009431", "a256"],
        ["41009432", "a256"],
    );
    for ioctl in [trim, set] {
        let (ok, text) = call(common::as_nobody(&perl), ioctl);
        assert!(!ok && text.contains("Operation not permitted"), "{text}");
    }
    let (ok, text) = call(common::as_nobody(&perl), get);
    assert!(ok, "{text}");
    let (ok, text) = call(Command::new(&perl), set);
    assert!(ok, "{text}");
    // This device cannot discard; permitted users get that error.
    let (ok, text) = call(Command::new(&perl), trim);
    assert!(!ok && text.contains("Operation not supported"), "{text}");
    // The kernel decides about everything else by owner and mode.
    for refused in [
        "chown 65534 mnt/old",
        "chmod 444 mnt/old",
        "touch -d 2001-01-01 mnt/old",
        "mknod mnt/device b 7 0",
    ] {
        let mut shell = common::as_nobody("sh");
        let shell = shell.args(["-c", refused]).current_dir(test.place.dir());
        let (ok, text) = run(shell);
        assert!(!ok && text.contains("not permitted"), "{refused}: {text}");
    }
    test.unmount();
    test.judge();
}
