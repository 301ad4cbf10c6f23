//! `forerun __layers`: the layers of a container image in a registry, and which of them have tables
//! of contents. Hidden, because only `forerun snapshotter` starts it, so that an image is parsed in
//! a sandbox.

use std::sync::Arc;

use forerun::Image;
use forerun::unstable::cache::Digest;
use forerun::unstable::container_layers;
use forerun::unstable::remote::{
    ContainerLayer, Identity, Opened, Prefetch, Reference, RemoteImage, RemoteOptions,
    container_manifest, open_all,
};
use serde_json::json;

use crate::args::ImageArgs;
use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::layer_count::allow_open_files;
use crate::output::Output;
use crate::remote::{self, failure};
use crate::source;

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
    // Resolves the tag only once.
    let pinned = Reference::Oci(name.with_digest(manifest.digest));
    let has_table = |layer: &ContainerLayer| layer.contents.is_some();
    let opened = if options.referrers || manifest.layers.iter().any(has_table) {
        opened(args, &pinned, &options)?
    } else {
        Vec::new()
    };
    let layers = manifest.layers.iter().zip(chain_ids(&manifest.diff_ids));
    let layers = layers.enumerate().map(|(number, (layer, chain))| {
        let claimed = opened.get(number).and_then(|image| beside(image));
        // A layer without its own table may use one that refers to the image, but that is known
        // only when it is mounted.
        let is_claimed = options.referrers && layer.contents.is_none();
        json!({
            "digest": layer.digest.to_string(),
            "chain": chain.to_string(),
            "table": table(layer).or(claimed),
            "claimed": is_claimed,
        })
    });
    let mut out = Output::stdout()?;
    out.json(&json!({
        "digest": manifest.digest.to_string(),
        "layers": layers.collect::<Vec<_>>(),
    }))?;
    out.finish()?;
    Ok(Exit::Ok)
}

/// Returns containerd's names for the snapshots of layers, lowest first: each is a digest of the
/// unpacked layer and all layers below it.
fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut below: Option<Digest> = None;
    let chain = diff_ids.iter().map(|id| {
        let chain = match below {
            None => *id,
            Some(below) => Digest::of(format!("{below} {id}").as_bytes()),
        };
        below = Some(chain);
        chain
    });
    chain.collect()
}

/// Opens the layers, and reads their tables of contents, since an image is mounted only if these
/// are valid.
fn opened(
    args: &ImageArgs,
    pinned: &Reference,
    options: &RemoteOptions,
) -> Result<Vec<Arc<RemoteImage>>> {
    allow_open_files();
    let opened = open_all(pinned, options).map_err(|error| failure(&error))?;
    let Opened::Layers(layers) = opened else {
        return Err(Failure::usage("the image changed while it was opened"));
    };
    let mut with_tables = layers.clone();
    with_tables.retain(|layer| layer.contents().is_some() || beside(layer).is_some());
    if !with_tables.is_empty() {
        Image::from_layers(container_layers(with_tables, options), &args.open_options())?;
    }
    Ok(layers)
}

/// Returns the digest of the table of contents that the manifest names.
fn table(layer: &ContainerLayer) -> Option<String> {
    layer.contents.map(|contents| contents.digest().to_string())
}

/// Returns the digest of a layer's table or index that the manifest does not name.
fn beside(layer: &RemoteImage) -> Option<String> {
    if let Some(index) = layer.named_index() {
        return Some(Digest::of(index).to_string());
    }
    match layer.soci_table()?.identity() {
        Identity::Blob(digest) => Some(digest.to_string()),
        Identity::Root(_) | Identity::Version { .. } => None,
    }
}
