//! Mounts without root, and in a user namespace.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};

use forerun_testkit::{children, eventually, require};
use rustix::process::Signal;

use super::scene::Scene;
use crate::common::{as_nobody, is_mounted, run};

#[test]
fn without_root() {
    let Some(scene) = Scene::new("rootless") else {
        return;
    };
    if !require::fusermount() {
        return;
    }
    let here = |program: &str, words: &[&str]| {
        run(as_nobody(program)
            .args(words)
            .current_dir(scene.place.dir()))
    };
    let forerun = scene.program.to_str().unwrap();
    assert_eq!(scene.mount_as_nobody("ro"), (true, String::new()));
    assert_eq!(
        here("cat", &["mnt/dir/hello"]),
        (true, "hello\n".to_string())
    );
    assert_eq!(here("cmp", &["mnt/big", "tree/big"]), (true, String::new()));
    let (_, owner) = here("stat", &["-c", "%u:%g %a", "mnt/dir/hello"]);
    assert_eq!(
        owner.trim(),
        "65534:65534 644",
        "formats without owners: the caller's"
    );
    let (_, size) = here("stat", &["-f", "-c", "%s", "mnt"]);
    assert_eq!(size.trim(), "1024");
    assert_eq!(here(forerun, &["umount", "mnt"]), (true, String::new()));
    scene.is_gone();

    assert!(scene.mount_as_nobody("ro").0);
    scene.signal(Signal::KILL);
    eventually("it has ended", || scene.server().is_none());
    assert_eq!(
        here(forerun, &["umount", "mnt"]),
        (true, String::new()),
        "dead"
    );

    fs::create_dir(scene.place.dir().join("foreign")).unwrap();
    let (ok, text) = here(forerun, &["mount", "image.romfs", "foreign"]);
    assert!(
        !ok && text.contains("no write access to mountpoint"),
        "{text}"
    );
    let (ok, text) = here(forerun, &["mount", "-o", "suid", "image.romfs", "mnt"]);
    assert!(!ok && text.contains("suid needs root"), "{text}");
    assert!(!is_mounted(&scene.mnt()));
}

#[test]
fn without_root_data_is_pushed_ahead_of_the_reader() {
    let Some(scene) = Scene::new("pushing") else {
        return;
    };
    if !require::fusermount() {
        return;
    }
    let mut command = as_nobody(&scene.program);
    command.args(["--stats", "mount", "-f", "image.romfs", "mnt"]);
    command
        .current_dir(scene.place.dir())
        .stderr(Stdio::piped());
    let mut server = Ended(children::spawn(&mut command).unwrap());
    eventually("it answers", || {
        run(as_nobody("test").arg("-e").arg(scene.mnt().join("big"))).0
    });
    let mut compare = as_nobody("cmp");
    compare.args(["mnt/big", "tree/big"]);
    assert!(run(compare.current_dir(scene.place.dir())).0);
    scene.signal(Signal::TERM);
    let mut text = String::new();
    server
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let stores = text
        .lines()
        .find_map(|line| line.strip_prefix("fuse_store"));
    assert!(
        stores.is_some_and(|n| n.trim().parse::<u64>().unwrap() > 0),
        "{text}"
    );
}

/// A child that is killed and waited for when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended_meanwhile = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn in_a_user_namespace() {
    let Some(scene) = Scene::new("userns") else {
        return;
    };
    let possible = run(as_nobody("unshare").args(["-Urm", "true"]));
    if !require::that(possible.0, "unprivileged user namespaces") {
        return;
    }
    let program = scene.program.display();
    let script = format!(
        "set -e; {program} mount image.romfs mnt; cat mnt/dir/hello; cmp mnt/big tree/big; \
         stat -c %u:%g mnt/dir/hello; {program} umount mnt; test -z \"$(ls mnt)\""
    );
    let (ok, text) = run(as_nobody("unshare")
        .args(["-Urm", "sh", "-c", &script])
        .current_dir(scene.place.dir()));
    assert!(ok, "{text}");
    assert_eq!(text, "hello\n0:0\n");
    scene.is_gone();
}
