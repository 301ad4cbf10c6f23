//! Readers of all kinds that work while a mount is handed over.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use forerun_testkit::generate;
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

use super::met::Met;
use super::{BIG, Scene, eventually, is_running, unused_number};

const READERS: usize = 8;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Reads a whole file, bypassing the page cache.
pub fn read_small(scene: &Scene, n: u64) -> Result<(), String> {
    let name = format!("d{}/{n}", n % 6);
    let file = File::open(scene.path("mnt").join(&name)).map_err(text)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(text)?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut bytes).map_err(text)?;
    let expected = fs::read(scene.path("tree").join(&name)).map_err(text)?;
    if bytes != expected {
        return Err(format!("wrong bytes in {name}"));
    }
    Ok(())
}

/// Lists directories, and looks up a new missing name in each.
fn look_around(scene: &Scene) -> Result<(), String> {
    let mut count = 0;
    for entry in fs::read_dir(scene.path("mnt")).map_err(text)? {
        let path = entry.map_err(text)?.path();
        if path.is_dir() {
            count += fs::read_dir(&path).map_err(text)?.count();
            let missing = path.join(format!("missing-{}", unused_number()));
            match missing.symlink_metadata() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => return Err(format!("{other:?}")),
            }
        }
    }
    match count {
        24 => Ok(()),
        count => Err(format!("{count} files")),
    }
}

/// Restarts ten times while all kinds of readers work.
pub fn ten_times_under_load(format: &str) {
    let Some(scene) = Scene::new(format) else {
        return;
    };
    scene.mount(&[]);
    let old = under_load(&scene, |met| {
        let mut servers = vec![scene.server()];
        for _ in 0..10 {
            met.all_go_on();
            scene.restart().ok();
            let server = scene.server();
            assert!(!servers.contains(&server));
            servers.push(server);
        }
        met.all_go_on();
        servers.pop();
        servers
    });
    for old in old {
        assert!(!is_running(old), "{old:?} has ended");
    }
}

/// Returns how often servers are killed. `FORERUN_KILLS` overrides the number.
pub fn usual_kills() -> u32 {
    let asked = std::env::var("FORERUN_KILLS").ok();
    asked.map_or(10, |asked| asked.parse().unwrap())
}

/// Kills the server while all kinds of readers work.
pub fn kills_under_load(format: &str, kills: u32) {
    let Some(scene) = Scene::new(format) else {
        return;
    };
    scene.mount(&["-o", "restarts=1000", "--log", "log"]);
    under_load(&scene, |met| {
        for _ in 0..kills {
            met.all_go_on();
            kill_process(scene.server(), Signal::KILL).unwrap();
        }
        met.all_go_on();
        Vec::new()
    });
    let log = fs::read_to_string(scene.path("log")).unwrap();
    let died = log.matches("has died").count();
    assert_eq!(died, usize::try_from(kills).unwrap(), "{log}");
}

/// Runs `work` beside eight readers, which must not notice it. Returns the result of `work`.
fn under_load(scene: &Scene, work: impl FnOnce(&Met<READERS>) -> Vec<Pid>) -> Vec<Pid> {
    let big = generate::bytes(1, BIG);
    let open = File::open(scene.path("mnt/big")).unwrap();
    let met = Met::<READERS>::new();
    let supervisor = scene.supervisor();
    let done = std::thread::scope(|threads| {
        for which in 0..4 {
            let met = &met;
            threads.spawn(move || {
                let mut n = 7 * which as u64;
                met.repeat(which, || {
                    n = (n + 1) % 24;
                    read_small(scene, n)
                });
            });
        }
        for which in 4..6 {
            let (met, open, big) = (&met, &open, &big);
            threads.spawn(move || {
                // Opened once, before the first server was replaced.
                let (mut at, mut piece) = (0, vec![0; 300_000]);
                met.repeat(which, || {
                    let count = open.read_at(&mut piece, at as u64).map_err(text)?;
                    if piece[..count] != big[at..at + count] {
                        return Err(format!("wrong bytes at {at}"));
                    }
                    at += count;
                    if count == 0 {
                        at = 0;
                        fadvise(open, 0, None, Advice::DontNeed).map_err(text)?;
                    }
                    Ok(())
                });
            });
        }
        for which in 6..8 {
            let met = &met;
            threads.spawn(move || met.repeat(which, || look_around(scene)));
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&met)));
        met.stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|panic| {
            // Without this, the test would wait forever for readers that hang.
            drop(scene.run(&["umount", "--lazy", "mnt"]));
            let _ended = kill_process(supervisor, Signal::KILL);
            let server = scene.run(&["status", "--json"]).mounts()[0]["pid"].as_i64();
            if let Some(pid) = server.and_then(|pid| Pid::from_raw(pid.try_into().unwrap())) {
                let _ended = kill_process(pid, Signal::KILL);
            }
            std::panic::resume_unwind(panic)
        })
    });
    eprintln!("longest pause: {:?}", met.longest.lock().unwrap());
    drop(open);
    let server = scene.server();
    scene.run(&["umount", "mnt"]).ok();
    eventually("the last process has ended", || !is_running(server));
    assert!(!scene.is_mounted());
    done
}
