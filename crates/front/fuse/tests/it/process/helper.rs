//! Mounts through mount(8) and /etc/fstab.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use forerun_testkit::{children, require};
use rustix::process::Signal;

use super::scene::Scene;
use crate::common::run;

#[test]
fn as_the_helper_of_mount() {
    let Some(scene) = Scene::new("helper") else {
        return;
    };
    let helper = scene.place.dir().join("mount.fuse.forerun");
    std::os::unix::fs::symlink(&scene.program, &helper).unwrap();
    let call = |words: &[&str]| {
        let mut command = Command::new(&helper);
        command.arg(&scene.image).arg(scene.mnt()).args(words);
        let output = children::output(&mut command).unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(
        call(&["-n", "-o", "rw,nofail,uid=7"]),
        (Some(0), String::new())
    );
    scene.answers();
    assert_eq!(fs::metadata(scene.mnt().join("big")).unwrap().uid(), 7);
    assert_eq!(call(&[]).0, Some(32), "mount(8)'s word for failed");
    scene.signal(Signal::TERM);
    scene.is_gone();
    assert_eq!(call(&["-f"]), (Some(0), String::new()));
    assert!(scene.server().is_none(), "-f is a rehearsal");
    assert_eq!(call(&["-o", "nonsense"]).0, Some(1));
    let (status, text) = call(&["-s", "-o", "nonsense"]);
    assert!(
        status == Some(0) && text.matches("nonsense").count() == 1,
        "{text}"
    );
    scene.signal(Signal::TERM);
    scene.is_gone();
}

#[test]
fn through_mount_and_fstab() {
    let Some(scene) = Scene::new("fstab") else {
        return;
    };
    if require::program("mount.fuse3").is_none() {
        return;
    }
    // Without a link in /sbin, mount.fuse3 finds forerun in PATH. Its directory is mounted on
    // /usr/local/bin, in a private mount namespace so that no other process sees it.
    let (dir, image, mnt) = (scene.place.dir(), scene.image.display(), scene.mnt());
    let (dir, mnt) = (dir.display(), mnt.display());
    let table = scene.place.dir().join("fstab");
    let line =
        format!("{image} {mnt} fuse.forerun defaults,noauto,nofail,allow_other,x-test 0 0\n");
    fs::write(&table, line).unwrap();
    let script = format!(
        "set -e; mount --bind {dir} /usr/local/bin
         mount -t fuse.forerun -o nolargeblocks,uid=7 {image} {mnt}
         cat {mnt}/dir/hello; stat -c %u {mnt}/dir/hello; umount {mnt}
         mount -T {dir}/fstab {mnt}; cat {mnt}/dir/hello
         grep -o '{mnt} ro,nosuid,nodev' /proc/self/mountinfo; umount {mnt}"
    );
    let (ok, text) = run(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    assert!(ok, "{text}");
    assert_eq!(text, format!("hello\n7\nhello\n{mnt} ro,nosuid,nodev\n"));
    scene.is_gone();
}
