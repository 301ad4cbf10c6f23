//! Apptainer: the calls of its image driver and, with FORERUN_EXTRAS, the program itself.

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use forerun_testkit::{eventually, require};
use rustix::mount::UnmountFlags;

use super::{BOTH, By, Names, is_mounted};

const USER: u32 = 65534;

/// Offset of the image in a SIF file, as Apptainer writes it.
const OFFSET: usize = 36_864;

/// Creates the links, an image behind a header, and a directory to mount on.
fn names() -> Option<Names> {
    if !require::root() || !require::fuse() {
        return None;
    }
    let names = Names::new(&["squashfuse_ll", "mksquashfs", "unsquashfs"])?;
    let image = fs::read(names.path("a.sqsh")).unwrap();
    let image = [vec![0; OFFSET], image].concat();
    fs::write(names.path("cut.sif"), &image[..OFFSET + 200]).unwrap();
    fs::write(names.path("box.sif"), image).unwrap();
    fs::create_dir(names.path("mnt")).unwrap();
    Some(names)
}

/// Starts a mount as the image driver does: an open file as the source, its own process group, an
/// almost empty environment, and pipes for both outputs. Passes the owner if the usage mentions `-o
/// uid=`.
fn start(names: &Names, by: By, image: &str) -> Child {
    let usage = names.run(by, ".", &["squashfuse_ll"]);
    let takes_owner = usage.text().contains("-o uid=") || usage.stderr.contains("-o uid=");
    let owner = if takes_owner { ",uid=0,gid=0" } else { "" };
    let image = File::open(names.path(image)).unwrap();
    rustix::io::fcntl_setfd(&image, rustix::io::FdFlags::empty()).unwrap();
    let source = format!("/proc/self/fd/{}", image.as_raw_fd());
    let options = format!("allow_other,ro{owner},offset={OFFSET}");
    let target = names.path("mnt").display().to_string();
    let line = ["squashfuse_ll", "-f", "-o", &options, &source, &target];
    let mut command = names.command(by, ".", &line);
    let path = std::env::var_os("PATH").unwrap_or_default();
    command.env_clear().env("PATH", path).process_group(0);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(mut child: Child) -> (Option<i32>, String) {
    let mut told = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut told)
        .unwrap();
    (child.wait().unwrap().code(), told)
}

#[test]
fn the_image_driver_finds_its_mount_and_stops_it() {
    let Some(names) = names() else {
        return;
    };
    let mnt = names.path("mnt");
    for by in BOTH {
        // Apptainer waits for the target in the mount table, and treats any output as an error.
        let child = start(&names, by, "box.sif");
        eventually("the target is mounted", || is_mounted(&mnt));
        let read = fs::read_to_string(mnt.join("etc/passwd")).unwrap();
        assert_eq!(read, "root:x:0:0\n", "{by:?}");
        eventually("the mount is not busy", || {
            rustix::mount::unmount(&mnt, UnmountFlags::empty()).is_ok()
        });
        assert_eq!(end(child), (Some(0), String::new()), "{by:?}: unmounted");
        // After another failure, Apptainer ends the program before unmounting.
        let child = start(&names, by, "box.sif");
        eventually("the target is mounted", || is_mounted(&mnt));
        let killed = Command::new("kill").arg(child.id().to_string()).status();
        assert!(killed.unwrap().success());
        let (code, told) = end(child);
        // Debian's program returns the negated number of the signal.
        let expected = if by == By::Forerun { 0 } else { 256 - 15 };
        assert_eq!((code, told.as_str()), (Some(expected), ""), "{by:?}");
        assert!(!is_mounted(&mnt), "{by:?}");
        // Lines on standard error become Apptainer's message.
        let (code, told) = end(start(&names, by, "cut.sif"));
        assert_ne!(code, Some(0), "{by:?}");
        let text = "Something went wrong trying to read the squashfs image.\n";
        let is_told = told.starts_with(text) || (by == By::Other && !told.is_empty());
        assert!(is_told, "{by:?}: {told}");
        assert!(!is_mounted(&mnt), "{by:?}");
    }
}

fn apptainer(names: &Names, words: &[&str]) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", names.path("bin").display());
    let home = names.path("home");
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
    command.args(["--clear-groups", "--", "apptainer", "--silent"]);
    command.args(words).current_dir(&home).env("PATH", path);
    for variable in ["HOME", "APPTAINER_TMPDIR", "APPTAINER_CACHEDIR"] {
        command.env(variable, &home);
    }
    command.output().unwrap()
}

fn plant_root(names: &Names) {
    let root = names.path("home/rootfs");
    for dir in [
        "bin", "dev", "devf", "etc", "proc", "sys", "tmp", "usr", "var/tmp",
    ] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let busybox = require::program("busybox").expect("busybox, static");
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in ["sh", "cat", "true"] {
        symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("etc/motd"), "from the image\n").unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    chown_all(&names.path("home"));
}

fn chown_all(dir: &Path) {
    std::os::unix::fs::lchown(dir, Some(USER), Some(USER)).unwrap();
    if fs::symlink_metadata(dir).unwrap().is_dir() {
        let entries = fs::read_dir(dir).unwrap();
        entries.for_each(|entry| chown_all(&entry.unwrap().path()));
    }
}

/// Builds a SIF with mksquashfs, runs it with squashfuse_ll, and unpacks it with unsquashfs, all of
/// them links to forerun.
#[test]
fn apptainer_builds_runs_and_unpacks_an_image() {
    if std::env::var_os("FORERUN_EXTRAS").is_none() {
        return;
    }
    let names = names().expect("root, /dev/fuse and squashfs-tools");
    require::program("apptainer").expect("apptainer");
    plant_root(&names);
    let ok = |words: &[&str]| {
        let output = apptainer(&names, words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    };
    ok(&["build", "box.sif", "rootfs/"]);
    let read = ["cat", "/etc/motd"];
    assert_eq!(
        ok(&[&["exec", "box.sif"][..], &read].concat()),
        "from the image\n"
    );
    let unpacked = [&["exec", "--unsquash", "box.sif"][..], &read].concat();
    assert_eq!(ok(&unpacked), "from the image\n");
    let status = apptainer(&names, &["exec", "box.sif", "sh", "-c", "exit 7"]).status;
    assert_eq!(status.code(), Some(7));
    ok(&["build", "--sandbox", "sandbox", "box.sif"]);
    assert_eq!(
        ok(&[&["exec", "sandbox"][..], &read].concat()),
        "from the image\n"
    );
    let image = fs::read(names.path("home/box.sif")).unwrap();
    let cut = names.path("home/cut.sif");
    fs::write(&cut, &image[..image.len() / 2]).unwrap();
    chown(&cut, Some(USER), Some(USER)).unwrap();
    let failed = apptainer(&names, &["exec", "cut.sif", "true"]);
    assert_eq!(failed.status.code(), Some(255));
    let told = String::from_utf8_lossy(&failed.stderr);
    assert!(told.contains("trying to read the squashfs image"), "{told}");
}
