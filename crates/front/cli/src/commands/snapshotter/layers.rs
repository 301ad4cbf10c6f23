//! `forerun __layers`: the layers of a container image in a registry, and which can be read by their tables of contents.
//! Hidden: `forerun snapshotter` starts it, so that an image is parsed in a sandbox.

use forerun::remote::{
    ContainerLayer, LayerContents, Opened, Prefetch, Reference, RemoteImage, RemoteOptions,
    container_manifest, open_all,
};
use forerun::{Image, container_layers};
use serde_json::{Value, json};

use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::layer_count::allow_open_files;
use crate::output::Output;
use crate::remote::{self, failure};
use crate::source;

/// Runs it.
pub fn run(context: &Context, args: &ImageArgs) -> Result {
    let reference = remote::reference(&args.image)?;
    let Some(Reference::Oci(name)) = reference else {
        return Err(Failure::usage("an image in a registry is needed"));
    };
    let prepared = source::prepare(context, args)?;
    context.confine(&prepared.sandbox());
    let mut options = args.source.remote.options();
    (options.prefetch, options.record) = (Prefetch::None, None);
    let reference = Reference::Oci(name.clone());
    let manifest = container_manifest(&reference, &options).map_err(|error| failure(&error))?;
    // The tag is looked up once.
    let pinned = Reference::Oci(name.with_digest(manifest.digest));
    let has_table = |layer: &ContainerLayer| layer.contents.is_some();
    if manifest.layers.iter().any(has_table) {
        verify(args, &pinned, &options)?;
    }
    let layers = manifest.layers.iter().map(described);
    let mut out = Output::stdout()?;
    out.json(&json!({
        "digest": manifest.digest.to_string(),
        "layers": layers.collect::<Vec<_>>(),
    }))?;
    out.finish()?;
    Ok(Exit::Ok)
}

/// Opens the layers that have tables of contents: an image is mounted only if these are sound.
fn verify(args: &ImageArgs, pinned: &Reference, options: &RemoteOptions) -> Result<()> {
    allow_open_files();
    let opened = open_all(pinned, options).map_err(|error| failure(&error))?;
    let Opened::Layers(mut layers) = opened else {
        return Err(Failure::usage("the image changed while it was opened"));
    };
    layers.retain(|layer: &std::sync::Arc<RemoteImage>| layer.contents().is_some());
    Image::from_layers(container_layers(layers, options), &args.open_options())?;
    Ok(())
}

fn described(layer: &ContainerLayer) -> Value {
    let table = layer.contents.map(|contents| match contents {
        LayerContents::EStargz { digest }
        | LayerContents::ZstdChunked { digest, .. }
        | LayerContents::Soci { digest, .. } => digest.to_string(),
    });
    json!({ "digest": layer.digest.to_string(), "table": table })
}
