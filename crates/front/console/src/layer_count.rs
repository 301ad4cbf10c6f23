//! The number of layers of a container image to use, and the open files that they need.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::RemoteArgs;
use crate::error::{Failure, Result};
use crate::size::{count_of, counted};

/// Limit on open files for a container image, which may have 1,024 layers with nine cache files
/// each.
const OPEN_FILES: u64 = 10_240;

/// Raises the limit on open files of this process, as far as the system allows, before it opens
/// layers of a container image. If that is not enough, opening the remaining layers fails.
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

/// Refuses `--first-layers` for an image without layers.
pub fn refuse_first(args: &RemoteArgs) -> Result<()> {
    match args.first_layers {
        Some(_) => Err(Failure::usage(
            "--first-layers is for container images, and this image has no layers",
        )),
        None => Ok(()),
    }
}

/// Drops the layers above those selected by `--first-layers`.
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
