//! The sandbox of a process that serves a mount: the access it keeps, and the files it opens before
//! entering the sandbox.

use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun::Image;
use forerun::unstable::VolumeMut;
use forerun_fuse::{Inherited, MountOptions, StateFile, Turn};
use forerun_pictures::TraceWriter;
use forerun_sandbox::{Capabilities, Sandbox, Sockets};

use super::{MountArgs, daemon, failed, handover, image_args, mount_failure, outside, volume};
use crate::confine::for_images;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::socket::Unnamed;
use crate::{objects, source};

pub enum Open {
    Image {
        image: Box<Image>,
        /// The mount that this process takes over.
        inherited: Option<Inherited>,
    },
    /// Also for writing.
    Volume {
        volume: Box<VolumeMut>,
        /// Computed before the process was confined, which may block access to the file's
        /// directory.
        identity: Vec<u8>,
        /// The mount that this process takes over from an ended process.
        turn: Option<Turn>,
    },
}

/// Starts the helper process that mounts and unmounts for this one, and prepares the mount.
fn start_outside(
    context: &Context,
    args: &MountArgs,
    options: &mut MountOptions,
    inherited: Option<&Inherited>,
) -> Result<()> {
    // The caller has mounted already, and will unmount.
    let is_made = forerun_fuse::is_descriptor(&args.dir);
    if (!context.global.no_sandbox || options.auto_unmount) && !is_made {
        if inherited.is_none() {
            let prepared = forerun_fuse::prepare_mountpoint(&args.dir, options);
            prepared.map_err(|error| mount_failure(&error, args))?;
        }
        let outside = outside::start(&args.dir, options)?;
        let adopted = inherited.map(|inherited| outside.adopt(inherited));
        let adopted = adopted.transpose();
        adopted.map_err(|error| failed("taking the mount over", &error))?;
        options.outside = Some(outside);
    }
    Ok(())
}

/// Opens the files of the mount and then, in the sandbox, parses their contents. `is_kept` means
/// that another process holds the mount as well.
pub fn open(
    context: &Context,
    args: &MountArgs,
    options: &mut MountOptions,
    trace: Option<&Arc<TraceWriter>>,
    log: Option<&File>,
    (is_kept, inherited): (bool, Option<Inherited>),
    socket: &io::Result<Unnamed>,
) -> Result<Open> {
    let mut sandbox = sandbox(args, options);
    if let Ok(socket) = socket {
        sandbox = sandbox.name_files_in(socket.directory());
    }
    let prepared = match inherited {
        None => volume::prepare(context, args, options, trace)?,
        Some(inherited) if inherited.is_volume() => {
            return open_again(context, args, options, &sandbox, (inherited, log));
        }
        // A mount of an image stays one, even if the image could now be mounted as a volume.
        Some(_) => None,
    };
    if let Some(prepared) = prepared {
        refuse_descriptor(args)?;
        // The lock for reading first looks for devices that are made from the file.
        let sandbox = sandbox.read("/sys");
        let identity = handover::identity_of_volume(args);
        begin_state(is_kept, options)?;
        start_outside(context, args, options, None)?;
        context.confine(&sandbox);
        let readable = match volume::open(context, args, options, prepared)? {
            Ok(volume) => {
                return Ok(Open::Volume {
                    volume: Box::new(volume),
                    identity,
                    turn: None,
                });
            }
            Err(readable) => readable,
        };
        let image = source::prepare_file(&image_args(args, options), readable)?;
        return open_image(context, image, trace, None);
    }
    let needs_store = inherited.is_none() && options.stores().next().is_none();
    if options.stores().next().is_some() {
        begin_state(is_kept && inherited.is_none(), options)?;
    }
    let image = context.prepare(&image_args(args, options))?;
    start_outside(context, args, options, inherited.as_ref())?;
    context.confine(&image.with_index(sandbox));
    let opened = open_image(context, image, trace, inherited)?;
    match &opened {
        Open::Image { image, .. } if needs_store => {
            let hint = "-o objects=DIR names the directory with the objects";
            objects::refuse_without_store(image, hint)?;
        }
        _ => {}
    }
    Ok(opened)
}

/// Refuses to change a volume through another program's mount. forerun does not unmount it, and a
/// signal would end it before the last changes are written.
fn refuse_descriptor(args: &MountArgs) -> Result<()> {
    if !forerun_fuse::is_descriptor(&args.dir) {
        return Ok(());
    }
    let message = "a writable volume can be mounted on a directory only";
    Err(Failure::usage(message).hint("-o ro shows it on a descriptor"))
}

/// Creates the state table for the next server, if there can be one.
fn begin_state(is_kept: bool, options: &mut MountOptions) -> Result<()> {
    if is_kept {
        let state = StateFile::new();
        options.state = Some(state.map_err(|error| failed("a file in memory", &error))?);
    }
    Ok(())
}

fn open_image(
    context: &Context,
    image: source::PreparedImage,
    trace: Option<&Arc<TraceWriter>>,
    inherited: Option<Inherited>,
) -> Result<Open> {
    let image = context.open_prepared(image, trace.map(volume::as_sink))?;
    Ok(Open::Image {
        image: Box::new(image),
        inherited,
    })
}

/// Opens a volume whose mount this process takes over, once the old process has ended. Everything
/// that does not need the volume is done before that, because the volume is not served meanwhile.
fn open_again(
    context: &Context,
    args: &MountArgs,
    options: &mut MountOptions,
    sandbox: &Sandbox,
    (inherited, log): (Inherited, Option<&File>),
) -> Result<Open> {
    let identity = handover::identity_of_volume(args);
    start_outside(context, args, options, Some(&inherited))?;
    let turn = inherited.wait(&identity, || daemon::settle_stderr(log));
    let turn = turn.map_err(|error| mount_failure(&error, args))?;
    let prepared = volume::prepare_again(args, options)?;
    context.confine(sandbox);
    let volume = volume::recover(context, args, options, prepared, turn.was_clean())?;
    Ok(Open::Volume {
        volume: Box::new(volume),
        identity,
        turn: Some(turn),
    })
}

/// Returns the sandbox of a serving process: the open sockets and pipes, and `/proc`, to look up
/// the CPUs of requesting threads.
fn sandbox(args: &MountArgs, options: &MountOptions) -> Sandbox {
    let image = image_args(args, options);
    let mut sandbox = for_images(&image)
        .sockets(Sockets::Open)
        .read("/proc")
        .write_file("/dev/null");
    if args.metrics.is_some() {
        sandbox = sandbox.sockets(Sockets::New);
    }
    for store in options.stores() {
        // Object files are passed to the kernel, which reads them itself.
        sandbox = sandbox.lend(store).keep(Capabilities::SYS_ADMIN);
    }
    sandbox
}
