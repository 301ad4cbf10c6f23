//! `forerun check`: reports whether an image is intact.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun::Image;
use forerun_export::{CheckOptions, CheckSummary, Finding, check};
use serde_json::{Map, Value};

use crate::advice::absolute;
use crate::args::{ImageArgs, VerityMode, is_stdin};
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::printable;
use crate::exit::Exit;
use crate::output::{JsonArray, Output};
use crate::progress::Progress;
use crate::size::{self, counted};
use crate::target::{Target, is_same_file};
use crate::{json, layers, partition};

/// Read everything in an image and report damage; repair exFAT volumes
///
/// The exit status is 1 if there are errors. Deviations from the format that lose nothing are
/// warnings and do not change the status. Objects of a composefs image are compared with their
/// digests, unless --verity is off.
///
/// --repair repairs an exFAT volume in place; the volume must not be mounted. On a terminal it asks
/// before each kind of repair. With --yes it makes all repairs that lose no data. Without a
/// terminal and without --yes it writes nothing. The exit status is 8 if all errors were repaired,
/// and 1 if errors are left.
///
/// Before a repair writes, it saves the old bytes in an undo file: IMAGE.forerun-undo beside an
/// image file, or in $XDG_STATE_HOME/forerun or ~/.local/state/forerun for a block device. If the
/// name is taken, a number is appended. `check --undo FILE IMAGE` restores the old bytes. Undo
/// before anything else writes to the volume: an undo does not notice changes outside of the
/// repaired sectors.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  forerun check firmware.img
  forerun check --repair card.img               ask before each kind of repair
  forerun check --repair --yes /dev/sdb1        repair without asking
  forerun check --repair --dry-run card.img     show what would be repaired
  forerun check --undo card.img.forerun-undo card.img
                                                undo a repair")]
pub struct CheckArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// Check headers and directories only; do not read files
    #[arg(long)]
    pub quick: bool,
    /// Also write the result to FILE, in the format of --json
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        group = "forced",
        conflicts_with = "change",
        hide_short_help = true
    )]
    pub report: Option<PathBuf>,
    /// Repair the metadata of an exFAT volume in place
    #[arg(help_heading = "Repair", long, group = "change")]
    pub repair: bool,
    /// Make all repairs that lose no data, without a question
    #[arg(
        help_heading = "Repair",
        short,
        long,
        requires = "repair",
        conflicts_with = "dry_run"
    )]
    pub yes: bool,
    /// Show what would be repaired, and write nothing
    #[arg(help_heading = "Repair", short = 'n', long, requires = "repair")]
    pub dry_run: bool,
    /// Save lost clusters as files in FORERUN.LOST
    ///
    /// Without this option they are freed, unless a repair gives up data.
    #[arg(help_heading = "Repair", long, requires = "repair")]
    pub lost_found: bool,
    /// Undo file to create, or none for no undo file
    ///
    /// The default is IMAGE.forerun-undo, see above. With none, the repair cannot be undone.
    #[arg(
        help_heading = "Repair",
        long,
        value_name = "FILE|none",
        value_hint = ValueHint::FilePath,
        requires = "repair",
        conflicts_with = "dry_run"
    )]
    pub undo_file: Option<PathBuf>,
    /// Undo a repair: restore the saved bytes in the undo file FILE
    #[arg(
        help_heading = "Repair",
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        groups = ["change", "forced"],
        conflicts_with = "quick"
    )]
    pub undo: Option<PathBuf>,
    /// With --undo, ignore later changes of the volume; with --report, replace FILE
    ///
    /// With --undo, restore sectors even if they have changed since the repair. With --report, replace FILE if it
    /// exists.
    #[arg(help_heading = "Repair", long, requires = "forced")]
    pub force: bool,
    /// Write even if other processes read the volume
    ///
    /// They may read inconsistent data.
    #[arg(
        help_heading = "Repair",
        long,
        requires = "change",
        conflicts_with = "no_lock"
    )]
    pub break_lock: bool,
}

pub fn run(context: &Context, args: &CheckArgs) -> Result {
    if args.repair || args.undo.is_some() {
        layers::refuse(&args.image.layers, "a repair")?;
        let args = CheckArgs {
            image: partition::placed(&args.image)?,
            ..args.clone()
        };
        return match &args.undo {
            Some(file) => super::undo::run(context, &args, file),
            None => super::repair::run(context, &args),
        };
    }
    let mut image_args = args.image.clone();
    // Reading objects finds damage only if they are compared with their digests.
    image_args.source.store.verity.get_or_insert(VerityMode::On);
    let prepared = context.prepare(&image_args)?;
    let mut target = report_target(args)?;
    let sandbox = prepared.sandbox();
    context.confine(&match &target {
        Some(target) => target.sandbox(sandbox),
        None => sandbox,
    });
    let image = context.open_prepared(prepared, None)?;
    let name = image_name(&args.image);
    let mut documents = Vec::new();
    if let Some(target) = &mut target {
        let file = target.file().try_clone();
        let file = file.map_err(|error| target.failed(&error))?;
        documents.push(Output::file(file, &target.name));
    }
    let is_text = !context.global.json;
    if !is_text {
        documents.push(Output::stdout()?);
    }
    let begun = documents.into_iter();
    let begun = begun.map(|out| Document::begin(out, &image, &name, args.quick));
    let mut documents = begun.collect::<Result<Vec<_>>>()?;
    let mut out = Output::stdout()?;
    let summary = look(context, args, &image, &mut |finding| {
        for document in &mut documents {
            document.push(&finding)?;
        }
        if is_text {
            say(&mut out, finding)
        } else {
            Ok(())
        }
    })?;
    for document in documents {
        document.end(&summary)?;
    }
    if is_text && !context.global.quiet {
        out.line(format!("{name}: {}", sentence(&summary, args.quick)))?;
    }
    out.finish()?;
    if let Some(target) = target {
        target.commit()?;
    }
    Ok(if summary.errors == 0 {
        Exit::Ok
    } else {
        Exit::Image
    })
}

/// Opens the file of the report before the process is confined.
fn report_target(args: &CheckArgs) -> Result<Option<Target>> {
    let Some(path) = &args.report else {
        return Ok(None);
    };
    if is_stdin(path) {
        let failure = Failure::usage("the report goes to a file");
        return Err(failure.hint("--json prints it to standard output"));
    }
    if args
        .image
        .images()
        .iter()
        .any(|image| is_same_file(image, path))
    {
        let failure = Failure::usage("the image and the report are the same file");
        return Err(failure.of(path.display()));
    }
    Target::create(Path::new(path), args.force, "a report").map(Some)
}

fn say(out: &mut Output, finding: Finding) -> Result<()> {
    let severity = if finding.fatal { "error" } else { "warning" };
    let path = match &finding.path {
        Some(path) => format!("{}: ", crate::escape::escape(&absolute(path))),
        None => String::new(),
    };
    let failure = Failure::from(finding.error);
    out.line(format!("{severity}: {path}{}", printable(&failure.message)))?;
    // A person sees each finding at once, above the progress bar.
    if out.is_terminal {
        out.finish()
    } else {
        Ok(())
    }
}

/// The findings as JSON, written as they are found.
struct Document {
    out: Output,
    findings: JsonArray,
}

impl Document {
    fn begin(mut out: Output, image: &Image, name: &str, quick: bool) -> Result<Self> {
        out.text(format!(
            "{{\"image\":{},\"format\":{},\"quick\":{quick},\n\"findings\":",
            Value::from(name),
            Value::from(image.format()),
        ))?;
        Ok(Self {
            out,
            findings: JsonArray::default(),
        })
    }

    fn push(&mut self, finding: &Finding) -> Result<()> {
        self.findings.push(&mut self.out, &to_json(finding))
    }

    fn end(mut self, summary: &CheckSummary) -> Result<()> {
        self.findings.close(&mut self.out)?;
        self.out.line(format!(
            ",\n\"entries\":{},\"files\":{},\"bytes\":{},\"errors\":{},\"places\":{},\"warnings\":{},\
             \"unproven_bytes\":{},\"unproven\":{},\"unproven_metadata\":{}}}",
            summary.entries,
            summary.files,
            summary.bytes,
            summary.errors,
            summary.places,
            summary.warnings,
            summary.unproven.values().sum::<u64>(),
            serde_json::json!(summary.unproven),
            serde_json::json!(summary.unproven_metadata),
        ))?;
        self.out.finish()
    }
}

/// Checks the image, and passes each finding to `show`. After an error of `show`, the output has
/// failed, so no more findings are passed.
fn look(
    context: &Context,
    args: &CheckArgs,
    image: &Image,
    show: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<CheckSummary> {
    let options = CheckOptions { quick: args.quick };
    // The total size of the files is known only at the end, and the length of the image counts
    // compressed data.
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
    let unproven = unproven(summary).map_or_else(String::new, |text| format!("; {text}"));
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
    format!("{verdict} ({entries}, {files}, {read}{unproven})")
}

/// Describes the share of the image in which a flipped bit may go unnoticed.
fn unproven(summary: &CheckSummary) -> Option<String> {
    let bytes: u64 = summary.unproven.values().sum();
    let permille = bytes
        .saturating_mul(1000)
        .checked_div(summary.bytes)
        .unwrap_or(0);
    let share = match permille {
        _ if bytes == 0 => None,
        0 => Some("less than 0.1 % of the contents".to_string()),
        whole if whole >= 1000 => Some("all contents".to_string()),
        part => Some(format!("{}.{} % of the contents", part / 10, part % 10)),
    };
    let kinds = summary.unproven.keys().copied();
    let kinds = kinds.collect::<Vec<_>>().join(", ");
    let share = share.map(|share| format!("{share} ({kinds})"));
    let metadata = match summary.unproven_metadata {
        Some(0) => None,
        Some(bytes) => Some(format!("{} of the metadata", size::human(bytes))),
        None => Some("the metadata".to_string()),
    };
    let parts: Vec<_> = share.into_iter().chain(metadata).collect();
    (!parts.is_empty()).then(|| format!("without checksums: {}", parts.join(", ")))
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
