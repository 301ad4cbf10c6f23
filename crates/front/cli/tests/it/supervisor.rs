//! A mount outlives the process that serves it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forerun_testkit::generate;
use forerun_testkit::rng::Rng;
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Signal, kill_process};

use crate::restarting::load::{kills_under_load, usual_kills};
use crate::restarting::passthrough;
use crate::restarting::writers::at_work;
use crate::restarting::{Connection, Scene, eventually, is_running, same};

/// Memory of a supervisor that it shares with no file, except what the loader writes into the
/// program, which depends on the build.
const SUPERVISOR_MEMORY: u64 = 512 << 10;

#[test]
fn readers_of_squashfs_notice_no_killed_server() {
    kills_under_load("squashfs", usual_kills());
}

#[test]
fn readers_of_erofs_notice_no_killed_server() {
    kills_under_load("erofs", usual_kills());
}

fn kill(scene: &Scene) {
    kill_process(scene.server(), Signal::KILL).unwrap();
}

#[test]
fn readers_of_composefs_notice_no_killed_server() {
    kills_under_load("composefs", usual_kills());
}

#[test]
fn files_that_the_kernel_reads_open_again_after_kills() {
    passthrough::open_again(20, kill);
}

#[test]
fn a_replaced_object_is_read_when_files_opened_before_a_kill_are_closed() {
    passthrough::replaced_object(kill);
}

#[test]
fn writers_lose_nothing_that_was_synced_to_a_killed_server() {
    let _skipped = at_work("", usual_kills(), |scene| {
        kill_process(scene.server(), Signal::KILL).unwrap();
    });
}

#[test]
fn writers_lose_no_names_to_a_killed_server_under_dirsync() {
    let _skipped = at_work("dirsync", usual_kills(), |scene| {
        kill_process(scene.server(), Signal::KILL).unwrap();
    });
}

#[test]
fn writers_notice_no_restart() {
    let failures = at_work("", usual_kills(), |scene| drop(scene.restart().ok()));
    assert_eq!(failures.unwrap_or(0), 0);
}

#[test]
fn openings_and_what_was_not_synced_are_lost_and_nothing_else() {
    let Some(scene) = Scene::new("exfat") else {
        return;
    };
    scene.mount(&[]);
    let at = |name: &str| scene.path("mnt").join(name);
    let [mut synced, mut behind, mut new] =
        ["synced", "behind", "new"].map(|name| File::create_new(at(name)).unwrap());
    synced.write_all(b"synced").unwrap();
    behind.write_all(b"one").unwrap();
    fs::remove_file(at("new")).unwrap();
    behind.sync_all().unwrap();
    behind.write_all(&[b'2'; 50_000]).unwrap();
    drop(new);
    new = File::create_new(at("new")).unwrap();
    new.write_all(b"new").unwrap();
    fs::create_dir(at("dir")).unwrap();
    let inside = File::open(at("d5")).unwrap();
    fs::rename(at("d0"), at("renamed")).unwrap();
    fs::remove_file(at("d1/1")).unwrap();
    kill_process(scene.server(), Signal::KILL).unwrap();
    for file in [&mut synced, &mut behind, &mut new] {
        let errors = [file.write_all(b"more"), file.sync_all()].map(Result::unwrap_err);
        assert_eq!(errors.map(|error| error.raw_os_error()), [Some(5); 2]);
    }
    assert_eq!(fs::read(at("synced")).unwrap(), b"synced");
    let mut again = File::options().append(true).open(at("behind")).unwrap();
    again.write_all(b" and two").unwrap();
    again.sync_all().unwrap();
    assert_eq!(fs::read(at("behind")).unwrap(), b"one and two");
    assert_eq!(fs::metadata(at("behind")).unwrap().len(), 11);
    // A directory that a program uses is found again by its name.
    assert!(same_in(&inside, "5", &scene.path("tree/d5/5")));
    for gone in ["new", "dir", "renamed"] {
        assert!(!at(gone).exists(), "{gone}");
    }
    for there in ["d0/0", "d1/1", "d1/7"] {
        assert!(same(&at(there), &scene.path("tree").join(there)));
    }
    // Each known directory reports once that a server has died.
    assert_eq!(inside.sync_all().unwrap_err().raw_os_error(), Some(5));
    inside.sync_all().unwrap();
    let root = File::open(at(".")).unwrap();
    assert_eq!(root.sync_all().unwrap_err().raw_os_error(), Some(5));
    root.sync_all().unwrap();
    let names = fs::read_dir(at(".")).unwrap().flatten();
    let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    names.sort();
    let expected = [
        "behind", "big", "d0", "d1", "d2", "d3", "d4", "d5", "synced",
    ];
    assert_eq!(names, expected);
    drop((synced, behind, new, again, root, inside));
    scene.run(&["umount", "mnt"]).ok();
    scene.run(&["check", "image"]).ok();
}

fn same_in(directory: &File, name: &str, with: &Path) -> bool {
    let file = openat(directory, name, OFlags::RDONLY, Mode::empty()).unwrap();
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes).unwrap();
    bytes == fs::read(with).unwrap()
}

/// Kills servers while names are dropped. The kernel accepts such a message only when no request on
/// the directory is pending. A server that waits for that must be replaced all the same.
#[test]
fn names_that_are_being_dropped_hold_up_no_new_server() {
    // A server that also serves its status over HTTP has another sandbox.
    drops_and_kills(&["-o", "restarts=1000"], 5);
    drops_and_kills(&["-o", "restarts=1000", "--metrics", "127.0.0.1:0"], 1);
}

#[test]
fn names_that_are_being_dropped_hold_up_no_new_server_without_a_sandbox() {
    drops_and_kills(&["--no-sandbox", "-o", "restarts=1000"], 5);
}

/// Kills the server `times` times while threads change a directory, and others open a file in it
/// under one spelling and look it up under another.
fn drops_and_kills(args: &[&str], times: usize) {
    let Some(scene) = Scene::new("exfat") else {
        return;
    };
    scene.mount(args);
    let dir = scene.path("mnt/dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "text").unwrap();
    File::open(&dir).unwrap().sync_all().unwrap();
    let connection = Connection::of(&scene);
    let stop = AtomicBool::new(false);
    let repeat = |work: &dyn Fn()| {
        while !stop.load(Ordering::Relaxed) {
            work();
        }
    };
    std::thread::scope(|threads| {
        for n in 0..4 {
            let (dir, repeat) = (&dir, &repeat);
            threads.spawn(move || {
                repeat(&|| {
                    // Each call may fail when the server dies.
                    let _made = fs::write(dir.join(format!("new-{n}")), "");
                    let _removed = fs::remove_file(dir.join(format!("new-{n}")));
                });
            });
            threads.spawn(move || {
                repeat(&|| {
                    let _opened = File::open(dir.join("file"));
                    let _looked = fs::metadata(dir.join("FILE"));
                });
            });
        }
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..times {
                let old = scene.server();
                std::thread::sleep(Duration::from_millis(200));
                kill_process(old, Signal::KILL).unwrap();
                eventually("another process serves", || scene.server() != old);
                scene.answers();
                eventually("the old process has ended", || !is_running(old));
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = ended {
            // The threads hang with the old process.
            connection.abort();
            std::panic::resume_unwind(panic);
        }
    });
    // Files of the threads and of the old process may be closed slightly later.
    eventually("the mount is not in use", || {
        scene.run(&["umount", "mnt"]).code == Some(0)
    });
    scene.run(&["check", "image"]).ok();
}

#[test]
fn after_three_deaths_in_a_minute_every_access_fails_until_it_is_unmounted_or_mounted_again() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&["--log", "log"]);
    let supervisor = scene.supervisor();
    for _ in 0..2 {
        let server = scene.server();
        kill_process(server, Signal::KILL).unwrap();
        scene.answers();
        assert_ne!(scene.server(), server);
        assert_eq!(scene.supervisor(), supervisor);
    }
    kill_process(scene.server(), Signal::KILL).unwrap();
    eventually("the supervisor has ended", || !is_running(supervisor));
    is_dead(&scene);
    let log = fs::read_to_string(scene.path("log")).unwrap();
    assert!(
        log.contains("died (signal: 9 (SIGKILL)); another one replaces it"),
        "{log}"
    );
    let last = log.lines().next_back().unwrap();
    let expected =
        "3 processes that served the mount have died within a minute: every access fails";
    assert!(last.contains(expected), "{log}");
    scene.mount(&[]);
    scene.answers();
    scene.kill_all();
    is_dead(&scene);
    scene.run(&["umount", "mnt"]).ok();
    assert!(!scene.is_mounted());
}

/// Checks that a directory does not look empty, because a program that lists it would continue
/// without files.
#[track_caller]
fn is_dead(scene: &Scene) {
    assert!(scene.is_mounted());
    for name in [".", "d5", "missing"] {
        let error = fs::read_dir(scene.path("mnt").join(name)).map(|_| ());
        assert_eq!(
            error.unwrap_err().kind(),
            std::io::ErrorKind::NotConnected,
            "{name}"
        );
    }
}

#[test]
fn a_mount_ends_with_both_processes() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    for how in ["umount", "TERM to the server", "TERM to the supervisor"] {
        scene.mount(&[]);
        let (supervisor, server) = (scene.supervisor(), scene.server());
        match how {
            "umount" => drop(scene.run(&["umount", "mnt"]).ok()),
            "TERM to the server" => kill_process(server, Signal::TERM).unwrap(),
            _ => kill_process(supervisor, Signal::TERM).unwrap(),
        }
        eventually("both have ended", || {
            !is_running(server) && !is_running(supervisor)
        });
        assert!(!scene.is_mounted(), "{how}");
    }
}

#[test]
fn a_mount_goes_on_without_its_supervisor() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&["--log", "log"]);
    let (supervisor, server) = (scene.supervisor(), scene.server());
    kill_process(supervisor, Signal::KILL).unwrap();
    eventually("it is gone", || !is_running(supervisor));
    scene.answers();
    eventually("the log says so", || {
        let log = fs::read_to_string(scene.path("log")).unwrap();
        log.contains("the process that keeps the mount has ended")
    });
    scene.refused("the process that keeps the mount has ended");
    scene.run(&["umount", "mnt"]).ok();
    eventually("the server has ended", || !is_running(server));
}

#[test]
fn a_server_that_cannot_be_replaced_leaves_a_dead_mount() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&["--log", "log"]);
    let supervisor = scene.supervisor();
    let server = scene.server();
    fs::rename(scene.path("image"), scene.path("moved")).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    eventually("the supervisor has ended", || !is_running(supervisor));
    is_dead(&scene);
    let log = fs::read_to_string(scene.path("log")).unwrap();
    assert!(
        log.contains("No such file") && log.contains("every access fails"),
        "{log}"
    );
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn without_root_a_mount_outlives_its_server() {
    let Some(scene) = Scene::new("squashfs").and_then(Scene::served_without_root) else {
        return;
    };
    scene.mount(&[]);
    let supervisor = scene.supervisor();
    kill_process(scene.server(), Signal::KILL).unwrap();
    eventually("another serves", || {
        scene.run(&["status", "--json"]).mounts()[0]["pid"].is_u64()
    });
    scene.run(&["umount", "mnt"]).ok();
    eventually("the supervisor has ended", || !is_running(supervisor));
}

#[test]
fn a_supervisor_is_small() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&[]);
    scene.answers();
    let supervisor = scene.supervisor().as_raw_nonzero();
    let program = fs::read_link(format!("/proc/{supervisor}/exe")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{supervisor}/smaps")).unwrap();
    let (mut is_program, mut kib) = (false, 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Anonymous:") if !is_program => {
                kib += words.next().unwrap().parse::<u64>().unwrap()
            }
            // The first line of a mapping.
            Some(first) if !first.ends_with(':') => {
                is_program = words.nth(4) == program.to_str();
            }
            _ => {}
        }
    }
    assert!(
        kib > 0 && kib << 10 < SUPERVISOR_MEMORY,
        "{kib} KiB\n{maps}"
    );
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn a_mount_answers_again_within_a_second_or_the_time_of_a_mount() {
    let Some(scene) = Scene::new("erofs") else {
        return;
    };
    let begin = Instant::now();
    scene.mount(&["-o", "restarts=10"]);
    // On a busy machine, starting a process takes long.
    let limit = (2 * begin.elapsed()).max(Duration::from_secs(1));
    let pauses: Vec<Duration> = (0..5)
        .map(|_| {
            kill_process(scene.server(), Signal::KILL).unwrap();
            let begin = Instant::now();
            scene.answers();
            begin.elapsed()
        })
        .collect();
    // Other tests run at the same time, but do not affect the median.
    let mut sorted = pauses.clone();
    sorted.sort_unstable();
    assert!(sorted[2] < limit, "{pauses:?}, {limit:?}");
    scene.run(&["umount", "mnt"]).ok();
}

/// Kills every process of a mount while others read its file at random offsets and the server
/// stores pages ahead.
#[test]
fn killed_processes_under_random_readers_leave_nothing_that_cannot_end() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    let len = 16 << 20;
    fs::write(scene.path("tree/text"), generate::text(len)).unwrap();
    scene.pack("squashfs");
    for options in [&[][..], &["-o", "restarts=0"]] {
        for _ in 0..5 {
            scene.mount(options);
            let connection = Connection::of(&scene);
            let mut pids = vec![scene.server()];
            if options.is_empty() {
                pids.push(scene.supervisor());
            }
            let file = File::open(scene.path("mnt/text")).unwrap();
            let read_at_random = |seed| {
                let mut rng = Rng::new(seed);
                let pages = u64::try_from(len).unwrap() / 4096;
                while file
                    .read_at(&mut [0; 4096], rng.below(pages) * 4096)
                    .is_ok()
                {}
            };
            std::thread::scope(|scope| {
                for seed in 0..8 {
                    scope.spawn(move || read_at_random(seed));
                }
                std::thread::sleep(Duration::from_millis(100));
                for pid in &pids {
                    kill_process(*pid, Signal::KILL).unwrap();
                }
                let ended = std::panic::catch_unwind(|| {
                    eventually("they have ended", || {
                        !pids.iter().any(|pid| is_running(*pid))
                    });
                });
                if let Err(panic) = ended {
                    connection.abort();
                    std::panic::resume_unwind(panic);
                }
            });
            drop(file);
            scene.run(&["umount", "mnt"]).ok();
        }
    }
}
