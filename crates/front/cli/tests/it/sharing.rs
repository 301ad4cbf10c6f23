//! Volumes that several processes and the kernel use at once: one writes, or all read.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use forerun_testkit::{LoopDevice, eventually, require};

use crate::common::volume::{Volume, as_nobody, unmount};
use crate::common::{Ran, command, ran};

/// Commands that read: the words before the image, and those after it.
const READERS: &[(&[&str], &[&str])] = &[
    (&["ls", "-R"], &[]),
    (&["cat"], &["/file"]),
    (&["info"], &[]),
    (&["label"], &[]),
    (&["check"], &[]),
    (&["check", "--repair", "--dry-run"], &[]),
    (&["dump"], &[]),
    (&["tar", "-o", "out.tar", "--force"], &[]),
    (&["extract", "--force", "-C", "out"], &[]),
    (&["diff"], &["empty"]),
    (&["convert", "--format", "romfs", "--force"], &["out.img"]),
    (&["mount", "-o", "ro"], &["other"]),
];

const WRITERS: &[(&[&str], &[&str])] = &[
    (&["label"], &["NEW"]),
    (&["check", "--repair", "--yes"], &[]),
    (&["mount"], &["other"]),
];

/// Creates a volume with a file, and another directory to mount it on.
fn volume(name: &str) -> Option<Volume> {
    let volume = Volume::new(name)?;
    for dir in ["other", "empty"] {
        fs::create_dir(volume.path(dir)).unwrap();
    }
    volume.mount(&[]).ok();
    fs::write(volume.mnt().join("file"), b"contents").unwrap();
    volume.umount();
    Some(volume)
}

#[track_caller]
fn in_use(ran: &Ran, by: &str) {
    let said = format!("in use: {by}");
    assert!(
        ran.code == Some(4) && ran.stderr.contains(&said),
        "{:?}: {}",
        ran.code,
        ran.stderr
    );
}

#[test]
fn nothing_reads_a_volume_that_is_mounted_for_writing() {
    let Some(volume) = volume("sharing_writer") else {
        return;
    };
    volume.mount(&[]).ok();
    for (before, after) in READERS.iter().chain(WRITERS) {
        let refused = volume.forerun(before, after);
        in_use(&refused, "held for writing by forerun mount (pid ");
        assert!(refused.stderr.contains(", user 0)"), "{}", refused.stderr);
    }
    let push = volume.forerun(&["push"], &["oci://127.0.0.1:1/name:1"]);
    in_use(&push, "held for writing by");
    // Opens the file again through standard input.
    let stdin = command(&["ls", "-"])
        .stdin(File::open(volume.image()).unwrap())
        .output();
    in_use(&ran(stdin.unwrap()), "held for writing by");
    for (before, after) in READERS.iter().filter(|(before, _)| before[0] != "mount") {
        let mut before = before.to_vec();
        before.push("--no-lock");
        let looked = volume.forerun(&before, after);
        assert!(
            matches!(looked.code, Some(0 | 1)),
            "{before:?}: {}",
            looked.stderr
        );
    }
    volume.forerun(&["mount", "-o", "nolock"], &["other"]).ok();
    let refused = fs::write(volume.path("other/new"), b"").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    unmount(&volume.path("other"));
    let refused = volume.forerun(&["mount", "-o", "rw,nolock"], &["other"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    volume.umount();
    for (before, after) in READERS.iter().filter(|(before, _)| before[0] == "ls") {
        volume.forerun(before, after).ok();
    }
}

#[test]
fn nothing_writes_to_a_volume_that_is_mounted_for_reading() {
    let Some(volume) = volume("sharing_reader") else {
        return;
    };
    volume.mount(&["-o", "ro"]).ok();
    volume.forerun(&["ls"], &[]).ok();
    for (before, after) in WRITERS {
        let refused = volume.forerun(before, after);
        in_use(&refused, "held for reading by forerun mount (pid ");
    }
    // A writer with the option overrides the lock of readers; other writers stay out.
    volume
        .forerun(&["mount", "-o", "break_lock"], &["other"])
        .ok();
    fs::write(volume.path("other/new"), b"new").unwrap();
    let refused = volume.forerun(&["label", "--break-lock"], &["OTHER"]);
    in_use(&refused, "");
    unmount(&volume.path("other"));
    volume.forerun(&["label", "--break-lock"], &["OTHER"]).ok();
    let asked = volume.forerun(&["check", "--repair", "--yes", "--break-lock"], &[]);
    assert_eq!(asked.code, Some(0), "{}", asked.stderr);
    volume.umount();
    assert_eq!(volume.forerun(&["cat"], &["new"]).ok().stdout, b"new");
}

struct Flock(Child);

impl Flock {
    /// Holds a lock on a file, as an unprivileged user.
    fn of(image: &Path, kind: &str) -> Self {
        let mut flock = as_nobody("flock");
        let flock = flock.args(["--no-fork", kind]).arg(image);
        let mut child = flock
            .args(["sh", "-c", "echo held; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(child)
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_user_who_may_only_read_an_image_cannot_keep_its_owner_from_writing() {
    let Some(volume) = volume("sharing_users") else {
        return;
    };
    if ["setpriv", "flock"].map(require::program).contains(&None) {
        return;
    }
    volume.open_to_all();
    for kind in ["-s", "-x"] {
        let held = Flock::of(&volume.image(), kind);
        let refused = volume.mount(&[]);
        in_use(&refused, "held for ");
        for part in [
            format!("(pid {}, user 65534)", held.0.id()),
            "break_lock".to_string(),
        ] {
            assert!(refused.stderr.contains(&part), "{}", refused.stderr);
        }
        let repair = ["check", "--repair", "--yes", "--break-lock"];
        volume.forerun(&repair, &[]).ok();
        volume.mount(&["-o", "break_lock"]).ok();
        fs::write(volume.mnt().join("file"), kind).unwrap();
        // A writer that broke a lock excludes others like any other writer.
        in_use(
            &volume.forerun(&["mount", "-o", "break_lock"], &["other"]),
            "",
        );
        in_use(&volume.forerun(&["ls"], &[]), "");
        volume.umount();
    }
}

#[test]
fn formats_that_do_not_change_take_no_lock() {
    let Some(volume) = Volume::new("sharing_romfs") else {
        return;
    };
    fs::create_dir_all(volume.path("tree")).unwrap();
    let mut pack = command(&["pack", "-q", "--format", "romfs", "tree", "a.img"]);
    ran(pack.current_dir(volume.dir.path()).output().unwrap()).ok();
    let image = volume.path("a.img");
    let held = File::open(&image).unwrap();
    held.lock().unwrap();
    let listed = command(&[Path::new("ls"), &image]).output().unwrap();
    ran(listed).ok();
    let refused = command(&[Path::new("label"), &image, Path::new("x")]).output();
    let refused = ran(refused.unwrap());
    assert!(
        refused.stderr.contains("cannot change romfs"),
        "{}",
        refused.stderr
    );
}

fn on_device(device: &LoopDevice, before: &[&str], after: &[&str]) -> Ran {
    ran(command(before).arg(&device.0).args(after).output().unwrap())
}

fn mount_by_other(device: &LoopDevice, dir: &Path, options: &str) {
    let mut mount = Command::new("mount.exfat-fuse");
    let done = mount
        .args(["-o", options])
        .args([&device.0, dir])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn umount8(dir: &Path) {
    eventually("the mount can be taken down", || {
        Command::new("umount").arg(dir).status().unwrap().success()
    });
}

#[test]
fn an_image_behind_a_loop_device_is_not_written() {
    let Some(volume) = volume("sharing_loop") else {
        return;
    };
    if ["losetup", "mount.exfat-fuse"]
        .map(require::program)
        .contains(&None)
    {
        return;
    }
    let label = |name: &str| volume.forerun(&["label"], &[name]);
    {
        let device = LoopDevice::new(&volume.image(), &["--read-only"]);
        label("A").ok();
        mount_by_other(&device, &volume.mnt(), "ro");
        let name = device.0.display();
        let by = format!(
            "it backs {name}, which is mounted on {}",
            volume.mnt().display()
        );
        in_use(&label("B"), &by);
        volume.forerun(&["ls"], &[]).ok();
        umount8(&volume.mnt());
    }
    let device = LoopDevice::new(&volume.image(), &[]);
    let name = device.0.display().to_string();
    in_use(
        &label("B"),
        &format!("it backs {name}, which can be written"),
    );
    in_use(&volume.mount(&[]), &format!("it backs {name}"));
    volume.forerun(&["ls"], &[]).ok();
    mount_by_other(&device, &volume.mnt(), "rw");
    let by = format!(
        "it backs {name}, which is mounted on {}",
        volume.mnt().display()
    );
    in_use(&label("B"), &by);
    in_use(&volume.forerun(&["ls"], &[]), &by);
    // The other driver has marked the volume dirty, which is reported.
    let looked = volume.forerun(&["ls", "--no-lock"], &[]);
    assert_eq!(looked.code, Some(0), "{}", looked.stderr);
    let mounted = format!("mounted on {}", volume.mnt().display());
    in_use(&on_device(&device, &["ls"], &[]), &mounted);
    in_use(&on_device(&device, &["label"], &["B"]), &mounted);
    let looked = on_device(&device, &["ls", "--no-lock"], &[]);
    assert_eq!(looked.code, Some(0), "{}", looked.stderr);
    umount8(&volume.mnt());
    // Locks apply to the inode: under another name, and after the first name is gone.
    let other = volume.path("other.img");
    fs::hard_link(volume.image(), &other).unwrap();
    let of_other = |name: &str| {
        let words = [Path::new("label"), &other, Path::new(name)];
        ran(command(&words).output().unwrap())
    };
    in_use(&of_other("B"), &format!("it backs {name}"));
    fs::remove_file(volume.image()).unwrap();
    in_use(&of_other("B"), &format!("it backs {name}"));
    // A new file under the old name is another file.
    fs::copy(&other, volume.image()).unwrap();
    label("B").ok();
    fs::rename(volume.image(), volume.path("copy.img")).unwrap();
    drop(device);
    eventually("the loop device is gone", || of_other("C").code == Some(0));
}

#[test]
fn a_loop_device_and_the_file_behind_it_share_their_locks() {
    let Some(volume) = volume("sharing_backing") else {
        return;
    };
    if require::program("losetup").is_none() {
        return;
    }
    let device = LoopDevice::new(&volume.image(), &["--read-only"]);
    volume.mount(&[]).ok();
    in_use(
        &on_device(&device, &["ls"], &[]),
        "held for writing by forerun mount (pid ",
    );
    volume.umount();
    drop(device);
    let device = LoopDevice::new(&volume.image(), &[]);
    let mnt = volume.mnt();
    on_device(&device, &["mount"], &[mnt.to_str().unwrap()]).ok();
    in_use(&volume.forerun(&["ls"], &[]), "it backs ");
    in_use(&on_device(&device, &["ls"], &[]), "mounted on ");
    in_use(&on_device(&device, &["label"], &["X"]), "mounted on ");
    volume.umount();
}

#[test]
fn a_repair_of_a_block_device_keeps_its_undo_file_in_the_state_directory() {
    let Some(volume) = volume("sharing_undo") else {
        return;
    };
    if require::program("losetup").is_none() {
        return;
    }
    let mut before = fs::read(volume.image()).unwrap();
    before[100] ^= 1;
    fs::write(volume.image(), &before).unwrap();
    let device = LoopDevice::new(&volume.image(), &[]);
    let state = volume.path("state");
    let mut repair = command(&["check", "--repair", "--yes", "--json"]);
    let repaired = repair.arg(&device.0).env("XDG_STATE_HOME", &state);
    let repaired = ran(repaired.output().unwrap());
    assert_eq!(repaired.code, Some(8), "{}", repaired.stderr);
    let name = device.0.file_name().unwrap().to_str().unwrap();
    let file = state.join(format!("forerun/{name}.forerun-undo"));
    let file = file.to_str().unwrap();
    assert_eq!(repaired.json()["undo_file"], file);
    on_device(&device, &["check", "--undo", file], &[]).ok();
    drop(device);
    assert!(fs::read(volume.image()).unwrap() == before);
}
