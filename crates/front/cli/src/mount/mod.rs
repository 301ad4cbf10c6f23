//! `forerun mount`, also as the helper of mount(8).
//!
//! Without `-f`, a background process serves the mount (see [`daemon`]), and this one returns when
//! the mount answers or with the error.

mod args;
mod command;
mod daemon;
mod handover;
mod help;
mod helper;
mod idle;
#[cfg(feature = "network")]
mod metrics;
mod outside;
mod partition;
mod present;
mod report;
mod reread;
mod sandbox;
mod supervisor;
mod telling;
mod via;
mod volume;
mod words;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use forerun::unstable::locks::Locking;
use forerun::unstable::remote::RemoteImage;
use forerun_engine::MemoryUse;
use forerun_fuse::{
    Channel, Ending, FromServer, Mount, MountError, MountOptions, Unmounted, Unmounter,
};
use forerun_io::OutputFile;
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{ImageArgs, LimitArgs, SourceArgs, StoreArgs, is_stdin};
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::remote;
use crate::socket::{self, Unnamed};

use handover::Succession;
use report::{Report, Shown};
use reread::Rereading;
use sandbox::Open;
use telling::Telling;

pub use args::{HelperCall, LikeOther, MountArgs};
#[cfg(feature = "snapshotter")]
pub use daemon::newest_program;
pub use daemon::{is_in_background, program};
pub use help::MOUNT_OPTIONS;
pub use helper::{as_mount_helper, as_umount_helper, helper_status};
pub use supervisor::run_supervisor;
pub use via::Via;
pub use words::option_words;
use words::{Parsed, parse_options};

/// Mounts. In the foreground, returns when the mount has ended, otherwise when it answers. With a
/// command, returns when the command has ended.
pub fn run(context: &Context, args: &MountArgs) -> Result {
    match args.command.as_slice() {
        [] => mount(context, args),
        [program, words @ ..] => command::run(context, args, program, words),
    }
}

fn mount(context: &Context, args: &MountArgs) -> Result {
    let Parsed {
        mut options,
        via,
        upper,
    } = parse_options(context, args)?;
    if outside::is_it() {
        return outside::run(args, &mut options);
    }
    let mut images = args.layers.iter().chain([&args.image]);
    if images.any(|image| is_stdin(image)) {
        let hint = "save it to a file first (./- names a file called -)";
        return Err(Failure::usage("standard input cannot be mounted").hint(hint));
    }
    #[cfg(not(feature = "network"))]
    for image in args.layers.iter().chain([&args.image]) {
        let _is_a_file = remote::reference(image)?;
    }
    if options.remount {
        let is_fake = args.helper.is_some_and(|call| call.fake);
        return if is_fake {
            Ok(Exit::Ok)
        } else {
            remount(args, &options)
        };
    }
    let kept = handover::kept()?;
    let in_background = is_in_background();
    // Held until the mount answers.
    let _turn = (args.if_needed && !in_background).then(|| present::wait_turn(&args.dir));
    if !in_background {
        if let Some(exit) = present::check(context, args, &options, via)? {
            return Ok(exit);
        }
        if let Some(exit) = via::by_kernel(context, args, &options, via, upper.as_ref())? {
            return Ok(exit);
        }
    }
    if !args.foreground && !in_background {
        if args.helper.is_some_and(|call| call.fake) {
            context.open_unconfined(&image_args(args, &options))?;
            return Ok(Exit::Ok);
        }
        let supervisor = (!handover::is_alone(args, &options)).then(|| daemon::SupervisorArgs {
            restarts: options.restarts,
            verbose: context.global.verbose,
            log: args.log.clone(),
            used: daemon::used_devices(args, &options),
            ends_with_caller: !args.command.is_empty(),
            dir: args.dir.clone().into(),
        });
        return daemon::start(supervisor.as_ref(), &args.dir, !args.command.is_empty());
    }
    serve(context, args, options, kept, in_background)
}

/// Mounts in this process, which is a foreground process or was started in the background. Returns
/// when the mount has ended.
fn serve(
    context: &Context,
    args: &MountArgs,
    mut options: MountOptions,
    kept: Option<handover::Kept>,
    in_background: bool,
) -> Result {
    let log = args.log.as_deref().map(open_log).transpose()?;
    if in_background {
        daemon::leave_job()?;
        options.namespace = match &kept {
            Some(_) => daemon::named_namespace(),
            None => daemon::leave_namespace(daemon::used_devices(args, &options).as_deref())?,
        };
    }
    // Handlers are installed before mounting, so that a signal in between does not leave the mount
    // behind.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|error| failed("handling signals", &error))?;
    let caller = daemon::ends_with_caller().then(daemon::caller).flatten();
    let trace = args.trace.as_deref().map(volume::trace).transpose()?;
    if options.fsname.is_none() {
        options.fsname = Some(fsname(args));
    }
    let (supervisor, inherited) = match kept {
        Some(kept) => (Some(kept.supervisor), kept.inherited),
        None => (None, None),
    };
    let is_successor = inherited.is_some();
    let supervisor = supervisor.map(|supervisor| (supervisor, is_successor));
    let socket = socket::open();
    let kept = (supervisor.is_some(), inherited);
    let (trace_to, log_to) = (trace.as_ref(), log.as_ref());
    let open = sandbox::open(context, args, &mut options, trace_to, log_to, kept, &socket)?;
    let lifeline = forerun_fuse::lifeline();
    let lifeline = lifeline.map_err(|error| failed("a thread for others to watch", &error))?;
    if let Some((supervisor, _)) = &supervisor {
        let told = FromServer::lifeline(supervisor, lifeline.as_fd());
        told.map_err(|error| failed("the socket of the supervisor", &error))?;
    }
    let mounted = mount_open(context, args, &options, open, supervisor, log_to)?;
    let (mut mount, succession) = mounted;
    if let (None, Some(outside)) = (succession.supervisor(), &options.outside) {
        let watched = outside.watch(lifeline.as_fd());
        watched.map_err(|error| failed("the process that mounts", &error))?;
    }
    drop(lifeline);
    if let Some(caller) = caller {
        command::end_with(caller, mount.unmounter())?;
    }
    let remotes = context.remotes();
    watch(
        signals,
        mount.unmounter(),
        mount.ending(),
        Arc::clone(&succession),
        Rereading::of(&remotes, args.remote.clone()),
    )?;
    if let Some(time) = args.like.idle {
        idle::watch(&mount, time)?;
    }
    let memory = image_args(args, &options)
        .open_options()
        .engine
        .memory_use();
    let shown = (remotes, memory, context.confinement.json());
    let _until_the_end = tell(args, &mount, shown, &succession, (is_successor, socket))?;
    leave_the_terminal(log, is_successor, in_background)?;
    let ended = mount.wait();
    succession.done();
    print_requests(context, &mount);
    let traced = trace.map_or(Ok(()), |trace| trace.flush());
    ended.map_err(|error| mount_failure(&error, args))?;
    traced.map_err(|error| Failure::output(&error).of("--trace"))?;
    Ok(Exit::Ok)
}

/// Tells the caller that the mount is ready, and redirects standard error to the log. After that,
/// only a foreground process without a log writes to the terminal.
fn leave_the_terminal(log: Option<File>, is_successor: bool, in_background: bool) -> Result<()> {
    if is_successor {
        daemon::ready_to_go_on(log)?;
    } else if in_background {
        daemon::ready(log)?;
    } else if let Some(log) = log {
        let redirected = rustix::stdio::dup2_stderr(log);
        redirected.map_err(|error| failed("redirecting standard error", &error.into()))?;
    }
    Ok(())
}

fn remount(args: &MountArgs, options: &MountOptions) -> Result {
    let done = forerun_fuse::remount(&args.dir, options);
    done.map_err(|error| mount_failure(&error, args))?;
    Ok(Exit::Ok)
}

fn tell(
    args: &MountArgs,
    mount: &Mount,
    (remotes, memory, sandbox): (Vec<Arc<RemoteImage>>, MemoryUse, Value),
    succession: &Arc<Succession>,
    (is_successor, socket): (bool, io::Result<Unnamed>),
) -> Result<Option<Telling>> {
    let shown = Shown {
        monitor: mount.monitor(),
        device: succession.device(),
        supervisor: succession.supervisor(),
    };
    let image = image_name(args);
    let report = Report::new(mount.path(), image, shown, remotes, memory, sandbox);
    report::begin(report, args, Some(succession), is_successor, socket)
}

/// Mounts what is open, or takes the mount over from another process.
fn mount_open(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    open: Open,
    supervisor: Option<(Arc<Channel>, bool)>,
    log: Option<&File>,
) -> Result<(Mount, Arc<Succession>)> {
    let (mounted, identity) = match open {
        Open::Volume {
            volume,
            identity,
            turn,
        } => {
            let volume = volume.volume().clone();
            let mounted = match turn {
                None => forerun_fuse::mount_volume(volume, &args.dir, options),
                Some(turn) => forerun_fuse::take_over_volume(volume, turn, options),
            };
            (mounted, identity)
        }
        Open::Image { image, inherited } => {
            let identity = handover::identity(args, options, &context.remotes());
            let settle = || daemon::settle_stderr(log);
            let mounted = match inherited {
                None => forerun_fuse::mount(&image, &args.dir, options),
                Some(inherited) => {
                    forerun_fuse::take_over(&image, inherited, &identity, options, settle)
                }
            };
            (mounted, identity)
        }
    };
    let mount = mounted.map_err(|error| mount_failure(&error, args))?;
    let succession = Succession::new(args, &mount, &identity, supervisor)?;
    Ok((mount, succession))
}

/// Creates the failure for a resource, besides the mount itself, that the system refused.
fn failed(what: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Mount, "mount", format!("{what}: {}", reason(error)))
}

fn image_args(args: &MountArgs, options: &MountOptions) -> ImageArgs {
    ImageArgs {
        image: args.image.clone(),
        layers: args.layers.clone(),
        source: SourceArgs {
            format: args.format.clone(),
            offset: options.offset,
            size: options.size,
            partition: None,
            device: options.devices.clone(),
            store: StoreArgs {
                objects: options.objects.clone(),
                base_dirs: options.base_dirs.clone(),
                verity: Some(options.verity.into()),
                digest: options.digest.clone(),
            },
            readahead: options.readahead,
            cache: options.cache,
            threads: options.threads.and_then(|n| u16::try_from(n).ok()),
            no_lock: options.locking == Locking::Ignore,
            remote: args.remote.clone(),
            rescue: options.rescue,
            tz: None,
            ownership: options.ownership(),
            legacy_blocks: !options.large_blocks,
        },
        limits: LimitArgs::default(),
    }
}

fn image_name(args: &MountArgs) -> String {
    match args.layers.as_slice() {
        [] => remote::shown(&args.image),
        layers => crate::layers::shown(layers),
    }
}

/// Returns the image's name for `df`: its absolute path if possible.
fn fsname(args: &MountArgs) -> String {
    let image = &args.image;
    if remote::is_remote(image) || !args.layers.is_empty() {
        return image_name(args).replace('\n', "?");
    }
    let path = image.canonicalize().unwrap_or_else(|_| image.to_path_buf());
    path.display().to_string().replace('\n', "?")
}

fn open_log(path: &Path) -> Result<File> {
    let file = OutputFile::Append.open(path);
    file.map_err(|error| Failure::output(&error).of(path.display()))
}

fn mount_failure(error: &MountError, args: &MountArgs) -> Failure {
    let failure = Failure::new(
        Exit::Mount,
        "mount",
        crate::error::without_errno(&error.to_string()),
    );
    match error {
        MountError::Root(error) => Failure::from(error.clone())
            .of(args.image.display())
            .at(b"/"),
        error => failure.maybe_hint(error.hint().as_deref()),
    }
}

/// Handles signals in a thread. The first one unmounts. If the mount is in use, it is detached and
/// served until its last user has closed it, but no request then waits longer than a second for the
/// source. The second signal ends the process at once.
///
/// SIGHUP reads the mirrors and credentials of a remote image again.
fn watch(
    mut signals: Signals,
    unmounter: Unmounter,
    ending: Ending,
    succession: Arc<Succession>,
    mut rereading: Option<Rereading>,
) -> Result<()> {
    let thread = std::thread::Builder::new().name("signals".to_string());
    let watching = thread.spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if let Some(rereading) = rereading.as_mut().filter(|_| signal == SIGHUP) {
                rereading.ask();
                continue;
            }
            if asked {
                succession.done();
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            asked = true;
            if forerun_fuse::is_descriptor(unmounter.path()) {
                // Another program made the mount; the connection ends with this process.
                succession.done();
                std::process::exit(i32::from(Exit::Ok.code()));
            }
            match unmounter.unmount() {
                Ok(Unmounted::Done) => tracing::info!(signal, "unmounted"),
                Ok(Unmounted::StillInUse) => {
                    ending.begin();
                    tracing::warn!(
                        "the mount is in use: it was detached, and is served until the last file is closed; reads that would wait for the source fail; another signal ends it now"
                    );
                    end_if_stuck(ending.clone(), Arc::clone(&succession));
                }
                Err(error) => tracing::error!("{error}"),
            }
        }
    });
    watching.map_err(|error| failed("watching for signals", &error))?;
    Ok(())
}

/// Ends the process soon if a request hangs in the source and cannot be cancelled.
fn end_if_stuck(ending: Ending, succession: Arc<Succession>) {
    let thread = std::thread::Builder::new().name("ending".to_string());
    let waiting = thread.spawn(move || {
        if ending.hangs() {
            tracing::error!("the source hangs: open files can no longer be served");
            succession.done();
            std::process::exit(i32::from(Exit::Interrupted.code()));
        }
    });
    if let Err(error) = waiting {
        tracing::warn!("waiting for what hangs: {error}");
    }
}

/// Prints the counts of the kernel's requests, for `--stats`. The engine's counters are printed
/// afterwards, as for every command.
fn print_requests(context: &Context, mount: &Mount) {
    use std::io::Write;
    if !context.global.stats {
        return;
    }
    let requests = mount.requests();
    let mut stderr = io::stderr().lock();
    // If standard error is gone, nothing can be reported.
    let _ = if context.global.json {
        let counts = requests
            .iter()
            .map(|(kind, n)| (kind.name().to_string(), n.into()));
        let counts = Value::Object(counts.collect());
        writeln!(stderr, "{}", serde_json::json!({ "fuse_requests": counts }))
    } else {
        write!(stderr, "{requests}")
    };
}
