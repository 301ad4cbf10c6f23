//! `forerun demo`: compares forerun with the legacy way and with other programs, in five parts, on
//! generated files. Each part quotes the figures of the Linux work that it repeats.
//!
//! It measures as `forerun bench` does. It leaves nothing behind, even after Ctrl-C.

mod exfat;
mod files;
mod link;
mod parts;
mod report;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum as _, ValueHint};

use self::files::Data;
use self::parts::{Kit, PartName};
use self::report::DemoReport;
use crate::args::is_stdin;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::measure::active::Home;
use crate::output::Output;
use crate::size;
use crate::target::Target;

/// Compare forerun with the usual tools on five kinds of generated images
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun demo
  forerun demo --only romfs,exfat
  forerun demo --html demo.html
  forerun demo --size 1000M --directory /var/tmp")]
pub struct DemoArgs {
    /// Run only these parts, separated by commas
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    pub only: Vec<PartName>,
    /// Also write the results to FILE as an HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "html")]
    pub force: bool,
    /// Directory for temporary files [default: TMPDIR, otherwise /tmp, or /var/tmp if /tmp is in
    /// memory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// Size of the largest file, from 1M to 4000M; the other files scale with it
    #[arg(long, value_name = "BYTES", default_value = "250M", value_parser = parse_size)]
    pub size: u64,
}

/// Space for small files: volumes and images of metadata.
const SLACK: u64 = 64 << 20;

pub fn run(context: &Context, args: &DemoArgs) -> Result {
    let start = Instant::now();
    let page = page_target(args)?;
    let mut out = Output::stdout()?;
    let mut say = |text: &str| -> Result<()> {
        if !context.global.json {
            out.line(text)?;
            out.finish()?;
        }
        Ok(())
    };
    let home = Home::new(args.directory.as_deref())?;
    let size = args.size;
    // The file, and at most as much for the images of a part.
    check_space(&home, size.saturating_mul(2) + SLACK)?;
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let mut report = DemoReport {
        date: date.to_string(),
        parts: Vec::new(),
        no_mount: None,
        seconds: 0.0,
    };
    say(&report.head())?;
    say(&format!(
        "Files are made in {}, which is removed at the end.",
        home.path().display()
    ))?;
    let data = Data::make(&home.path().join("data"), size)?;
    let kit = Kit::new(home.path(), data)?;
    report.no_mount.clone_from(&kit.no_mount);
    let bar = if shows_unicode() { "\u{2588}" } else { "#" };
    let all = PartName::value_variants().iter().copied();
    let names = all.filter(|name| args.only.is_empty() || args.only.contains(name));
    for (name, number) in names.zip(1..) {
        say(&format!("\n{number}. {}", name.facts().title))?;
        let part = parts::measure(&kit, name)?;
        say(&report::wrapped(&part.what))?;
        say(&part.text(bar))?;
        report.parts.push(part);
    }
    report.seconds = start.elapsed().as_secs_f64();
    say(&format!("\nThe demo took {:.0} s.", report.seconds))?;
    if context.global.json {
        out.json(&report.json())?;
    }
    out.finish()?;
    if let Some(mut target) = page {
        let written = io::Write::write_all(target.file(), report.page().as_bytes());
        written.map_err(|error| target.failed(&error))?;
        target.commit()?;
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

fn check_space(home: &Home, needed: u64) -> Result<()> {
    let dir = home.path();
    let stat = rustix::fs::statvfs(dir)
        .map_err(|error| Failure::output(&error.into()).of(dir.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= needed {
        return Ok(());
    }
    let message = format!("{} free, {} needed", size::human(free), size::human(needed));
    let failure = Failure::new(Exit::Output, "output", message).of(dir.display());
    Err(failure.hint("choose another place with --directory, or smaller files with --size"))
}

fn shows_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"].iter();
    let mut set = names.filter_map(|name| std::env::var(name).ok());
    let locale = set.find(|value| !value.is_empty()).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// Parses the size of the largest file, rounded down to MiB.
fn parse_size(text: &str) -> std::result::Result<u64, String> {
    match size::parse(text)? >> 20 {
        mib @ 1..=4000 => Ok(mib << 20),
        _ => Err("not a size from 1M to 4000M".to_string()),
    }
}
