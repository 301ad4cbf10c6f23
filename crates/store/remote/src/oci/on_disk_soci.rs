//! SOCI tables of contents of images in OCI image layouts.
//!
//! The manifest of an image names a SOCI index of version 2. An index of version 1 is another
//! manifest of the layout, which refers to the image's manifest. No digest verifies it, so it is
//! used only if the caller trusts the whole layout.

use std::io;

use forerun_cache::Digest;

use crate::oci::manifest::{Entry, MAX_MANIFEST};
use crate::oci::on_disk::{LayerFile, ReadDocument, blob_path};
use crate::oci::referrer::artifact_of;
use crate::oci::soci;

/// Most manifests to search for one that refers to the image.
const MOST: usize = 64;

/// An image of a layout: its manifest, and the entries of the layout.
pub struct Imaged<'b> {
    pub digest: Digest,
    pub manifest: &'b [u8],
    pub entries: &'b [Entry],
}

/// Sets the missing tables of layers, from the index that the manifest names and, with `referrers`,
/// from an index that refers to the manifest.
///
/// The error is for the log: why tables that the manifest names are not used. An image may be
/// copied without its tables, so this is no failure.
pub fn attach(
    image: &Imaged<'_>,
    layers: &mut [LayerFile],
    referrers: bool,
    read: &mut ReadDocument<'_>,
) -> Result<(), String> {
    let named = match soci::index_of(image.manifest) {
        Some(index) => named(index, read),
        None => Ok(Vec::new()),
    };
    if let Ok(tables) = &named {
        for layer in layers.iter_mut().filter(|layer| layer.contents.is_none()) {
            layer.contents = soci::table_of(tables, layer.digest);
        }
    }
    let lacks_some = layers.iter().any(|layer| layer.contents.is_none());
    if referrers
        && lacks_some
        && let Some(tables) = referring(image, read)
    {
        for layer in layers.iter_mut().filter(|layer| layer.contents.is_none()) {
            layer.claimed = soci::table_of(&tables, layer.digest);
        }
    }
    named.map(drop)
}

fn named(index: Digest, read: &mut ReadDocument<'_>) -> Result<Vec<soci::SociTable>, String> {
    let bytes = blob(index, read).map_err(|error| format!("{}: {error}", blob_path(&index)))?;
    soci::tables(&bytes, soci::V2).map_err(|error| error.to_string())
}

/// Reads the newest index that refers to the image. Skips manifests that cannot be read or are of
/// another kind.
fn referring(image: &Imaged<'_>, read: &mut ReadDocument<'_>) -> Option<Vec<soci::SociTable>> {
    let may_be = |entry: &&Entry| {
        let kind = entry.artifact_type.as_deref();
        entry.descriptor.digest != image.digest && kind.is_none_or(|kind| kind == soci::V1)
    };
    let candidates = image.entries.iter().filter(may_be).take(MOST);
    let mut newest: Option<(Option<&String>, Vec<soci::SociTable>)> = None;
    for entry in candidates {
        let Ok(bytes) = blob(entry.descriptor.digest, read) else {
            continue;
        };
        let refers = artifact_of(&bytes, image.digest).is_ok();
        let Some(tables) = soci::tables(&bytes, soci::V1).ok().filter(|_| refers) else {
            continue;
        };
        let created = entry.created.as_ref();
        if newest.as_ref().is_none_or(|(known, _)| created >= *known) {
            newest = Some((created, tables));
        }
    }
    newest.map(|(_, tables)| tables)
}

fn blob(digest: Digest, read: &mut ReadDocument<'_>) -> io::Result<Vec<u8>> {
    let bytes = read(&blob_path(&digest), MAX_MANIFEST)?;
    match Digest::of(&bytes) {
        found if found == digest => Ok(bytes),
        found => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("its digest is {found}"),
        )),
    }
}
