//! Images at servers, mounted by the kernel's own driver while they are being fetched.
//!
//! Unlike for other mounts by the kernel a process stays, as for FUSE: until the image is complete,
//! or the mount has ended. Then, or when everything is in the cache already, no process stays, and none
//! reports the mount.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use forerun::remote::{Opened, RemoteImage};
use forerun::{Image, MountEntry};
use forerun_fuse::MountOptions;
use forerun_kernel::{
    Ended, FillMonitor, FillerCommand, GuardArgs, OnDemand, Resumed, mount_remote, resume_remote,
};
use serde_json::Value;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::report::{self, Report, Shown};
use super::reread::Rereading;
use super::telling::Telling;
use super::{MountArgs, Via, daemon, failed, image_args, open_log, present, via};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::secrets::{self, PassedOn};
use crate::{fetch, remote, socket, umount};

/// Mounts, and fills the mount where that is this process's part. Nothing for all other mounts.
pub fn run(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    chosen: Via,
) -> Result<Option<Exit>> {
    let reference = match chosen {
        Via::Kernel if args.layers.is_empty() => remote::reference(&args.image)?,
        Via::Kernel | Via::Auto | Via::Fuse => None,
    };
    let Some(reference) = reference else {
        return Ok(None);
    };
    let mut of_kernel = args.clone();
    (of_kernel.foreground, of_kernel.log, of_kernel.metrics) = (false, None, None);
    let mut for_kernel = options.clone();
    for_kernel.restarts = MountOptions::default().restarts;
    via::refuse_fuse_only(&of_kernel, &for_kernel)?;
    let resumed = forerun_kernel::resumed();
    let resumed = resumed.map_err(|error| failed("the guard of the mount", &error))?;
    let is_resumed = resumed.is_some();
    let in_background = is_resumed || daemon::is_child();
    if !in_background {
        present::refuse(&args.dir, chosen)?;
        if args.helper.is_some_and(|call| call.fake) {
            context.open_unconfined(&image_args(args, options))?;
            return Ok(Some(Exit::Ok));
        }
        if !args.foreground {
            return daemon::start(None).map(Some);
        }
    } else {
        daemon::leave_job()?;
    }
    let log = args.log.as_deref().map(open_log).transpose()?;
    // Before the mount: a signal that comes in between must not leave one behind.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|error| failed("handling signals", &error))?;
    let Opened::Image(image) = fetch::open_all(context, &reference, &args.remote)? else {
        return Err(via::refuse_layers().of(reference.place()));
    };
    if let Some(log) = log.as_ref().filter(|_| is_resumed) {
        daemon::settle_stderr(Some(log));
    }
    let (mut mount, report) = mount(context, args, options, &image, resumed)?;
    let entry = mount.mounted().entry.clone();
    let told = (entry.clone(), mount.monitor());
    let begun = begin(context, args, signals, told, report, &image).and_then(|telling| {
        match (in_background, is_resumed) {
            (true, false) => daemon::ready(log)?,
            (true, true) => daemon::ready_to_go_on(log)?,
            (false, _) => log_to(log)?,
        }
        Ok(telling)
    });
    // Without this process nothing would fill it.
    let telling = begun.inspect_err(|_| {
        if !is_resumed {
            let _unmounted = umount::take_back(entry.as_ref());
        }
    })?;
    match mount.wait() {
        Ended::Complete => tracing::info!("all of the image is here; the kernel goes on alone"),
        Ended::Unmounted => tracing::info!("unmounted"),
    }
    drop(telling);
    let asked = mount.asked();
    tracing::info!(
        asked.events,
        asked.fetched,
        asked.failed,
        "reads by the kernel"
    );
    Ok(Some(Exit::Ok))
}

fn log_to(log: Option<File>) -> Result<()> {
    let Some(log) = log else { return Ok(()) };
    let redirected = rustix::stdio::dup2_stderr(log);
    redirected.map_err(|error| failed("redirecting standard error", &error.into()))
}

/// Begins what runs beside the filling: signals, status and metrics.
fn begin(
    context: &Context,
    args: &MountArgs,
    signals: Signals,
    (entry, monitor): (Option<MountEntry>, Option<FillMonitor>),
    report: Option<Report>,
    image: &Arc<RemoteImage>,
) -> Result<Option<Telling>> {
    let rereading = Rereading::of(std::slice::from_ref(image), args.remote.clone());
    watch(signals, entry, monitor, rereading)?;
    match report {
        Some(report) => report::begin(report, args, None, false, socket::open()),
        None => {
            if args.metrics.is_some() {
                context.note("all of the image is here: no process stays to serve metrics");
            }
            Ok(None)
        }
    }
}

/// Returns what the guard of the mount is to do if this process dies. A process in the foreground is
/// started again by its caller only.
fn guard_args(args: &MountArgs, options: &MountOptions) -> Result<GuardArgs> {
    let is_replaced = !args.foreground && options.restarts > 0;
    if !is_replaced {
        return Ok(GuardArgs::default());
    }
    let PassedOn { shown, secret } =
        PassedOn::new().map_err(|error| failed("keeping the command line", &error))?;
    let name = secrets::arguments().first().cloned().unwrap_or_default();
    Ok(GuardArgs {
        args: Vec::new(),
        filler: Some(FillerCommand {
            program: daemon::newest_program(),
            args: std::iter::once(name).chain(shown).collect(),
            dir: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            restarts: options.restarts,
            secret,
            secret_variable: PassedOn::VARIABLE.to_string(),
        }),
    })
}

/// Returns the report of the mount, where a process stays.
fn mount(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    remote: &Arc<RemoteImage>,
    resumed: Option<Resumed>,
) -> Result<(OnDemand, Option<Report>)> {
    let open = image_args(args, options).open_options();
    let image = Image::from_source(Arc::<RemoteImage>::clone(remote), &open);
    let image = image.map_err(|error| Failure::from(error).of(remote.place()))?;
    let observer = image.reader().observer();
    context.observe(observer);
    let guard = guard_args(args, options)?;
    let mounted = match resumed {
        Some(resumed) => resume_remote(remote, resumed, guard),
        None => {
            let kernel = via::kernel_options(options);
            mount_remote(&image, remote, &args.dir, &kernel, guard)
        }
    };
    let mounted = mounted.map_err(|error| via::failure(&error, args))?;
    tracing::info!("mounted by the kernel: {}", mounted.mounted());
    let entry = mounted.mounted().entry.as_ref();
    let dir = entry.map_or_else(|| args.dir.clone(), |entry| entry.mount_point.clone());
    let report = mounted.monitor().map(|monitor| {
        let shown = Shown::Kernel {
            monitor,
            observer: Arc::clone(observer),
        };
        let image = remote::shown(&args.image);
        let memory = open.engine.memory_use();
        Report::new(
            &dir,
            image,
            shown,
            vec![Arc::clone(remote)],
            memory,
            Value::Null,
        )
    });
    Ok((mounted, report))
}

/// Handles signals on a thread of its own. The first one unmounts. If the mount is in use it is filled,
/// out of sight, until its last user is gone. The second signal ends the process at once, and the guard
/// fails reads of what is not here. SIGHUP has mirrors and credentials read again.
fn watch(
    mut signals: Signals,
    entry: Option<MountEntry>,
    monitor: Option<FillMonitor>,
    mut rereading: Option<Rereading>,
) -> Result<()> {
    let thread = std::thread::Builder::new().name("signals".to_string());
    let watching = thread.spawn(move || {
        let mut unmounted = false;
        for signal in signals.forever() {
            if signal == SIGHUP {
                if let Some(rereading) = &mut rereading {
                    rereading.ask();
                }
                continue;
            }
            if unmounted {
                if let Some(monitor) = &monitor {
                    monitor.is_last();
                }
                std::process::exit(i32::from(Exit::Interrupted.code()));
            }
            let taken = entry.as_ref();
            match taken.map_or(Ok(()), |entry| forerun_kernel::take_down(entry, true)) {
                Ok(()) => {
                    unmounted = true;
                    tracing::info!(signal, "unmounted; served until the last file is closed");
                }
                Err(error) => tracing::error!("{error}"),
            }
        }
    });
    watching.map_err(|error| failed("watching for signals", &error))?;
    Ok(())
}
