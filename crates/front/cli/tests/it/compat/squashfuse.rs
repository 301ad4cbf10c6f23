//! `squashfuse` and `squashfuse_ll`, compared with Debian's programs.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command};

use forerun_testkit::{eventually, require};
use rustix::mount::{MountFlags, UnmountFlags};

use super::{BOTH, By, Names, is_mounted};
use crate::common::volume::Volume;

const PROGRAMS: [&str; 2] = ["squashfuse", "squashfuse_ll"];

/// Creates the links, an image, an image after 4096 other bytes, and a directory to mount on.
fn names() -> Option<Names> {
    if !require::root() || !require::fuse() {
        return None;
    }
    let names = Names::new(&PROGRAMS)?;
    let image = fs::read(names.path("a.sqsh")).unwrap();
    fs::write(names.path("b.AppImage"), [vec![0; 4096], image].concat()).unwrap();
    fs::create_dir(names.path("mnt")).unwrap();
    Some(names)
}

/// The caller, its command line, and whether Debian's version 0.1.105 knows all of its options.
const CALLERS: &[(&str, &[&str], bool)] = &[
    (
        "README of squashfuse",
        &["squashfuse", "a.sqsh", "mnt"],
        true,
    ),
    (
        "README of squashfuse",
        &["squashfuse_ll", "a.sqsh", "mnt"],
        true,
    ),
    (
        "podman-hpc",
        &["squashfuse_ll", "-o", "allow_other", "a.sqsh", "mnt"],
        true,
    ),
    ("charliecloud", &["squashfuse", "-s", "a.sqsh", "mnt"], true),
    ("spack", &["squashfuse", "-o", "ro", "a.sqsh", "mnt"], true),
    (
        "snapd, by mount(8)",
        &[
            "squashfuse",
            "a.sqsh",
            "mnt",
            "-o",
            "ro,nodev,allow_other,suid,dev",
        ],
        true,
    ),
    (
        "snapd, by mount(8), as snapfuse",
        &[
            "squashfuse_ll",
            "a.sqsh",
            "mnt",
            "-o",
            "nodev,ro,x-gdu.hide,x-gvfs-hide,allow_other",
        ],
        false,
    ),
    (
        "AppImage launchers",
        &["squashfuse", "-o", "offset=4096,ro", "b.AppImage", "mnt"],
        true,
    ),
    (
        "AppImage launchers",
        &["squashfuse_ll", "b.AppImage", "mnt", "-o", "offset=4096"],
        true,
    ),
    (
        "Apptainer, squashfuse",
        &[
            "squashfuse",
            "-o",
            "allow_other,ro,uid=7,gid=8,offset=4096",
            "b.AppImage",
            "mnt",
        ],
        true,
    ),
    (
        "Apptainer, squashfuse_ll",
        &[
            "squashfuse_ll",
            "-o",
            "allow_other,ro,uid=7,gid=8,offset=4096",
            "b.AppImage",
            "mnt",
        ],
        false,
    ),
    (
        "scripts",
        &["squashfuse", "-o", "nonempty", "a.sqsh", "mnt"],
        false,
    ),
    (
        "automounters",
        &["squashfuse_ll", "-otimeout=600", "a.sqsh", "mnt"],
        false,
    ),
    (
        "scripts",
        &[
            "squashfuse_ll",
            "-oro",
            "-o",
            "clone_fd,fsname=f,subtype=s",
            "--",
            "a.sqsh",
            "mnt",
        ],
        true,
    ),
    (
        "scripts",
        &[
            "squashfuse",
            "-o",
            "kernel_cache,noatime,attr_timeout=9",
            "a.sqsh",
            "mnt",
        ],
        true,
    ),
];

/// Unmounts once the mount is not busy.
fn unmount(dir: &Path) {
    eventually("the mount is not busy", || {
        rustix::mount::unmount(dir, UnmountFlags::empty()).is_ok()
    });
}

fn tree_of(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_path_buf()];
    while let Some(next) = left.pop() {
        let metadata = fs::symlink_metadata(&next).unwrap();
        let name = next.strip_prefix(dir).unwrap().display();
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let len = if metadata.is_file() {
            metadata.len()
        } else {
            0
        };
        found.push(format!(
            "{name} {mode:o} {uid} {gid} {len} {}",
            metadata.mtime()
        ));
        if metadata.is_dir() {
            let entries = fs::read_dir(next).unwrap();
            left.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found.sort();
    found
}

#[test]
fn callers_get_the_mount_that_they_ask_for() {
    let Some(names) = names() else {
        return;
    };
    let mnt = names.path("mnt");
    for (caller, line, debian_too) in CALLERS {
        let mut trees = Vec::new();
        for by in BOTH {
            if by == By::Other && !debian_too {
                continue;
            }
            let told = names.run(by, ".", line);
            assert_eq!(
                (told.code, told.stderr.as_str()),
                (Some(0), ""),
                "{caller}: {by:?}"
            );
            assert!(is_mounted(&mnt), "{caller}: {by:?}");
            trees.push(tree_of(&mnt));
            let read = fs::read(mnt.join("usr/bin/tool")).unwrap();
            assert_eq!(read, vec![b'x'; 300_000], "{caller}");
            unmount(&mnt);
        }
        if let [other, ours] = trees.as_slice() {
            assert_eq!(other, ours, "{caller}");
        }
        let owner = line.iter().any(|word| word.contains("uid=7"));
        let last = trees.last().unwrap();
        let owned = last.iter().all(|entry| entry.contains(" 7 8 "));
        assert_eq!(owned, owner, "{caller}");
    }
}

#[test]
fn mounts_have_the_type_that_callers_look_for() {
    let Some(names) = names() else {
        return;
    };
    for program in PROGRAMS {
        names
            .run(By::Forerun, ".", &[program, "a.sqsh", "mnt"])
            .ok();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let expected = format!("{program} {} fuse.{program} ", names.path("mnt").display());
        assert!(mounts.contains(&expected), "{mounts}");
        unmount(&names.path("mnt"));
    }
}

#[test]
fn mistakes_have_the_same_text_and_exit_code() {
    let Some(names) = names() else {
        return;
    };
    fs::write(names.path("text"), vec![b'a'; 5000]).unwrap();
    for program in PROGRAMS {
        for line in [
            &["none.sqsh", "mnt"][..],
            &["text", "mnt"],
            &["tree", "mnt"],
            &["-o", "bogus", "a.sqsh", "mnt"],
            &["-o", "ro,bogus,other=1", "a.sqsh", "mnt"],
            &["--bogus", "a.sqsh", "mnt"],
            &["-x", "a.sqsh", "mnt"],
            &["-o", "offset=1", "a.sqsh", "mnt"],
        ] {
            let line = [&[program], line].concat();
            let [other, ours] = BOTH.map(|by| names.run(by, ".", &line));
            let told = |ran: &crate::common::Ran| (ran.code, ran.stderr.clone());
            assert_eq!(told(&other), told(&ours), "{line:?}");
        }
        // These print the usage, which differs from the other program's.
        for line in [
            &[][..],
            &["-h"],
            &["--help"],
            &["-V"],
            &["a.sqsh"],
            &["a.sqsh", "mnt", "more"],
            &["a.sqsh", "none"],
            &["-o", "offset=x", "a.sqsh", "mnt"],
        ] {
            let line = [&[program], line].concat();
            let [other, ours] = BOTH.map(|by| names.run(by, ".", &line));
            assert_eq!(other.code, ours.code, "{line:?}");
            assert_eq!(other.stdout.is_empty(), ours.stdout.is_empty(), "{line:?}");
        }
        assert!(!is_mounted(&names.path("mnt")));
    }
    let refused = names.run(
        By::Forerun,
        ".",
        &["squashfuse_ll", "-o", "subdir=etc", "a.sqsh", "mnt"],
    );
    refused.fails(1, "fuse: unknown option(s): `-o subdir=etc'");
}

#[test]
fn the_usage_has_the_word_that_apptainer_looks_for() {
    let Some(names) = names() else {
        return;
    };
    let told = names.run(By::Forerun, ".", &["squashfuse_ll"]);
    assert!(told.stderr.contains("-o uid="), "{}", told.stderr);
    assert_eq!(told.code, Some(254));
    // charliecloud parses the second word as the version, which must be 0.1.100 or newer.
    let told = names.run(By::Forerun, ".", &["squashfuse", "--help"]);
    assert!(
        told.stderr.starts_with("squashfuse 0.5."),
        "{}",
        told.stderr
    );
}

/// Returns a FUSE mount on `dir` that no process serves yet.
fn mounted_descriptor(dir: &Path) -> OwnedFd {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .unwrap();
    let number = device.as_raw_fd();
    let data = format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other");
    let data = std::ffi::CString::new(data).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    rustix::mount::mount("apptainer", dir, "fuse", flags, data.as_c_str()).unwrap();
    let device = OwnedFd::from(device);
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
    device
}

/// Starts the command line that Apptainer uses in its set-user-ID mode, where source and target are
/// descriptors.
fn start_like_apptainer(names: &Names, by: By, options: &[&str]) -> Child {
    let image = File::open(names.path("b.AppImage")).unwrap();
    rustix::io::fcntl_setfd(&image, rustix::io::FdFlags::empty()).unwrap();
    let device = mounted_descriptor(&names.path("mnt"));
    let source = format!("/proc/self/fd/{}", image.as_raw_fd());
    let target = format!("/dev/fd/{}", device.as_raw_fd());
    let line = [&["squashfuse_ll"], options, &[&source, &target]].concat();
    // This process's descriptors are closed on return.
    names.command(by, ".", &line).spawn().unwrap()
}

#[test]
fn apptainer_passes_a_mounted_descriptor() {
    let Some(names) = names() else {
        return;
    };
    let mnt = names.path("mnt");
    for by in BOTH {
        let mut child =
            start_like_apptainer(&names, by, &["-f", "-o", "allow_other,ro,offset=4096"]);
        let read = fs::read_to_string(mnt.join("etc/passwd")).unwrap();
        assert_eq!(read, "root:x:0:0\n", "{by:?}");
        unmount(&mnt);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{by:?}");
    }
    // In the background mode, the first process ends and the mount continues.
    let mut child = start_like_apptainer(&names, By::Forerun, &["-o", "ro,offset=4096"]);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fs::read(mnt.join("etc/passwd")).unwrap().len(), 11);
    unmount(&mnt);
    // A signal ends the process and its connection; the mount belongs to the caller.
    let mut child = start_like_apptainer(&names, By::Forerun, &["-f", "-o", "ro,offset=4096"]);
    assert_eq!(fs::read(mnt.join("etc/passwd")).unwrap().len(), 11);
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(fs::read_dir(&mnt).is_err());
    unmount(&mnt);
    let line = ["squashfuse_ll", "-o", "timeout=1", "a.sqsh", "/dev/fd/99"];
    assert_eq!(names.run(By::Forerun, ".", &line).code, Some(1));
    let line = ["squashfuse_ll", "-f", "a.sqsh", "/dev/fd/99"];
    let told = names.run(By::Forerun, ".", &line);
    told.fails(1, "fuse: mountpoint /dev/fd/99: Bad file descriptor");
}

#[test]
fn an_idle_mount_ends_unless_it_is_in_use() {
    let Some(names) = names() else {
        return;
    };
    let mnt = names.path("mnt");
    let line = ["squashfuse_ll", "-o", "timeout=1", "a.sqsh", "mnt"];
    names.run(By::Forerun, ".", &line).ok();
    let open = File::open(mnt.join("etc/passwd")).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(is_mounted(&mnt), "a file is open");
    drop(open);
    eventually("the idle mount ends", || !is_mounted(&mnt));
}

/// Compares what other users may read: with libfuse, `allow_other` alone checks no modes.
#[test]
fn allow_other_checks_no_permissions_by_itself() {
    let Some(names) = names() else {
        return;
    };
    if require::program("setpriv").is_none() {
        return;
    }
    let read_as_user = || {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"]);
        let output = user.arg(names.path("mnt/usr/bin/tool")).output().unwrap();
        output.status.success()
    };
    for by in BOTH {
        for (options, expected) in [
            ("allow_other", true),
            ("allow_other,default_permissions", false),
            ("ro", false),
        ] {
            let line = ["squashfuse_ll", "-o", options, "a.sqsh", "mnt"];
            names.run(by, ".", &line).ok();
            assert_eq!(read_as_user(), expected, "{by:?} {options}");
            unmount(&names.path("mnt"));
        }
    }
}

#[test]
fn a_volume_is_not_changed_through_a_descriptor() {
    let Some(volume) = Volume::new("descriptor") else {
        return;
    };
    let told = volume.forerun(&["mount", "-f"], &["/dev/fd/99"]);
    assert_eq!(told.code, Some(2), "{}", told.stderr);
    assert!(
        told.stderr
            .contains("a writable volume can be mounted on a directory only")
    );
    // A read-only mount fails only at the descriptor.
    let told = volume.forerun(&["mount", "-f", "-o", "ro"], &["/dev/fd/99"]);
    assert_eq!(told.code, Some(7), "{}", told.stderr);
}
