//! exFAT through real mounts: POSIX semantics of files, and the errors of refused system calls.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun_fuse::Operation;
use forerun_testkit::require;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::common;
use crate::common::exfat::Volume;
use crate::common::refused;

#[test]
fn a_file_that_the_volume_cannot_hold_is_refused_as_a_full_volume() {
    let Some(volume) = Volume::new("exfat_too_long", 16, &["-c", "4K"]) else {
        return;
    };
    let mount = volume.mount("rw");
    let file = File::create(volume.path("file")).unwrap();
    let allocate = |end| {
        let none = FallocateFlags::empty();
        rustix::fs::fallocate(&file, none, 0, end).map_err(std::io::Error::from)
    };
    // Beyond the end of the volume, and beyond what 32-bit cluster numbers can address.
    let longest = (0xFFFF_FFF5_u64) << 12;
    for end in [17 << 20, 1 << 30, longest] {
        refused(file.write_at(b"x", end - 1), Errno::NOSPC);
        refused(allocate(end), Errno::NOSPC);
        refused(file.set_len(end), Errno::NOSPC);
    }
    for end in [longest + 1, 1 << 60] {
        refused(file.write_at(b"x", end - 1), Errno::FBIG);
        refused(allocate(end), Errno::FBIG);
        refused(file.set_len(end), Errno::FBIG);
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
    file.write_all_at(b"x", 4095).unwrap();
    drop(file);
    volume.done(mount);
}

fn changed(path: &Path) -> SystemTime {
    let metadata = fs::symlink_metadata(path).unwrap();
    let (seconds, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
    UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds as u32)
}

#[test]
fn a_write_leaves_the_time_of_last_access_alone() {
    let Some(volume) = Volume::new("exfat_atime", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    let path = volume.path("file");
    let then = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let options = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .clone();
    let file = options.open(&path).unwrap();
    let set_times = || {
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        file.set_times(times).unwrap();
    };
    let change: [(&str, &dyn Fn()); 4] = [
        ("write", &|| file.write_all_at(&[1; 9000], 0).unwrap()),
        ("longer", &|| file.set_len(20_000).unwrap()),
        ("shorter", &|| file.set_len(10).unwrap()),
        ("allocate", &|| {
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 70_000).unwrap();
        }),
    ];
    for (name, change) in change {
        set_times();
        change();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.accessed().unwrap(), then, "{name}");
        assert!(metadata.modified().unwrap() > then, "{name}");
    }
    set_times();
    let mut bytes = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(metadata.accessed().unwrap(), then, "a read");
    drop(file);
    volume.done(mount);
}

#[test]
fn what_changes_an_inode_moves_its_time_of_change() {
    let Some(volume) = Volume::new("exfat_ctime", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    let (path, other) = (volume.path("file"), volume.path("other"));
    fs::write(&path, b"contents").unwrap();
    fs::create_dir(volume.path("dir")).unwrap();
    let past = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let future = SystemTime::now() + Duration::from_secs(1_000_000);
    let file = File::options().write(true).open(&path).unwrap();
    let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    let change: [(&str, &dyn Fn()); 8] = [
        ("futimens", &|| file.set_modified(past).unwrap()),
        ("access only", &|| {
            file.set_times(fs::FileTimes::new().set_accessed(past))
                .unwrap();
        }),
        ("a time to come", &|| file.set_modified(future).unwrap()),
        ("futimens again", &|| file.set_modified(past).unwrap()),
        ("chmod", &|| mode(0o444)),
        ("chown", &|| {
            std::os::unix::fs::chown(&path, Some(0), None).unwrap()
        }),
        ("rename", &|| fs::rename(&path, &other).unwrap()),
        ("back", &|| fs::rename(&other, &path).unwrap()),
    ];
    for (name, change) in change {
        let before = SystemTime::now();
        change();
        let path = if path.exists() { &path } else { &other };
        let changed = changed(path);
        assert!(changed >= before && changed <= SystemTime::now(), "{name}");
    }
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), past);
    // A write sets both times; the format stores hundredths of a second.
    let before = changed(&path);
    file.write_all_at(b"more", 0).unwrap();
    let after = changed(&path);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    assert!(after >= before && after >= modified);
    assert!(modified + Duration::from_millis(10) > before);
    drop(file);
    volume.done(mount);
}

#[test]
fn what_is_open_and_has_no_name_left_has_no_links() {
    let Some(volume) = Volume::new("exfat_nlink", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    let (one, other, dir) = (volume.path("one"), volume.path("other"), volume.path("dir"));
    let file = File::create(&one).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 1);
    fs::remove_file(&one).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0, "unlinked");
    (&file).write_all(b"still").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    drop(file);
    let file = File::create(&one).unwrap();
    fs::write(&other, b"other").unwrap();
    fs::rename(&other, &one).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0, "replaced");
    drop(file);
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 1);
    // The driver does not know about these open files.
    let path_only = rustix::fs::OFlags::PATH.bits() as i32;
    let file = File::options()
        .read(true)
        .custom_flags(path_only)
        .open(&one);
    let file = file.unwrap();
    fs::remove_file(&one).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.nlink(), metadata.len()), (0, 5), "O_PATH");
    fs::create_dir(&dir).unwrap();
    let before = SystemTime::now();
    let opened = File::open(&dir).unwrap();
    fs::remove_dir(&dir).unwrap();
    let metadata = opened.metadata().unwrap();
    assert!(metadata.is_dir() && metadata.nlink() == 0, "{metadata:?}");
    let times = fs::FileTimes::new().set_modified(UNIX_EPOCH);
    opened.set_times(times).unwrap();
    let metadata = opened.metadata().unwrap();
    assert_eq!(metadata.modified().unwrap(), UNIX_EPOCH);
    assert!(metadata.ctime() >= before.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64);
    // New nodes get the IDs of the removed ones, but must not be mistaken for them.
    fs::create_dir(&dir).unwrap();
    assert_eq!(opened.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::metadata(&dir).unwrap().nlink(), 1);
    drop((file, opened));
    volume.done(mount);
}

#[test]
fn a_file_made_read_only_is_written_by_its_maker() {
    let Some(perl) = require::program("perl") else {
        return;
    };
    for options in [
        "rw",
        "rw,default_permissions",
        "rw,allow_other,umask=0",
        "rw,allow_other,uid=65534,gid=65534",
    ] {
        let Some(volume) = Volume::new("exfat_made_read_only", 16, &[]) else {
            return;
        };
        let mut mount = volume.mount(options);
        // As root, and as a user who is subject to permissions.
        volume.shell("chmod 755 . && mkdir mnt/dir");
        let script = r"use Fcntl;
            sysopen(my $file, 'mnt/dir/file', O_CREAT | O_RDWR | O_EXCL, 0444) or die $!;
            syswrite($file, 'x' x 9000) == 9000 or die $!;
            truncate($file, 5000) && truncate($file, 8192) or die $!;
            sysseek($file, 6000, 0) && syswrite($file, 'y') or die $!;
            sysseek($file, 5999, 0) && sysread($file, my $bytes, 2) or die $!;
            $bytes eq qq(\0y) && !((stat $file)[2] & 0222) or die 'contents or mode';
            my $again = sysopen(my $other, 'mnt/dir/file', O_RDWR);
            !$again == !!$< or die 'opened by a user who may not';
            unlink 'mnt/dir/file' or die $!;";
        let run_as = |mut command: Command| {
            command
                .args(["-we", script])
                .current_dir(volume.place.dir());
            let (ok, text) = common::run(&mut command);
            assert!(ok, "{options}: {text}");
        };
        run_as(Command::new(&perl));
        if options.contains("allow_other") {
            run_as(common::as_nobody(&perl));
        }
        mount.unmount().unwrap();
        mount.wait().unwrap();
        volume.judge();
    }
}

#[test]
fn fstrim_refuses_what_the_kernel_s_drivers_refuse() {
    let Some(volume) = Volume::new("exfat_trim", 64, &["-c", "4K"]) else {
        return;
    };
    let mount = volume.mount("rw");
    let trim = |options: &[&str]| {
        let mnt = volume.place.mnt();
        common::run(Command::new("fstrim").arg("-v").args(options).arg(mnt))
    };
    for options in [
        &["-o", "64M"][..],
        &["-o", "18446744073709551615"],
        &["-o", "64M", "-l", "1M"],
        &["-o", "18446744073709551615", "-l", "1M"],
        &["-l", "4095"],
        &["-l", "0"],
        &["-m", "65M"],
        &["-m", "18446744073709551615"],
    ] {
        let (ok, text) = trim(options);
        assert!(
            !ok && text.contains("Invalid argument"),
            "{options:?}: {text}"
        );
    }
    for options in [
        &[][..],
        &["-o", "10M"],
        &["-l", "18446744073709551615"],
        &["-o", "10M", "-l", "18446744073709551615"],
        &["-l", "4096"],
        &["-m", "1M"],
    ] {
        let (ok, text) = trim(options);
        assert!(ok && text.contains("trimmed"), "{options:?}: {text}");
    }
    let (_, all) = trim(&[]);
    assert!(all.contains("MiB"), "most of the volume: {all}");
    volume.done(mount);
}

#[test]
fn the_option_keep_last_dots_reaches_the_driver() {
    let Some(volume) = Volume::new("exfat_last_dots", 16, &[]) else {
        return;
    };
    for (options, made, name) in [
        ("rw", "dropped..", "dropped"),
        ("rw,keep_last_dots", "kept..", "kept.."),
    ] {
        let mount = volume.mount(options);
        fs::write(volume.path(made), b"").unwrap();
        // Read the listing completely, so that no directory is open at unmount.
        let listed = fs::read_dir(volume.path("")).unwrap();
        let names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.iter().any(|listed| listed == name), "{names:?}");
        volume.done(mount);
    }
}

#[test]
fn lists_of_extended_attributes_are_empty() {
    let Some(volume) = Volume::new("exfat_xattr", 16, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    let path = volume.path("file");
    fs::write(&path, b"").unwrap();
    let mut room = [0; 64];
    for _ in 0..5 {
        assert_eq!(rustix::fs::listxattr(&path, &mut room), Ok(0));
        assert_eq!(rustix::fs::listxattr(&path, &mut [0; 0]), Ok(0));
        let value = rustix::fs::getxattr(&path, "user.x", &mut room);
        assert_eq!(value, Err(Errno::OPNOTSUPP));
    }
    let requests = mount.requests();
    assert!(requests.get(Operation::Getxattr) <= 1, "{requests}");
    volume.shell("tar --xattrs -cf all.tar -C mnt . 2> message; ! grep . message");
    volume.done(mount);
}

#[test]
fn making_and_removing_files_takes_four_requests_each() {
    let Some(volume) = Volume::new("exfat_requests", 64, &[]) else {
        return;
    };
    let mount = volume.mount("rw");
    fs::create_dir(volume.path("dir")).unwrap();
    let before = mount.requests();
    for n in 0..1000 {
        let path = volume.path(&format!("dir/file {n}"));
        fs::write(&path, b"contents").unwrap();
        fs::remove_file(&path).unwrap();
    }
    let after = mount.requests();
    let spent = |operation| after.get(operation) - before.get(operation);
    // CREATE, WRITE, UNLINK; LOOKUP of the missing name; RELEASE.
    assert_eq!(spent(Operation::Write), 3000, "{after}");
    assert!(spent(Operation::Lookup) <= 2000, "{after}");
    assert!(spent(Operation::Getattr) <= 1, "{after}");
    assert!(
        spent(Operation::Flush) + spent(Operation::Getxattr) <= 2,
        "{after}"
    );
    volume.done(mount);
}
