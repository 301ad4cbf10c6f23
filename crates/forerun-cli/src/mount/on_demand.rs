//! Images at servers, mounted by the kernel's own driver while they are being fetched.
//!
//! Unlike for other mounts by the kernel a process stays, as for FUSE: until the image is complete,
//! or the mount has ended. Then, or when everything is in the cache already, nothing stays.

use std::path::PathBuf;
use std::sync::Arc;

use forerun::Image;
use forerun::remote::RemoteImage;
use forerun_fuse::MountOptions;
use forerun_kernel::{Ended, GuardArgs, OnDemand, mount_remote};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::{MountArgs, Via, daemon, failed, image_args, open_log, present, via};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::remote::{self, RemoteArgs};

/// Mounts, and fills the mount where that is this process's part. Nothing for all other mounts.
pub fn run(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    chosen: Via,
) -> Result<Option<Exit>> {
    let reference = match chosen {
        Via::Kernel => remote::reference(&args.image)?,
        Via::Auto | Via::Fuse => None,
    };
    let Some(reference) = reference else {
        return Ok(None);
    };
    let mut of_kernel = args.clone();
    (of_kernel.foreground, of_kernel.log) = (false, None);
    via::refuse_fuse_only(&of_kernel, options)?;
    let in_background = daemon::is_child();
    if !in_background {
        present::refuse(&args.dir, chosen)?;
        if args.helper.is_some_and(|call| call.fake) {
            context.open(&image_args(args, options))?;
            return Ok(Some(Exit::Ok));
        }
        if !args.foreground {
            return daemon::start().map(Some);
        }
    } else {
        daemon::become_session_leader()?;
    }
    let log = args.log.as_deref().map(open_log).transpose()?;
    // Before the mount: a signal that comes in between must not leave one behind.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let signals = signals.map_err(|error| failed("handling signals", &error))?;
    let image = remote::open(context, &reference, &args.remote)?;
    let (mut mount, dir) = mount(context, args, options, &image)?;
    watch(signals, dir, &image, args.remote.clone())?;
    if in_background {
        daemon::ready(log)?;
    } else if let Some(log) = log {
        let redirected = rustix::stdio::dup2_stderr(log);
        redirected.map_err(|error| failed("redirecting standard error", &error.into()))?;
    }
    match mount.wait() {
        Ended::Complete => tracing::info!("all of the image is here; the kernel goes on alone"),
        Ended::Unmounted => tracing::info!("unmounted"),
    }
    let asked = mount.asked();
    tracing::info!(
        asked.events,
        asked.fetched,
        asked.failed,
        "reads by the kernel"
    );
    Ok(Some(Exit::Ok))
}

fn mount(
    context: &Context,
    args: &MountArgs,
    options: &MountOptions,
    remote: &Arc<RemoteImage>,
) -> Result<(OnDemand, PathBuf)> {
    let open = image_args(args, options).open_options();
    let image = Image::from_source(Arc::<RemoteImage>::clone(remote), &open);
    let image = image.map_err(|error| Failure::from(error).of(remote.place()))?;
    context.observe(image.reader().observer());
    let kernel = via::kernel_options(options);
    let mounted = mount_remote(&image, remote, &args.dir, &kernel, GuardArgs::default());
    let mounted = mounted.map_err(|error| via::failure(&error, args))?;
    tracing::info!("mounted by the kernel: {}", mounted.mounted());
    let dir = args.dir.canonicalize();
    let dir = dir.map_err(|error| failed(&args.dir.display().to_string(), &error))?;
    Ok((mounted, dir))
}

/// The first signal unmounts. If the mount is in use it goes on being filled, out of sight, until
/// its last user is gone. SIGHUP has mirrors and credentials read again.
fn watch(
    mut signals: Signals,
    dir: PathBuf,
    remote: &Arc<RemoteImage>,
    args: RemoteArgs,
) -> Result<()> {
    let remote = Arc::downgrade(remote);
    let thread = std::thread::Builder::new().name("signals".to_string());
    let watching = thread.spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                let Some(remote) = remote.upgrade() else {
                    return;
                };
                match remote.reopen(&args.options()) {
                    Ok(()) => tracing::info!("mirrors and credentials were read again"),
                    Err(error) => tracing::error!("mirrors and credentials stay: {error}"),
                }
                continue;
            }
            match forerun_kernel::umount(&dir, true) {
                Ok(()) => tracing::info!(signal, "unmounted; served until the last file is closed"),
                Err(error) => tracing::error!("{error}"),
            }
        }
    });
    watching.map_err(|error| failed("watching for signals", &error))?;
    Ok(())
}
