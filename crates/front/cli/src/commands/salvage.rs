//! The report of a salvage: which files are whole, partial or lost.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun::Image;
use forerun_export::{Remains, SalvagedFile};
use serde_json::{Map, Value, json};

use crate::advice::absolute;
use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::json::{put_bytes, text};
use crate::size::{count_of, counted};
use crate::target::{Target, is_same_file};

/// Largest number of damaged files named on standard error. The report names all.
const NAMED: usize = 100;

/// The arguments of a salvage besides `--salvage`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// With --salvage, write a JSON report to FILE that lists whole, damaged and unreadable files
    #[arg(
        help_heading = "Image",
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "rescue"
    )]
    pub report: Option<PathBuf>,
}

impl ReportArgs {
    /// Opens the report before the process is confined.
    pub fn target(&self, image: &ImageArgs, force: bool) -> Result<Option<Target>> {
        let Some(path) = &self.report else {
            return Ok(None);
        };
        if is_same_file(&image.image, path) {
            let failure = Failure::usage("the image and the report are the same file");
            return Err(failure.of(path.display()));
        }
        Target::create(Path::new(path), force, "a report").map(Some)
    }
}

/// Writes the report, names the damaged files, and prints the totals. Returns the exit code.
pub fn finish(
    context: &Context,
    args: &ImageArgs,
    image: &Image,
    (outcomes, failures): (&[SalvagedFile], &[Value]),
    report: Option<Target>,
) -> Result {
    let name = image_name(args);
    if let Some(mut target) = report {
        let report = to_json(&name, image, outcomes, failures);
        let written = serde_json::to_writer_pretty(target.file(), &report);
        written.map_err(|error| target.failed(&error.into()))?;
        target.commit()?;
    }
    let count = |state| outcomes.iter().filter(|file| file.state() == state).count();
    let (whole, partial) = (count(Remains::Whole), count(Remains::Partial));
    if !context.global.json {
        let damaged = outcomes
            .iter()
            .filter(|file| file.state() == Remains::Partial);
        for file in damaged.take(NAMED) {
            context.report(&partly(file).of(&name));
        }
        if partial > NAMED {
            let text = format!("and {} more damaged files", partial - NAMED);
            context.report(&Failure::new(Exit::Partial, "partial", text).of(&name));
        }
    }
    let guesses = outcomes.iter().filter(|file| file.is_guess).count();
    let files = counted(count_of(whole), "file is", "files are");
    let guessed = match guesses {
        0 => String::new(),
        n => format!(", {n} of them joined by guess"),
    };
    // Each lost file is also a failure. A path that the image does not have is not a lost file.
    let is_lost = |failure: &&Value| text(failure, "kind") != "not_found";
    let lost = count_of(failures.iter().filter(is_lost).count());
    let lost = counted(lost, "entry", "entries");
    context.note(&format!(
        "{name}: {files} whole{guessed}; {partial} partial; {lost} lost"
    ));
    let is_damaged = !image.reader().fs().volume().warnings.is_empty();
    let is_whole = partial == 0 && guesses == 0 && !is_damaged;
    Ok(if is_whole { Exit::Ok } else { Exit::Partial })
}

fn partly(file: &SalvagedFile) -> Failure {
    let size = file.size.unwrap_or(0);
    let first = file.lost.first().map_or(0, |lost| lost.start);
    let message = format!(
        "{} of its {size} bytes are lost, the first at byte {first}; they are zeros in the output",
        file.lost_bytes()
    );
    Failure::new(Exit::Partial, "partial", message).at(&absolute(&file.path))
}

pub fn outcomes(outcomes: &[SalvagedFile]) -> Value {
    let files = outcomes.iter().map(|file| {
        let mut object = Map::new();
        put_bytes(&mut object, "path", &absolute(&file.path));
        object.insert("size".into(), file.size.into());
        object.insert("state".into(), file.state().name().into());
        let lost = file.lost.iter().map(|lost| json!([lost.start, lost.end]));
        object.insert("lost".into(), lost.collect());
        object.insert("guess".into(), file.is_guess.into());
        object.insert("message".into(), file.error.clone().into());
        Value::Object(object)
    });
    files.collect()
}

fn to_json(name: &str, image: &Image, files: &[SalvagedFile], failures: &[Value]) -> Value {
    let volume = image.reader().fs().volume();
    let count = |state| files.iter().filter(|file| file.state() == state).count();
    json!({
        "image": name,
        "format": volume.format,
        "damage": volume.warnings,
        "whole": count(Remains::Whole),
        "partial": count(Remains::Partial),
        "lost": count(Remains::Lost),
        "files": outcomes(files),
        "failures": failures,
    })
}
