//! Images that are fetched whole and compared with their digests.

use std::time::{Duration, Instant};

use forerun_io::wait;

use crate::error::cache_error;
use crate::image::RemoteImage;
use crate::{RemoteError, Result};

/// Pause between polls of an image that is being fetched whole.
const WAIT: Duration = Duration::from_millis(200);

impl RemoteImage {
    /// Waits until the image is complete and, without a table, compared with its digest. Returns
    /// false after `timeout` or if the comparison fails.
    #[must_use]
    pub fn wait_complete(&self, timeout: Duration) -> bool {
        let start = Instant::now();
        loop {
            if self.scheduler.is_finished() {
                return self.blob.is_complete();
            }
            if start.elapsed() >= timeout {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Fetches missing chunks, and waits until the whole image was compared with its digest. Used
    /// for images without a table, of which no byte is verified earlier. Calls `waiting` from time
    /// to time.
    ///
    /// # Errors
    /// [`RemoteError::WrongDigest`] if the bytes do not have the digest; [`RemoteError::Offline`]
    /// if some are missing and no server may be contacted; [`RemoteError::Timeout`] if no byte
    /// arrives within a reader's timeout.
    pub fn ensure_whole(&self, waiting: &mut dyn FnMut()) -> Result<()> {
        self.ensure_obtainable()?;
        self.prefetch_all();
        self.scheduler.finish_if_complete();
        let (mut since, mut bytes) = (Instant::now(), self.blob.local_bytes());
        while !self.wait_complete(WAIT) {
            waiting();
            wait::allowed().map_err(|error| RemoteError::Network {
                place: self.place.clone(),
                reason: error.to_string(),
            })?;
            if let Some(error) = self.scheduler.broken() {
                return Err(error);
            }
            let now = self.blob.local_bytes();
            if now != bytes {
                (since, bytes) = (Instant::now(), now);
            }
            self.ensure_obtainable()?;
            if since.elapsed() > self.patience.timeout {
                return Err(RemoteError::Timeout {
                    place: self.place.clone(),
                    seconds: self.patience.timeout.as_secs_f32(),
                });
            }
            // Restarts a failed fetch.
            self.prefetch_all();
        }
        match self.scheduler.broken() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns how often the whole image was dropped and fetched again, because another process had
    /// stored wrong bytes. Bytes read earlier may have been wrong.
    #[must_use]
    pub fn begun_anew(&self) -> u32 {
        self.scheduler.begun_anew()
    }

    /// Fails if chunks are missing and no server may be contacted for them.
    fn ensure_obtainable(&self) -> Result<()> {
        if !self.is_offline() || self.blob.is_complete() {
            return Ok(());
        }
        let all = 0..self.blob.geometry().chunks();
        let missing = self.blob.missing(all);
        if missing.map_err(|error| cache_error(&error))?.is_empty() {
            Ok(())
        } else {
            Err(RemoteError::Offline {
                place: format!("{}, {}", self.place, self.identity),
            })
        }
    }

    fn is_offline(&self) -> bool {
        let memory = self.memory.as_ref();
        memory.is_some_and(|memory| memory.reason.is_none())
    }
}
