//! The words of `-o`: those of the mounting crate, and those of the command.

use forerun_fuse::MountOptions;
use forerun_kernel::Upper;

use super::{MountArgs, Via, is_in_background, partition};
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::nearest::nearest;

pub struct Parsed {
    pub options: MountOptions,
    pub via: Via,
    /// The writable layer of a mount by the kernel.
    pub upper: Option<Upper>,
}

pub fn parse_options(context: &Context, args: &MountArgs) -> Result<Parsed> {
    let usage = |error: forerun_fuse::OptionError| Failure::usage(error.to_string());
    let sloppy = args.helper.is_some_and(|call| call.sloppy);
    let mut options = MountOptions::default();
    options.permissive = args.like.permissive;
    let (mut via, mut partition) = (None, None);
    let (mut upper, mut work) = (None, None);
    for list in &args.options {
        let mut unknown = options.apply_known(list).map_err(usage)?;
        for word in &unknown {
            if let Some(asked) = Via::from_option(word) {
                via = Some(asked?);
            }
            if let Some(asked) = partition::from_option(word) {
                partition = Some(asked?);
            }
            match word.split_once('=') {
                Some(("upperdir", dir)) => upper = Some(dir.into()),
                Some(("workdir", dir)) => work = Some(dir.into()),
                _ => {}
            }
        }
        unknown.retain(|word| !is_own(word));
        match unknown.first() {
            Some(_) if sloppy && !is_in_background() => {
                let unknown = unknown.join(", ");
                context.note(&format!("unknown mount options are ignored: {unknown}"));
            }
            Some(word) if !sloppy => {
                let failure = Failure::usage(format!("unknown mount option {word:?}"));
                return Err(failure.hint(match option_meant(word) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "forerun mount --help-all lists the mount options".to_string(),
                }));
            }
            _ => {}
        }
    }
    let via = args.via.or(via).unwrap_or_default();
    if let Some(number) = args.partition.or(partition) {
        partition::set(args, &mut options, number)?;
    }
    let upper = match (upper, work) {
        (Some(dir), Some(work)) => Some(Upper { dir, work }),
        (None, None) => None,
        _ => {
            let message = "upperdir= and workdir= are given together or not at all";
            return Err(Failure::usage(message));
        }
    };
    Ok(Parsed {
        options,
        via,
        upper,
    })
}

const OWN: [&str; 4] = ["via=", "partition=", "upperdir=", "workdir="];

/// Returns the words of all mount options. Those with a value end with `=`.
pub fn option_words() -> Vec<String> {
    let own = OWN.map(str::to_string);
    forerun_fuse::option_words().chain(own).collect()
}

/// Returns the mount option that an unknown word may mean.
fn option_meant(word: &str) -> Option<String> {
    let name = word.split('=').next().unwrap_or(word);
    let words = option_words();
    let names = words.iter().map(|word| word.trim_end_matches('='));
    let meant = nearest(name, names)?;
    words
        .iter()
        .find(|word| word.trim_end_matches('=') == meant)
        .cloned()
}

/// Returns whether a mount option belongs to the command. The mounting crate does not know it.
fn is_own(word: &str) -> bool {
    let is_layer = word.starts_with("upperdir=") || word.starts_with("workdir=");
    is_layer || Via::from_option(word).is_some() || partition::from_option(word).is_some()
}
