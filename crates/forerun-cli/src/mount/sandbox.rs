//! The sandbox of a process that serves a mount: what it keeps, and what is open before it enters.

use std::io;
use std::sync::Arc;

use forerun::{Image, TraceWriter, VolumeMut};
use forerun_fuse::{Inherited, MountOptions};
use forerun_sandbox::{Capabilities, Sandbox, Sockets};

use super::socket::Unnamed;
use super::{MountArgs, failed, image_args, mount_failure, outside, volume};
use crate::confine::for_image;
use crate::context::Context;
use crate::error::Result;
use crate::source;

/// What is to be mounted.
pub enum Open {
    /// For reading.
    Image(Box<Image>),
    /// For writing as well.
    Volume(Box<VolumeMut>),
}

/// Enters the sandbox. First starts the process that mounts and unmounts for this one, and does what
/// mounting begins with.
fn enter(
    context: &Context,
    args: &MountArgs,
    options: &mut MountOptions,
    inherited: Option<&Inherited>,
    sandbox: &Sandbox,
) -> Result<()> {
    if !context.global.no_sandbox {
        if inherited.is_none() {
            let prepared = forerun_fuse::prepare_mountpoint(&args.dir);
            prepared.map_err(|error| mount_failure(&error, args))?;
        }
        let outside = outside::start()?;
        let adopted = inherited.map(|inherited| outside.adopt(inherited));
        let adopted = adopted.transpose();
        adopted.map_err(|error| failed("taking the mount over", &error))?;
        options.outside = Some(outside);
    }
    context.confine(sandbox);
    Ok(())
}

/// Opens what is to be mounted: first the files, then, in the sandbox, what is in them.
pub fn open(
    context: &Context,
    args: &MountArgs,
    options: &mut MountOptions,
    trace: Option<&Arc<TraceWriter>>,
    (inherited, socket): (&Option<Inherited>, &io::Result<Unnamed>),
) -> Result<Open> {
    // Only images are inherited, whatever could be done with them now.
    let prepared = match inherited {
        None => volume::prepare(context, args, options, trace)?,
        Some(_) => None,
    };
    let mut sandbox = sandbox(args, options);
    if let Ok(socket) = socket {
        sandbox = sandbox.name_files_in(socket.directory());
    }
    if let Some(prepared) = prepared {
        // Its lock for reading begins with a look for devices that are made of the file.
        let sandbox = sandbox.read("/sys");
        enter(context, args, options, inherited.as_ref(), &sandbox)?;
        let readable = match volume::open(context, args, options, prepared)? {
            Ok(volume) => return Ok(Open::Volume(Box::new(volume))),
            Err(readable) => readable,
        };
        let image = source::prepare_file(&image_args(args, options), readable)?;
        let image = context.open_prepared(image, trace.map(volume::as_sink))?;
        return Ok(Open::Image(Box::new(image)));
    }
    let image = context.prepare(&image_args(args, options))?;
    enter(context, args, options, inherited.as_ref(), &sandbox)?;
    let image = context.open_prepared(image, trace.map(volume::as_sink))?;
    Ok(Open::Image(Box::new(image)))
}

/// What serving takes: the sockets and pipes that are open, and to look where the threads run that ask.
fn sandbox(args: &MountArgs, options: &MountOptions) -> Sandbox {
    let image = image_args(args, options);
    let mut sandbox = for_image(&image.image, &image.source)
        .sockets(Sockets::Open)
        .read("/proc")
        .write_file("/dev/null");
    if args.metrics.is_some() {
        sandbox = sandbox.sockets(Sockets::New);
    }
    if options.objects.is_some() {
        // The kernel is given objects to read by itself.
        sandbox = sandbox.keep(Capabilities::SYS_ADMIN);
    }
    sandbox
}
