//! One run of one piece of work by one contender, and the digests of what each of them reads.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

use crate::measure::caches::drop_caches;
use crate::measure::counters::parse;
use crate::measure::mount::{Mount, Mounted, objects_option};
use crate::measure::peers::{Peer, Place};
use crate::measure::programs::find_program;
use crate::measure::run::{Run, Worker, list, load, timed, watched};
use crate::measure::scratch::Scratch;
use crate::measure::{Error, Result, digest, process};

use super::plan::{BenchWork, Contender, Contents, Survey};

/// The image, the program and the processes of a measurement.
#[derive(Clone)]
pub struct Runner {
    pub program: PathBuf,
    /// The file or device.
    pub image: PathBuf,
    /// Where the image starts in it.
    pub offset: u64,
    /// Its length, if it was given.
    pub size: Option<u64>,
    /// The object store of a composefs image.
    pub objects: Option<PathBuf>,
    /// The facts about the image.
    pub survey: Survey,
    /// Where trees are extracted to.
    pub dir: PathBuf,
    /// Processes that share the reading of the tree.
    pub processes: u32,
    /// The processes that read.
    pub worker: Worker,
    /// Mount options of forerun that make it slow, for the demo.
    pub legacy: &'static [&'static str],
}

impl Runner {
    /// Returns what measures an image with one file of `len` bytes.
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
            worker: Worker::this_program(&["__bench"])?,
            legacy: &[],
        })
    }

    /// Returns the place of the image, for other programs.
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

    /// Computes the digest of what a contender reads.
    pub fn digest(&self, contents: Contents, by: Contender) -> Result<String> {
        let of = || {
            if by == Contender::Library {
                return library(&mut self.library_digest(contents)).map(|run| run.found);
            }
            let mount = self.mount(by)?;
            let path = mount.path();
            let file = path.join(&self.survey.largest);
            let found = match contents {
                Contents::File => {
                    let most = self.survey.cat_bytes().to_string();
                    self.worker.run(&["digest", "--most", &most], &file)
                }
                Contents::Pages => self.worker.run(&RANDOM, &file),
                Contents::Tree => self.worker.run(&["digest"], &path),
            };
            let found = found?;
            mount.finish()?;
            Ok(found)
        };
        of().map_err(|error: Error| error.context(format!("contents, {by}")))
    }

    fn mount(&self, by: Contender) -> Result<Mount> {
        match by {
            Contender::Peer(peer) => peer.mount(&self.place()).map(Mount::Other),
            Contender::Forerun | Contender::Library => {
                let mut options = vec![OsString::from("ro")];
                if self.offset > 0 {
                    options.push(format!("offset={}", self.offset).into());
                }
                if let Some(size) = self.size {
                    options.push(format!("size={size}").into());
                }
                if let Some(objects) = &self.objects {
                    options.push(objects_option(objects));
                }
                options.extend(self.legacy.iter().map(OsString::from));
                Mounted::new(&self.program, &self.image, &options).map(Mount::Forerun)
            }
        }
    }

    fn start(&self, by: Contender) -> Result<Run> {
        drop_caches(&self.image)?;
        self.load_driver(by);
        let (seconds, (mount, names)) = timed(|| {
            let mount = self.mount(by)?;
            let names = fs::read_dir(mount.path())?.count();
            Ok((mount, names))
        })?;
        let (counters, peak) = mount.finish()?;
        Ok(Run {
            seconds,
            counters,
            peak,
            found: format!("{names} names"),
        })
    }

    fn mounted(&self, work: BenchWork, by: Contender) -> Result<Run> {
        let mount = self.mount(by)?;
        let path = mount.path();
        let file = path.join(&self.survey.largest);
        let most = self.survey.cat_bytes().to_string();
        let cat = ["files", "--most", &most];
        match work {
            BenchWork::CatCached => drop(self.worker.run(&cat, &file)?),
            _ => drop(drop_caches(&self.image)?),
        }
        // How the programs get into memory is not measured.
        load(self.program.as_os_str(), &["--version"]);
        // With what it reads to name owners and times: some drivers read ahead meanwhile, and others cannot.
        load(OsStr::new("ls"), &["-ld", "/"]);
        if work == BenchWork::TreeN {
            load(OsStr::new("find"), &["--version"]);
            load(OsStr::new("xargs"), &["--version"]);
        }
        let (seconds, found) = timed(|| match work {
            BenchWork::CatCold | BenchWork::CatCached => self.worker.run(&cat, &file),
            BenchWork::Random => self.worker.run(&RANDOM, &file),
            BenchWork::Ls => list(&path),
            BenchWork::Tree => self.worker.run(&["tree"], &path),
            BenchWork::TreeN => self.worker.share(&path, self.processes),
            BenchWork::Start | BenchWork::Extract => Err(Error::msg("needs no mount")),
        })?;
        let (counters, peak) = mount.finish()?;
        Ok(Run {
            seconds,
            counters,
            peak,
            found,
        })
    }

    /// Has the programs in memory that mount.
    fn load_driver(&self, by: Contender) {
        match by {
            Contender::Forerun | Contender::Library => {
                load(self.program.as_os_str(), &["--version"]);
            }
            Contender::Peer(peer) => {
                drop(peer.version());
                if matches!(peer, Peer::Kernel | Peer::ExfatFuse) {
                    load(OsStr::new("losetup"), &["--version"]);
                }
            }
        }
    }

    fn extract(&self, by: Contender) -> Result<Run> {
        let is_root = rustix::process::geteuid().is_root();
        let anew = is_root && find_program("mkfs.ext4").is_some();
        let scratch = anew.then(|| Scratch::new(&self.dir)).transpose()?;
        let parent = scratch.as_ref().map_or(self.dir.as_path(), Scratch::path);
        let out = parent.join("extracted");
        let mut command = match by {
            Contender::Peer(peer) => {
                let command = peer.extract(&self.place(), &out);
                command.ok_or_else(|| Error::msg("extracts nothing"))?
            }
            Contender::Forerun | Contender::Library => {
                let mut command = self.ours(&["extract", "--quiet", "--stats"]);
                if is_root {
                    // As other programs do for root without being asked.
                    command.args(["--special-bits", "--devices"]);
                }
                command.arg("-C").arg(&out).arg(&self.image);
                command
            }
        };
        drop_caches(&self.image)?;
        self.load_driver(by);
        let mut run = watched(&mut command)?;
        run.found = digest::of_tree(&out)?.text();
        process::remove(&out)?;
        Ok(run)
    }

    fn without_mount(&self, work: BenchWork) -> Result<Run> {
        let most = self.survey.cat_bytes().to_string();
        let mut command = match work {
            BenchWork::Start => self.listing(&[]),
            BenchWork::Ls if !self.legacy.is_empty() => {
                self.library_command(&["--work", "list"], false)
            }
            BenchWork::Ls => self.listing(&["-lR"]),
            BenchWork::CatCold => self.library_command(&["--work", "cat", "--most", &most], true),
            BenchWork::Random => self.library_random(),
            BenchWork::Tree => self.library_command(&["--work", "tree"], false),
            BenchWork::CatCached | BenchWork::TreeN | BenchWork::Extract => {
                return Err(Error::msg("needs a mount"));
            }
        };
        drop_caches(&self.image)?;
        load(self.program.as_os_str(), &["--version"]);
        let mut run = library(&mut command)?;
        if matches!(work, BenchWork::Start | BenchWork::Ls) {
            // A listing of another program: the same names in another form.
            run.found = String::new();
        }
        Ok(run)
    }

    fn library_digest(&self, contents: Contents) -> Command {
        let most = self.survey.cat_bytes().to_string();
        match contents {
            Contents::File => {
                self.library_command(&["--work", "file-digest", "--most", &most], true)
            }
            Contents::Pages => self.library_random(),
            Contents::Tree => self.library_command(&["--work", "tree-digest"], false),
        }
    }

    fn library_random(&self) -> Command {
        self.library_command(&["--work", "random"], true)
    }

    fn library_command(&self, words: &[&str], of_file: bool) -> Command {
        let mut command = self.ours(&["__bench", "library", "--stats"]);
        command.args(words);
        for option in self.legacy {
            command.arg(match *option {
                "nolargeblocks" => "--legacy".to_string(),
                option => format!("--{option}"),
            });
        }
        if of_file {
            let mut path = OsString::from("--path=");
            path.push(&self.survey.largest);
            command.arg(path);
        }
        command.arg(&self.image);
        command
    }

    fn listing(&self, words: &[&str]) -> Command {
        let mut command = self.ours(&["ls", "--stats"]);
        command.args(words).arg(&self.image);
        command
    }

    /// Returns a command of this program with the place of the image.
    fn ours(&self, words: &[&str]) -> Command {
        ours(
            &self.program,
            words,
            self.offset,
            self.size,
            self.objects.as_deref(),
        )
    }
}

/// Runs a command of this program that prints what it found, and its counters to standard error.
fn library(command: &mut Command) -> Result<Run> {
    let (seconds, output) = timed(|| {
        let output = process::collect(command).with_context(|| process::describe(command))?;
        process::successful(command, output)
    })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    Ok(Run {
        seconds,
        counters: parse(&text(&output.stderr)),
        found: text(&output.stdout),
        ..Run::default()
    })
}

/// Returns a command of this program with the place of an image in its file.
pub fn ours(
    program: &Path,
    words: &[&str],
    offset: u64,
    size: Option<u64>,
    objects: Option<&Path>,
) -> Command {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    if offset > 0 {
        command.arg("--offset").arg(offset.to_string());
    }
    if let Some(size) = size {
        command.arg("--size").arg(size.to_string());
    }
    if let Some(objects) = objects {
        command.arg("--objects").arg(objects);
    }
    command
}

/// The work at random places; the worker's own numbers are those of the plan.
const RANDOM: [&str; 1] = ["random"];
