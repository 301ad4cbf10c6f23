//! The parts of the demo that read and list images, and what all parts have in common.

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
use super::report::{Part, Role, Row};
use super::{exfat, link};
use crate::commands::bench::plan::{BenchWork, Contender, Contents};
use crate::commands::bench::runner::Runner;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;
use crate::measure::caches::drop_caches;
use crate::measure::digest::{of_file, of_stream};
use crate::measure::mount::Mounted;
use crate::measure::peers::Peer;
use crate::measure::process;
use crate::measure::run::{Run, timed};
use crate::size;

/// A part of the demo, named for the format that it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PartName {
    /// Requests of 1 KiB against large ones
    Romfs,
    /// Blocks decoded again for each page against once
    Squashfs,
    /// A large file removed: a write for each cluster against one for each sector
    Exfat,
    /// An image behind a link: fetched whole against on demand
    Link,
    /// A tree listed without and with its metadata read ahead
    Composefs,
}

/// What is known of a part before it is measured.
pub struct Facts {
    /// The name in JSON.
    pub id: &'static str,
    pub title: &'static str,
    /// What is counted beside the time.
    pub counts: &'static str,
    /// The figures of the work on Linux that it shows from userspace.
    pub linux: &'static str,
}

impl PartName {
    /// Returns what is known of it.
    pub const fn facts(self) -> Facts {
        match self {
            Self::Romfs => Facts {
                id: "romfs",
                title: "romfs: many small requests, or few large ones",
                counts: "requests",
                linux: "60 -> 22 s by the option largeblocks: md5sum of a file of 250 MB, on an i.MX6 with eMMC",
            },
            Self::Squashfs => Facts {
                id: "squashfs",
                title: "SquashFS: each block decoded for every page, or once",
                counts: "decodes",
                linux: "39 -> 1.8 s by readahead in SquashFS: reading pack files of 300 KB, on arm64",
            },
            Self::Exfat => Facts {
                id: "exfat",
                title: "exFAT: each freed cluster written, or each sector once",
                counts: "writes",
                linux: "32,775 -> 13 writes: rm of a file of 4 GB with dirsync, on an SD card",
            },
            Self::Link => Facts {
                id: "link",
                title: "An image behind a link: fetched whole, or as it is read",
                counts: "KiB sent",
                linux: "202,654 -> 407,213 KB/s by asynchronous readahead in EROFS on demand (ext4: 439,912)",
            },
            Self::Composefs => Facts {
                id: "composefs",
                title: "composefs: metadata read as it is needed, or ahead",
                counts: "requests",
                linux: "523 -> 404 ms by readahead of metadata: ls -lR in composefs",
            },
        }
    }
}

/// State that all parts share.
pub struct Kit {
    pub dir: PathBuf,
    pub program: PathBuf,
    pub data: Data,
    /// The reason why nothing is mounted, if nothing can be.
    pub no_mount: Option<String>,
}

impl Kit {
    /// Creates it, and tries whether an image can be mounted.
    pub fn new(dir: &Path, data: Data) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| Failure::source(&error))?;
        let image = dir.join("empty.romfs");
        let writer = Writer::Romfs(RomfsOptions::default());
        write(&writer, &Tree::default(), &image)?;
        let mounted = Mounted::new(&program, &image, &["ro"]);
        Ok(Self {
            dir: dir.to_path_buf(),
            program,
            data,
            no_mount: mounted.err().map(|error| said(&error)),
        })
    }
}

/// Returns an error in one line.
pub fn said(error: &anyhow::Error) -> String {
    without_errno(&format!("{error:#}")).replace('\n', " ")
}

pub fn failed(error: anyhow::Error) -> Failure {
    Failure::new(Exit::Image, "demo", said(&error))
}

/// Begins and measures a part.
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
    let image = kit.dir.join("image.romfs");
    let options = RomfsOptions {
        align: 4096,
        ..RomfsOptions::default()
    };
    kit.data.pack(&Writer::Romfs(options), &image, len, 0)?;
    let mut part = Part::new(
        PartName::Romfs,
        format!(
            "Reads a file of {} in an image to its end.",
            size::human(len)
        ),
        "The legacy way is forerun mount -o nolargeblocks. Requests: reads of the image.",
    );
    let runner = Runner::of_file(&kit.dir, &image, "romfs", FILE, len).map_err(failed)?;
    let legacy = (
        "nolargeblocks",
        "legacy: 1 KiB at a time",
        &["nolargeblocks"][..],
    );
    compare(
        kit,
        &mut part,
        &runner,
        BenchWork::CatCold,
        ("largeblocks", "source_requests"),
        legacy,
    )?;
    let itself = best(|| {
        drop_caches(&image)?;
        let (seconds, found) = timed(|| runner.worker.run(&["files"], &image))?;
        Ok(Run {
            seconds,
            found,
            ..Run::default()
        })
    });
    let itself = itself.map_err(failed)?;
    part.rows.push(Row::new(
        "image",
        Role::Reference,
        "the image itself, as a file",
        &itself,
        "",
    ));
    Ok(part)
}

fn squashfs(kit: &Kit) -> Result<Part> {
    /// Bytes of a block, the default of the format's writers.
    const BLOCK: u64 = 128 << 10;
    let blocks = (kit.data.len / 6 / BLOCK).max(1);
    let (len, image) = (blocks * BLOCK, kit.dir.join("image.squashfs"));
    kit.data.pack(
        &Writer::Squashfs(SquashfsOptions::default()),
        &image,
        len,
        0,
    )?;
    let mut part = Part::new(
        PartName::Squashfs,
        format!(
            "Reads a file of {}, which is {} compressed with gzip, to its end.",
            size::human(len),
            size::counted(blocks, "block of 128 KiB", "blocks of 128 KiB")
        ),
        "Legacy: pages of 4 KiB are asked for one by one, and no decoded block is kept.",
    );
    let runner = Runner::of_file(&kit.dir, &image, "squashfs", FILE, len).map_err(failed)?;
    // A cache whose part for decoded blocks is too small for one, and that has room for the metadata of one file.
    let options = &["nolargeblocks", "readahead=0", "cache=160K"][..];
    let legacy = ("each_page", "legacy: a decode for each page", options);
    compare(
        kit,
        &mut part,
        &runner,
        BenchWork::CatCold,
        ("once", "decodes"),
        legacy,
    )?;
    let missing = Peer::Unsquashfs.missing(&runner.place());
    let run = best(|| {
        anyhow::ensure!(missing.is_none(), "{}", missing.clone().unwrap_or_default());
        drop_caches(&image)?;
        hashed(Command::new("unsquashfs").arg("-cat").arg(&image).arg(FILE))
    });
    match run {
        Ok(run) => {
            same(&run, &expected(kit, len)?, "unsquashfs")?;
            part.rows.push(Row::peer(Peer::Unsquashfs, &run));
        }
        Err(error) => part.left_out.push(said(&error)),
    }
    Ok(part)
}

fn composefs(kit: &Kit) -> Result<Part> {
    let files = ((kit.data.len >> 20) * 80).min(20_000);
    let image = kit.dir.join("image.composefs");
    write(
        &Writer::Composefs(ComposefsOptions::default()),
        &tree(files)?,
        &image,
    )?;
    let mut part = Part::new(
        PartName::Composefs,
        format!(
            "Lists a tree of {} as ls -lR.",
            size::counted(files, "file", "files")
        ),
        "The legacy way reads blocks of 1 KiB one by one (forerun mount -o nolargeblocks). Contents are \
               objects elsewhere, and none is looked up.",
    );
    // Others find the metadata without the objects, of which there are none, and list 256 whiteouts more.
    let mut runner = Runner::of_file(&kit.dir, &image, "erofs", FILE, 0).map_err(failed)?;
    runner.objects = Some(kit.dir.clone());
    let legacy = (
        "as_needed",
        "legacy: as it is needed",
        &["nolargeblocks"][..],
    );
    compare(
        kit,
        &mut part,
        &runner,
        BenchWork::Ls,
        ("ahead", "source_requests"),
        legacy,
    )?;
    Ok(part)
}

/// Makes a tree of `files` files in directories. Their contents are all the same: only metadata is read.
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
        // As in real trees, hardly two files have the same time.
        node.mtime = Timestamp {
            seconds: 1_700_000_000_i64.saturating_add_unsigned(n * 61),
            nanoseconds: 0,
        };
        tree.add(module, format!("source-file-{n:05}.py").as_bytes(), node)?;
    }
    Ok(tree)
}

/// Has all that mount an image do a work: this program, the same with mount options that make it slow, and others.
fn compare(
    kit: &Kit,
    part: &mut Part,
    runner: &Runner,
    work: BenchWork,
    (id, counter): (&'static str, &str),
    (legacy_id, legacy_what, legacy): (&'static str, &'static str, &'static [&'static str]),
) -> Result<()> {
    /// Bytes of a longer file that are read in the legacy way.
    const MOST: u64 = 32 << 20;
    let (len, by) = (
        runner.survey.largest_bytes,
        match kit.no_mount {
            None => Contender::Forerun,
            Some(_) => Contender::Library,
        },
    );
    let expected = expected(kit, len)?;
    let measured = |by| -> anyhow::Result<Run> {
        let run = best(|| runner.measure(work, by))?;
        let found = match work {
            BenchWork::CatCold => runner.digest(Contents::File, by)?,
            _ => expected.clone(),
        };
        anyhow::ensure!(found == expected, "{by} read other contents");
        Ok(run)
    };
    let run = measured(by).map_err(failed)?;
    part.rows
        .push(Row::new(id, Role::Ours, "forerun", &run, counter));
    let mut slow = Runner {
        legacy,
        ..runner.clone()
    };
    slow.survey.largest_bytes = len.min(MOST);
    let slow = slow.measure(work, by).map_err(failed)?;
    let row = Row::new(legacy_id, Role::Legacy, legacy_what, &slow, counter);
    part.rows.push(row.extrapolated(len.min(MOST), len));
    for &peer in Peer::of_format(&runner.survey.format) {
        let is_second = |row: &Row| peer == Peer::Squashfuse && row.id == "squashfuse_ll";
        if !peer.mounts() || part.rows.iter().any(is_second) {
            continue;
        }
        let other = match peer.missing(&runner.place()) {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => measured(Contender::Peer(peer)),
        };
        match other {
            Ok(other) => part.rows.push(Row::peer(peer, &other)),
            // A container has no loop devices, say.
            Err(error) => part.left_out.push(said(&error)),
        }
    }
    Ok(())
}

/// Returns the digest of the first bytes of the data.
pub fn expected(kit: &Kit, len: u64) -> Result<String> {
    Ok(of_file(&kit.data.path, len).map_err(failed)?.to_string())
}

/// Runs a program to its end, with the digest of what it prints.
pub fn hashed(command: &mut Command) -> anyhow::Result<Run> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let (seconds, found) = timed(|| {
        let mut child = process::spawn(command).with_context(|| process::describe(command))?;
        let found = of_stream(child.stdout.as_mut().context("no pipe")?, u64::MAX)?;
        let status = child.wait()?;
        anyhow::ensure!(status.success(), "{}: {status}", process::describe(command));
        Ok(found.to_string())
    })?;
    Ok(Run {
        seconds,
        found,
        ..Run::default()
    })
}

/// Runs twice, and returns the faster run: a single hiccup of the disk would decide the comparison otherwise.
pub fn best(run: impl Fn() -> anyhow::Result<Run>) -> anyhow::Result<Run> {
    let (first, second) = (run()?, run()?);
    Ok(if first.seconds <= second.seconds {
        first
    } else {
        second
    })
}

/// Fails where something else was read.
pub fn same(run: &Run, expected: &str, by: &str) -> Result<()> {
    if run.found == expected {
        return Ok(());
    }
    let message = format!("{by} read {} instead of {expected}", run.found);
    Err(Failure::new(Exit::Image, "mismatch", message))
}
