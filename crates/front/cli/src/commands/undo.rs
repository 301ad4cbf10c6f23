//! `forerun check --undo`: reverses a repair. Also prints a repair's messages about its undo file.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::Observer;
use forerun::unstable::repair::{Restored, UndoFile, UndoPlace, open, restore};
use forerun_io::FileSource;
use forerun_sandbox::Sandbox;
use serde_json::{Map, Value};

use super::check::CheckArgs;
use crate::args::is_stdin;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::escape::{printable, quoted};
use crate::exit::Exit;
use crate::interrupt::OnInterrupt;
use crate::json;
use crate::output::Output;
use crate::patience::patiently;
use crate::size;

pub fn run(context: &Context, args: &CheckArgs, file: &Path) -> Result {
    if is_stdin(&args.image.image) {
        return Err(Failure::usage(
            "a volume cannot be restored on standard input",
        ));
    }
    if args.image.source.no_lock {
        return Err(Failure::usage(
            "--no-lock is for reading: --undo needs its lock",
        ));
    }
    let name = image_name(&args.image);
    let of_file = |failure: Failure| failure.of(file.display());
    let source = FileSource::open(file).map_err(|error| of_file(Failure::source(&error)))?;
    let mut options = args.image.open_options();
    options.break_lock(args.break_lock);
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let path = &args.image.image;
    let of_image = |failure: Failure| failure.of(&name);
    let volume = patiently(path, || open(path, &options));
    let volume = volume.map_err(|error| of_image(error.into()))?;
    context.confine(&Sandbox::new());
    let undo = UndoFile::open(Arc::new(source)).map_err(|error| of_file(error.into()))?;
    let restored = restore(&undo, &volume, &observer, args.force);
    let restored = restored.map_err(|error| of_image(error.into()))?;
    show(context, &name, file, &restored)?;
    Ok(Exit::Ok)
}

fn show(context: &Context, name: &str, file: &Path, restored: &Restored) -> Result<()> {
    let mut out = Output::stdout()?;
    if context.global.json {
        let mut object = Map::new();
        object.insert("image".into(), name.into());
        object.insert("undo".into(), true.into());
        json::put_bytes(&mut object, "undo_file", file.as_os_str().as_bytes());
        object.insert("complete".into(), restored.complete.into());
        object.insert("saved".into(), restored.saved.into());
        object.insert("written".into(), restored.written.into());
        out.json(&Value::Object(object))?;
        return out.finish();
    }
    if !restored.complete {
        context.note("the repair was interrupted; all its changes were undone");
    }
    if !context.global.quiet {
        let done = match restored.written {
            0 => "nothing to restore".to_string(),
            written => format!("{} restored", size::human(written)),
        };
        out.line(format!("{name}: {done}, as before the repair"))?;
    }
    out.finish()
}

#[derive(Clone)]
struct UndoTarget {
    image: PathBuf,
    offset: u64,
    size: Option<u64>,
}

impl UndoTarget {
    /// Returns the volume that `check --repair` repairs.
    fn of(args: &CheckArgs) -> Self {
        Self {
            image: args.image.image.clone(),
            offset: args.image.source.offset,
            size: args.image.source.size,
        }
    }
}

/// Tells the user where the undo file of a repair is and how to use it, when the repair has ended,
/// failed or was interrupted.
pub struct UndoNotice<'c> {
    context: &'c Context,
    place: Arc<UndoPlace>,
    target: UndoTarget,
    _interrupted: Option<OnInterrupt>,
}

/// Reports the undo file when the returned value is dropped.
pub fn tell_at_end<'c>(
    context: &'c Context,
    args: &CheckArgs,
    place: Arc<UndoPlace>,
) -> UndoNotice<'c> {
    let target = UndoTarget::of(args);
    let is_silent = context.global.quiet || context.global.json;
    let interrupted = (!is_silent).then(|| {
        let (place, target) = (Arc::clone(&place), target.clone());
        OnInterrupt::new(move || {
            if let Some(made) = place.made() {
                let line = printable(&line(&made, &target));
                let _unseen = writeln!(io::stderr(), "forerun: {line}");
            }
        })
    });
    UndoNotice {
        context,
        place,
        target,
        _interrupted: interrupted,
    }
}

impl Drop for UndoNotice<'_> {
    fn drop(&mut self) {
        if let Some(made) = self.place.made() {
            self.context.note(&line(&made, &self.target));
        }
    }
}

/// Returns the line with the command that reverses the repair.
fn line(made: &Path, target: &UndoTarget) -> String {
    let mut command = format!(
        "forerun check --undo {}",
        quoted(&made.display().to_string())
    );
    if target.offset > 0 {
        command += &format!(" --offset {}", target.offset);
    }
    if let Some(size) = target.size {
        command += &format!(" --size {size}");
    }
    let image = quoted(&target.image.display().to_string());
    let made = made.display();
    format!("undo file: {made}; {command} {image} undoes the repair")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_can_be_pasted() {
        let mut target = UndoTarget {
            image: "my 'card'.img".into(),
            offset: 0,
            size: None,
        };
        let expected = r"undo file: a.undo; forerun check --undo a.undo 'my '\''card'\''.img' undoes the repair";
        assert_eq!(line(Path::new("a.undo"), &target), expected);
        (target.image, target.offset, target.size) = ("a.img".into(), 512, Some(1024));
        let line = line(Path::new("a.undo"), &target);
        assert!(line.contains(" --offset 512 --size 1024 a.img "), "{line}");
    }
}
