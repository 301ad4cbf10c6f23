//! `forerun umount`: takes mounts down, those of killed processes included.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun_fuse::UmountOptions;

use crate::context::Context;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;

/// Unmount what forerun mounted, also where the serving process was killed
#[derive(Args, Clone, Debug)]
pub struct UmountArgs {
    /// If it is in use, hide it now and end it when the last user is gone
    #[arg(short, long)]
    pub lazy: bool,
    /// Unmount even what is not one of forerun's mounts
    #[arg(long)]
    pub force: bool,
    /// Where it is mounted
    #[arg(required = true, value_hint = ValueHint::DirPath)]
    pub dirs: Vec<PathBuf>,
}

/// Unmounts all of them, as far as possible.
pub fn run(context: &Context, args: &UmountArgs) -> Result {
    let options = UmountOptions {
        lazy: args.lazy,
        force: args.force,
    };
    let mut exit = Exit::Ok;
    for dir in &args.dirs {
        let by_kernel = crate::mount::umount_by_kernel(dir, args.lazy);
        let taken = by_kernel.unwrap_or_else(|| {
            forerun_fuse::umount(dir, options).map_err(|error| {
                let message = without_errno(&error.to_string());
                Failure::new(Exit::Mount, "umount", message)
            })
        });
        if let Err(failure) = taken {
            exit = exit.and(context.report(&failure));
        }
    }
    Ok(exit)
}
