//! Reports extractions to the user: each missing entry, and for each kind of lost property the
//! number of entries and the first names.

use forerun::Image;
use forerun_export::{ExtractReport, Loss, Shortfall};
use serde_json::{Map, Value, json};

use super::ExtractArgs;
use crate::advice::absolute;
use crate::commands::salvage;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result, reason};
use crate::escape::escape;
use crate::exit::Exit;
use crate::json::put_bytes;
use crate::output::Output;
use crate::size::counted;
use crate::target::Target;

pub fn finish(
    context: &Context,
    args: &ExtractArgs,
    (image, target): (&Image, Option<Target>),
    mut report: ExtractReport,
) -> Result {
    let name = &image_name(&args.image);
    let complete = report.is_complete();
    let unlisted = report.more_failures;
    let failures: Vec<Failure> = std::mem::take(&mut report.failures)
        .into_iter()
        .map(|error| named(error.into(), name))
        .collect();
    let exit = if complete { Exit::Ok } else { Exit::Partial };
    let listed: Vec<_> = if args.image.source.rescue {
        failures.iter().map(crate::json::failure_fields).collect()
    } else {
        Vec::new()
    };
    if context.global.json {
        let mut out = Output::stdout()?;
        out.json(&to_json(name, &report, &failures, complete))?;
        out.finish()?;
    } else {
        context.report_all(failures);
        if unlisted > 0 {
            let text = format!("and {unlisted} more failures");
            context.report(&Failure::new(Exit::Partial, "output", text).of(name));
        }
        for (path, other) in &report.collisions {
            context.report(&collision(path, other).of(name));
        }
        for lost in &report.shortfalls {
            tell(context, name, lost);
        }
        context.left_out(name, report.left_out);
    }
    if !context.global.json {
        sum_up(context, name, &report);
    }
    if args.image.source.rescue {
        let outcomes = (report.outcomes.as_slice(), listed.as_slice());
        let told = salvage::finish(context, &args.image, image, outcomes, target)?;
        return Ok(exit.and(told));
    }
    Ok(exit)
}

/// Summarises how much was extracted and how much is missing. If a single failure was reported, it
/// suffices.
fn sum_up(context: &Context, name: &str, report: &ExtractReport) {
    let ended = report.stopped || report.interrupted;
    let files = counted(report.files, "file", "files");
    let mut text = format!("{files} written");
    if report.skipped > 0 {
        let skipped = counted(report.skipped, "entry was", "entries were");
        text.push_str(&format!(", {skipped} there already"));
    }
    if ended || report.missing > 1 {
        let missing = counted(report.missing, "entry is", "entries are");
        let why = match (report.interrupted, report.stopped) {
            (true, _) => "interrupted: ",
            (false, true) => "ended early: ",
            (false, false) => "",
        };
        let failure = Failure::new(
            Exit::Partial,
            "missing",
            format!("{why}{text}, {missing} missing"),
        );
        let hint = "run the same command with --skip-existing to extract the rest";
        context.report(&failure.maybe_hint(ended.then_some(hint)).of(name));
    } else if report.skipped > 0 {
        context.note(&format!("{name}: {text}"));
    }
}

/// Adds the image's name to a failure about the image. A failure about a directory of the system
/// has its own name.
pub fn named(failure: Failure, image: &str) -> Failure {
    match &failure.subject {
        Some(_) => failure,
        None => failure.of(image),
    }
}

/// Reports a loss: as an error if the user asked for the property and it failed, as a note if it
/// was not even tried.
fn tell(context: &Context, name: &str, lost: &Shortfall) {
    let failure = Failure::new(Exit::Partial, "shortfall", message(lost));
    let failure = failure.maybe_hint(hint(lost)).of(name);
    if lost.error.is_some() || lost.loss == Loss::Device {
        context.report(&failure);
    } else {
        let hint = failure.hint.map(|hint| format!(" ({hint})"));
        let hint = hint.unwrap_or_default();
        context.note(&format!("{name}: {}{hint}", failure.message));
    }
}

fn message(lost: &Shortfall) -> String {
    let what = match (lost.loss, lost.count) {
        (Loss::Device, 1) => "device node not made",
        (Loss::Device, _) => "device nodes not made",
        (Loss::HardLink, 1) => "hard link is a copy, the target has no such link",
        (Loss::HardLink, _) => "hard links are copies, the target has no such links",
        (Loss::Owner, 1) => "owner not kept",
        (Loss::Owner, _) => "owners not kept",
        (Loss::Mode, 1) => "mode not set",
        (Loss::Mode, _) => "modes not set",
        (Loss::SpecialBits, 1) => "entry without its set-id or sticky bit",
        (Loss::SpecialBits, _) => "entries without their set-id or sticky bits",
        (Loss::Xattr, 1) => "extended attribute not set",
        (Loss::Xattr, _) => "extended attributes not set",
        (Loss::PrivilegedXattr, 1) => "extended attribute of security. or trusted. left out",
        (Loss::PrivilegedXattr, _) => "extended attributes of security. or trusted. left out",
        (Loss::Time, 1) => "time not set",
        (Loss::Time, _) => "times not set",
    };
    let examples: Vec<_> = lost
        .examples
        .iter()
        .map(|path| escape(&absolute(path)))
        .collect();
    let more = if told(&lost.examples) < lost.count {
        ", ..."
    } else {
        ""
    };
    let error = lost.error.as_ref();
    let why = error.map_or_else(String::new, |error| format!(": {}", reason(error)));
    format!("{} {what}{why}: {}{more}", lost.count, examples.join(", "))
}

fn told(examples: &[Vec<u8>]) -> u64 {
    crate::size::count_of(examples.len())
}

const fn hint(lost: &Shortfall) -> Option<&'static str> {
    match (lost.loss, lost.error.is_some()) {
        (Loss::Device, false) => {
            Some("--keep devices makes them (as root), --exclude leaves them out silently")
        }
        (Loss::Owner, false) => Some("only root can; --owner caller leaves this note out"),
        (Loss::Owner, true) => Some("--owner caller avoids this"),
        (Loss::SpecialBits, false) => Some("--keep special-bits keeps them"),
        (Loss::PrivilegedXattr, false) => Some("--keep privileged-xattrs keeps them, as root"),
        (Loss::Xattr, true) => Some("--no-xattrs leaves them out"),
        (Loss::Device, true) => Some("only root makes device nodes"),
        (
            Loss::HardLink
            | Loss::Mode
            | Loss::SpecialBits
            | Loss::Xattr
            | Loss::PrivilegedXattr
            | Loss::Time,
            _,
        ) => None,
    }
}

fn collision(path: &[u8], other: &[u8]) -> Failure {
    let other = escape(&absolute(other));
    let message = format!("differs only in case from {other}");
    Failure::new(Exit::Partial, "case_collision", message).at(&absolute(path))
}

fn to_json(name: &str, report: &ExtractReport, failures: &[Failure], complete: bool) -> Value {
    let failures: Vec<_> = failures.iter().map(crate::json::failure_fields).collect();
    let collisions = report.collisions.iter().map(|(path, other)| {
        let mut object = Map::new();
        put_bytes(&mut object, "path", &absolute(path));
        put_bytes(&mut object, "other", &absolute(other));
        Value::Object(object)
    });
    let shortfalls = report.shortfalls.iter().map(|lost| {
        let examples = lost.examples.iter().map(|path| {
            let mut object = Map::new();
            put_bytes(&mut object, "path", &absolute(path));
            Value::Object(object)
        });
        json!({
            "what": lost.loss.name(),
            "count": lost.count,
            "examples": examples.collect::<Vec<_>>(),
            "message": lost.error.as_ref().map(reason),
            "hint": hint(lost),
        })
    });
    let files = salvage::outcomes(&report.outcomes);
    json!({
        "image": name,
        "outcomes": files,
        "complete": complete,
        "directories": report.directories,
        "files": report.files,
        "bytes": report.bytes,
        "hard_links": report.hard_links,
        "symlinks": report.symlinks,
        "specials": report.specials,
        "skipped": report.skipped,
        "missing": report.missing,
        "left_out": report.left_out,
        "interrupted": report.interrupted,
        "failures": failures,
        "more_failures": report.more_failures,
        "case_collisions": collisions.collect::<Vec<_>>(),
        "shortfalls": shortfalls.collect::<Vec<_>>(),
    })
}
