//! The parts of the demo that read and list images, and the code that all parts share.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use clap::ValueEnum;
use forerun::Writer;
use forerun::build::{
    ComposefsOptions, Content, NewNode, NodeKind, RomfsOptions, SquashfsOptions, Tree,
};
use forerun::vfs::Timestamp;

use super::files::{Data, FILE, write};
use super::report::{Part, Row};
use super::{exfat, link};
use crate::commands::bench::plan::{BenchWork, Contender, Contents};
use crate::commands::bench::runner::Runner;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;
use crate::measure::active::spawn;
use crate::measure::mount::Mount;
use crate::measure::peers::Peer;
use crate::measure::process;
use crate::measure::run::{Run, drop_caches, timed};
use crate::measure::work::{Work, digest};
use crate::size;

/// A part of the demo, named for the format that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartName {
    /// Read in requests of 1 KiB, and in large ones
    Romfs,
    /// Decode a block again for each page, and only once
    Squashfs,
    /// Remove a large file with a write for each cluster, and with one for each sector
    Exfat,
    /// Download an image from a server, and read it on demand
    Link,
    /// List a tree without and with readahead of metadata
    Composefs,
}

pub struct Facts {
    pub id: &'static str,
    pub title: &'static str,
    /// The counted unit, and its counter in `--stats`.
    pub counts: &'static str,
    pub counter: &'static str,
    /// The names of forerun's line and of the legacy line in JSON, and the latter for people.
    pub ours: &'static str,
    pub legacy: &'static str,
    pub legacy_way: &'static str,
    /// The mount options that make forerun as slow as the legacy way.
    options: &'static [&'static str],
    pub note: &'static str,
    /// The figures of the Linux work that the part repeats in userspace.
    pub linux: &'static str,
}

impl PartName {
    pub const fn facts(self) -> Facts {
        match self {
            Self::Romfs => Facts {
                id: "romfs",
                title: "romfs: many small requests, or few large ones",
                counts: "requests",
                counter: "source_requests",
                ours: "largeblocks",
                legacy: "nolargeblocks",
                legacy_way: "legacy: 1 KiB at a time",
                options: &["nolargeblocks"],
                note: "The legacy way is forerun mount -o nolargeblocks. Requests: reads of the image.",
                linux: "60 -> 22 s by the option largeblocks: md5sum of a file of 250 MB, on an i.MX6 with eMMC",
            },
            Self::Squashfs => Facts {
                id: "squashfs",
                title: "SquashFS: each block decoded for every page, or once",
                counts: "decodes",
                counter: "decodes",
                ours: "once",
                legacy: "each_page",
                legacy_way: "legacy: a decode for each page",
                // The cache is too small for one decoded block, but holds the metadata of one file.
                options: &["nolargeblocks", "readahead=0", "cache=160K"],
                note: "Legacy: pages of 4 KiB are asked for one by one, and no decoded block is kept.",
                linux: "39 -> 1.8 s by readahead in SquashFS: reading pack files of 300 KB, on arm64",
            },
            Self::Exfat => Facts {
                id: "exfat",
                title: "exFAT: each freed cluster written, or each sector once",
                counts: "writes",
                counter: "writes",
                ours: "each_sector",
                legacy: "each_cluster",
                legacy_way: "legacy: a write for each cluster",
                options: &[],
                note: "The legacy way is a replay of the writes that Linux made before the patch, each of them made \
                       durable. exfat-fuse flushes nothing.",
                linux: "32,775 -> 13 writes: rm of a file of 4 GB with dirsync, on an SD card",
            },
            Self::Link => Facts {
                id: "link",
                title: "An image behind a link: fetched whole, or as it is read",
                counts: "KiB sent",
                counter: "sent",
                ours: "on_demand",
                legacy: "whole",
                legacy_way: "legacy: fetched, then read",
                options: &[],
                note: "The legacy way is forerun pull, and then forerun cat of what it has fetched.",
                linux: "202,654 -> 407,213 KB/s by asynchronous readahead in EROFS on demand (ext4: 439,912)",
            },
            Self::Composefs => Facts {
                id: "composefs",
                title: "composefs: metadata read as it is needed, or ahead",
                counts: "requests",
                counter: "source_requests",
                ours: "ahead",
                legacy: "as_needed",
                legacy_way: "legacy: as it is needed",
                options: &["nolargeblocks"],
                note: "The legacy way reads blocks of 1 KiB one by one (forerun mount -o nolargeblocks). Contents are \
                       objects elsewhere, and none is looked up.",
                linux: "523 -> 404 ms by readahead of metadata: ls -lR in composefs",
            },
        }
    }
}

pub struct Kit {
    pub dir: PathBuf,
    pub program: PathBuf,
    pub data: Data,
    /// Why nothing can be mounted. `None` if mounting works.
    pub no_mount: Option<String>,
}

impl Kit {
    /// Creates the state, and tests whether an image can be mounted.
    pub fn new(dir: &Path, data: Data) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| Failure::source(&error))?;
        let image = dir.join("empty.romfs");
        let writer = Writer::Romfs(RomfsOptions::default());
        write(&writer, &Tree::default(), &image)?;
        let mounted = Mount::forerun(&program, &image, &["ro"]);
        Ok(Self {
            dir: dir.to_path_buf(),
            program,
            data,
            no_mount: mounted.err().map(|error| said(&error)),
        })
    }

    /// Makes an image with a file of the first `len` bytes of the data and, if `more` is not 0,
    /// another file of `more` bytes.
    pub fn packed(&self, format: &str, writer: &Writer, len: u64, more: u64) -> Result<Runner> {
        let image = self.dir.join(format!("image.{format}"));
        self.data.pack(writer, &image, len, more)?;
        Runner::of_file(&self.dir, &image, format, FILE, len).map_err(failed)
    }

    pub fn expected(&self, len: u64) -> Result<String> {
        Ok(digest(&*self.data.file, len).map_err(failed)?.to_string())
    }
}

/// Formats an error in one line.
pub fn said(error: &anyhow::Error) -> String {
    without_errno(&format!("{error:#}")).replace('\n', " ")
}

pub fn failed(error: anyhow::Error) -> Failure {
    Failure::new(Exit::Image, "demo", said(&error))
}

pub fn measure(kit: &Kit, name: PartName) -> Result<Part> {
    let mut part = match name {
        PartName::Romfs => romfs(kit),
        PartName::Squashfs => squashfs(kit),
        PartName::Exfat => exfat::measure(kit),
        PartName::Link => link::measure(kit),
        PartName::Composefs => composefs(kit),
    }?;
    if let Some(why) = kit.no_mount.as_ref().filter(|_| name != PartName::Link) {
        part.left_out.push(format!("mounts of forerun ({why})"));
    }
    Ok(part)
}

fn romfs(kit: &Kit) -> Result<Part> {
    let len = kit.data.len;
    let what = format!(
        "Reads a file of {} in an image to its end.",
        size::human(len)
    );
    let mut part = Part::new(PartName::Romfs, what);
    let options = RomfsOptions {
        align: 4096,
        ..RomfsOptions::default()
    };
    let runner = kit.packed("romfs", &Writer::Romfs(options), len, 0)?;
    compare(kit, &mut part, &runner, BenchWork::CatCold)?;
    let itself = best(|| {
        drop_caches(&runner.image, None)?;
        let (seconds, found) = timed(|| runner.at_path(Work::Cat, &runner.image))?;
        Ok(Run {
            seconds,
            found,
            ..Run::default()
        })
    });
    let itself = itself.map_err(failed)?;
    part.add_reference("image", "the image itself, as a file", &itself);
    Ok(part)
}

fn squashfs(kit: &Kit) -> Result<Part> {
    const BLOCK: u64 = 128 << 10;
    let blocks = (kit.data.len / 6 / BLOCK).max(1);
    let len = blocks * BLOCK;
    let what = format!(
        "Reads a file of {}, which is {} compressed with gzip, to its end.",
        size::human(len),
        size::counted(blocks, "block of 128 KiB", "blocks of 128 KiB")
    );
    let mut part = Part::new(PartName::Squashfs, what);
    let writer = Writer::Squashfs(SquashfsOptions::default());
    let runner = kit.packed("squashfs", &writer, len, 0)?;
    compare(kit, &mut part, &runner, BenchWork::CatCold)?;
    let expected = kit.expected(len)?;
    part.add_peer(Peer::Unsquashfs, &runner.place(), || {
        let mut cat = Command::new("unsquashfs");
        cat.arg("-cat").arg(&runner.image).arg(FILE);
        best(|| {
            drop_caches(&runner.image, None)?;
            same(hashed(&mut cat)?, &expected)
        })
    });
    Ok(part)
}

fn composefs(kit: &Kit) -> Result<Part> {
    let files = ((kit.data.len >> 20) * 80).min(20_000);
    let what = format!(
        "Lists a tree of {} as ls -lR.",
        size::counted(files, "file", "files")
    );
    let mut part = Part::new(PartName::Composefs, what);
    let image = kit.dir.join("image.composefs");
    let writer = Writer::Composefs(ComposefsOptions::default());
    write(&writer, &tree(files)?, &image)?;
    // Other programs would find the metadata without the objects, which do not exist, and would
    // list 256 more whiteouts.
    let mut runner = Runner::of_file(&kit.dir, &image, "erofs", FILE, 0).map_err(failed)?;
    let objects = kit.dir.join("objects");
    std::fs::create_dir(&objects).map_err(|error| failed(error.into()))?;
    runner.objects = Some(objects);
    compare(kit, &mut part, &runner, BenchWork::Ls)?;
    Ok(part)
}

/// Makes a tree of `files` files in directories. All contents are the same, because only metadata
/// is read.
fn tree(files: u64) -> Result<Tree> {
    const EACH: u64 = 16;
    let content: Arc<[u8]> = [b'#'; 100].into();
    let (mut tree, mut module) = (Tree::default(), Tree::ROOT);
    for n in 0..files {
        if n % EACH == 0 {
            let name = format!("module-{:04}", n / EACH);
            module = tree.add(Tree::ROOT, name.as_bytes(), NewNode::directory())?;
        }
        let content = Content::Bytes(Arc::clone(&content));
        let mut node = NewNode::new(NodeKind::File { len: 100, content }, 0o644);
        // As in real trees, few files have the same time.
        node.mtime = Timestamp {
            seconds: 1_700_000_000_i64.saturating_add_unsigned(n * 61),
            nanoseconds: 0,
        };
        tree.add(module, format!("source-file-{n:05}.py").as_bytes(), node)?;
    }
    Ok(tree)
}

/// Runs a workload with everything that mounts the image: forerun, forerun with slow mount options, and
/// other drivers.
fn compare(kit: &Kit, part: &mut Part, runner: &Runner, work: BenchWork) -> Result<()> {
    /// Bytes of a longer file that are read in the legacy way.
    const MOST: u64 = 32 << 20;
    let len = runner.survey.largest_bytes;
    let by = if kit.no_mount.is_none() {
        Contender::Forerun
    } else {
        Contender::Library
    };
    let expected = kit.expected(len)?;
    let measured = |by| {
        let run = best(|| runner.measure(work, by))?;
        if work != BenchWork::CatCold {
            return Ok(run);
        }
        let found = runner.digest(Contents::File, by)?;
        same(Run { found, ..run }, &expected)
    };
    part.add_ours(&measured(by).map_err(failed)?);
    let mut slow = Runner {
        legacy: part.name.facts().options,
        ..runner.clone()
    };
    slow.survey.largest_bytes = len.min(MOST);
    let run = slow.measure(work, by).map_err(failed)?;
    part.add_legacy(&run, len.min(MOST), len);
    for &peer in Peer::of_format(&runner.survey.format) {
        let is_second = |row: &Row| peer == Peer::Squashfuse && row.id == "squashfuse_ll";
        if peer.mounts() && !part.rows.iter().any(is_second) {
            part.add_peer(peer, &runner.place(), || measured(Contender::Peer(peer)));
        }
    }
    Ok(())
}

/// Runs a program to its end. The run has the digest of its output.
pub fn hashed(command: &mut Command) -> anyhow::Result<Run> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let (seconds, found) = timed(|| {
        let mut child = spawn(command).with_context(|| process::describe(command))?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(child.stdout.as_mut().context("no pipe")?)?;
        let status = child.wait()?;
        anyhow::ensure!(status.success(), "{}: {status}", process::describe(command));
        Ok(hasher.finalize().to_string())
    })?;
    Ok(Run {
        seconds,
        found,
        ..Run::default()
    })
}

/// Runs twice and returns the faster run, because one hiccup of the disk would decide the
/// comparison.
fn best(mut run: impl FnMut() -> anyhow::Result<Run>) -> anyhow::Result<Run> {
    let (first, second) = (run()?, run()?);
    Ok(if first.seconds <= second.seconds {
        first
    } else {
        second
    })
}

/// Returns the run. Fails if it read something else.
pub fn same(run: Run, expected: &str) -> anyhow::Result<Run> {
    let found = &run.found;
    anyhow::ensure!(found == expected, "read {found} instead of {expected}");
    Ok(run)
}
