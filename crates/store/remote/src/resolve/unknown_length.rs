//! Resolves files of unknown length.

use std::sync::Arc;

use forerun_cache::Cache;

use crate::resolve::facts::{Address, Facts};
use crate::resolve::spool::{Room, Spooled};
use crate::resolve::{self, Resolved, ResolvedName, remembered};
use crate::{
    Description, Identity, Layout, Origin, Pinned, Reference, RemoteBlob, RemoteError,
    RemoteOptions, Result,
};

/// Resolves `reference` to one image, as [`resolve::resolved`] does. A file of unknown length is
/// fetched into `room` first, unless `cache` knows the length of this version.
pub fn resolved(
    reference: &Reference,
    options: &RemoteOptions,
    cache: Option<&Cache>,
    room: impl FnOnce() -> Result<Room>,
) -> Result<Resolved> {
    match resolve::resolved(reference, options) {
        Err(RemoteError::NoLength { place, version }) => {
            let found = (place, version);
            unmeasured(reference, options, cache, room, found)
        }
        outcome => outcome,
    }
}

/// Resolves `reference` as [`resolve::named`] does, including files of unknown length.
pub fn named(
    reference: &Reference,
    options: &RemoteOptions,
    cache: &Cache,
) -> Result<ResolvedName> {
    match resolve::named(reference, options) {
        Err(RemoteError::NoLength { place, version }) => {
            let room = || Room::in_cache(cache);
            let found = unmeasured(reference, options, Some(cache), room, (place, version));
            found.map(|resolved| ResolvedName::Image(Box::new(resolved)))
        }
        outcome => outcome,
    }
}

fn unmeasured(
    reference: &Reference,
    options: &RemoteOptions,
    cache: Option<&Cache>,
    room: impl FnOnce() -> Result<Room>,
    (place, version): (String, Option<String>),
) -> Result<Resolved> {
    let candidates = resolve::candidates(reference, options)?;
    let mut candidates = candidates.into_iter();
    let Some(candidate) = candidates.find(|candidate| candidate.origin.place() == place) else {
        return Err(RemoteError::NoLength { place, version });
    };
    let known = cache.zip(version.as_deref()).and_then(|(cache, version)| {
        remembered::known_len(cache, reference, &candidate.address, version)
    });
    let is_spooled = known.is_none();
    let (len, origin): (u64, Arc<dyn Origin>) = match known {
        Some(len) => (len, candidate.origin),
        None => {
            let spooled = Spooled::fetch(candidate.origin, version.as_deref(), &room()?, options)?;
            (spooled.len(), Arc::new(spooled))
        }
    };
    let description = Description {
        len,
        version: version.clone(),
        digest: None,
        whole: true,
    };
    let identity = Identity::Version {
        url: candidate.address.clone(),
        version: version.clone().unwrap_or_else(resolve::unversioned),
    };
    let pinned = Pinned::new(origin, description.clone());
    let blob = RemoteBlob {
        description,
        mirrors: vec![Arc::new(pinned)],
    };
    let layout = Layout::single(reference.place(), blob, identity);
    let address = Address {
        address: candidate.address,
        version,
    };
    Ok(Resolved {
        facts: Facts::of(&layout, &[address]),
        is_spooled,
        ..Resolved::new(layout, None)
    })
}
