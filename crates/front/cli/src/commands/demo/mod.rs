//! `forerun demo`: shows what the program is for, on files that it makes: five systems, each the legacy
//! way and forerun's side by side, with the figures of the work on Linux that began it.
//!
//! Every part measures with cold caches: time, and a counter of the engine. Without FUSE the library
//! reads the images. Nothing is left behind, also after Ctrl-C.

mod composefs;
mod exfat;
mod exfat_replay;
mod files;
mod html;
mod json;
mod link;
mod measure;
mod model;
mod place;
mod report;
mod romfs;
mod squashfs;
mod table;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueHint};

use crate::args::is_stdin;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::output::Output;
use crate::target::Target;
use files::{Data, FILE};
use measure::Kit;
use model::{DemoPart, PartName};
use place::DemoDir;
pub use place::default_dir;
use report::DemoReport;
use table::Charset;

/// Show five systems on files made here: the legacy way and forerun's, side by side
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun demo
  forerun demo --only romfs,exfat
  forerun demo --html demo.html
  forerun demo --size-mb 1000 --dir /var/tmp")]
pub struct DemoArgs {
    /// Show these parts only, separated by commas
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    pub only: Vec<PartName>,
    /// Write the results to a page for a browser too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "html")]
    pub force: bool,
    /// Where to put the files meanwhile [default: TMPDIR or /tmp; /var/tmp where that is in memory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub dir: Option<PathBuf>,
    /// Size of the largest file, in MiB; the others get smaller with it
    #[arg(long, value_name = "N", default_value = "250", value_parser = clap::value_parser!(u16).range(1..=4000))]
    pub size_mb: u16,
}

/// Room for what is small: volumes and images of metadata.
const SLACK: u64 = 64 << 20;

/// Runs it.
pub fn run(context: &Context, args: &DemoArgs) -> Result {
    let start = Instant::now();
    let page = page_target(args)?;
    let names: Vec<PartName> = match args.only.as_slice() {
        [] => PartName::ALL.to_vec(),
        only => {
            let all = PartName::ALL.iter().copied();
            all.filter(|name| only.contains(name)).collect()
        }
    };
    let mut out = DemoOutput {
        out: Output::stdout()?,
        speaks: !context.global.json,
    };
    let size = u64::from(args.size_mb) << 20;
    let kit = prepare(args, &names, size, &mut out)?;
    let charset = Charset::of_locale();
    let mut parts = Vec::new();
    for (name, number) in names.into_iter().zip(1..) {
        out.say(&format!("\n{number}. {}", name.title()))?;
        let mut part = begin(name, &kit);
        let mut what = Vec::new();
        table::wrap(&part.what, &mut what);
        out.say(&what.join("\n"))?;
        measure(name, &kit, &mut part)?;
        part.left_out.extend(kit.left_out(name != PartName::Link));
        out.say(&table::text(&part, charset))?;
        parts.push(part);
    }
    let report = DemoReport {
        parts,
        no_mount: kit.no_mount(),
        dropped_all: kit.dropped_all(),
        seconds: start.elapsed().as_secs_f64(),
    };
    let mut notes = vec![String::new()];
    for note in report.notes() {
        table::wrap(&note, &mut notes);
    }
    out.say(&notes.join("\n"))?;
    if context.global.json {
        out.out.json(&json::value(&report))?;
    }
    out.out.finish()?;
    if let Some(target) = page {
        write_page(target, &report)?;
    }
    Ok(Exit::Ok)
}

/// Opens the file of the page before anything is measured.
fn page_target(args: &DemoArgs) -> Result<Option<Target>> {
    match &args.html {
        None => Ok(None),
        Some(path) if is_stdin(path) => {
            let failure = Failure::usage("--html takes the name of a file");
            Err(failure.hint("standard output has the tables, or JSON with --json"))
        }
        Some(path) => Target::create(path, args.force, "a page").map(Some),
    }
}

fn write_page(mut target: Target, report: &DemoReport) -> Result<()> {
    let written = io::Write::write_all(target.file(), html::page(report).as_bytes());
    written.map_err(|error| target.failed(&error))?;
    target.commit()
}

/// Makes the directory, and the file that the images are packed from.
fn prepare(args: &DemoArgs, names: &[PartName], size: u64, out: &mut DemoOutput) -> Result<Kit> {
    let lens = || names.iter().map(|&name| data_len(name, size));
    let longest = lens().max().unwrap_or(0);
    // The file, an image of each part, and what is cached of the one behind a link.
    let needed = lens().fold(longest, u64::saturating_add);
    let needed = needed.saturating_mul(5) / 4;
    let place = DemoDir::new(args.dir.as_deref(), needed.saturating_add(SLACK))?;
    let dir = place.dir().display().to_string();
    out.say(&format!(
        "Files are made in {dir}, which is removed at the end."
    ))?;
    let data = Data::make(place.path("data"), longest)?;
    Ok(Kit::new(place, data, size))
}

/// Returns the bytes of real files that a part packs.
const fn data_len(name: PartName, size: u64) -> u64 {
    match name {
        PartName::Romfs => romfs::file_len(size),
        PartName::Squashfs => squashfs::file_len(size),
        PartName::Link => link::file_len(size),
        PartName::Exfat | PartName::Composefs => 0,
    }
}

fn begin(name: PartName, kit: &Kit) -> DemoPart {
    match name {
        PartName::Romfs => romfs::begin(kit),
        PartName::Squashfs => squashfs::begin(kit),
        PartName::Exfat => exfat::begin(kit),
        PartName::Link => link::begin(kit),
        PartName::Composefs => composefs::begin(kit),
    }
}

fn measure(name: PartName, kit: &Kit, part: &mut DemoPart) -> Result<()> {
    match name {
        PartName::Romfs => romfs::measure(kit, part),
        PartName::Squashfs => squashfs::measure(kit, part),
        PartName::Exfat => exfat::measure(kit, part),
        PartName::Link => link::measure(kit, part),
        PartName::Composefs => composefs::measure(kit, part),
    }
}

/// Removes a file that the next parts do not need, for its room. All are removed at the end.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// Standard output, which has either text as it comes, or JSON at the end.
struct DemoOutput {
    out: Output,
    speaks: bool,
}

impl DemoOutput {
    fn say(&mut self, text: &str) -> Result<()> {
        if !self.speaks {
            return Ok(());
        }
        self.out.line(text)?;
        self.out.finish()
    }
}
