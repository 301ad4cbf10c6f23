//! An image behind a server and a proxy, and the process that fills a mount of it, to be killed.

// Each part of it is used by the tests of one file.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use forerun::remote::{self, Readahead, Reference, RemoteImage, RemoteOptions};
use forerun::{Image, OpenOptions};
use forerun_kernel::{FillerCommand, GuardArgs, Options, mount_remote, resume_remote, resumed};
use forerun_testkit::require;
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link};
use rustix::fs::Advice;

use crate::common::Place;

const BIG: usize = 8 << 20;
/// The variable that tells a process of this program to fill: URL, cache, mountpoint.
const FILLER: &str = "FORERUN_TEST_FILLER";
/// How many fillers that die within a minute are replaced.
const RESTARTS: &str = "FORERUN_TEST_RESTARTS";
/// The cgroup that it enters first.
const CGROUP: &str = "FORERUN_TEST_CGROUP";
const BLOCK: usize = 4096;
/// Has this program be a filler.
const FILLER_ARGS: [&str; 4] = [
    "on_demand::filler_process",
    "--exact",
    "--nocapture",
    "--test-threads=1",
];

pub struct Served {
    pub place: Place,
    pub proxy: FaultProxy,
    _nginx: Nginx,
}

/// Returns bytes without a run of zeros.
pub fn big() -> Vec<u8> {
    (0..BIG as u64)
        .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 | 1)
        .collect()
}

pub fn guard_args() -> GuardArgs {
    let args = ["on_demand::guard_process", "--exact", "--test-threads=1"];
    GuardArgs {
        args: args.map(Into::into).to_vec(),
        filler: None,
    }
}

impl Served {
    /// Creates a tree of everything with `big` in it; nothing where there is no server.
    pub fn new(name: &str) -> Option<Self> {
        let place = Place::new(name);
        fs::write(place.path("tree/big"), big()).unwrap();
        let nginx = Nginx::serve(&place.path(""))?;
        let proxy = FaultProxy::start(&nginx.url());
        Some(Self {
            place,
            proxy,
            _nginx: nginx,
        })
    }

    pub fn reference(&self, name: &str) -> Reference {
        Reference::parse(&self.proxy.url_of(name)).unwrap()
    }

    /// Opens an image with a cache of that name.
    pub fn open(&self, name: &str, cache: &str) -> (Image, Arc<RemoteImage>) {
        open_remote(
            &self.reference(name),
            &self.place.path(&format!("cache-{cache}")),
        )
    }

    /// Opens an image whose chunks in the cache count as verified.
    pub fn open_trusting(&self, name: &str, cache: &str) -> (Image, Arc<RemoteImage>) {
        let cache = self.place.path(&format!("cache-{cache}"));
        open_remote_with(&self.reference(name), &cache, true)
    }

    pub fn start_filler(&self, name: &str, cache: &str) -> Filler {
        self.start_filler_in(name, cache, None)
    }

    /// Starts a filler in a cgroup, by which it is killed.
    pub fn start_filler_in(&self, name: &str, cache: &str, cgroup: Option<Cgroup>) -> Filler {
        self.start_filler_with(name, cache, cgroup, None)
    }

    /// Starts a filler in a cgroup, or with a guard that replaces fillers.
    pub fn start_filler_with(
        &self,
        name: &str,
        cache: &str,
        cgroup: Option<Cgroup>,
        restarts: Option<u32>,
    ) -> Filler {
        // Reads are under way when the end comes.
        self.proxy.set_link(Link {
            rtt: Duration::from_millis(3),
            bytes_per_second: Some(20_000_000),
        });
        let words = [
            self.proxy.url_of(name),
            self.place
                .path(&format!("cache-{cache}"))
                .display()
                .to_string(),
            self.place.mnt().display().to_string(),
        ];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(FILLER_ARGS)
            .envs(restarts.map(|restarts| (RESTARTS, restarts.to_string())))
            .env(FILLER, words.join("\t"))
            .envs(cgroup.iter().map(|cgroup| (CGROUP, &cgroup.path)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut filler = Filler {
            child,
            lines,
            guard: 0,
            cgroup,
        };
        filler.await_other_guard();
        filler
    }
}

fn open_remote(reference: &Reference, cache: &Path) -> (Image, Arc<RemoteImage>) {
    open_remote_with(reference, cache, false)
}

fn open_remote_with(
    reference: &Reference,
    cache: &Path,
    trust_cache: bool,
) -> (Image, Arc<RemoteImage>) {
    let options = RemoteOptions {
        trust_cache,
        cache_dir: Some(cache.to_path_buf()),
        timeout: Duration::from_secs(2),
        readahead: Readahead::Off,
        ..RemoteOptions::default()
    };
    let remote = remote::open(reference, &options).unwrap();
    let image = Image::from_source(remote.clone(), &OpenOptions::default()).unwrap();
    (image, remote)
}

/// Has the kernel forget what it read, as far as that can be asked for.
pub fn forget(mnt: &Path, remote: &RemoteImage) {
    remote.blob().flush().unwrap();
    for file in [
        &File::open(mnt.join("big")).unwrap(),
        remote.blob().data_file(),
    ] {
        rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// Alters the file of a cache at the last block that begins with `bytes`.
pub fn alter(data: &File, bytes: &[u8]) {
    let path = format!("/proc/self/fd/{}", data.as_raw_fd());
    let all = fs::read(&path).unwrap();
    let mut blocks = all.chunks(BLOCK);
    let block = blocks.rposition(|block| block.starts_with(bytes)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"altered", (block * BLOCK) as u64)
        .unwrap();
    file.sync_all().unwrap();
}

/// Waits until there is such a file, or none.
pub fn wait_for_file(path: &str, there: bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while fs::read_link(path).is_ok() != there {
        assert!(Instant::now() < patience, "{path}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fills a mount and tells which process guards it, whenever that is another one.
#[allow(clippy::print_stdout)]
pub fn filler_process() {
    let Ok(words) = std::env::var(FILLER) else {
        return;
    };
    if let Some(cgroup) = std::env::var_os(CGROUP) {
        fs::write(Path::new(&cgroup).join("cgroup.procs"), "0").unwrap();
    }
    let words: Vec<_> = words.split('\t').collect();
    let resumed = resumed().unwrap();
    let (image, remote) = open_remote(&Reference::parse(words[0]).unwrap(), Path::new(words[1]));
    let options = Options::default();
    let restarts = std::env::var(RESTARTS).ok();
    let filler = restarts.map(|restarts| FillerCommand {
        program: std::env::current_exe().unwrap(),
        args: [&["filler"], &FILLER_ARGS[..]]
            .concat()
            .into_iter()
            .map(Into::into)
            .collect(),
        dir: "/".into(),
        restarts: restarts.parse().unwrap(),
        secret: Vec::new(),
        secret_variable: String::new(),
    });
    let guard = GuardArgs {
        filler,
        ..guard_args()
    };
    let mounted = match resumed {
        Some(resumed) => resume_remote(&remote, resumed, guard),
        None => mount_remote(&image, &remote, Path::new(words[2]), &options, guard),
    };
    let mounted = mounted.unwrap();
    let mut told = None;
    loop {
        let guard = mounted.asked().guard;
        if let Some(guard) = guard.filter(|guard| Some(*guard) != told) {
            println!("\nguard {guard}");
            told = Some(guard);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub struct Filler {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// The process that guards its mount.
    pub guard: u32,
    cgroup: Option<Cgroup>,
}

impl Filler {
    /// Waits until it reports a guard.
    pub fn await_other_guard(&mut self) {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "the filler has ended"
            );
            if let Some(id) = line.strip_prefix("guard ") {
                self.guard = id.trim().parse().unwrap();
                return;
            }
        }
    }

    /// Kills it after so many reads by readers that read all over the place and go on afterwards. Returns
    /// the reads that were right and those that failed.
    pub fn read_and_kill(&mut self, mnt: &Path, reads: usize) -> (usize, usize) {
        under_readers(mnt, |right| {
            while right.load(Ordering::Acquire) < reads {
                std::hint::spin_loop();
            }
            match &self.cgroup {
                None => self.child.kill().unwrap(),
                Some(cgroup) => fs::write(cgroup.path.join("cgroup.kill"), "1").unwrap(),
            }
            self.child.wait().unwrap();
        })
    }

    /// Kills the filler likewise, and then the two fillers that follow, each when it has answered.
    pub fn read_and_kill_three(&mut self, mnt: &Path) -> (usize, usize) {
        under_readers(mnt, |right| {
            let go_on = |reads: usize| {
                let goal = right.load(Ordering::Acquire) + reads;
                let patience = Instant::now() + Duration::from_secs(60);
                while right.load(Ordering::Acquire) < goal {
                    assert!(Instant::now() < patience, "the readers do not go on");
                    std::thread::sleep(Duration::from_micros(100));
                }
            };
            go_on(7);
            self.child.kill().unwrap();
            self.child.wait().unwrap();
            for _ in 0..2 {
                go_on(20);
                let next = child_of(self.guard);
                rustix::process::kill_process(next, rustix::process::Signal::KILL).unwrap();
                wait_for_file(&format!("/proc/{}/exe", next.as_raw_nonzero()), false);
            }
        })
    }
}

/// Waits for the filler that the guard has started.
fn child_of(guard: u32) -> rustix::process::Pid {
    let tasks = format!("/proc/{guard}/task");
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        let tasks = fs::read_dir(&tasks).unwrap().flatten();
        let children: String = tasks
            .map(|task| fs::read_to_string(task.path().join("children")).unwrap())
            .collect();
        let first = children.split_whitespace().next();
        let first = first.and_then(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?));
        if let Some(filler) = first {
            return filler;
        }
        assert!(Instant::now() < patience, "no filler was started");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `work` while six readers read all over the place and for a while after it. Returns the reads that
/// were right and those that failed.
fn under_readers(mnt: &Path, work: impl FnOnce(&AtomicUsize)) -> (usize, usize) {
    let (right, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    let expected = big();
    std::thread::scope(|scope| {
        for reader in 0..6_usize {
            let (right, failed, done, expected) = (&right, &failed, &done, &expected);
            scope.spawn(move || {
                let file = File::open(mnt.join("big")).unwrap();
                let mut block = [0; BLOCK];
                let blocks = BIG / BLOCK;
                for step in 0..4 * blocks {
                    let at = (step * 769 + reader * 331) % blocks * BLOCK;
                    match file.read_exact_at(&mut block, at as u64) {
                        Ok(()) if block[..] == expected[at..][..BLOCK] => right,
                        Ok(()) => panic!("wrong bytes at {at}: {:?}...", &block[..8]),
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(5), "{error}");
                            failed
                        }
                    }
                    .fetch_add(1, Ordering::AcqRel);
                    if done.load(Ordering::Acquire) && step > blocks {
                        return;
                    }
                }
            });
        }
        work(&right);
        done.store(true, Ordering::Release);
    });
    (right.into_inner(), failed.into_inner())
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A cgroup of its own, of version 2.
pub struct Cgroup {
    pub path: PathBuf,
}

impl Cgroup {
    /// Creates a cgroup; nothing where this machine cannot.
    pub fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let top = line.and_then(|line| line.split(' ').nth(4));
        let path =
            top.map(|top| Path::new(top).join(format!("forerun-test-{}", std::process::id())));
        let path = path.filter(|path| fs::create_dir(path).is_ok());
        let made = require::that(path.is_some(), "cgroups of version 2 that root can make");
        path.filter(|_| made).map(|path| Self { path })
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The last process may still be on its way out.
        let patience = Instant::now() + Duration::from_secs(20);
        while fs::remove_dir(&self.path).is_err() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
