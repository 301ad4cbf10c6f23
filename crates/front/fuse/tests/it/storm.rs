//! Eight processes create, write, rename, truncate and remove files of one exFAT volume at the same
//! time.
//!
//! Each process knows the contents of its files and compares them with what it reads. After all
//! files are removed, the volume must have as much free space as before and no defects according to
//! forerun's check, the test kit's checker and `fsck.exfat`. The volume is small, so that it
//! becomes full at times.
//!
//! A run takes `FORERUN_STORM` seconds for each cluster size, by default 4.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use forerun::unstable::VolumeMut;
use forerun_fuse::{Mount, MountOptions, mount_volume};
use forerun_io::FileSource;
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::rng::Rng;
use forerun_testkit::{children, exfat_tools};

use crate::common::{Place, can_mount};

/// Environment variable of a child: directory, process number and seconds.
const TASK: &str = "FORERUN_STORM_CHILD";
const PROCESSES: u64 = 8;
/// Cluster size and length of each volume: too short for all files.
const VOLUMES: [(&str, u64); 3] = [("512", 4 << 20), ("4K", 4 << 20), ("128K", 20 << 20)];

/// A process and the files that it has created, in its own directory and in the shared one.
struct Process {
    number: u64,
    own: PathBuf,
    shared: PathBuf,
    files: BTreeMap<PathBuf, (u8, u64)>,
    rng: Rng,
}

fn pattern(seed: u8, range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|at| (at as u8).wrapping_mul(7) ^ seed).collect()
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == ErrorKind::StorageFull
}

impl Process {
    fn name(&mut self) -> PathBuf {
        let n = self.rng.below(12);
        let number = self.number;
        let name = match self.rng.below(8) {
            // An entry set of more than 16 entries spans two sectors.
            0 => format!("{number}-{n}-{}", "long name ".repeat(23)),
            1 => format!("{number}-{n}-{}", "x".repeat(60)),
            _ => format!("{number}-{n}"),
        };
        match self.rng.below(3) {
            0 => self.shared.join(name),
            _ => self.own.join(name),
        }
    }

    fn some_file(&mut self) -> Option<PathBuf> {
        let index = self.rng.below(self.files.len() as u64);
        self.files.keys().nth(index as usize).cloned()
    }

    /// Writes a new file or overwrites an old one. Removes it if the volume is full.
    fn write(&mut self) -> io::Result<()> {
        let path = self.name();
        let (seed, len) = (self.rng.next_u64() as u8, self.rng.below(60_000));
        self.files.remove(&path);
        let mut file = File::create(&path)?;
        let written = file.write_all(&pattern(seed, 0..len));
        if self.rng.below(16) == 0 {
            file.sync_all()?;
        }
        match written {
            Ok(()) => {
                self.files.insert(path, (seed, len));
                Ok(())
            }
            Err(error) => {
                drop(file);
                fs::remove_file(&path)?;
                Err(error)
            }
        }
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else {
            return Ok(());
        };
        let (seed, len) = self.files[&path];
        let more = 1 + self.rng.below(30_000);
        let mut file = OpenOptions::new().append(true).open(&path)?;
        let written = file.write_all(&pattern(seed, len..len + more));
        let len = file.metadata()?.len();
        self.files.insert(path, (seed, len));
        written
    }

    fn truncate(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else {
            return Ok(());
        };
        let (seed, len) = self.files[&path];
        let len = self.rng.below(len + 1);
        OpenOptions::new().write(true).open(&path)?.set_len(len)?;
        self.files.insert(path, (seed, len));
        Ok(())
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some(from) = self.some_file() else {
            return Ok(());
        };
        let to = self.name();
        fs::rename(&from, &to)?;
        if let Some(what) = self.files.remove(&from) {
            self.files.insert(to, what);
        }
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else {
            return Ok(());
        };
        self.files.remove(&path);
        fs::remove_file(path)
    }

    /// Writes, closes and removes a file, or removes it while it is open and writes more.
    fn use_and_remove(&mut self) -> io::Result<()> {
        let path = self.own.join("used");
        let mut file = File::create(&path)?;
        let written = file.write_all(&pattern(1, 0..20_000));
        if self.rng.below(2) == 0 {
            drop(file);
            fs::remove_file(&path)?;
            return written;
        }
        fs::remove_file(&path)?;
        file.write_all_at(&pattern(1, 0..20_000), 20_000)?;
        written
    }

    fn directories(&mut self) -> io::Result<()> {
        let path = self.own.join(format!("dir{}", self.rng.below(3)));
        match fs::create_dir(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => fs::remove_dir(&path),
            other => other,
        }
    }

    fn compare(&mut self) -> io::Result<()> {
        let Some(path) = self.some_file() else {
            return Ok(());
        };
        let (seed, len) = self.files[&path];
        assert!(fs::read(&path)? == pattern(seed, 0..len), "{path:?}");
        Ok(())
    }

    fn step(&mut self) -> io::Result<()> {
        match self.rng.below(12) {
            0..=2 => self.write(),
            3 => self.append(),
            4 => self.truncate(),
            5 | 6 => self.rename(),
            7 => self.remove(),
            8 | 9 => self.use_and_remove(),
            10 => self.directories(),
            _ => self.compare(),
        }
    }

    fn clean_up(self) {
        for path in self.files.into_keys() {
            fs::remove_file(path).unwrap();
        }
        for n in 0..3 {
            let _may_not_be_there = fs::remove_dir(self.own.join(format!("dir{n}")));
        }
    }
}

#[test]
#[ignore = "run by the other tests as a process of its own"]
fn child() {
    let task = std::env::var(TASK).unwrap();
    let task: Vec<&str> = task.split('|').collect();
    let number: u64 = task[1].parse().unwrap();
    let seconds: u64 = task[2].parse().unwrap();
    let root = Path::new(task[0]);
    let mut process = Process {
        number,
        own: root.join(format!("process {number}")),
        shared: root.join("shared"),
        files: BTreeMap::new(),
        rng: Rng::new(number),
    };
    let (start, mut steps, mut full) = (Instant::now(), 0_u64, 0_u64);
    while start.elapsed() < Duration::from_secs(seconds) {
        match process.step() {
            Ok(()) => steps += 1,
            Err(error) if is_full(&error) => {
                full += 1;
                if full.is_multiple_of(4) {
                    process.remove().unwrap();
                }
            }
            Err(error) => panic!("process {number}, step {steps}: {error}"),
        }
    }
    process.clean_up();
    println!("\nsteps {steps} {full}");
}

fn mount(image: &Path, at: &Path) -> Mount {
    let options = MountOptions::parse("rw").unwrap();
    let volume = VolumeMut::open(image, &options.open_options(), &options.write).unwrap();
    mount_volume(volume.volume().clone(), at, &options).unwrap()
}

fn unmount(mut mount: Mount) {
    mount.unmount().unwrap();
    mount.wait().unwrap();
}

fn used(at: &Path) -> u64 {
    let space = rustix::fs::statvfs(at).unwrap();
    space.f_blocks - space.f_bfree
}

fn directories(at: &Path) -> Vec<PathBuf> {
    let own = (0..PROCESSES).map(|number| at.join(format!("process {number}")));
    own.chain([at.join("shared")]).collect()
}

fn make(dirs: &[PathBuf]) {
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
}

fn remove(dirs: &[PathBuf]) {
    dirs.iter().for_each(|dir| fs::remove_dir(dir).unwrap());
}

/// Runs the processes. Returns the number of steps, and how often the volume was full.
fn storm(at: &Path, seconds: u64) -> (u64, u64) {
    let start = |number| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "--ignored", "--nocapture", "storm::child"])
            .env(TASK, format!("{}|{number}|{seconds}", at.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        children::spawn(&mut child).unwrap()
    };
    let children: Vec<_> = (0..PROCESSES).map(start).collect();
    let mut sum = (0, 0);
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let line = text.lines().find_map(|line| line.strip_prefix("steps "));
        let (steps, full) = line.unwrap().split_once(' ').unwrap();
        sum.0 += steps.parse::<u64>().unwrap();
        sum.1 += full.parse::<u64>().unwrap();
    }
    sum
}

/// Checks the volume with three checkers.
#[track_caller]
fn assert_sound(image: &Path) {
    let report = judge(&FileSource::open(image).unwrap()).unwrap();
    assert!(
        report.clean(),
        "dirty {}, {:?}",
        report.dirty,
        report.findings
    );
    assert!(report.nodes.is_empty(), "{:?}", report.nodes);
    exfat_tools::assert_clean(image);
    let opened = forerun::Image::open(image).unwrap();
    let mut problems = Vec::new();
    let fs = opened.reader().fs();
    for node in [None, Some(fs.root())] {
        fs.check(node, &mut |problem| {
            problems.push(problem.error.to_string())
        })
        .unwrap();
    }
    assert!(problems.is_empty(), "{problems:?}");
}

#[test]
fn a_storm_of_processes_leaves_the_volume_as_it_was() {
    let _alone = crate::CPUS.write();
    if !can_mount() {
        return;
    }
    let seconds = std::env::var("FORERUN_STORM").map_or(4, |text| text.parse().unwrap());
    for (cluster, len) in VOLUMES {
        let place = Place::new("storm");
        let image = place.dir().join("image");
        if !exfat_tools::mkfs(&image, len, &["-c", cluster]) {
            return;
        }
        let mounted = mount(&image, &place.mnt());
        let dirs = directories(&place.mnt());
        // The root directory grows for these names and keeps its clusters.
        make(&dirs);
        remove(&dirs);
        let before = used(&place.mnt());
        make(&dirs);
        let (steps, full) = storm(&place.mnt(), seconds);
        remove(&dirs);
        println!("clusters of {cluster}: {steps} steps, {full} times without space");
        assert_eq!(
            used(&place.mnt()),
            before,
            "clusters of {cluster}: space is lost"
        );
        unmount(mounted);
        assert_sound(&image);
    }
}
