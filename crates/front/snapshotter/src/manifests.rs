//! Caches manifests for the duration of a pull.
//!
//! containerd prepares an image's layers one after the other, and each needs the same manifest.
//! Failures are cached too, so that an unresponsive registry causes one timeout instead of one per
//! layer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Images, ManifestFacts};

/// Lifetime of an entry: tags can move and registries recover.
const KEPT: Duration = Duration::from_secs(60);
const MOST: usize = 64;

type Found = Result<Arc<ManifestFacts>, String>;

/// The cached manifest of an image; locked while it is being fetched.
type Slot = Arc<Mutex<Option<(Instant, Found)>>>;

/// A cache of the most recently requested manifests.
#[derive(Debug, Default)]
pub struct Manifests {
    known: Mutex<HashMap<String, Slot>>,
}

impl Manifests {
    /// Returns the manifest of an image. Concurrent callers wait for the first one's fetch.
    pub fn of(&self, images: &dyn Images, image: &str) -> Found {
        let slot = self.slot(image);
        let mut found = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, found)) = &*found
            && since.elapsed() < KEPT
        {
            return found.clone();
        }
        let fresh = images.manifest(image).map(Arc::new);
        *found = Some((Instant::now(), fresh.clone()));
        fresh
    }

    fn slot(&self, image: &str) -> Slot {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST && !known.contains_key(image) {
            known.retain(|_, slot| {
                // A locked entry is being fetched; keep it.
                let is_old = |found: &Option<(Instant, Found)>| {
                    let since = found.as_ref().map(|(since, _)| since.elapsed());
                    since.is_some_and(|since| since >= KEPT)
                };
                slot.try_lock().map_or(true, |found| !is_old(&found))
            });
            if known.len() >= MOST {
                known.clear();
            }
        }
        Arc::clone(known.entry(image.to_owned()).or_default())
    }
}
