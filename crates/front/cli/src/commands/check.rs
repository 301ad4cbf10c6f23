//! `forerun check`: is the image whole?

use std::path::PathBuf;

use clap::Args;
use forerun::Image;
use forerun_export::{CheckOptions, CheckSummary, Finding, check};
use serde_json::{Map, Value};

use crate::advice::absolute;
use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::printable;
use crate::exit::Exit;
use crate::output::{JsonArray, Output};
use crate::progress::Progress;
use crate::size::{self, counted};
use crate::{json, partition};

/// Read everything in an image, and say what is wrong with it
///
/// Exit status 1 if anything cannot be read as it should be. Deviations from the format that lose
/// nothing are shown as warnings and do not change the status.
///
/// With --repair an exFAT volume is repaired in place: on a terminal each kind of problem is asked
/// about, --yes repairs all but what would lose data, and without either nothing is written. It
/// must not be mounted. Exit status 8 if all that was wrong was repaired, 1 if errors are left.
///
/// A repair first saves what it overwrites in an undo file: IMAGE.forerun-undo beside an image file;
/// for a block device in $XDG_STATE_HOME/forerun or ~/.local/state/forerun. If that name is taken, a
/// number is added. `check --undo FILE IMAGE` takes the repair back: IMAGE is then byte for byte what
/// it was. Do so before the volume is written again; changes elsewhere on the volume are not noticed.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  forerun check firmware.img
  forerun check --repair card.img               ask before each kind of repair
  forerun check --repair --yes /dev/sdb1        repair all that can be without loss
  forerun check --repair --dry-run card.img     say what would be done
  forerun check --undo card.img.forerun-undo card.img
                                                take a repair back")]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Look at headers and directories only; do not read the files
    #[arg(long)]
    pub quick: bool,
    /// Repair what is wrong, in place (exFAT only); metadata only, files are not read
    #[arg(help_heading = "Repair", long, group = "change")]
    pub repair: bool,
    /// Repair without asking, but for what would lose data
    #[arg(
        help_heading = "Repair",
        short,
        long,
        requires = "repair",
        conflicts_with = "dry_run"
    )]
    pub yes: bool,
    /// Say what would be repaired, and write nothing
    #[arg(help_heading = "Repair", short = 'n', long, requires = "repair")]
    pub dry_run: bool,
    /// Keep clusters that belong to nothing as files in a new directory FORERUN.LOST, instead of
    /// freeing them; done anyway where data had to be given up
    #[arg(help_heading = "Repair", long, requires = "repair")]
    pub lost_found: bool,
    /// Save what the repair overwrites in FILE, which must not exist
    #[arg(
        help_heading = "Repair",
        long,
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath,
        requires = "repair",
        conflicts_with_all = ["no_undo_file", "dry_run"]
    )]
    pub undo_file: Option<PathBuf>,
    /// Make no undo file: the repair cannot be taken back
    #[arg(help_heading = "Repair", long, requires = "repair")]
    pub no_undo_file: bool,
    /// Take a repair back: restore the bytes that are in its undo file
    #[arg(
        help_heading = "Repair",
        long,
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath,
        group = "change",
        conflicts_with = "quick"
    )]
    pub undo: Option<PathBuf>,
    /// Take a repair back although the volume has changed since
    #[arg(help_heading = "Repair", long, requires = "undo")]
    pub force: bool,
    /// Repair or take back although other processes read the volume; they may read inconsistent data
    #[arg(
        help_heading = "Repair",
        long,
        requires = "change",
        conflicts_with = "no_lock"
    )]
    pub break_lock: bool,
}

/// Runs it.
pub fn run(context: &Context, args: &CheckArgs) -> Result {
    if args.repair || args.undo.is_some() {
        let args = CheckArgs {
            image: partition::placed(&args.image)?,
            ..args.clone()
        };
        return match &args.undo {
            Some(file) => super::undo::run(context, &args, file),
            None => super::repair::run(context, &args),
        };
    }
    let image = context.open(&args.image)?;
    let name = image_name(&args.image);
    let mut out = Output::stdout()?;
    let summary = if context.global.json {
        as_json(context, args, &image, &name, &mut out)?
    } else {
        as_text(context, args, &image, &name, &mut out)?
    };
    out.finish()?;
    Ok(if summary.errors == 0 {
        Exit::Ok
    } else {
        Exit::Image
    })
}

fn as_text(
    context: &Context,
    args: &CheckArgs,
    image: &Image,
    name: &str,
    out: &mut Output,
) -> Result<CheckSummary> {
    let summary = look(context, args, image, &mut |finding| {
        let severity = if finding.fatal { "error" } else { "warning" };
        let path = match &finding.path {
            Some(path) => format!("{}: ", crate::escape::escape(&absolute(path))),
            None => String::new(),
        };
        let failure = Failure::from(finding.error);
        out.line(format!("{severity}: {path}{}", printable(&failure.message)))?;
        // A person sees each finding as it comes; above the progress bar, not in it.
        if out.is_terminal {
            out.finish()
        } else {
            Ok(())
        }
    })?;
    if !context.global.quiet {
        out.line(format!("{name}: {}", sentence(&summary, args.quick)))?;
    }
    Ok(summary)
}

fn as_json(
    context: &Context,
    args: &CheckArgs,
    image: &Image,
    name: &str,
    out: &mut Output,
) -> Result<CheckSummary> {
    out.text(format!(
        "{{\"image\":{},\"format\":{},\"quick\":{},\n\"findings\":",
        Value::from(name),
        Value::from(image.format()),
        args.quick
    ))?;
    let mut findings = JsonArray::default();
    let summary = look(context, args, image, &mut |finding| {
        findings.push(out, &to_json(&finding))
    })?;
    findings.close(out)?;
    out.line(format!(
        ",\n\"entries\":{},\"files\":{},\"bytes\":{},\"errors\":{},\"places\":{},\"warnings\":{}}}",
        summary.entries,
        summary.files,
        summary.bytes,
        summary.errors,
        summary.places,
        summary.warnings
    ))?;
    Ok(summary)
}

/// Checks, and passes each finding to `show`. If that fails, the output has failed, and no more
/// findings are passed.
fn look(
    context: &Context,
    args: &CheckArgs,
    image: &Image,
    show: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<CheckSummary> {
    let options = CheckOptions { quick: args.quick };
    // What the files have in all is known at the end; the length of the image is that of compressed data.
    let progress = Progress::new(context, "checking", 0);
    let mut shown = Ok(());
    let summary = check(image.reader(), options, &progress, &mut |finding| {
        if shown.is_ok() {
            shown = progress.suspend(|| show(finding));
        }
    });
    shown.map(|()| summary)
}

fn sentence(summary: &CheckSummary, quick: bool) -> String {
    let read = if quick {
        "file data not read".to_string()
    } else {
        format!("{} read", size::human(summary.bytes))
    };
    let places = match summary.places {
        places if places < summary.errors => {
            format!(" in {}", counted(places, "place", "places"))
        }
        _ => String::new(),
    };
    let verdict = match (summary.errors, summary.warnings) {
        (0, 0) => "no problems".to_string(),
        (0, warnings) => format!("no errors, {}", counted(warnings, "warning", "warnings")),
        (errors, 0) => format!("{}{places}", counted(errors, "error", "errors")),
        (errors, warnings) => format!(
            "{}{places}, {}",
            counted(errors, "error", "errors"),
            counted(warnings, "warning", "warnings")
        ),
    };
    let entries = counted(summary.entries, "entry", "entries");
    let files = counted(summary.files, "file", "files");
    format!("{verdict} ({entries}, {files}, {read})")
}

fn to_json(finding: &Finding) -> Value {
    let mut object = Map::new();
    let severity = if finding.fatal { "error" } else { "warning" };
    object.insert("severity".into(), severity.into());
    object.insert("kind".into(), finding.error.kind().into());
    if let Some(path) = &finding.path {
        json::put_bytes(&mut object, "path", &absolute(path));
    }
    if let forerun::vfs::Error::Corrupt(corrupt) = &finding.error {
        object.insert("node".into(), corrupt.node().map(|node| node.0).into());
        object.insert("offset".into(), corrupt.offset().into());
    }
    let failure = Failure::from(finding.error.clone());
    object.insert("message".into(), failure.message.into());
    object.into()
}
