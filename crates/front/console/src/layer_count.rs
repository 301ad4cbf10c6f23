//! How many layers a container image has: how many are wanted, and the open files that they take.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::RemoteArgs;
use crate::error::{Failure, Result};
use crate::size::{count_of, counted};

/// Open files that a process is allowed for a container image: its layers may be 1,024, each with nine of the cache.
const OPEN_FILES: u64 = 10_240;

/// Allows this process more open files than usual, as far as the system does, before it opens layers of a container
/// image. Where it does not, the layers that do not fit are an error.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(OPEN_FILES);
    if limit.current.is_some_and(|current| current < most) {
        let raised = Rlimit {
            current: Some(most),
            ..limit
        };
        let _stays_as_it_is = setrlimit(Resource::Nofile, raised);
    }
}

/// Refuses `--first-layers` for an image that has none.
pub fn refuse_first(args: &RemoteArgs) -> Result<()> {
    match args.first_layers {
        Some(_) => Err(Failure::usage(
            "--first-layers is for container images: this is one without layers",
        )),
        None => Ok(()),
    }
}

/// Drops the layers above those that `--first-layers` wants.
pub fn only_first<T>(layers: &mut Vec<T>, args: &RemoteArgs) -> Result<()> {
    let Some(wanted) = args.first_layers else {
        return Ok(());
    };
    if wanted.get() > layers.len() {
        let count = counted(count_of(layers.len()), "layer", "layers");
        return Err(Failure::usage(format!(
            "--first-layers {wanted}: the image has {count}"
        )));
    }
    layers.truncate(wanted.get());
    Ok(())
}
