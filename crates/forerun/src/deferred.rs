//! Indexes of layers that are kept only once the layer was verified.

use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned as _;
use forerun_vfs::KeepIndex;

/// The index of a layer that may not be verified yet: it is kept only later.
pub struct Deferred {
    index: Arc<dyn KeepIndex>,
    made: Mutex<Option<Vec<u8>>>,
}

impl Deferred {
    pub fn new(index: &Arc<dyn KeepIndex>) -> Self {
        Self {
            index: Arc::clone(index),
            made: Mutex::default(),
        }
    }

    /// Keeps what was made: the layer is verified.
    pub fn keep(&self) {
        if let Some(made) = self.made.lock().unpoisoned().take() {
            self.index.store(&made);
        }
    }
}

impl KeepIndex for Deferred {
    fn load(&self, most: u64) -> Option<Vec<u8>> {
        self.index.load(most)
    }

    fn is_kept(&self) -> bool {
        self.index.is_kept()
    }

    fn store(&self, index: &[u8]) {
        *self.made.lock().unpoisoned() = Some(index.to_vec());
    }
}
