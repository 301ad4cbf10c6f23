//! exFAT on loop devices: the kernel's I/O counts, and a device that shrinks.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use forerun::unstable::VolumeMut;
use forerun_fuse::{Mount, MountOptions, mount_volume};
use forerun_io::Counter;
use forerun_testkit::LoopDevice;
use forerun_testkit::exfat_tools::{self, assert_clean};

use crate::common::{Place, can_mount, run};

/// Creates a volume with mkfs.exfat. Returns whether this machine can.
fn mkfs(path: &Path, mib: u64, options: &[&str]) -> bool {
    can_mount() && exfat_tools::mkfs(path, mib << 20, options)
}

fn ended(mut mount: Mount) {
    mount.unmount().unwrap();
    mount.wait().unwrap();
}

/// Returns the kernel's counts of writes, merged writes, bytes written, and flushes.
fn counted(device: &LoopDevice) -> [u64; 4] {
    let stat = format!(
        "/sys/block/{}/stat",
        device.0.file_name().unwrap().to_str().unwrap()
    );
    let text = fs::read_to_string(stat).unwrap();
    let field = |index: usize| -> u64 {
        let word = text.split_whitespace().nth(index);
        word.map_or(0, |word| word.parse().unwrap())
    };
    [field(4), field(5), field(6) * 512, field(15)]
}

/// Compares our counters with the kernel's, which count what reaches the device. With sectors of
/// less than 4 KiB the kernel would write whole pages anyway.
#[test]
fn the_kernel_counts_what_we_count() {
    let place = Place::new("exfat_stat");
    let image = place.dir().join("image");
    if !can_mount() {
        return;
    }
    File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let device = LoopDevice::new(&image, &["--sector-size=4096"]);
    if !mkfs(&device.0, 0, &["-c", "32K"]) {
        return;
    }
    for options in ["rw,dirsync", "rw"] {
        let (ok, text) = run(Command::new("sync").arg(&device.0));
        assert!(ok, "{text}");
        let parsed = MountOptions::parse(options).unwrap();
        let volume = VolumeMut::open(&device.0, &parsed.open_options(), &parsed.write).unwrap();
        let mut mount = mount_volume(volume.volume().clone(), &place.mnt(), &parsed).unwrap();
        let (stats, before) = (mount.stats(), counted(&device));
        let dir = place.mnt().join("dir");
        fs::create_dir(&dir).unwrap();
        for n in 0..20 {
            fs::write(dir.join(format!("file {n}")), vec![n; 8192]).unwrap();
        }
        let big = File::create(dir.join("big")).unwrap();
        for n in 0..16 {
            big.write_all_at(&vec![n as u8; 1 << 20], n << 20).unwrap();
        }
        big.sync_all().unwrap();
        drop(big);
        for n in 0..20 {
            fs::remove_file(dir.join(format!("file {n}"))).unwrap();
        }
        fs::remove_file(dir.join("big")).unwrap();
        fs::remove_dir(&dir).unwrap();
        mount.unmount().unwrap();
        mount.wait().unwrap();
        let ours = mount.stats().since(&stats);
        drop((mount, volume));
        let after = counted(&device);
        let [writes, merged, bytes, flushes] = [0, 1, 2, 3].map(|n| after[n] - before[n]);
        let said = format!(
            "{options}: {writes} writes and {merged}, {bytes} bytes, {flushes} flushes; {ours}"
        );
        assert_eq!(bytes, ours.get(Counter::WrittenBytes), "{said}");
        assert_eq!(flushes, ours.get(Counter::Flushes), "{said}");
        // The kernel splits our writes into pages of its cache and merges adjacent ones, so only
        // the bytes and flushes must be equal.
        assert!(writes > 0 && writes + merged <= bytes / 4096, "{said}");
    }
    assert_clean(&device.0);
}

/// Truncates the file below a mounted loop device: writes then fail with EIO or EROFS.
#[test]
fn a_loop_device_that_shrinks() {
    let place = Place::new("exfat_shrinks");
    let image = place.dir().join("image");
    if !mkfs(&image, 64, &["-c", "4K"]) {
        return;
    }
    let device = LoopDevice::new(&image, &["--sector-size=4096"]);
    let options = MountOptions::parse("rw,dirsync").unwrap();
    let volume = VolumeMut::open(&device.0, &options.open_options(), &options.write);
    let mount = mount_volume(volume.unwrap().volume().clone(), &place.mnt(), &options).unwrap();
    let path = |name: &str| place.mnt().join(name);
    fs::write(path("one"), [1; 10_000]).unwrap();
    // The bitmap and directories are near the start, most data after them.
    File::options()
        .write(true)
        .open(&image)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let made: Vec<_> = (0..20)
        .map(|n| fs::write(path(&format!("{n}")), [1; 1 << 16]))
        .collect();
    for error in made.into_iter().filter_map(Result::err) {
        assert!(matches!(error.raw_os_error(), Some(5 | 30)), "{error}");
    }
    ended(mount);
    drop(device);
}
