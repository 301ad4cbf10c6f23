//! Decides whether a mount is read-write, and opens the volume of one that is.
//!
//! Formats with changeable volumes are mounted read-write as usual, unless `ro` is given or the
//! file may not be written. All others are read-only, and a user who asked for `rw` is told.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use forerun::OpenOptions;
use forerun::unstable::locks::{self, Held, Locking};
use forerun::unstable::{DiskImage, VolumeMut};
use forerun::vfs::Error;
use forerun_fuse::MountOptions;
use forerun_io::{EventSink, FileDevice};
use forerun_pictures::TraceWriter;

use super::MountArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::patience::{after_the_end, patiently};
use crate::source;
use crate::target::open_empty;

/// A volume that is open for reading and writing, but not yet parsed.
pub struct PreparedVolume {
    device: Held<FileDevice>,
    /// The same file for reading, because the volume may turn out to be readable only.
    readable: Option<File>,
    open: OpenOptions,
    /// Whether the command line demands writing.
    asked: bool,
}

/// Opens the device of a volume for reading and writing. Returns `None` if it is to be mounted
/// read-only.
pub fn prepare(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    trace: Option<&Arc<TraceWriter>>,
) -> Result<Option<PreparedVolume>> {
    // mount(8) passes rw unless the user gave ro.
    let asked = options.rw_asked && args.helper.is_none();
    if !args.layers.is_empty() || DiskImage::parse(&args.image).is_some() {
        if asked {
            context.note("layers cannot be written to: mounting read-only");
        }
        return Ok(None);
    }
    let mut open = options.open_options();
    open.format.clone_from(&args.format);
    open.events = trace.map(as_sink);
    // If this fails, opening it as an image fails too and reports the error.
    let is_remote = crate::remote::is_remote(&args.image);
    let possible = match VolumeMut::is_possible(&args.image, &open) {
        Ok(possible) => possible && !is_remote,
        Err(_) if is_remote => false,
        Err(_) => return Ok(None),
    };
    if asked && options.rescue {
        return Err(Failure::usage(
            "a salvage is read-only: rw and salvage cannot be combined",
        ));
    }
    let only_looks = options.locking == Locking::Ignore;
    if possible && only_looks && asked {
        let message = "nolock is for mounts that only read: a writer needs its lock";
        return Err(Failure::usage(message).hint("-o ro,nolock, or -o break_lock"));
    }
    if options.ro_asked || options.rescue || only_looks || !possible {
        if asked {
            let what = if is_remote {
                "images at servers"
            } else {
                "images of this format"
            };
            context.note(&format!("{what} cannot be written to: mounting read-only"));
        }
        return Ok(None);
    }
    match patiently(&args.image, || locks::device(&args.image, &open)) {
        Ok(device) => Ok(Some(PreparedVolume {
            device,
            readable: File::open(&args.image).ok(),
            open,
            asked,
        })),
        Err(Error::Io { source, len: 0, .. }) if !asked && is_protected(&source) => {
            context.note("you may not write to the image: mounting read-only");
            Ok(None)
        }
        Err(error) => Err(failed_to_open(error, &open, args)),
    }
}

/// Opens the volume, or its file for reading if the state of the volume allows no more.
pub fn open(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    prepared: PreparedVolume,
) -> Result<std::result::Result<VolumeMut, Option<File>>> {
    let PreparedVolume {
        device,
        readable,
        open,
        asked,
    } = prepared;
    match VolumeMut::from_device(Arc::new(device), &open, &options.write) {
        Ok(volume) => {
            context.observe(volume.volume().observer());
            let name = crate::remote::shown(&args.image);
            context.warn_of(&name, volume.volume().fs().volume());
            Ok(Ok(volume))
        }
        Err(Error::ReadOnly(why)) if !asked => {
            context.note(&format!("mounting read-only: {why}"));
            Ok(Err(readable))
        }
        Err(error) => Err(failed_to_open(error, &open, args)),
    }
}

/// Opens the device of a volume whose mount this process takes over. The old process has ended.
pub fn prepare_again(args: &MountArgs, options: &MountOptions) -> Result<PreparedVolume> {
    let mut open = options.open_options();
    open.format.clone_from(&args.format);
    let device = after_the_end(|| locks::device(&args.image, &open));
    Ok(PreparedVolume {
        device: device.map_err(|error| failed_to_open(error, &open, args))?,
        readable: None,
        open,
        asked: true,
    })
}

pub fn recover(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    prepared: PreparedVolume,
    was_clean: bool,
) -> Result<VolumeMut> {
    let PreparedVolume { device, open, .. } = prepared;
    let recovered = VolumeMut::recover(Arc::new(device), &open, &options.write, was_clean);
    let (volume, repaired) = recovered.map_err(|error| failed_to_open(error, &open, args))?;
    if let Some(summary) = repaired {
        let (repaired, left) = (summary.repairs(), summary.remains());
        tracing::info!(
            repaired,
            left,
            "what the process before this one left unfinished"
        );
    }
    context.observe(volume.volume().observer());
    Ok(volume)
}

fn failed_to_open(error: Error, open: &OpenOptions, args: &MountArgs) -> Failure {
    source::from_open(error, open).of(args.image.display())
}

/// Returns whether the error means that the file may be read but not written.
fn is_protected(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    )
}

pub fn trace(path: &Path) -> Result<Arc<TraceWriter>> {
    let writer = TraceWriter::begin(open_empty(path)?);
    let writer = writer.map_err(|error| Failure::output(&error).of(path.display()))?;
    Ok(Arc::new(writer))
}

pub fn as_sink(trace: &Arc<TraceWriter>) -> Arc<dyn EventSink> {
    Arc::<TraceWriter>::clone(trace)
}
