//! `mount --via`: mounts by the kernel, mounts left to FUSE, the messages, and `umount` for both.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use forerun_testkit::everything::{everything, xattrs_of};
use forerun_testkit::{Keeps, TempDir, TreeModel, require, temp_dir};

use crate::common::{Ran, command, ran};

/// Returns whether root can mount images here with both the kernel and FUSE.
fn can_mount() -> bool {
    let kernel = ["erofs", "overlay", "squashfs"].map(require::kernel_filesystem);
    let programs = ["losetup", "umount"].map(require::program);
    require::root() && require::fuse() && kernel == [true; 3] && !programs.contains(&None)
}

/// A directory with `tree` and `mnt`, for images. Remaining mounts are detached when dropped.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new(name: &str) -> Self {
        let place = Self {
            dir: temp_dir(name),
        };
        for name in ["tree", "mnt"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        everything(&place.path("tree"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(command(args).current_dir(self.dir.path()).output().unwrap())
    }

    fn pack(&self, format: &str, more: &[&str]) {
        let args = [
            &["pack", "-q", "--format", format],
            more,
            &["tree", "image"],
        ]
        .concat();
        self.run(&args).ok();
    }

    fn mounted(&self) -> Option<(String, String)> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mnt = self.path("mnt").display().to_string();
        let mut lines = mounts.lines();
        let line = lines.rfind(|line| line.split(' ').nth(4) == Some(&mnt))?;
        let mut words = line.split_once(" - ").unwrap().1.split(' ');
        let mut word = || words.next().unwrap().to_string();
        Some((word(), word()))
    }

    /// Unmounts a mount of type `fstype`, and asserts that it is gone.
    #[track_caller]
    fn unmount(&self, fstype: &str) {
        assert_eq!(self.mounted().unwrap().0, fstype);
        self.run(&["umount", "mnt"]).ok();
        assert_eq!(self.mounted(), None);
    }

    fn look(&self) -> (TreeModel, forerun_testkit::everything::Xattrs) {
        let model = TreeModel::of_host(&self.path("mnt")).unwrap();
        let xattrs = xattrs_of(&self.path("mnt"), &model);
        (model, xattrs)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while std::thread::panicking() && self.mounted().is_some() {
            let _detached = Command::new("umount")
                .arg("-l")
                .arg(self.path("mnt"))
                .status();
        }
    }
}

#[test]
fn auto_says_what_it_takes() {
    if !can_mount() {
        return;
    }
    let place = Place::new("via-auto");
    place.pack("erofs", &[]);
    let auto = place.run(&["mount", "--via", "auto", "image", "mnt"]);
    assert_eq!(auto.code, Some(0), "{}", auto.stderr);
    let told = auto.stderr.trim();
    assert!(
        told.starts_with("forerun: mounted by the kernel: erofs "),
        "{told}"
    );
    assert!(told.ends_with(" of metadata read ahead"), "{told}");
    for again in ["fuse", "kernel", "auto"] {
        let again = place.run(&["mount", "--via", again, "image", "mnt"]);
        assert_eq!(again.code, Some(9));
        assert!(again.stderr.contains("already mounted"), "{}", again.stderr);
    }
    place.unmount("erofs");
    // An explicit choice is not reported.
    place
        .run(&["mount", "--via", "kernel", "image", "mnt"])
        .ok();
    place.unmount("erofs");
    place.run(&["mount", "image", "mnt"]).ok();
    place.unmount("fuse.forerun");
}

#[test]
fn auto_goes_to_fuse_with_what_the_kernel_does_not_know() {
    if !can_mount() {
        return;
    }
    let place = Place::new("via-unknown");
    // Blocks larger than a page.
    place.pack("erofs", &["--block-size", "64K"]);
    let auto = place.run(&["mount", "--via", "auto", "image", "mnt"]);
    assert_eq!(auto.code, Some(0), "{}", auto.stderr);
    let told = "forerun: mounting through FUSE: the kernel refused: erofs from the ";
    assert!(auto.stderr.starts_with(told), "{}", auto.stderr);
    assert!(auto.stderr.contains("blkszbits 16"), "{}", auto.stderr);
    place.unmount("fuse.forerun");
    let kernel = place.run(&["mount", "--via", "kernel", "image", "mnt"]);
    assert_eq!(kernel.code, Some(7));
    let told = "forerun: image: the kernel refused: erofs from the ";
    assert!(kernel.stderr.starts_with(told), "{}", kernel.stderr);
    assert!(
        kernel.stderr.contains("hint: --via fuse"),
        "{}",
        kernel.stderr
    );
    assert_eq!(place.mounted(), None);
}

#[test]
fn options_that_mean_nothing_to_the_kernel() {
    if !can_mount() {
        return;
    }
    let place = Place::new("via-options");
    place.pack("squashfs", &[]);
    let refused = place.run(&["mount", "-o", "via=kernel,uid=7", "image", "mnt"]);
    refused.fails(
        2,
        "forerun: uid= has no meaning for a mount by the kernel\n  \
         hint: leave it out, or use --via fuse",
    );
    let auto = place.run(&["mount", "-o", "uid=7,via=auto", "image", "mnt"]);
    auto.fails(
        0,
        "forerun: mounting through FUSE: uid= has no meaning for a mount by the kernel",
    );
    place.unmount("fuse.forerun");
    let unknown = place.run(&["mount", "-o", "via=kernel,uidd=7", "image", "mnt"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("\"uidd=7\""), "{}", unknown.stderr);
    assert!(
        unknown.stderr.contains("did you mean uid=?"),
        "{}",
        unknown.stderr
    );
    let unknown = place.run(&["mount", "-o", "via=driver", "image", "mnt"]);
    unknown.fails(
        2,
        "forerun: mount option via=driver: not auto, fuse or kernel",
    );
    // The option on the command line takes precedence.
    place
        .run(&["mount", "-o", "via=kernel", "--via", "fuse", "image", "mnt"])
        .ok();
    place.unmount("fuse.forerun");
}

#[test]
fn mount_8_and_fstab() {
    if !can_mount() {
        return;
    }
    let place = Place::new("via-helper");
    place.pack("squashfs", &[]);
    for (options, fstype) in [("rw,via=kernel", "squashfs"), ("rw", "fuse.forerun")] {
        let [image, mnt] = ["image", "mnt"].map(|name| place.path(name));
        let program = command(&["--version"]);
        let status = Command::new(program.get_program())
            .arg0("/sbin/mount.fuse.forerun")
            .args([&image, &mnt])
            .args(["-o", options])
            .stdin(Stdio::null())
            .status();
        assert!(status.unwrap().success());
        place.unmount(fstype);
    }
}

#[test]
fn composefs_is_the_same_by_the_kernel_and_through_fuse() {
    if !can_mount() {
        return;
    }
    let place = Place::new("via-composefs");
    place.pack("composefs", &["--objects", "store"]);
    let mut seen = Vec::new();
    for (via, fstype) in [("kernel", "overlay"), ("fuse", "fuse.forerun")] {
        let args = ["mount", "--via", via, "-o", "objects=store", "image", "mnt"];
        place.run(&args).ok();
        seen.push(place.look());
        place.unmount(fstype);
    }
    seen[0].0.assert_same(&seen[1].0, &Keeps::EVERYTHING);
    assert_eq!(seen[0].1, seen[1].1);
    // `auto` chooses a server that can check digests.
    let options = "objects=store,verity=on,via=auto";
    let auto = place.run(&["mount", "-o", options, "image", "mnt"]);
    assert_eq!(auto.code, Some(0), "{}", auto.stderr);
    if place.mounted().unwrap().0 == "fuse.forerun" {
        assert!(auto.stderr.contains("fs-verity"), "{}", auto.stderr);
    }
    assert!(fs::read(place.path("mnt/sizes/8192")).is_ok());
    place.run(&["umount", "mnt"]).ok();
}

#[test]
fn without_privileges_the_kernel_is_not_asked() {
    if !can_mount() || !require::fusermount() || require::program("setpriv").is_none() {
        return;
    }
    let place = Place::new("via-nobody");
    place.pack("erofs", &[]);
    fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(place.path("mnt"), Some(65534), Some(65534)).unwrap();
    let as_nobody = |args: &[&str]| {
        let program = command(args);
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(program.get_program())
            .args(args)
            .current_dir(place.dir.path())
            .stdin(Stdio::null())
            .output();
        ran(output.unwrap())
    };
    let needs =
        "mounting erofs by the kernel needs root with CAP_SYS_ADMIN, outside of user namespaces";
    let refused = as_nobody(&["mount", "--via", "kernel", "image", "mnt"]);
    refused.fails(
        7,
        &format!("forerun: {needs}\n  hint: --via fuse needs no root"),
    );
    let auto = as_nobody(&["mount", "--via", "auto", "image", "mnt"]);
    auto.fails(0, &format!("forerun: mounting through FUSE: {needs}"));
    assert_eq!(place.mounted().unwrap().0, "fuse.forerun");
    as_nobody(&["umount", "mnt"]).ok();
    place
        .run(&["mount", "--via", "kernel", "image", "mnt"])
        .ok();
    let refused = as_nobody(&["umount", "mnt"]);
    assert_eq!(refused.code, Some(7));
    assert!(
        refused.stderr.contains("hint: it was mounted by root"),
        "{}",
        refused.stderr
    );
    place.unmount("erofs");
}

#[test]
fn an_image_at_a_server_is_not_mounted_by_the_kernel() {
    if !can_mount() {
        return;
    }
    let place = Place::new("via-server");
    for image in [
        "oci://localhost:1/app:1",
        "https://u:secret@localhost:1/image",
    ] {
        let refused = place.run(&["mount", "--via", "kernel", image, "mnt"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        let shown = image.replace("u:secret@", "");
        let told = format!(
            "forerun: {shown}: the image is at a server, and the kernel's drivers cannot fetch it\n  hint: forerun pull {shown} FILE "
        );
        assert!(refused.stderr.contains(&told), "{}", refused.stderr);
        assert_eq!(place.mounted(), None);
        // The image cannot be opened here either, but FUSE was tried.
        let auto = place.run(&["mount", "--via", "auto", image, "mnt"]);
        let told = "mounting through FUSE: the image is at a server";
        assert!(auto.stderr.contains(told), "{}", auto.stderr);
        assert_ne!(auto.code, Some(0));
    }
}
