//! Writes a tree as an image under its name: the last step of `pack` and `convert`.

use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueHint};
use forerun::build::{BuildError, ImageOutput, Tree, Written, spool_dir, spool_file};
use forerun::{Observer, Writer};
use serde_json::json;

use super::input::Skipped;
use super::summary;
use crate::args::is_stdin;
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::losses::tell_losses;
use crate::output::Output;
use crate::progress::{Progress, Watched};
use crate::target::Target;

/// Where the image goes, besides the operand `output`.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Image to make, in place of the argument OUTPUT
    #[arg(short, long = "output", hide_short_help = true, id = "output_option", value_name = "OUTPUT", value_hint = ValueHint::FilePath, conflicts_with = "output")]
    pub output_option: Option<PathBuf>,
    /// Replace OUTPUT if it exists
    #[arg(long)]
    pub force: bool,
}

/// Writes the image, renames it and its data file into place, and reports it. With `skipped`, files
/// that have disappeared meanwhile are omitted.
pub fn make(
    context: &Context,
    writer: &Writer,
    tree: &mut Tree,
    (mut target, blob): (Target, Option<Target>),
    output: &Path,
    (verb, mut skipped): (&'static str, Option<&mut Skipped>),
) -> Result {
    let exit = tell_losses(context, writer, tree, &target.name);
    let mut files = summary::list(context, tree);
    let observer = Arc::new(Observer::default());
    context.observe(&observer);
    let written = loop {
        let progress = Progress::new(context, verb, tree.content_bytes());
        let written = write_to(writer, tree, &mut target, &progress, &observer);
        drop(progress);
        let failure = match written {
            Ok(written) => break written,
            Err(failure) => failure,
        };
        let skipped = skipped.as_mut().filter(|_| blob.is_none());
        match skipped.and_then(|skipped| skipped.drop_gone(tree)) {
            Some(names) if target.begin_anew() => files = files.saturating_sub(names),
            _ => return Err(failure),
        }
    };
    let name = target.name.clone();
    // The data file comes first, because the image refers to it.
    blob.map_or(Ok(()), Target::commit)?;
    target.commit()?;
    // Standard output may be the image.
    if !is_stdin(output) {
        tell(context, &written, (&name, writer.name()), tree)?;
    }
    let bytes = (tree.content_bytes(), written.len);
    context.note(&summary::line(&name, files, bytes, context.elapsed()));
    Ok(exit)
}

fn write_to(
    writer: &Writer,
    tree: &Tree,
    target: &mut Target,
    progress: &Progress,
    observer: &Arc<Observer>,
) -> Result<Written> {
    if (writer.patches() || target.is_sif()) && !target.rewrites() {
        through_spool(writer, tree, target, progress, observer)
    } else {
        let written = write(writer, tree, target.image(), progress, observer);
        let written = written.map_err(|error| of_output(error, &target.name))?;
        target.finish(written.len)?;
        Ok(written)
    }
}

fn tell(
    context: &Context,
    written: &Written,
    (output, format): (&str, &str),
    tree: &Tree,
) -> Result<()> {
    let digest = written.digest.map(|digest| digest.to_string());
    let mut out = Output::stdout()?;
    if context.global.json {
        let mut facts = json!({
            "output": output,
            "format": format,
            "image_bytes": written.len,
            "content_bytes": tree.content_bytes(),
            "nodes": tree.len(),
        });
        if let (Some(digest), Some(facts)) = (digest, facts.as_object_mut()) {
            facts.insert("digest".to_string(), digest.into());
        }
        out.json(&facts)?;
    } else if let Some(digest) = digest
        && !context.global.quiet
    {
        out.line(&digest)?;
    }
    out.finish()
}

fn write(
    writer: &Writer,
    tree: &Tree,
    out: impl ImageOutput,
    progress: &Progress,
    observer: &Arc<Observer>,
) -> std::result::Result<Written, BuildError> {
    let mut watched = Watched {
        inner: out,
        progress,
    };
    writer.write(tree, &mut watched, observer)
}

/// Writes through a temporary file: the format determines its first bytes last, but the output
/// needs them first.
fn through_spool(
    writer: &Writer,
    tree: &Tree,
    target: &mut Target,
    progress: &Progress,
    observer: &Arc<Observer>,
) -> Result<Written> {
    let failed = |error: &io::Error| {
        let message = format!(
            "{} needs a temporary file, and writing one in {} failed: {}",
            writer.name(),
            spool_dir().display(),
            reason(error)
        );
        let hint = "write to a file, or set TMPDIR to a directory with enough space";
        Failure::new(Exit::Output, "output", message).hint(hint)
    };
    let mut spool: File = spool_file().map_err(|error| failed(&error))?;
    let written =
        write(writer, tree, &mut spool, progress, observer).map_err(|error| match &error {
            BuildError::Output { source, .. } => failed(source),
            _ => error.into(),
        })?;
    spool.rewind().map_err(|error| failed(&error))?;
    target.finish(written.len)?;
    io::copy(&mut spool, target.file()).map_err(|error| target.failed(&error))?;
    Ok(written)
}

fn of_output(error: BuildError, name: &str) -> Failure {
    let is_output = matches!(error, BuildError::Output { .. });
    let failure = Failure::from(error);
    if is_output { failure.of(name) } else { failure }
}
