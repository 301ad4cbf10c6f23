//! `forerun run IMAGE -- CMD`: a command whose root directory is an image.
//!
//! Three processes take part. This one opens the image and serves it, as `mount -f` does. The
//! second is process 1 of a PID namespace ([`init`]): it builds the root directory from the served
//! image, an overlayfs and parts of the system ([`root`]), and starts the third, which becomes the
//! command ([`command`]). All of them run in a user namespace, so that every user may do this. The
//! command has another user namespace below it, in which it can change none of the mounts. When the
//! command ends, process 1 ends, and the kernel ends all remaining processes of the command and all
//! mounts. If this process dies, process 1 finds its socket closed and ends too.
//!
//! The mounts exist only in the mount namespaces of process 1 and of the command. No other process
//! ever sees them.

mod attach;
mod changes;
mod child;
mod command;
mod ids;
mod init;
mod plan;
mod root;
mod skeleton;
mod system;

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use forerun_fuse::{Detached, Mount, MountError, MountOptions};
use forerun_sandbox::{Capabilities, Sandbox, Sockets};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::args::{ImageArgs, is_stdin};
use crate::at_server::at_server;
use crate::confine::for_images;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::{names, objects, remote};

use changes::OverlayDir;
use child::Child;
use ids::{MapWriter, Namespace};
use plan::{Overlay, RunPlan};

pub use command::become_command;
pub use ids::run_map_writer;
pub use init::run_init;

/// Run a command with an image as its root directory
///
/// The command sees the files of the image, /proc, /dev, /sys, an empty /tmp, and the directories
/// and files of --bind. It runs as root of a user namespace and needs no privilege outside. When it
/// ends, all processes that it started end too, and nothing stays mounted.
///
/// IMAGE:IMAGE shows several image files as one tree, the lowest first. For images at servers, whose names
/// contain colons, use --layer.
#[derive(Args, Clone, Debug)]
#[command(after_help = concat!("\
Examples:
  forerun run alpine.sqsh -- sh   look around, read-only
  forerun run --overlay tmpfs ", at_server!("oci://docker.io/debian:13", "oci-layout:debian"), " -- sh   discard changes
  forerun run --overlay work base.sif:tools.sqsh -- make   keep changes in work
  forerun run --bind ~/data:/data:ro tool.sif -- tool /data

Exit status: the status of the command, or 128 plus the number of the signal
that ended it; 127 if it does not exist, 126 if it cannot be run; 7 if the
namespaces or mounts could not be made."))]
pub struct RunArgs {
    /// Let the command change files; keep the changes in DIR, or discard them at the end (tmpfs)
    #[arg(long, value_name = "DIR|tmpfs", value_hint = ValueHint::DirPath)]
    pub overlay: Option<PathBuf>,
    /// Show FROM, a file or directory of the system, at the path TO, read-only with :ro; repeat for
    /// more
    #[arg(long = "bind", value_name = "FROM[:TO[:ro]]", value_hint = ValueHint::AnyPath)]
    pub binds: Vec<OsString>,
    /// Working directory of the command
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub chdir: PathBuf,
    #[command(flatten)]
    pub image: ImageArgs,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub command: Vec<OsString>,
}

/// Signals that the command gets instead of this process.
const PASSED_ON: [i32; 6] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2];

pub fn run(context: &Context, args: &RunArgs) -> Result {
    let image = images(&args.image)?;
    let plan = RunPlan::of(args, image_name(&image))?;
    // Handlers are installed first, because a signal must end the command at any time.
    let signals = Signals::new(PASSED_ON.into_iter().chain([SIGCHLD]));
    let mut signals = signals.map_err(|error| failed("handling signals", &error))?;
    let writer = MapWriter::start()?;
    let prepared = context.prepare(&image)?;
    let changes = match &plan.overlay {
        Overlay::Directory(dir) => Some(OverlayDir::open(dir)?),
        Overlay::None | Overlay::Memory => None,
    };
    // This process could not mount them inside the user namespace.
    let connections = forerun_fuse::Connections::open().ok();
    Namespace::enter(writer)?;
    let options = mount_options(&plan);
    let Detached { connection, mount } = forerun_fuse::detached(
        options.fsname.as_deref().unwrap_or_default().as_ref(),
        &options,
    )
    .map_err(|error| match error {
        MountError::Detached(error) => namespace_failure("mounting the image", &error),
        error => mount_failure(&error),
    })?;
    let abort = connections.and_then(|connections| connections.abort_of_mount(&mount).ok());
    let mut child = Child::start(&plan)?;
    context.confine(&prepared.with_index(sandbox(&image, changes.as_ref())));
    let opened = context.open_prepared(prepared, None)?;
    if image.source.store.dirs().next().is_none() {
        objects::refuse_without_store(
            &opened,
            "--objects DIR names the directory with the objects",
        )?;
    }
    let dir = PathBuf::from(format!("/dev/fd/{}", connection.as_raw_fd()));
    let served = forerun_fuse::mount(&opened, &dir, &options);
    let served = served.map_err(|error| mount_failure(&error))?;
    drop(connection);
    child.begin(mount.as_fd())?;
    child.watch_over(abort)?;
    // The mount ends with its last user.
    drop(mount);
    let ended = child.wait(&mut signals);
    if let Some(changes) = changes {
        changes.close();
    }
    end(served);
    ended.map(Exit::OfCommand)
}

/// Ends a mount that no process uses any more.
fn end(served: Mount) {
    // Its threads may wait for a server that does not answer. They end with the process, which
    // exits now.
    std::mem::forget(served);
}

/// Returns the arguments for opening the images. `a:b` names two layers, unless a file has that
/// name.
fn images(args: &ImageArgs) -> Result<ImageArgs> {
    let mut args = args.clone();
    if args.layers.is_empty() && is_list(&args.image) {
        args.layers = split(&args.image)?;
        let single = [
            (args.source.format.is_some(), "--format"),
            (args.source.offset > 0, "--offset"),
            (args.source.size.is_some(), "--size"),
            (args.source.partition.is_some(), "--partition"),
            (!args.source.device.is_empty(), "--device"),
        ];
        if let Some((_, option)) = single.iter().find(|(is_given, _)| *is_given) {
            let message = format!("{option} is for one image, but several are given");
            return Err(Failure::usage(message));
        }
    }
    if args.images().iter().any(|image| is_stdin(image)) {
        let hint = "save it to a file first (./- names a file called -)";
        return Err(Failure::usage(
            "standard input belongs to the command, so it cannot be the image",
        )
        .hint(hint));
    }
    Ok(args)
}

fn is_list(image: &Path) -> bool {
    let text = image.as_os_str().as_encoded_bytes();
    text.contains(&b':')
        && !remote::is_remote(image)
        && forerun::unstable::DiskImage::parse(image).is_none()
        && !image.exists()
}

fn split(list: &Path) -> Result<Vec<PathBuf>> {
    let parts = plan::split(list.as_os_str(), b':');
    let parts: Vec<_> = parts.into_iter().map(PathBuf::from).collect();
    let text = list.to_string_lossy();
    if parts.iter().any(|part| part.as_os_str().is_empty()) || text.contains("://") {
        let message = "neither a file nor a list of files".to_string();
        let hint = "give each image with --layer; this also works for images at servers";
        return Err(Failure::usage(message).hint(hint).of(list.display()));
    }
    if !parts.iter().any(|part| part.exists())
        && let Some(hint) = names::in_registry(&text)
    {
        let message = "neither a file nor a list of files";
        return Err(Failure::usage(message).hint(hint).of(list.display()));
    }
    Ok(parts)
}

fn mount_options(plan: &RunPlan) -> MountOptions {
    let mut options = MountOptions::default();
    options.fsname = Some(plan.name.replace('\n', "?"));
    options
}

fn sandbox(image: &ImageArgs, changes: Option<&OverlayDir>) -> Sandbox {
    let mut sandbox = for_images(image)
        .sockets(Sockets::Open)
        .read("/proc")
        .write_file("/dev/null");
    for store in image.source.store.dirs() {
        sandbox = sandbox.lend(store).keep(Capabilities::SYS_ADMIN);
    }
    match changes {
        Some(changes) => changes.sandbox(sandbox),
        None => sandbox,
    }
}

fn mount_failure(error: &MountError) -> Failure {
    let message = crate::error::without_errno(&error.to_string());
    Failure::new(Exit::Mount, "mount", message).maybe_hint(error.hint().as_deref())
}

/// Creates the failure for a resource that the system refused.
fn failed(what: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Mount, "run", format!("{what}: {}", reason(error)))
}

/// Creates the failure for an operation that needs user namespaces.
fn namespace_failure(what: &str, error: &std::io::Error) -> Failure {
    let failure = failed(what, error);
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => failure.hint(
            "this system restricts user namespaces: see sysctl kernel.unprivileged_userns_clone, \
             kernel.apparmor_restrict_unprivileged_userns, or the rules of the container",
        ),
        std::io::ErrorKind::StorageFull => failure.hint(
            "this system allows no more user namespaces: see sysctl user.max_user_namespaces",
        ),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_images() {
        let layers = |image: &str| {
            let args = ImageArgs {
                image: image.into(),
                ..ImageArgs::default()
            };
            let told = images(&args).map_err(|failure| failure.to_string());
            told.map(|args| {
                let names = args.images().iter().map(|name| name.display().to_string());
                names.collect::<Vec<_>>().join(" ")
            })
        };
        for (image, expected) in [
            ("a.sqsh", "a.sqsh"),
            ("a.sqsh:dir/b.tar:c", "a.sqsh dir/b.tar c"),
            ("oci://host:5000/name:tag", "oci://host:5000/name:tag"),
            ("oci-layout:dir:tag", "oci-layout:dir:tag"),
        ] {
            assert_eq!(layers(image).as_deref(), Ok(expected));
        }
        for image in ["a::b", ":a", "a:", "a.sqsh:oci://host/b", "-"] {
            assert!(layers(image).is_err(), "{image}");
        }
    }
}
