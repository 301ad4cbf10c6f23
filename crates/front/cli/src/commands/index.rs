//! `forerun index`: the indexes of the layers of a container image, for other machines.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use forerun::image_index;
use forerun::remote::{Opened, Prefetch, access_lists};

use crate::args::ImageArgs;
use crate::context::{Context, image_name};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size::{self, count_of, counted};
use crate::target::Target;
use crate::{fetch, interrupt, remote};

/// Write the indexes of the layers of a container image to a file
///
/// With it, another machine opens the image before its layers are there, and fetches the parts that are read:
/// --layer-index FILE. Layers are fetched and verified first, unless the cache has their indexes. Those with a table of
/// contents need none, and there is none of a layer that is one long frame of Zstandard.
///
/// With --prefetch LIST, what the list names is fetched ahead wherever the index is used.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun index oci://registry.example/app:1.0 app.index
  forerun mount --layer-index app.index oci://registry.example/app:1.0 /mnt")]
pub struct IndexArgs {
    #[command(flatten)]
    pub image: ImageArgs,
    /// The file to write
    #[arg(value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Replace the file if there is one
    #[arg(short, long)]
    pub force: bool,
}

/// Runs it.
pub fn run(context: &Context, args: &IndexArgs) -> Result {
    let name = image_name(&args.image);
    let not_in_registry = || {
        let failure = Failure::usage("is no container image in a registry").of(&name);
        failure.hint("oci://HOST/NAME:TAG")
    };
    let reference = remote::reference(&args.image.image)?.ok_or_else(not_in_registry)?;
    interrupt::defer();
    let prepared = context.prepare(&args.image)?;
    let mut target = Target::create(&args.output, args.force, "an index")?;
    context.confine(&target.sandbox(prepared.sandbox()));
    let options = args.image.source.remote.options();
    let lists = match &options.prefetch {
        Prefetch::List(path) => access_lists(path).map_err(|error| remote::failure(&error))?,
        Prefetch::None | Prefetch::All => Vec::new(),
    };
    // Opening it makes the indexes, and opening it again finds them.
    drop(context.open_prepared(prepared, None)?);
    let opened = fetch::open_all(context, &reference, &args.image.source.remote)?;
    let Opened::Layers(layers) = opened else {
        return Err(not_in_registry());
    };
    let whole = layers.iter().filter(|layer| layer.contents().is_none());
    let index = image_index(&layers, &lists, &options);
    let index = index.map_err(|error| Failure::source(&error).of(&name))?;
    if index.layers.is_empty() {
        let failure = Failure::usage("has no layer that an index can be made of").of(&name);
        return Err(failure);
    }
    let bytes = index
        .encode()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let written = target.file().write_all(&bytes);
    written.map_err(|error| target.failed(&error))?;
    target.commit()?;
    let len = index.layers_len();
    context.note(&format!(
        "{} of {}, {} for {}",
        counted(count_of(index.layers.len()), "layer", "layers"),
        count_of(whole.count()),
        size::human(count_of(bytes.len())),
        size::human(len),
    ));
    Ok(Exit::Ok)
}
