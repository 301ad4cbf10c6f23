//! The sandbox of a process that serves a mount: what it keeps, and what is open before it enters.

use std::io;
use std::sync::Arc;

use forerun::{Image, TraceWriter, VolumeMut};
use forerun_fuse::{Inherited, MountOptions, Outside};
use forerun_sandbox::{Capabilities, Sandbox, Sockets};

use super::socket::Unnamed;
use super::{MountArgs, failed, image_args, mount_failure, outside, volume};
use crate::confine::for_image;
use crate::context::Context;
use crate::error::Result;

/// What is to be mounted.
pub enum Open {
    /// For reading.
    Image(Box<Image>),
    /// For writing as well.
    Volume(Box<VolumeMut>),
}

/// Starts the process that mounts and unmounts for this one, and does before the sandbox what mounting
/// begins with.
pub fn start_outside(args: &MountArgs, inherited: Option<&Inherited>) -> Result<Outside> {
    let outside = outside::start()?;
    match inherited {
        Some(inherited) => {
            let adopted = outside.adopt(inherited);
            adopted.map_err(|error| failed("taking the mount over", &error))?;
        }
        None => forerun_fuse::prepare_mountpoint(&args.dir)
            .map_err(|error| mount_failure(&error, args))?,
    }
    Ok(outside)
}

/// Opens what is to be mounted: first the files, then, in the sandbox, what is in them.
pub fn open(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
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
        // It may turn out that it can only be read, as any image.
        let sandbox = sandbox.read(&args.image).read("/sys");
        context.confine(&sandbox.keep(Capabilities::DAC_READ_SEARCH));
        if let Some(volume) = volume::open(context, args, options, prepared)? {
            return Ok(Open::Volume(Box::new(volume)));
        }
        let image = context.prepare(&image_args(args, options))?;
        let image = context.open_prepared(image, trace.map(volume::as_sink))?;
        return Ok(Open::Image(Box::new(image)));
    }
    let image = context.prepare(&image_args(args, options))?;
    context.confine(&sandbox);
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
