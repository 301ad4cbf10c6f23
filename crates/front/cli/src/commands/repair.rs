//! `forerun check --repair`: its questions, its messages, and its exit status.

use std::collections::HashMap;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::Observer;
use forerun::unstable::repair::{
    self, Answer, Finding, Kind, RepairOptions, Summary, UndoPlace, open_for,
};
use forerun_export::{CheckOptions, check};
use forerun_sandbox::{Capabilities, Sandbox};
use serde_json::{Map, Value};

use super::check::CheckArgs;
use super::undo;
use crate::advice::absolute;
use crate::args::is_stdin;
use crate::confine::for_image;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::{escape, printable};
use crate::exit::Exit;
use crate::output::{JsonArray, Output};
use crate::patience::patiently;
use crate::progress::Progress;
use crate::size::counted;
use crate::{interrupt, json};

/// Decides whether a repair is made: the user at the terminal, or an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RepairMode {
    Ask,
    /// Yes to every repair that loses nothing.
    Yes,
    /// Yes, but nothing is written.
    DryRun,
    /// No user can be asked, so nothing is repaired.
    NotAsked,
}

pub fn run(context: &Context, args: &CheckArgs) -> Result {
    if is_stdin(&args.image.image) {
        return Err(Failure::usage("standard input cannot be repaired"));
    }
    let is_asked = io::stdin().is_terminal() && io::stderr().is_terminal();
    let mode = match (args.dry_run, args.yes) {
        (true, _) => RepairMode::DryRun,
        (_, true) => RepairMode::Yes,
        _ if is_asked && !context.global.json => RepairMode::Ask,
        _ => RepairMode::NotAsked,
    };
    if args.image.source.no_lock && matches!(mode, RepairMode::Ask | RepairMode::Yes) {
        return Err(Failure::usage(
            "--no-lock is for reading: a repair needs its lock",
        ));
    }
    let name = image_name(&args.image);
    let mut out = Output::stdout()?;
    let mut desk = Desk {
        mode,
        json: context.global.json,
        out: &mut out,
        array: JsonArray::default(),
        known: HashMap::new(),
        shown: Ok(()),
        undo: None,
        begun: false,
    };
    let summary = mend(context, args, &mut desk);
    if summary.is_err() {
        desk.cut_short(&name)?;
    }
    let summary = summary.map_err(|failure| failure.of(&name))?;
    desk.shown.clone()?;
    let still = match mode {
        RepairMode::Ask | RepairMode::Yes if errors_left(&summary) == 0 => {
            verify(context, args, &mut desk)?
        }
        _ => 0,
    };
    let errors = errors_left(&summary) + still;
    desk.end(context, &name, &summary, errors)?;
    out.finish()?;
    Ok(match (errors, summary.repairs(), mode) {
        (0, 0, _) => Exit::Ok,
        (0, _, RepairMode::Ask | RepairMode::Yes) => Exit::Repaired,
        (0, _, _) if would_be_errors(&summary) == 0 => Exit::Ok,
        _ => Exit::Image,
    })
}

fn mend(context: &Context, args: &CheckArgs, desk: &mut Desk<'_>) -> Result<Summary> {
    let mut options = args.image.open_options();
    options.break_lock(args.break_lock);
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let how = RepairOptions {
        dry_run: matches!(desk.mode, RepairMode::DryRun | RepairMode::NotAsked),
        keep_lost: args.lost_found,
        limits: options.limits.clone(),
        ..RepairOptions::default()
    };
    let path = &args.image.image;
    let place = match &args.undo_file {
        _ if how.dry_run => None,
        Some(file) if file == Path::new("none") => None,
        Some(file) => Some(UndoPlace::exactly(file)),
        None => Some(UndoPlace::default_for(path)?),
    };
    let place = place.map(Arc::new);
    interrupt::defer();
    let _told = place
        .clone()
        .map(|place| undo::tell_at_end(context, args, place));
    // A volume in use is refused before the search for errors.
    let device = patiently(path, || open_for(path, &options, &how))?;
    context.confine(&sandbox(args, place.as_deref()));
    let format = repair::format(&device, &options)?;
    desk.begin(&image_name(&args.image), Some(format))?;
    let decide = &mut |finding: &Finding| {
        let answer = desk.answer(finding);
        if desk.shown.is_ok() {
            desk.shown = desk.show(finding, answer);
        }
        answer
    };
    let summary = repair::repair(device, &options, &how, place.as_ref(), &observer, decide);
    desk.undo = place.and_then(|place| place.made());
    Ok(summary?)
}

/// Returns the sandbox of a repair whose volume is open. It also allows the undo file and, for the
/// final check, reopening the volume and looking for other processes that use it.
fn sandbox(args: &CheckArgs, place: Option<&UndoPlace>) -> Sandbox {
    let sandbox = for_image(&args.image.image, &args.image.source).read(&args.image.image);
    let sandbox = sandbox
        .read("/proc")
        .read("/sys")
        .keep(Capabilities::DAC_READ_SEARCH);
    match place {
        Some(place) => {
            // If this fails, creating the file reports the error.
            let _made = place.make_dir();
            sandbox
                .write_below(place.dir())
                .keep(Capabilities::DAC_OVERRIDE)
        }
        None => sandbox,
    }
}

/// Checks the volume after the repair. Returns the number of errors.
fn verify(context: &Context, args: &CheckArgs, desk: &mut Desk<'_>) -> Result<u64> {
    let mut volume = args.image.clone();
    // A lock that the repair broke is not respected here.
    volume.source.no_lock |= args.break_lock;
    let image = context.open(&volume)?;
    let options = CheckOptions { quick: true };
    let progress = Progress::new(context, "checking", 0);
    let mut shown = Ok(());
    let summary = check(image.reader(), options, &progress, &mut |finding| {
        if shown.is_ok() {
            let failure = Failure::from(finding.error);
            let path = finding.path.as_deref();
            shown = desk.line("still", finding.fatal, path, &failure, None);
        }
    });
    shown.map(|()| summary.errors)
}

fn errors_left(summary: &Summary) -> u64 {
    let left = summary.left.iter();
    left.filter(|(kind, _)| !kind.is_harmless())
        .map(|(_, count)| count)
        .sum()
}

fn would_be_errors(summary: &Summary) -> u64 {
    let repaired = summary.repaired.iter();
    repaired
        .filter(|(kind, _)| !kind.is_harmless())
        .map(|(_, count)| count)
        .sum()
}

/// Reports findings, and asks the user about them.
struct Desk<'o> {
    mode: RepairMode,
    json: bool,
    out: &'o mut Output,
    array: JsonArray,
    /// Answers for all findings of a kind.
    known: HashMap<Kind, Answer>,
    shown: Result<()>,
    /// The undo file, once the volume was written.
    undo: Option<PathBuf>,
    begun: bool,
}

impl Desk<'_> {
    fn answer(&mut self, finding: &Finding) -> Answer {
        let Some(remedy) = &finding.remedy else {
            return Answer::No;
        };
        match self.mode {
            RepairMode::NotAsked => Answer::No,
            RepairMode::Yes | RepairMode::DryRun if finding.kind.loses_data() => Answer::No,
            RepairMode::Yes | RepairMode::DryRun => Answer::Yes,
            RepairMode::Ask => match self.known.get(&finding.kind) {
                Some(answer) => *answer,
                None => self.ask(finding, remedy),
            },
        }
    }

    /// Asks the user. The end of standard input means no.
    fn ask(&mut self, finding: &Finding, remedy: &str) -> Answer {
        let failure = Failure::from(finding.error.clone());
        let text = text(finding.path.as_deref(), &failure);
        let mut tell = io::stderr();
        let _unseen = self.out.finish();
        let _unseen = writeln!(tell, "{}: {text}", severity(!finding.kind.is_harmless()));
        let loses = if finding.kind.loses_data() {
            " (this loses data)"
        } else {
            ""
        };
        loop {
            let _unseen = write!(
                tell,
                "  {}{loses}? [y]es, [n]o, [a]ll of this kind, [s]kip all of this kind: ",
                printable(remedy)
            );
            let _unseen = tell.flush();
            let mut line = String::new();
            if !matches!(io::stdin().lock().read_line(&mut line), Ok(1..)) {
                self.known.insert(finding.kind, Answer::No);
                return Answer::No;
            }
            let (answer, is_for_all) = match line.trim() {
                "y" | "yes" => (Answer::Yes, false),
                "n" | "no" => (Answer::No, false),
                "a" | "all" => (Answer::Yes, true),
                "s" | "skip" => (Answer::No, true),
                _ => continue,
            };
            if is_for_all {
                self.known.insert(finding.kind, answer);
            }
            return answer;
        }
    }

    fn show(&mut self, finding: &Finding, answer: Answer) -> Result<()> {
        let failure = Failure::from(finding.error.clone());
        let outcome = match (answer, self.mode, &finding.remedy) {
            (Answer::Yes, RepairMode::DryRun, Some(remedy)) => format!("would {remedy}"),
            (Answer::Yes, _, Some(remedy)) => format!("repaired: {remedy}"),
            (_, RepairMode::Yes, Some(remedy)) => {
                format!("left, as it may lose something; run without --yes to {remedy}")
            }
            (_, _, Some(remedy)) => format!("left; can be repaired: {remedy}"),
            (_, _, None) => "left".to_string(),
        };
        let fatal = !finding.kind.is_harmless();
        if self.json {
            let value = to_json(finding, &failure, answer, self.mode);
            return self.array.push(self.out, &value);
        }
        let path = finding.path.as_deref();
        self.line(severity(fatal), fatal, path, &failure, Some(&outcome))
    }

    fn line(
        &mut self,
        word: &str,
        fatal: bool,
        path: Option<&[u8]>,
        failure: &Failure,
        outcome: Option<&str>,
    ) -> Result<()> {
        if self.json {
            let mut object = Map::new();
            object.insert("severity".into(), severity(fatal).into());
            object.insert("kind".into(), failure.kind.into());
            if let Some(path) = path {
                json::put_bytes(&mut object, "path", &absolute(path));
            }
            object.insert("message".into(), failure.message.clone().into());
            object.insert("outcome".into(), "left".into());
            return self.array.push(self.out, &object.into());
        }
        self.out.line(format!("{word}: {}", text(path, failure)))?;
        if let Some(outcome) = outcome {
            self.out.line(format!("  {}", printable(outcome)))?;
        }
        // A person sees each finding at once.
        if self.out.is_terminal {
            self.out.finish()
        } else {
            Ok(())
        }
    }

    fn begin(&mut self, name: &str, format: Option<&str>) -> Result<()> {
        self.begun = true;
        if !self.json {
            return Ok(());
        }
        let is_dry = matches!(self.mode, RepairMode::DryRun | RepairMode::NotAsked);
        self.out.text(format!(
            "{{\"image\":{},\"format\":{},\"repair\":true,\"dry_run\":{is_dry},\n\"findings\":",
            Value::from(name),
            Value::from(format),
        ))
    }

    /// Closes the JSON output after an error, which may come before the format is known.
    fn cut_short(&mut self, name: &str) -> Result<()> {
        if !self.json {
            return Ok(());
        }
        if !self.begun {
            self.begin(name, None)?;
        }
        self.array.close(self.out)?;
        let mut object = Map::new();
        self.put_undo(&mut object);
        if object.is_empty() {
            self.out.line("}")?
        } else {
            self.rest(object)?
        }
        self.out.finish()
    }

    fn put_undo(&self, object: &mut Map<String, Value>) {
        if let Some(undo) = &self.undo {
            json::put_bytes(object, "undo_file", undo.as_os_str().as_bytes());
        }
    }

    fn rest(&mut self, object: Map<String, Value>) -> Result<()> {
        let rest = Value::Object(object).to_string();
        let rest = rest.strip_prefix('{').unwrap_or(&rest);
        self.out.line(format!(",\n{rest}"))
    }

    fn end(&mut self, context: &Context, name: &str, summary: &Summary, errors: u64) -> Result<()> {
        if self.json {
            self.array.close(self.out)?;
            let mut object = Map::new();
            object.insert("entries".into(), summary.entries.into());
            object.insert("repaired".into(), summary.repairs().into());
            object.insert("left".into(), summary.remains().into());
            object.insert("errors".into(), errors.into());
            if let Some(kept) = &summary.kept_in {
                json::put_bytes(&mut object, "kept_in", &absolute(kept));
            }
            self.put_undo(&mut object);
            return self.rest(object);
        }
        if self.mode == RepairMode::NotAsked && summary.remains() > 0 {
            context.note(
                "nothing was repaired, because there is no terminal for questions: --yes repairs, --dry-run lists the repairs",
            );
        }
        if let Some(kept) = &summary.kept_in {
            context.note(&format!(
                "clusters that belonged to no file are now files in {}",
                escape(&absolute(kept))
            ));
        }
        if context.global.quiet {
            return Ok(());
        }
        let verdict = match (summary.repairs(), summary.remains(), self.mode) {
            (0, 0, _) => "no problems".to_string(),
            (done, 0, RepairMode::DryRun) => format!("{done} would be repaired"),
            (done, left, RepairMode::DryRun) => format!("{done} would be repaired, {left} left"),
            (done, 0, _) => format!("{done} repaired"),
            (done, left, _) => format!("{done} repaired, {left} left"),
        };
        let entries = counted(summary.entries, "entry", "entries");
        self.out.line(format!("{name}: {verdict} ({entries})"))
    }
}

const fn severity(fatal: bool) -> &'static str {
    if fatal { "error" } else { "warning" }
}

fn text(path: Option<&[u8]>, failure: &Failure) -> String {
    let path = path.map(|path| format!("{}: ", escape(&absolute(path))));
    path.unwrap_or_default() + &printable(&failure.message)
}

fn to_json(finding: &Finding, failure: &Failure, answer: Answer, mode: RepairMode) -> Value {
    let mut object = Map::new();
    let fatal = !finding.kind.is_harmless();
    object.insert("severity".into(), severity(fatal).into());
    object.insert("kind".into(), finding.kind.name().into());
    if let Some(path) = &finding.path {
        json::put_bytes(&mut object, "path", &absolute(path));
    }
    if let forerun::vfs::Error::Corrupt(corrupt) = &finding.error {
        object.insert("offset".into(), corrupt.offset().into());
    }
    object.insert("message".into(), failure.message.clone().into());
    object.insert("remedy".into(), finding.remedy.clone().into());
    let outcome = match (answer, mode) {
        (Answer::Yes, RepairMode::DryRun) => "would_be_repaired",
        (Answer::Yes, _) => "repaired",
        (Answer::No, _) => "left",
    };
    object.insert("outcome".into(), outcome.into());
    object.into()
}
