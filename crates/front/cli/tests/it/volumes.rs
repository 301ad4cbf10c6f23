//! Writable volumes, mounted by the command: read-write if intended, and traced.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun::MemorySource;
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::{eventually, require};
use forerun_testkit_servers::{Auth, DockerRegistry};

use crate::common::place::{Place, name_at};
use crate::common::volume::{Small, Volume, as_nobody, unmount};
use crate::common::{command, ran};

#[test]
fn read_write_unless_told_otherwise() {
    let Some(volume) = Volume::new("volume_rw") else {
        return;
    };
    volume.mount(&[]).ok();
    fs::write(volume.mnt().join("file"), b"contents").unwrap();
    let again = volume.mount(&[]);
    assert_ne!(again.code, Some(0));
    volume.umount();
    volume.mount(&["-o", "ro"]).ok();
    assert_eq!(fs::read(volume.mnt().join("file")).unwrap(), b"contents");
    let refused = fs::write(volume.mnt().join("other"), b"").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    volume.umount();
}

/// Mounts right after umount(8), which returns before the process of the mount has ended.
#[test]
fn a_volume_is_mounted_again_right_after_umount() {
    let Some(volume) = Volume::new("volume_again") else {
        return;
    };
    for n in 0..20 {
        volume.mount(&[]).ok();
        fs::write(volume.mnt().join("file"), vec![n; 1 << 20]).unwrap();
        // A program that another test is starting may hold a copy of the open file until its exec.
        eventually("nothing of the mount is open", || {
            let unmounted = Command::new("umount").arg(volume.mnt()).status();
            unmounted.unwrap().success()
        });
    }
    volume.mount(&[]).ok();
    assert_eq!(fs::read(volume.mnt().join("file")).unwrap(), [19; 1 << 20]);
    volume.umount();
}

/// Calls the helper as mount(8) does, with everything that the kernel shows of the mount.
#[test]
fn a_volume_is_remounted_read_only_and_back() {
    let Some(volume) = Volume::new("volume_remount") else {
        return;
    };
    let file = volume.mnt().join("file");
    let shown = "nosuid,nodev,relatime,remount,user_id=0,group_id=0";
    let remount = |mode: &str| volume.mount(&["-o", &format!("{mode},{shown}")]);
    let refused = remount("ro");
    assert!(refused.code == Some(7) && refused.stderr.contains("nothing is mounted"));
    volume.mount(&[]).ok();
    let open = fs::File::create(&file).unwrap();
    let refused = remount("ro");
    assert!(refused.code == Some(7) && refused.stderr.contains("busy"));
    drop(open);
    fs::write(&file, b"contents").unwrap();
    remount("ro").ok();
    let error = fs::write(&file, b"more").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // All changes are on the device, and the volume is marked clean.
    volume.tool("fsck.exfat", &["-n"]);
    let image = fs::read(volume.image()).unwrap();
    assert_eq!(image[106], 0, "VolumeFlags");
    assert!(image.windows(8).any(|bytes| bytes == b"contents"));
    remount("rw,noexec").ok();
    fs::write(&file, b"more").unwrap();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mnt = volume.mnt().display().to_string();
    let line = mounts.lines().find(|line| line.contains(&mnt)).unwrap();
    assert!(line.contains("rw,nosuid,nodev,noexec"), "{line}");
    volume.umount();
}

#[test]
fn a_mount_of_plain_type_fuse_is_known_as_ours() {
    let Some(volume) = Volume::new("volume_plain") else {
        return;
    };
    volume.mount(&["-o", "subtype="]).ok();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let shown = format!(" {} fuse ", volume.mnt().display());
    assert!(mounts.contains(&shown), "{mounts}");
    fs::write(volume.mnt().join("file"), b"contents").unwrap();
    volume.umount();
}

/// Sets a label as the unprivileged user who mounted, which root may do as well.
#[test]
fn a_mounting_user_without_privileges_names_the_volume() {
    let Some(volume) = Volume::new("volume_label") else {
        return;
    };
    let tools = ["setpriv", "perl"].map(require::program);
    if !require::fusermount() || tools.contains(&None) {
        return;
    }
    let nobody = Some(65534);
    volume.open_to_all();
    for path in [volume.image(), volume.mnt()] {
        std::os::unix::fs::chown(path, nobody, nobody).unwrap();
    }
    let as_nobody =
        |program: &Path, args: &[&Path]| ran(as_nobody(program).args(args).output().unwrap());
    let forerun = command(&["mount"]).get_program().to_owned();
    let mount = [Path::new("mount"), &volume.image(), &volume.mnt()];
    as_nobody(Path::new(&forerun), &mount).ok();
    let script = "open my $f, '<', $ARGV[0] or die $!; my $label = pack('a256', 'OURS'); \
                  ioctl($f, 0x41009432, $label) or die $!;";
    let args = [Path::new("-we"), Path::new(script), &volume.mnt()];
    as_nobody(Path::new("perl"), &args).ok();
    let unmount = [Path::new("umount"), &volume.mnt()];
    as_nobody(Path::new(&forerun), &unmount).ok();
    let label = ran(command(&[Path::new("label"), &volume.image()])
        .output()
        .unwrap());
    assert_eq!(label.ok().stdout, b"OURS\n");
}

#[test]
fn a_trace_of_a_mount() {
    let Some(volume) = Volume::new("volume_trace") else {
        return;
    };
    let trace = volume.path("trace");
    volume.mount(&["--trace", trace.to_str().unwrap()]).ok();
    fs::write(volume.mnt().join("file"), vec![1; 300_000]).unwrap();
    volume.umount();
    // The trace is complete when the process has ended, which is later than the unmount.
    let sum = || ran(command(&[Path::new("trace"), &trace]).output().unwrap());
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !sum().text().contains("data") {
        assert!(std::time::Instant::now() < patience, "no end of the trace");
        std::thread::yield_now();
    }
    let table = sum().ok();
    for word in [
        "read",
        "write",
        "flush",
        "boot",
        "bitmap",
        "directory",
        "300000",
    ] {
        assert!(table.text().contains(word), "{word}: {}", table.text());
    }
    let json = [Path::new("trace"), Path::new("--json"), &trace];
    let json = ran(command(&json).output().unwrap()).ok().json();
    let written = &json["totals"][1];
    assert_eq!(written["request"], "write");
    assert!(written["bytes"].as_u64().unwrap() < 310_000, "{written}");
    fs::write(&trace, "nonsense\n").unwrap();
    assert_eq!(sum().code, Some(4));
}

#[test]
fn a_rescue_mount_shows_what_a_damaged_volume_still_has() {
    let Some(volume) = Volume::new("volume_rescue") else {
        return;
    };
    volume.mount(&[]).ok();
    fs::write(volume.mnt().join("file"), b"contents").unwrap();
    volume.umount();
    let mut bytes = fs::read(volume.image()).unwrap();
    let table = judge(&MemorySource::new(bytes.clone())).unwrap().geometry;
    let root = usize::try_from(table.offset(table.root)).unwrap();
    let mut entries = bytes[root..].chunks_exact_mut(32);
    let bitmap = entries.find(|entry| entry[0] == 0x81).unwrap();
    bitmap[24..32].fill(0);
    fs::write(volume.image(), &bytes).unwrap();
    let refused = volume.mount(&[]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("mount -o salvage shows"),
        "{}",
        refused.stderr
    );
    let both = volume.mount(&["-o", "rw,salvage"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
    let rescued = volume.mount(&["-o", "salvage"]);
    assert_eq!(rescued.code, Some(0), "{}", rescued.stderr);
    assert!(
        rescued.stderr.contains("passed over: damaged exfat image"),
        "{}",
        rescued.stderr
    );
    assert_eq!(fs::read(volume.mnt().join("file")).unwrap(), b"contents");
    let denied = fs::write(volume.mnt().join("file"), b"other").unwrap_err();
    assert_eq!(denied.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let unmount = [Path::new("umount"), &volume.mnt()];
    ran(command(&unmount).output().unwrap()).ok();
    assert!(
        fs::read(volume.image()).unwrap() == bytes,
        "a rescue wrote to the volume"
    );
}

#[test]
fn a_volume_marked_dirty_is_mounted_with_a_warning_that_names_the_repair() {
    let Some(volume) = Volume::new("volume_dirty") else {
        return;
    };
    let unmount = || unmount(&volume.mnt());
    // `ok` also asserts that there is no message.
    volume.mount(&[]).ok();
    unmount();
    for (flags, said) in [
        (2, "marked dirty"),
        (4, "marked as having failed"),
        (6, "marked dirty"),
    ] {
        let mut bytes = fs::read(volume.image()).unwrap();
        bytes[106] = flags;
        fs::write(volume.image(), &bytes).unwrap();
        for options in [&[][..], &["-o", "ro"]] {
            let mounted = volume.mount(options);
            unmount();
            let has_one =
                mounted.stderr.matches("check --repair").count() == usize::from(flags & 2 != 0);
            assert!(
                mounted.stderr.contains(said) && has_one,
                "{flags} {options:?}: {}",
                mounted.stderr
            );
        }
    }
    let mut bytes = fs::read(volume.image()).unwrap();
    bytes[106] = 2;
    fs::write(volume.image(), &bytes).unwrap();
    let repaired = volume.forerun(&["check", "--repair", "--yes"], &[]);
    assert_eq!(repaired.code, Some(8), "{}", repaired.stderr);
    volume.mount(&[]).ok();
    unmount();
}

#[test]
fn a_full_disk_below_a_sparse_volume_is_enospc_for_the_writer() {
    let Some(volume) = Volume::new("volume_full_disk") else {
        return;
    };
    let small = volume.path("small");
    fs::create_dir(&small).unwrap();
    let tmpfs = Small::on(&small);
    let image = small.join("sparse.img");
    let mnt = volume.mnt();
    let full = |error: std::io::Error| assert_eq!(error.raw_os_error(), Some(28), "{error}");
    let synced = |name: &str| fs::File::open(mnt.join(name)).unwrap().sync_all();
    for is_full_in_the_end in [false, true] {
        let _none_at_first = fs::remove_file(&image);
        tmpfs.resize("8M");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let made = Command::new("mkfs.exfat").arg(&image).output().unwrap();
        assert!(made.status.success(), "{made:?}");
        ran(command(&[Path::new("mount"), &image, &mnt])
            .output()
            .unwrap())
        .ok();
        fs::write(mnt.join("kept"), b"kept").unwrap();
        synced("kept").unwrap();
        full(fs::write(mnt.join("large"), vec![7; 16 << 20]).unwrap_err());
        // The directory itself has nothing on the device yet.
        fs::create_dir(mnt.join("dir")).unwrap();
        full(synced("dir").unwrap_err());
        assert_eq!(fs::read(mnt.join("kept")).unwrap(), b"kept");
        fs::write(mnt.join("empty"), b"").unwrap();
        fs::remove_file(mnt.join("large")).unwrap();
        full(synced("kept").unwrap_err());
        if is_full_in_the_end {
            let umount = |options: &[&str]| {
                let mut umount = command(&["umount"]);
                ran(umount.args(options).arg(&mnt).output().unwrap())
            };
            let refused = umount(&[]);
            assert_eq!(refused.code, Some(7), "{}", refused.stderr);
            let said =
                "stays mounted: its last changes could not be written: No space left on device";
            assert!(refused.stderr.contains(said), "{}", refused.stderr);
            assert_eq!(fs::read(mnt.join("kept")).unwrap(), b"kept");
            let forced = umount(&["--force"]);
            assert_eq!(forced.code, Some(7), "{}", forced.stderr);
            let said = "is unmounted, and its last changes are lost: No space left on device";
            assert!(forced.stderr.contains(said), "{}", forced.stderr);
        } else {
            tmpfs.resize("64M");
            synced("dir").unwrap();
            fs::write(mnt.join("dir/file"), vec![9; 16 << 20]).unwrap();
            unmount(&mnt);
        }
        tmpfs.resize("64M");
        let fsck = Command::new("fsck.exfat")
            .arg("-n")
            .arg(&image)
            .output()
            .unwrap();
        assert!(fsck.status.success(), "{fsck:?}");
        let checked = command(&[Path::new("check"), &image]).output().unwrap();
        let checked = ran(checked);
        assert_eq!(checked.code, Some(0), "{}", checked.text());
        assert_eq!(checked.stderr.contains("marked dirty"), is_full_in_the_end);
        let listed = command(&[Path::new("ls"), Path::new("-q"), &image]).output();
        let listed = ran(listed.unwrap());
        let names = listed.text();
        let is_as_written = if is_full_in_the_end {
            names.contains("kept\n") && !names.contains("dir\n")
        } else {
            names == "dir\nempty\nkept\n"
        };
        assert!(is_as_written, "{names}");
    }
}

/// Runs a command in the mount, a mount in the foreground, and umount(8)'s helper over a volume
/// whose disk is full.
#[test]
fn the_end_of_a_mount_fails_where_its_last_changes_cannot_be_written() {
    let Some(volume) = Volume::new("volume_full_end") else {
        return;
    };
    let small = volume.path("small");
    fs::create_dir(&small).unwrap();
    let tmpfs = Small::on(&small);
    let (image, mnt) = (small.join("sparse.img"), volume.mnt());
    fs::File::create(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let made = Command::new("mkfs.exfat").arg(&image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let fill = small.join("fill");
    let _until_full = fs::write(&fill, vec![1; 8 << 20]).unwrap_err();
    let lost = "its last changes are lost: No space left on device";
    let is_dirty = || fs::read(&image).unwrap()[106] & 2 != 0;

    let mut with_command = command(&["mount"]);
    with_command.args([&image, &mnt]);
    with_command.args(["--", "sh", "-c", "mkdir $0/a && touch $0/a/f"]);
    let ended = ran(with_command.arg(&mnt).output().unwrap());
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    assert!(ended.stderr.contains(lost), "{}", ended.stderr);
    assert!(is_dirty());

    let mut foreground = command(&["mount", "-f"]);
    foreground
        .args([&image, &mnt])
        .stderr(std::process::Stdio::piped());
    let foreground = foreground.spawn().unwrap();
    eventually("the volume is mounted", || {
        fs::read_to_string("/proc/self/mounts")
            .unwrap()
            .contains(&format!(" {} ", mnt.display()))
    });
    fs::create_dir(mnt.join("b")).unwrap();
    let helper = || {
        let program = command(&["mount"]).get_program().to_owned();
        let mut helper = Command::new(program);
        std::os::unix::process::CommandExt::arg0(&mut helper, "/sbin/umount.fuse.forerun");
        helper
    };
    let refused = ran(helper().arg(&mnt).output().unwrap());
    assert_eq!(refused.code, Some(32), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("stays mounted"),
        "{}",
        refused.stderr
    );
    // Without the helper, only the server can report it.
    eventually("nothing of the mount is open", || {
        let unmounted = Command::new("umount").arg("-i").arg(&mnt).status();
        unmounted.unwrap().success()
    });
    let ended = ran(foreground.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    for said in ["the last changes are lost: ", "No space left on device"] {
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    }
    assert!(is_dirty());
    drop(tmpfs);
}

/// As in Linux, a file in use as a program is not truncated.
#[test]
fn a_running_program_is_not_emptied_by_an_open_that_would_truncate_it() {
    let Some(volume) = Volume::new("volume_running") else {
        return;
    };
    volume.mount(&["-o", "exec"]).ok();
    let program = volume.mnt().join("sleep");
    let sleep = require::program("sleep").unwrap();
    fs::copy(&sleep, &program).unwrap();
    let mut running = Command::new(&program).arg("100").spawn().unwrap();
    let before = fs::read(&sleep).unwrap();
    eventually("the program runs", || {
        let exe = format!("/proc/{}/exe", running.id());
        fs::read_link(exe).is_ok_and(|exe| exe == program)
    });
    // O_RDONLY with O_TRUNC, which std refuses.
    let script = "use Fcntl; sysopen(my $f, $ARGV[0], O_RDONLY | O_TRUNC) and exit 1; exit($!{ETXTBSY} ? 0 : 2)";
    let mut perl = Command::new("perl");
    let tried = perl.args(["-MErrno", "-e", script]).arg(&program).status();
    let status = tried.unwrap();
    let after = fs::read(&program).unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(after == before, "{} bytes are left", after.len());
    let file = volume.mnt().join("file");
    fs::write(&file, b"contents").unwrap();
    fs::write(&file, b"new").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new");
    volume.umount();
}

#[test]
fn a_read_only_mount_has_the_options_of_owners_and_times() {
    let Some(volume) = Volume::new("volume_ro_options") else {
        return;
    };
    volume.mount(&[]).ok();
    let file = volume.mnt().join("file");
    fs::write(&file, b"contents").unwrap();
    volume.umount();
    let look = |options: &str| {
        volume.mount(&["-o", options]).ok();
        let metadata = fs::metadata(&file).unwrap();
        volume.umount();
        let shown = std::os::unix::fs::MetadataExt::mtime(&metadata);
        (
            shown,
            std::os::unix::fs::MetadataExt::mode(&metadata) & 0o777,
        )
    };
    // Timestamps of forerun have a time zone; those of cameras have none.
    let mut bytes = fs::read(volume.image()).unwrap();
    let stream = |bytes: &[u8]| {
        let name: Vec<u8> = "file".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let found = bytes.windows(name.len()).position(|window| window == name);
        found.unwrap() - 66
    };
    let at = stream(&bytes);
    for zone in 22..25 {
        bytes[at + zone] = 0;
    }
    let sum = (0..96)
        .filter(|byte| ![2, 3].contains(byte))
        .fold(0u16, |sum, byte| {
            sum.rotate_right(1).wrapping_add(bytes[at + byte].into())
        });
    bytes[at + 2..at + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(volume.image(), &bytes).unwrap();
    for access in ["rw", "ro"] {
        let (utc, mode) = look(access);
        assert_eq!(mode, 0o755, "{access}");
        let (east, mode) = look(&format!("{access},time_offset=60,fmask=077"));
        assert_eq!((utc - east, mode), (3600, 0o700), "{access}");
    }
}

#[test]
fn a_repair_writes_nothing_where_the_disk_of_the_undo_file_is_full() {
    let Some(volume) = Volume::new("volume_full_undo") else {
        return;
    };
    let mut damaged = fs::read(volume.image()).unwrap();
    damaged[100] ^= 1;
    fs::write(volume.image(), &damaged).unwrap();
    let small = volume.path("small");
    fs::create_dir(&small).unwrap();
    let tmpfs = Small::on(&small);
    tmpfs.resize("4K");
    let file = small.join("undo");
    let name = file.to_str().unwrap();
    let undo = ["--undo-file", name];
    let refused = volume.forerun(&["check", "--repair", "--yes"], &undo);
    assert_eq!(refused.code, Some(5));
    let said = format!("undo file {}: No space left on device", file.display());
    assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("--undo-file none"),
        "{}",
        refused.stderr
    );
    assert!(fs::read(volume.image()).unwrap() == damaged);
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    tmpfs.resize("64K");
    let repaired = volume.forerun(&["check", "--repair", "--yes"], &undo);
    assert_eq!(repaired.code, Some(8), "{}", repaired.stderr);
    volume.forerun(&["check", "--undo", name], &[]).ok();
    assert!(fs::read(volume.image()).unwrap() == damaged);
}

#[test]
fn a_mount_in_the_background_says_that_it_only_reads() {
    if !require::root() || !require::fuse() {
        return;
    }
    let dir = forerun_testkit::temp_dir("only_reads");
    let at = |name: &str| dir.path().join(name);
    for name in ["tree", "mnt"] {
        fs::create_dir(at(name)).unwrap();
    }
    let run = |args: &[&str]| ran(command(args).current_dir(dir.path()).output().unwrap());
    run(&["pack", "-q", "--format", "squashfs", "tree", "image"]).ok();
    let mounted = run(&["mount", "-o", "rw", "image", "mnt"]);
    unmount(&at("mnt"));
    mounted.fails(
        0,
        "forerun: images of this format cannot be written to: mounting read-only",
    );
}

#[test]
fn a_mount_in_the_background_of_an_image_at_a_server_says_that_it_only_reads() {
    if !require::root() || !require::fuse() {
        return;
    }
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let place = Place::new();
    let name = name_at(&registry, "1");
    place.run(&["push", "-q", "image", &name]).ok();
    let mounted = place.run(&["mount", "-o", "rw", &name, "mnt"]);
    let small = fs::read(place.path("mnt/small"));
    place.run(&["umount", "mnt"]).ok();
    mounted.fails(
        0,
        "forerun: images at servers cannot be written to: mounting read-only",
    );
    assert_eq!(small.unwrap(), b"small\n");
}

#[test]
fn names_that_a_mounted_volume_folds_are_left_out_and_told() {
    let Some(volume) = Volume::new("folding") else {
        return;
    };
    let tree = volume.path("tree");
    fs::create_dir_all(tree.join("dir")).unwrap();
    for name in ["F", "f", "dir/X", "dir/x", "other"] {
        fs::write(tree.join(name), name).unwrap();
    }
    let image = volume.path("tree.sqsh");
    let args = [Path::new("pack"), Path::new("-q"), &tree, &image];
    assert_eq!(ran(command(&args).output().unwrap()).code, Some(0));
    volume.mount(&[]).ok();
    for force in [&[][..], &["--force"]] {
        let mut all = command(&["extract", "--owner", "caller"]);
        all.args(force).arg("-C").arg(volume.mnt()).arg(&image);
        let ran = ran(all.output().unwrap());
        assert_eq!(ran.code, Some(6), "{}", ran.stderr);
        for name in ["/f", "/dir/x"] {
            assert!(ran.stderr.contains(name), "{}", ran.stderr);
        }
        for (name, expected) in [("F", "F"), ("dir/X", "dir/X"), ("other", "other")] {
            assert_eq!(
                fs::read_to_string(volume.mnt().join(name)).unwrap(),
                expected
            );
        }
        assert_eq!(
            fs::read_dir(volume.mnt()).unwrap().count(),
            3,
            "and nothing else"
        );
    }
    volume.umount();
}
