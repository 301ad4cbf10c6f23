//! Manifests of images, remembered for the time of a pull.
//!
//! containerd prepares the layers of an image one after the other, and each needs the same manifest. A failure is
//! remembered as well: a registry that does not answer is waited for once, not for each layer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::{Images, ManifestFacts};

/// A tag may move, and a registry come back.
const KEPT: Duration = Duration::from_secs(60);
/// Images that are remembered.
const MOST: usize = 64;

type Found = Result<Arc<ManifestFacts>, String>;

/// An image that is being looked at, or was.
type Slot = Arc<Mutex<Option<(Instant, Found)>>>;

/// The manifests of the images that were asked for last.
#[derive(Debug, Default)]
pub struct Manifests {
    known: Mutex<HashMap<String, Slot>>,
}

impl Manifests {
    /// Returns the manifest of an image. A second caller waits for the first.
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
                // One that is locked is being looked at.
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
