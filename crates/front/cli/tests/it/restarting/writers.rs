//! Writers on a volume whose server is killed.
//!
//! Each writer has a directory, and records what must exist: everything for which fsync(2) has
//! returned. A change that fails with EIO, ESTALE or ENOENT may or may not have happened; an
//! existing file then has its old bytes. A file that was open when the server died is opened and
//! read again.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_testkit::{generate, require};
use rustix::fs::{Advice, fadvise, statvfs};
use rustix::process::{Signal, kill_process};

use super::load::read_small;
use super::met::Met;
use super::{Scene, eventually, is_running, unused_number};

const WRITERS: usize = 3;
/// Number of files from which on a writer removes some.
const KEPT: usize = 12;

/// A file with its possible names: one, or two of which exactly one exists.
struct Made {
    names: Vec<String>,
    seed: u64,
    len: usize,
}

struct Writer {
    dir: PathBuf,
    dirsync: bool,
    made: Vec<Made>,
    gone: HashSet<String>,
    /// Names that may or may not exist.
    unknown: HashSet<String>,
    failures: u64,
}

/// Returns whether a change failed in a way that the death of a server explains.
fn failed(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let expected = [Errno::IO, Errno::STALE, Errno::NOENT].map(Errno::raw_os_error);
    let is_expected = error.raw_os_error().is_some_and(|n| expected.contains(&n));
    assert!(is_expected, "{error}");
    true
}

/// Returns whether a read failed because the server died after the file was opened.
fn is_interrupted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

impl Writer {
    fn round(&mut self) -> Result<(), String> {
        match unused_number() % 4 {
            0 if !self.made.is_empty() => self.rename(),
            1 if self.made.len() > 2 => self.remove(),
            _ => self.make(),
        }
        while self.made.len() > KEPT {
            self.remove();
        }
        self.verify()
    }

    fn make(&mut self) {
        let seed = unused_number();
        let (name, len) = (format!("File-{seed}"), 1 + (seed as usize * 7919) % 100_000);
        let made = || -> io::Result<()> {
            let mut file = File::create_new(self.dir.join(&name))?;
            for piece in generate::bytes(seed, len).chunks(30_000) {
                file.write_all(piece)?;
            }
            file.sync_all()
        };
        match made() {
            Ok(()) => self.made.push(Made {
                names: vec![name],
                seed,
                len,
            }),
            Err(error) if failed(&error) => {
                self.failures += 1;
                self.unknown.insert(name);
            }
            Err(_) => {}
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.dirsync {
            Ok(())
        } else {
            File::open(&self.dir)?.sync_all()
        }
    }

    fn rename(&mut self) {
        let at = unused_number() as usize % self.made.len();
        let file = &self.made[at];
        let [old] = &file.names[..] else {
            return;
        };
        let new = format!("Moved-{}", unused_number());
        let renamed = fs::rename(self.dir.join(old), self.dir.join(&new));
        let old = old.clone();
        match renamed.and_then(|()| self.sync()) {
            Ok(()) => {
                self.made[at].names = vec![new];
                self.gone.insert(old);
            }
            Err(error) if failed(&error) => {
                self.failures += 1;
                self.made[at].names.push(new);
            }
            Err(_) => {}
        }
    }

    fn remove(&mut self) {
        let at = unused_number() as usize % self.made.len();
        let file = self.made.swap_remove(at);
        for name in file.names {
            let removed = fs::remove_file(self.dir.join(&name));
            let removed = match removed {
                // One of two names.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            };
            match removed.and_then(|()| self.sync()) {
                Ok(()) => drop(self.gone.insert(name)),
                Err(error) if failed(&error) => {
                    self.failures += 1;
                    self.unknown.insert(name);
                }
                Err(_) => {}
            }
        }
    }

    /// Checks that every required file exists with its bytes, and no other file.
    fn verify(&mut self) -> Result<(), String> {
        for file in &mut self.made {
            let found = file.names.iter().map(|name| {
                let path = self.dir.join(name);
                match read(&path) {
                    Err(error) if is_interrupted(&error) => {
                        self.failures += 1;
                        read(&path)
                    }
                    read => read,
                }
            });
            let found: Vec<_> = found
                .collect::<io::Result<_>>()
                .map_err(|error| format!("{:?}: {error}", file.names))?;
            let there: Vec<usize> = (0..found.len()).filter(|n| found[*n].is_some()).collect();
            let [there] = there[..] else {
                return Err(format!("{:?}: {} are there", file.names, there.len()));
            };
            if found[there].as_deref() != Some(&generate::bytes(file.seed, file.len)[..]) {
                return Err(format!("wrong bytes in {}", file.names[there]));
            }
        }
        let mut listed = HashSet::new();
        for entry in fs::read_dir(&self.dir).map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            listed.insert(entry.file_name().into_string().unwrap());
        }
        let expected: HashSet<_> = self.made.iter().flat_map(|file| &file.names).collect();
        for name in &listed {
            if self.gone.contains(name) || !(expected.contains(name) || self.unknown.contains(name))
            {
                return Err(format!("{name} is listed"));
            }
        }
        if self
            .made
            .iter()
            .all(|file| file.names.iter().any(|name| listed.contains(name)))
        {
            Ok(())
        } else {
            Err(format!("{listed:?} lacks some of {expected:?}"))
        }
    }
}

/// Reads a file, bypassing the page cache. Returns `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    fadvise(&file, 0, None, Advice::DontNeed)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut &file, &mut bytes)?;
    Ok(Some(bytes))
}

/// Disturbs the server (kills or restarts it) while writers and a reader work, and then checks the
/// volume. Returns the number of failed requests.
pub fn at_work(options: &str, times: u32, disturb: impl Fn(&Scene)) -> Option<u64> {
    let fsck = require::program("fsck.exfat")?;
    let scene = Scene::new("exfat")?;
    let options = format!("restarts=1000,{options}");
    scene.mount(&["-o", options.trim_end_matches(','), "--log", "log"]);
    let free = statvfs(scene.path("mnt")).unwrap().f_bfree;
    let (met, supervisor) = (Met::<{ WRITERS + 1 }>::new(), scene.supervisor());
    let mut writers: Vec<_> = (0..WRITERS).map(|n| begin(&scene, n, &options)).collect();
    File::open(scene.path("mnt")).unwrap().sync_all().unwrap();
    let interrupted = AtomicU64::new(0);
    let ended = std::thread::scope(|threads| {
        for (which, writer) in writers.iter_mut().enumerate() {
            let met = &met;
            threads.spawn(move || met.repeat(which, || writer.round()));
        }
        let (met, scene, interrupted) = (&met, &scene, &interrupted);
        threads.spawn(move || {
            let mut n = 0;
            met.repeat(WRITERS, || {
                n = (n + 1) % 24;
                match read_small(scene, n) {
                    Err(why) if why.contains("(os error 5)") => {
                        interrupted.fetch_add(1, Ordering::Relaxed);
                        read_small(scene, n)
                    }
                    read => read,
                }
            });
        });
        let disturbed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..times {
                met.all_go_on();
                disturb(scene);
            }
            met.all_go_on();
        }));
        met.stop.store(true, Ordering::Relaxed);
        if disturbed.is_err() {
            // Without this, the test would wait forever for writers that hang.
            let _ended = kill_process(supervisor, Signal::KILL);
            scene.kill_servers();
        }
        disturbed
    });
    if ended.is_err() {
        panic!(
            "the log: {}",
            fs::read_to_string(scene.path("log")).unwrap()
        );
    }
    let failures: u64 = writers.iter().map(|writer| writer.failures).sum();
    let failures = failures + interrupted.into_inner();
    let rounds: u64 = met.rounds.iter().map(|n| n.load(Ordering::Relaxed)).sum();
    let longest = *met.longest.lock().unwrap();
    eprintln!("{times} times in {rounds} rounds, {failures} requests failed, longest: {longest:?}");
    for writer in &mut writers {
        writer.verify().unwrap();
        fs::remove_dir_all(&writer.dir).unwrap();
    }
    let root = File::open(scene.path("mnt")).unwrap();
    // The first call may report the last death.
    let _told = root.sync_all();
    root.sync_all().unwrap();
    drop(root);
    // The kernel releases closed files in the background, and a removed file keeps its clusters
    // until then.
    eventually("every cluster is free again", || {
        statvfs(scene.path("mnt")).unwrap().f_bfree == free
    });
    let server = scene.server();
    scene.run(&["umount", "mnt"]).ok();
    eventually("the last process has ended", || !is_running(server));
    let image = scene.path("image");
    let checked = std::process::Command::new(fsck)
        .arg("-n")
        .arg(image)
        .output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{checked:?}");
    scene.run(&["check", "image"]).ok();
    let told = scene.run(&["info", "image"]).ok();
    assert!(!told.stderr.contains("dirty"), "{}", told.stderr);
    Some(failures)
}

fn begin(scene: &Scene, n: usize, options: &str) -> Writer {
    let dir = scene.path(&format!("mnt/w{n}"));
    fs::create_dir(&dir).unwrap();
    Writer {
        dir,
        dirsync: options.contains("dirsync"),
        made: Vec::new(),
        gone: HashSet::new(),
        unknown: HashSet::new(),
        failures: 0,
    }
}
