//! `forerun demo`: shows what the program is for, on files that it makes: five systems, each read by forerun, in
//! the legacy way and by the programs that people use, with the figures of the work on Linux that began it.
//!
//! The measuring is that of `forerun bench`. Nothing is left behind, also after Ctrl-C.

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

/// Show five systems on files made here: forerun, the legacy way and the usual programs, side by side
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
    let home = Home::new(args.dir.as_deref())?;
    let size = u64::from(args.size_mb) << 20;
    // The file, and at the most as much for the images of a part.
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

/// Fails early where the files will not fit.
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
    Err(failure.hint("choose another place with --dir, or smaller files with --size-mb"))
}

/// Returns whether the terminal shows more than ASCII.
fn shows_unicode() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"].iter();
    let mut set = names.filter_map(|name| std::env::var(name).ok());
    let locale = set.find(|value| !value.is_empty()).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
