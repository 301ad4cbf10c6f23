//! `--partition` of a mount: sets offset and size of the image from the partition table.
//!
//! Each process of the mount reads the table itself, before it enters its sandbox.

use std::sync::Arc;

use forerun::ReadAt;
use forerun_fuse::MountOptions;
use forerun_io::FileSource;

use super::MountArgs;
use crate::error::{Failure, Result};
use crate::{partition, remote};

/// Returns the value of `partition=` in mount options, or `None` for other words.
pub fn from_option(word: &str) -> Option<Result<u32>> {
    let value = match word.split_once('=') {
        Some(("partition", value)) => value,
        None if word == "partition" => "",
        _ => return None,
    };
    Some(
        value
            .parse()
            .map_err(|_| Failure::usage(format!("mount option partition={value}: not a number"))),
    )
}

/// Sets offset and size of the image to those of a partition.
pub fn set(args: &MountArgs, options: &mut MountOptions, number: u32) -> Result<()> {
    if options.offset != 0 || options.size.is_some() {
        let message = "a partition has its own offset and size: leave one of them out";
        return Err(Failure::usage(message));
    }
    let named = |failure: Failure| failure.of(remote::shown(&args.image));
    let source: Arc<dyn ReadAt> = match remote::reference(&args.image)? {
        Some(reference) => remote::open_for_a_look(&reference, &args.remote)?,
        None => {
            let source = FileSource::open(&args.image);
            Arc::new(source.map_err(|error| named(Failure::source(&error)))?)
        }
    };
    let found = partition::find(&*source, number, options.rescue).map_err(named)?;
    options.offset = found.offset;
    options.size = Some(found.len);
    Ok(())
}
