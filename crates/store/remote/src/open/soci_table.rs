//! SOCI tables of contents: separate blobs, cached under their digests like layers.

use std::sync::Arc;

use forerun_cache::{Cache, Digest};

use crate::image::RemoteImage;
use crate::image::access_list::Listing;
use crate::oci::soci;
use crate::open::assemble::start_using_with_others;
use crate::open::layer::LayerFacts;
use crate::resolve::{self, Resolved, remembered};
use crate::{LayerContents, Reference, RemoteOptions};

/// Opens the SOCI table of contents of a layer, and starts to fetch it: the table that the manifest
/// names, or one of `beside`. If there is none, the layer is used without a table.
pub fn soci_table(
    cache: &Cache,
    reference: &Reference,
    layer: &mut Resolved,
    beside: &[(Digest, LayerContents)],
    options: &RemoteOptions,
) -> Option<Arc<RemoteImage>> {
    let contents = layer.layout.contents;
    let digest = layer.layout.identity.digest();
    let beside = || digest.and_then(|digest| soci::table_of(beside, digest));
    let contents = contents.or_else(beside);
    let (Some(LayerContents::Soci { digest, len }), Reference::Oci(name)) = (contents, reference)
    else {
        return None;
    };
    let by_digest = Reference::Oci(name.with_digest(digest));
    let resolved = match &layer.registry {
        Some(registry) => registry
            .blob_layout(name, digest, len)
            .map(|layout| Some(resolve::of_registry(layout, Arc::clone(registry)))),
        None => remembered::recall(cache, &by_digest, None, &unproven(options), None),
    };
    let facts = LayerFacts {
        listing: Some(Listing {
            list: None,
            record: None,
        }),
        ..LayerFacts::default()
    };
    let opened = resolved.and_then(|resolved| {
        let open = |resolved| start_using_with_others(cache, &by_digest, resolved, options, facts);
        resolved.map(open).transpose()
    });
    match opened {
        Ok(Some(table)) => {
            table.prefetch_all();
            return Some(table);
        }
        Ok(None) => tracing::warn!(
            %digest,
            place = layer.layout.place,
            "the table of contents of SOCI is not in the cache, and --offline forbids fetching it; the whole layer is needed"
        ),
        Err(error) => tracing::warn!(%error, "the table of contents of SOCI is not used"),
    }
    layer.layout.contents = None;
    None
}

/// Returns the options for a blob that is compared with its digest as a whole.
fn unproven(options: &RemoteOptions) -> RemoteOptions {
    RemoteOptions {
        require_verified: false,
        ..options.clone()
    }
}
