//! Mounts of layer chains.
//!
//! A chain is mounted while a container or an unpacking uses it. Other processes serve the mounts,
//! so they survive a restart of the snapshotter.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::sync::{Arc, Mutex, PoisonError};

use crate::place::{Place, make_private};
use crate::record::{Id, RemoteLayer};
use crate::{Error, Images, Result};

/// Maximum bytes of a mount's log that are copied to the snapshotter's log.
const MOST_LOGGED: u64 = 16 << 10;

/// Removes the log file of a mount after copying it to the snapshotter's log, which outlives the
/// containers.
fn take_log(place: &Place, id: Id) -> io::Result<()> {
    let path = place.log(id);
    let mut text = Vec::new();
    match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => drop(file?.take(MOST_LOGGED).read_to_end(&mut text)?),
    }
    for line in String::from_utf8_lossy(&text).lines() {
        let line = line.replace(char::is_control, "?");
        tracing::warn!("the mount of layers {id} has logged: {line}");
    }
    fs::remove_file(path)
}

/// Mounts and unmounts chains, each chain by one thread at a time.
#[derive(Debug, Default)]
pub struct Chains {
    locks: Mutex<HashMap<Id, Arc<Mutex<()>>>>,
}

impl Chains {
    /// Runs `work` while no other thread mounts or unmounts this chain.
    fn alone<T>(&self, id: Id, work: impl FnOnce() -> T) -> T {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(id).or_default())
        };
        let held = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work();
        drop(held);
        // Two references are the map's and this thread's: no other thread waits.
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(&lock) <= 2 {
            locks.remove(&id);
        }
        done
    }

    pub fn ensure(
        &self,
        images: &dyn Images,
        place: &Place,
        id: Id,
        layer: &RemoteLayer,
    ) -> Result<()> {
        let dir = place.chain(id);
        let failed = |reason: String| Error::Image {
            image: layer.image.clone(),
            reason,
        };
        self.alone(id, || {
            let is_mounted = images.is_mounted(&dir).map_err(Error::io(&dir))?;
            if is_mounted {
                return Ok(());
            }
            make_private(&dir)?;
            images
                .mount(&layer.image, layer.digests.len(), &dir, &place.log(id))
                .map_err(failed)
        })
    }

    /// Unmounts the chain unless `is_used` returns true. A failure is logged; the next sweep tries
    /// again.
    pub fn release(
        &self,
        images: &dyn Images,
        place: &Place,
        id: Id,
        is_used: impl FnOnce() -> bool,
    ) {
        let dir = place.chain(id);
        self.alone(id, || {
            // A mount whose processes are dead returns a different error.
            let is_gone = |error: io::Error| error.kind() == ErrorKind::NotFound;
            if is_used() || fs::symlink_metadata(&dir).is_err_and(is_gone) {
                return;
            }
            let is_mounted = images.is_mounted(&dir);
            let is_mounted = is_mounted.map_err(|error| error.to_string());
            let taken = match is_mounted {
                Ok(true) => images.unmount(&dir),
                Ok(false) => Ok(()),
                Err(error) => Err(error),
            };
            let remove = || take_log(place, id).and_then(|()| fs::remove_dir(&dir));
            let removed = taken.and_then(|()| remove().map_err(|error| error.to_string()));
            if let Err(error) = removed {
                tracing::warn!(dir = %dir.display(), "the mount of layers stays: {error}");
            }
        });
    }
}
