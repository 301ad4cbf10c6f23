//! `forerun bench`: measures a user's image, and compares forerun with other drivers and programs.
//!
//! This process does not parse the image: sandboxed processes and other programs do. All of them
//! end with this process, and nothing stays mounted.

pub mod child;
pub mod plan;
mod report;
pub mod runner;
mod table;

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::args::{ImageArgs, SourceArgs, StoreArgs, is_stdin};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::measure::active::Home;
use crate::measure::noise::Look;
use crate::measure::process;
use crate::measure::statistics::Samples;
use crate::measure::turns::turns;
use crate::output::Output;
use crate::{partition, size};
use plan::{BenchWork, Choice, Contender, Plan, Survey, missing_here, plan};
use report::{BenchReport, Checked, MeasuredSeries};
use runner::Runner;

/// Measure an image, and compare forerun with other drivers and programs
///
/// Measures how fast contenders read the largest file (cold, cached, and at random offsets), list,
/// read and extract the tree. Contenders are a mount of forerun, the kernel's driver (as root), and
/// each of squashfuse_ll, erofsfuse, exfat-fuse, unsquashfs and fsck.erofs that is installed. They
/// take turns, and bench compares the data that they read. It prints medians and their spread, and
/// gives no verdict if the spread is larger than the difference.
///
/// Exit status 1 means that a contender failed or read other data.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun bench system.sqsh
  sudo forerun bench --rounds 9 --only cat-cold,ls system.sqsh
  forerun bench --without kernel --json system.erofs")]
pub struct BenchArgs {
    /// Image: a file or block device
    #[arg(value_name = "IMAGE", value_hint = ValueHint::FilePath)]
    pub image: PathBuf,
    /// Number of rounds; each measures everything once
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Work to measure, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WORK")]
    pub only: Vec<BenchWork>,
    /// Contenders, separated by commas: kernel, library (forerun without a mount), or a program
    /// such as squashfuse_ll [default: all that can take part]
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = Contender::parse)]
    pub with: Vec<Contender>,
    /// Contenders to leave out, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = Contender::parse)]
    pub without: Vec<Contender>,
    /// Number of processes in tree-n
    #[arg(long, value_name = "N", default_value = "4", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub processes: u32,
    /// Directory for mounts and temporary files [default: TMPDIR, otherwise /tmp, or /var/tmp if
    /// /tmp is in memory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// Byte offset of the image in the file, such as 1M or 0x100000 [default: 0]
    #[arg(long, value_name = "BYTES", value_parser = size::parse, default_value = "0", hide_default_value = true)]
    pub offset: u64,
    /// Length of the image in the file [default: to the end of the file]
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub size: Option<u64>,
    /// Open partition N of the file; forerun scan shows the numbers
    #[arg(long, value_name = "N", conflicts_with_all = ["offset", "size"])]
    pub partition: Option<u32>,
    /// Object store of a composefs image
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub objects: Option<PathBuf>,
}

pub fn run(context: &Context, args: &BenchArgs) -> Result {
    let home = Home::new(args.directory.as_deref())?;
    let runner = runner(args, home.path())?;
    let choice = Choice {
        only: args.only.clone(),
        with: args.with.clone(),
        without: args.without.clone(),
    };
    let missing = |contender| missing_here(contender, &runner.place());
    let plan = plan(&runner.survey, &choice, &missing);
    if plan.rows.is_empty() {
        let why = plan.missing.iter().map(|(by, why)| format!("{by}: {why}"));
        let left_out = plan
            .left_out
            .iter()
            .map(|(work, why)| format!("{}: {why}", work.name()));
        let why: Vec<String> = why.chain(left_out).collect();
        let message = format!("nothing can be measured: {}", why.join("; "));
        return Err(Failure::new(Exit::Mount, "bench", message).of(image_name(&image_args(args))));
    }
    let screen = Screen::new(context);
    let look = Look::now();
    let mut report = BenchReport {
        runner: &runner,
        plan: &plan,
        rounds: args.rounds,
        checked: check_contents(&runner, &plan, &screen),
        series: measure_all(&runner, &plan, args.rounds, &screen),
        noise: look.noise(),
    };
    report.check_extracted();
    drop(screen);
    let mut out = Output::stdout()?;
    if context.global.json {
        out.json(&report.json())?
    } else {
        out.text(report.text())?
    }
    out.finish()?;
    if report.is_sound() {
        Ok(Exit::Ok)
    } else {
        Ok(Exit::Image)
    }
}

fn image_args(args: &BenchArgs) -> ImageArgs {
    ImageArgs {
        image: args.image.clone(),
        source: SourceArgs {
            offset: args.offset,
            size: args.size,
            partition: args.partition,
            store: StoreArgs {
                objects: args.objects.clone(),
                ..StoreArgs::default()
            },
            ..SourceArgs::default()
        },
        ..ImageArgs::default()
    }
}

fn runner(args: &BenchArgs, dir: &Path) -> Result<Runner> {
    if is_stdin(&args.image) || crate::remote::is_remote(&args.image) {
        let failure = Failure::usage("only files and devices can be measured");
        return Err(failure.hint("forerun pull fetches an image to a file"));
    }
    let source = partition::placed(&image_args(args))?.source;
    let failed = |error: std::io::Error| Failure::source(&error).of(args.image.display());
    let objects = args.objects.as_ref().map(|objects| objects.canonicalize());
    let mut runner = Runner {
        program: std::env::current_exe().map_err(failed)?,
        image: args.image.canonicalize().map_err(failed)?,
        offset: source.offset,
        size: source.size,
        objects: objects.transpose().map_err(failed)?,
        survey: Survey::default(),
        dir: dir.to_path_buf(),
        processes: args.processes,
        legacy: &[],
    };
    let mut survey = runner.ours(&["__bench", "survey"]);
    let output = process::collect(survey.arg(&args.image)).map_err(failed)?;
    let found = Survey::parse(&String::from_utf8_lossy(&output.stdout));
    let Some(survey) = found.filter(|_| output.status.success()) else {
        return Err(of_child(&output).unwrap_or_else(|| {
            let message = format!("the process that examined it ended with {}", output.status);
            Failure::new(Exit::Image, "bench", message).of(args.image.display())
        }));
    };
    // Forerun finds an image behind an executable by itself, but other programs need its offset.
    runner.offset = survey.offset;
    runner.survey = survey;
    Ok(runner)
}

/// Returns the failure that a child process of this program printed.
fn of_child(output: &std::process::Output) -> Option<Failure> {
    let said = String::from_utf8_lossy(&output.stderr);
    let mut lines = said.lines();
    let message = lines.next()?.strip_prefix("forerun: ")?.to_string();
    let exit = match output.status.code()? {
        2 => Exit::Usage,
        3 => Exit::Format,
        4 => Exit::Source,
        _ => Exit::Image,
    };
    let hint = lines
        .next()
        .and_then(|line| line.trim().strip_prefix("hint: "));
    Some(Failure::new(exit, "bench", message).maybe_hint(hint))
}

/// Computes the digests of the bytes that each contender reads. This is not measured.
fn check_contents(runner: &Runner, plan: &Plan, screen: &Screen) -> Vec<Checked> {
    let mut wanted = Vec::new();
    for (work, contenders) in &plan.rows {
        // An extracted tree gets its digest from each run.
        let mounts = |by: &&Contender| !matches!(by, Contender::Peer(peer) if !peer.mounts());
        let readers = contenders.iter().filter(mounts);
        wanted.extend(readers.filter_map(|&by| Some((work.contents()?, by))));
    }
    wanted.sort_by_key(|(contents, _)| *contents);
    let mut checks: Vec<Checked> = Vec::new();
    for (contents, by) in wanted {
        if checks
            .iter()
            .any(|check| check.contents == contents && check.by == by)
        {
            continue;
        }
        screen.say(format!(
            "reading the {} for comparison: {by}",
            contents.name()
        ));
        checks.push(Checked {
            contents,
            by,
            name: by.to_string(),
            digest: screen.told(runner.digest(contents, by)),
        });
    }
    checks
}

fn measure_all(runner: &Runner, plan: &Plan, rounds: u32, screen: &Screen) -> Vec<MeasuredSeries> {
    let mut all: Vec<MeasuredSeries> = Vec::new();
    for (work, contenders) in &plan.rows {
        all.extend(contenders.iter().map(|&by| MeasuredSeries {
            work: *work,
            by,
            samples: Samples::default(),
        }));
    }
    let works: Vec<BenchWork> = all.iter().map(|series| series.work).collect();
    for (round, index) in turns(&works, rounds) {
        let Some(series) = all.get_mut(index) else {
            continue;
        };
        let (work, by) = (series.work, series.by);
        screen.say(format!("round {round} of {rounds}: {}, {by}", work.name()));
        series.samples.push(screen.told(runner.measure(work, by)));
    }
    all
}

struct Screen {
    line: Option<ProgressBar>,
    notes: Box<dyn Fn(&str)>,
}

impl Screen {
    fn new(context: &Context) -> Self {
        let line = context.shows_progress().then(|| {
            let target = ProgressDrawTarget::stderr();
            ProgressBar::with_draw_target(None, target).with_style(
                indicatif::ProgressStyle::with_template("{msg}")
                    .unwrap_or_else(|_| indicatif::ProgressStyle::default_spinner()),
            )
        });
        Self {
            line,
            notes: Box::new(context.notes()),
        }
    }

    fn say(&self, text: String) {
        if let Some(line) = &self.line {
            line.set_message(text);
            line.tick();
        }
    }

    /// Prints an error at once, so that the user need not wait for the end.
    fn told<T>(&self, result: crate::measure::Result<T>) -> crate::measure::Result<T> {
        if let Err(error) = &result {
            let text = crate::error::without_errno(&format!("{error:#}"));
            let print = || (self.notes)(&text);
            match &self.line {
                Some(line) => line.suspend(print),
                None => print(),
            }
        }
        result
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}
