//! `forerun index`: indexes of a container image's layers, for other machines.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun::unstable::cache::AccessList;
use forerun::unstable::image_index;
use forerun::unstable::remote::{
    ImageIndex, Opened, Prefetch, Reference, RemoteOptions, Sidecar, access_lists, push_sidecar,
};

use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size::{self, count_of, counted};
use crate::target::Target;
use crate::{fetch, interrupt, remote};

/// Index the layers of a container image, so that other machines can read parts of them
///
/// Other machines use the indexes with --layer-index FILE, or with --referrers if --push has stored them in
/// the registry. They then fetch only the parts of the layers that are read. To make an index, a layer is
/// fetched and verified, unless the cache has its index. A layer with a table of contents needs no index. A
/// layer that is one long Zstandard frame cannot have one.
///
/// With --prefetch LIST, the index includes the list, and every machine that uses the index fetches
/// the chunks of the list first. --push stores a list even if no layer needs an index.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun index oci://registry.example/app:1.0 app.index
  forerun mount --layer-index app.index oci://registry.example/app:1.0 /mnt
  forerun index --push --prefetch used.txt oci://registry.example/app:1.0
  forerun mount --referrers oci://registry.example/app:1.0 /mnt")]
pub struct IndexArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// File to write
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "push")]
    pub output: Option<PathBuf>,
    /// Store the indexes in the registry, next to the image
    #[arg(long)]
    pub push: bool,
    /// Replace OUTPUT if it exists
    #[arg(short, long)]
    pub force: bool,
}

pub fn run(context: &Context, args: &IndexArgs) -> Result {
    let name = image_name(&args.image);
    let not_in_registry = || {
        let failure =
            Failure::usage("not the address of a container image in a registry").of(&name);
        failure.hint("give a name such as oci://HOST/NAME:TAG")
    };
    let reference = remote::reference(&args.image.image)?.ok_or_else(not_in_registry)?;
    refuse(args)?;
    interrupt::defer();
    let prepared = context.prepare(&args.image)?;
    let output = args.output.as_deref();
    let target = output.map(|output| Target::create(output, args.force, "an index"));
    let target = target.transpose()?;
    let sandbox = prepared.sandbox();
    context.confine(&match &target {
        Some(target) => target.sandbox(sandbox),
        None => sandbox,
    });
    let options = args.image.source.remote.options();
    let lists = match &options.prefetch {
        Prefetch::List(path) => access_lists(path).map_err(|error| remote::failure(&error))?,
        Prefetch::None | Prefetch::All => Vec::new(),
    };
    // Opening the image makes the indexes; opening it again finds them.
    drop(context.open_prepared(prepared, None)?);
    let opened = fetch::open_all(context, &reference, &args.image.source.remote)?;
    let Opened::Layers(layers) = opened else {
        return Err(not_in_registry());
    };
    // A list is recorded for each layer, even if nothing of it was read.
    let of_image = |list: &AccessList| {
        let mut layers = layers.iter();
        list.chunks() > 0 && layers.any(|layer| layer.identity().to_string() == list.identity)
    };
    let lists: Vec<_> = lists.into_iter().filter(of_image).collect();
    let whole = layers.iter().filter(|layer| layer.contents().is_none());
    let made = ImageIndexes {
        index: image_index(&layers, &lists, &options)
            .map_err(|error| Failure::source(&error).of(&name))?,
        lists,
    };
    if made.index.layers.is_empty() && (made.lists.is_empty() || target.is_some()) {
        let failure = Failure::usage("has no layer for which an index can be made").of(&name);
        return Err(failure);
    }
    if let Some(target) = target {
        let len = made.write(target)?;
        context.note(&format!(
            "{} of {}, {} for {}",
            counted(count_of(made.index.layers.len()), "layer", "layers"),
            count_of(whole.count()),
            size::human(count_of(len)),
            size::human(made.index.layers_len()),
        ));
    }
    if args.push {
        made.push(context, &reference, &options)?;
    }
    Ok(Exit::Ok)
}

/// Refuses options with which no index can be made.
fn refuse(args: &IndexArgs) -> Result<()> {
    let source = &args.image.source.remote;
    let reason = if source.layer_index.is_some() || source.referrers {
        "--layer-index and --referrers cannot be used: an index is made from the layers, not from another index"
    } else if args.push && source.offline {
        "--push with --offline"
    } else {
        return Ok(());
    };
    Err(Failure::usage(reason))
}

struct ImageIndexes {
    index: ImageIndex,
    lists: Vec<AccessList>,
}

impl ImageIndexes {
    fn write(&self, mut target: Target) -> Result<usize> {
        let bytes = self.index.encode();
        let bytes = bytes.map_err(|error| Failure::usage(error.to_string()))?;
        let written = target.file().write_all(&bytes);
        written.map_err(|error| target.failed(&error))?;
        target.commit()?;
        Ok(bytes.len())
    }

    fn push(self, context: &Context, reference: &Reference, options: &RemoteOptions) -> Result<()> {
        let (layers, lists) = (self.index.layers.len(), self.lists.len());
        let sidecar = Sidecar {
            index: self.index,
            lists: self.lists,
            ..Sidecar::default()
        };
        let now = jiff::Timestamp::now();
        let created = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let stored = push_sidecar(reference, &sidecar, &created, options);
        let stored = stored.map_err(|error| remote::failure(&error))?;
        context.note(&format!(
            "{} and {} are stored as {stored}",
            counted(count_of(layers), "index", "indexes"),
            counted(count_of(lists), "access list", "access lists"),
        ));
        Ok(())
    }
}
