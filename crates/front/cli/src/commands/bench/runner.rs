//! Runs one workload with one contender, and computes digests of the contents that contenders read.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::measure::mount::Mount;
use crate::measure::peers::{Place, find_program};
use crate::measure::run::{Run, drop_caches, list, load, timed, watched};
use crate::measure::work::{self, BUFFER, Below, Work};
use crate::measure::{Error, Result, process};

use super::plan::{BenchWork, Contender, Contents, Survey};

#[derive(Clone)]
pub struct Runner {
    pub program: PathBuf,
    pub image: PathBuf,
    pub offset: u64,
    pub size: Option<u64>,
    pub objects: Option<PathBuf>,
    pub survey: Survey,
    /// The directory for extracted trees.
    pub dir: PathBuf,
    /// Number of processes that read the tree together.
    pub processes: u32,
    /// Mount options that make forerun slow, for the demo.
    pub legacy: &'static [&'static str],
}

impl Runner {
    /// Creates a runner for an image with one file of `len` bytes.
    pub fn of_file(dir: &Path, image: &Path, format: &str, name: &str, len: u64) -> Result<Self> {
        Ok(Self {
            program: std::env::current_exe()?,
            image: image.to_path_buf(),
            offset: 0,
            size: None,
            objects: None,
            survey: Survey {
                format: format.to_string(),
                offset: 0,
                files: 1,
                bytes: len,
                largest: PathBuf::from(name),
                largest_bytes: len,
            },
            dir: dir.to_path_buf(),
            processes: 1,
            legacy: &[],
        })
    }

    pub fn place(&self) -> Place<'_> {
        Place {
            image: &self.image,
            format: &self.survey.format,
            offset: self.offset,
            size: self.size,
            objects: self.objects.as_deref(),
            writable: false,
        }
    }

    pub fn measure(&self, work: BenchWork, by: Contender) -> Result<Run> {
        let run = match (by, work) {
            (_, BenchWork::Extract) => self.extract(by),
            (Contender::Library, _) => self.without_mount(work),
            (_, BenchWork::Start) => self.start(by),
            _ => self.mounted(work, by),
        };
        run.map_err(|error| error.context(format!("{}, {by}", work.name())))
    }

    pub fn digest(&self, contents: Contents, by: Contender) -> Result<String> {
        let work = match contents {
            Contents::File => Work::FileDigest,
            Contents::Pages => Work::Random,
            Contents::Tree => Work::TreeDigest,
        };
        let of = || {
            if by == Contender::Library {
                return watched(&mut self.library(work)).map(|run| run.found);
            }
            let mount = self.mount(by)?;
            let found = self.at_mount(work, &mount.path())?;
            mount.finish()?;
            Ok(found)
        };
        of().map_err(|error: Error| error.context(format!("contents, {by}")))
    }

    fn mount(&self, by: Contender) -> Result<Mount> {
        if let Contender::Peer(peer) = by {
            return peer.mount(&self.place());
        }
        let mut options = vec![OsString::from("ro")];
        if self.offset > 0 {
            options.push(format!("offset={}", self.offset).into());
        }
        if let Some(size) = self.size {
            options.push(format!("size={size}").into());
        }
        if let Some(objects) = &self.objects {
            let mut option = OsString::from("objects=");
            option.push(objects);
            options.push(option);
        }
        options.extend(self.legacy.iter().map(OsString::from));
        Mount::forerun(&self.program, &self.image, &options)
    }

    fn drop_caches(&self) -> Result<()> {
        drop_caches(&self.image, self.objects.as_deref())
    }

    fn start(&self, by: Contender) -> Result<Run> {
        self.drop_caches()?;
        self.load_driver(by);
        let (seconds, (mount, names)) = timed(|| {
            let mount = self.mount(by)?;
            let names = fs::read_dir(mount.path())?.count();
            Ok((mount, names))
        })?;
        of_mount(mount, seconds, format!("{names} names"))
    }

    fn mounted(&self, work: BenchWork, by: Contender) -> Result<Run> {
        let mount = self.mount(by)?;
        let path = mount.path();
        if work == BenchWork::CatCached {
            self.at_mount(Work::Cat, &path)?;
        } else {
            self.drop_caches()?;
        }
        // Loading the programs into memory is not measured.
        load(&self.program, &["--version"]);
        // `ls` also loads the files with which it names owners and times: some drivers read ahead
        // meanwhile, others cannot.
        load("ls", &["-ld", "/"]);
        if work == BenchWork::TreeN {
            load("find", &["--version"]);
            load("xargs", &["--version"]);
        }
        let (seconds, found) = timed(|| match work {
            BenchWork::CatCold | BenchWork::CatCached => self.at_mount(Work::Cat, &path),
            BenchWork::Random => self.at_mount(Work::Random, &path),
            BenchWork::Ls => list(&path),
            BenchWork::Tree => self.at_mount(Work::Tree, &path),
            BenchWork::TreeN => self.share(&path),
            BenchWork::Start | BenchWork::Extract => Err(Error::msg("needs no mount")),
        })?;
        of_mount(mount, seconds, found)
    }

    /// Starts a process that works on the largest file of a mount, or on its tree. Returns what the
    /// process found.
    fn at_mount(&self, work: Work, mount: &Path) -> Result<String> {
        let path = match work {
            Work::Tree | Work::List | Work::TreeDigest => mount.to_path_buf(),
            Work::Cat | Work::Random | Work::FileDigest => mount.join(&self.survey.largest),
        };
        self.at_path(work, &path)
    }

    pub fn at_path(&self, work: Work, path: &Path) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["__bench", "mounted", &work.name(), "--most"]);
        command.arg(self.survey.cat_bytes().to_string()).arg(path);
        let found = process::output(command.stdin(Stdio::null()))?;
        Ok(found.trim().to_string())
    }

    /// Reads all files as users do: `find` lists them, and several processes started by `xargs`
    /// read them.
    fn share(&self, path: &Path) -> Result<String> {
        const SCRIPT: &str = r#"find . -type f -print0 |
            xargs --null --no-run-if-empty --max-args=250 --max-procs="$0" "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, &self.processes.to_string()]);
        command
            .arg(&self.program)
            .args(["__bench", "mounted", "cat"]);
        let printed = process::output(command.current_dir(path).stdin(Stdio::null()))?;
        let (mut files, mut bytes) = (0_u64, 0_u64);
        for line in printed.lines() {
            let (more_files, more_bytes) = line.split_once(' ').context("two numbers")?;
            files += more_files.parse::<u64>()?;
            bytes += more_bytes.parse::<u64>()?;
        }
        Ok(format!("{files} {bytes}"))
    }

    /// Loads the programs that mount into memory.
    fn load_driver(&self, by: Contender) {
        match by {
            Contender::Peer(peer) => drop(peer.version()),
            Contender::Forerun | Contender::Library => load(&self.program, &["--version"]),
        }
    }

    fn extract(&self, by: Contender) -> Result<Run> {
        let is_root = rustix::process::geteuid().is_root();
        let anew = is_root && find_program("mkfs.ext4").is_some();
        let scratch = anew.then(Mount::scratch).transpose()?;
        let parent = scratch.as_ref().map_or(self.dir.clone(), Mount::path);
        let out = parent.join("extracted");
        let mut command = match by {
            Contender::Peer(peer) => {
                let command = peer.extract(&self.place(), &out);
                command.context("extracts nothing")?
            }
            Contender::Forerun | Contender::Library => {
                let mut command = self.ours(&["extract", "--quiet", "--stats"]);
                if is_root {
                    // Other programs do this for root by default.
                    command.args(["--keep", "special-bits,devices"]);
                }
                command.arg("-C").arg(&out).arg(&self.image);
                command
            }
        };
        self.drop_caches()?;
        self.load_driver(by);
        let mut run = watched(&mut command)?;
        let tree = Below(out);
        run.found = work::run(Work::TreeDigest, &tree, &[], u64::MAX, BUFFER)?;
        process::remove(&tree.0)?;
        scratch.map(Mount::finish).transpose()?;
        Ok(run)
    }

    fn without_mount(&self, work: BenchWork) -> Result<Run> {
        let mut command = match work {
            BenchWork::Start => self.listing(&[]),
            BenchWork::Ls if self.legacy.is_empty() => self.listing(&["-lR"]),
            BenchWork::Ls => self.library(Work::List),
            BenchWork::CatCold => self.library(Work::Cat),
            BenchWork::Random => self.library(Work::Random),
            BenchWork::Tree => self.library(Work::Tree),
            BenchWork::CatCached | BenchWork::TreeN | BenchWork::Extract => {
                return Err(Error::msg("needs a mount"));
            }
        };
        self.drop_caches()?;
        load(&self.program, &["--version"]);
        let mut run = watched(&mut command)?;
        if matches!(work, BenchWork::Start | BenchWork::Ls) {
            // Other programs print the same names in another form, so listings are not compared.
            run.found = String::new();
        }
        Ok(run)
    }

    /// Returns the command that works on the largest file, or on the tree, without a mount.
    fn library(&self, work: Work) -> Command {
        let mut command = self.ours(&["__bench", "library", "--stats", "--work", &work.name()]);
        for option in self.legacy {
            command.arg(match *option {
                "nolargeblocks" => "--legacy".to_string(),
                option => format!("--{option}"),
            });
        }
        command
            .arg("--path")
            .arg(Path::new("/").join(&self.survey.largest));
        command
            .arg("--most")
            .arg(self.survey.cat_bytes().to_string());
        command.arg(&self.image);
        command
    }

    fn listing(&self, words: &[&str]) -> Command {
        let mut command = self.ours(&["ls", "--stats"]);
        command.args(words).arg(&self.image);
        command
    }

    /// Returns a command of this program with the options that locate the image.
    pub fn ours(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null());
        if self.offset > 0 {
            command.arg("--offset").arg(self.offset.to_string());
        }
        if let Some(size) = self.size {
            command.arg("--size").arg(size.to_string());
        }
        if let Some(objects) = &self.objects {
            command.arg("--objects").arg(objects);
        }
        command
    }
}

fn of_mount(mount: Mount, seconds: f64, found: String) -> Result<Run> {
    let (counters, peak) = mount.finish()?;
    Ok(Run {
        seconds,
        counters,
        peak,
        found,
    })
}
