//! Another process takes over a mount, and the users of the mount notice nothing.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forerun_testkit::require;
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link};
use rustix::process::Pid;

use crate::common::{command, in_namespace, ran};
use crate::restarting::load::ten_times_under_load;
use crate::restarting::passthrough;
use crate::restarting::{BIG, NOBODY, Scene, eventually, is_running};

#[test]
fn readers_of_squashfs_notice_no_restart() {
    ten_times_under_load("squashfs");
}

#[test]
fn readers_of_erofs_notice_no_restart() {
    ten_times_under_load("erofs");
}

#[test]
fn readers_of_composefs_notice_no_restart() {
    ten_times_under_load("composefs");
}

#[test]
fn files_that_the_kernel_reads_open_again_after_restarts() {
    passthrough::open_again(5, |scene| drop(scene.restart().ok()));
}

#[test]
fn a_replaced_object_is_read_when_files_opened_before_a_restart_are_closed() {
    passthrough::replaced_object(|scene| drop(scene.restart().ok()));
}

#[test]
fn objects_that_the_kernel_reads_are_given_back_by_a_later_server() {
    passthrough::given_back(|scene| drop(scene.restart().ok()));
}

#[test]
fn without_root() {
    let Some(scene) = Scene::new("squashfs").and_then(Scene::served_without_root) else {
        return;
    };
    scene.mount(&[]);
    let script = "while [ ! -e run/stop ]; do \
        dd if=mnt/big bs=64k iflag=nocache 2>/dev/null | cmp - tree/big || exit 1; \
        stat mnt/missing-$((n += 1)) 2>/dev/null && exit 2; done; exit 0";
    let mut reader = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .args(["sh", "-c", script])
        .current_dir(scene.path("."))
        .spawn()
        .unwrap();
    let mut last = scene.server();
    for _ in 0..5 {
        scene.restart().ok();
        let server = scene.server();
        assert_ne!(server, last);
        last = server;
    }
    fs::write(scene.path("run/stop"), "").unwrap();
    assert!(reader.wait().unwrap().success());
    scene.run(&["umount", "mnt"]).ok();
    eventually("the last process has ended", || !is_running(last));
}

#[test]
fn in_a_user_namespace() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    if require::program("unshare").is_none() {
        return;
    }
    fs::remove_dir(scene.path("mnt")).unwrap();
    std::os::unix::fs::chown(scene.path("run"), Some(NOBODY), Some(NOBODY)).unwrap();
    let script = r#"
        export XDG_RUNTIME_DIR=$PWD/run
        "$0" mount image mnt || exit 1
        exec 3< mnt/big
        head -c 100000 <&3 | cmp - -n 100000 tree/big || exit 2
        for _ in 1 2 3; do "$0" -q restart mnt || exit 3; done
        cmp mnt/d3/3 tree/d3/3 && cmp mnt/big tree/big || exit 4
        exec 3<&-
        "$0" umount mnt || exit 5"#;
    in_namespace(scene.dir.path(), script);
}

#[test]
fn the_watchdog_stays() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&["-o", "auto_unmount"]);
    for _ in 0..3 {
        scene.restart().ok();
        scene.answers();
    }
    scene.kill_all();
    eventually("it is unmounted", || !scene.is_mounted());
    scene.mount(&["-o", "auto_unmount"]);
    scene.restart().ok();
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn the_program_that_is_installed_now() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    let program = scene.path("forerun");
    let copy = |to: &Path| {
        let mut cp = Command::new("cp");
        cp.arg(command(&["x"]).get_program()).arg(to);
        assert!(cp.status().unwrap().success());
    };
    copy(&program);
    let mounted = Command::new(&program)
        .args(["mount", "image", "mnt"])
        .current_dir(scene.path("."))
        .env("XDG_RUNTIME_DIR", scene.path("run"))
        .output();
    ran(mounted.unwrap()).ok();
    copy(&scene.path("forerun.new"));
    fs::rename(scene.path("forerun.new"), &program).unwrap();
    let exe = |pid: Pid| fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).unwrap();
    assert!(
        exe(scene.server())
            .to_str()
            .unwrap()
            .ends_with(" (deleted)")
    );
    scene.restart().ok();
    assert_eq!(exe(scene.server()), program);
    scene.answers();
}

/// Chunks arrive so slowly that a kernel request is always unanswered during the restart.
#[test]
fn requests_under_way_are_sent_again() {
    let Some(scene) = Scene::new("erofs") else {
        return;
    };
    let Some(nginx) = Nginx::serve(scene.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let link = |millis| Link {
        rtt: Duration::from_millis(millis),
        bytes_per_second: None,
    };
    let url = proxy.url_of("image");
    let cache = ["--cache-dir", "cache", "--fetch-ahead", "off"];
    let words = [&["mount"], &cache[..], &[&url, "mnt"]].concat();
    scene.run(&words).ok();
    proxy.set_link(link(400));
    let expected = fs::read(scene.path("tree/big")).unwrap();
    let mut servers = vec![scene.server()];
    let at = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let file = File::open(scene.path("mnt/big")).unwrap();
            let mut bytes = vec![0; BIG];
            for piece in bytes.chunks_mut(1 << 20) {
                let offset = at.load(Ordering::Relaxed);
                file.read_exact_at(piece, offset).unwrap();
                at.store(offset + piece.len() as u64, Ordering::Relaxed);
            }
            assert!(bytes == expected);
        });
        eventually("the reader has begun", || at.load(Ordering::Relaxed) > 0);
        while !reader.is_finished() && servers.len() < 4 {
            scene.restart().ok();
            servers.push(scene.server());
        }
        proxy.set_link(link(0));
        reader.join().unwrap();
    });
    let count = servers.len();
    servers.dedup();
    assert!(count == servers.len() && count > 1, "{servers:?}");
    let status = scene.run(&["status", "--json"]).ok().mounts();
    assert!(status[0]["remote"]["local_bytes"].is_u64(), "{status}");
    scene.run(&["umount", "mnt"]).ok();
}
