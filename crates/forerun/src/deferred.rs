//! Holds back the index of a layer until the layer is verified.

use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned as _;
use forerun_vfs::KeepIndex;

/// The index of a layer. A new index is stored only when [`keep`](Self::keep) is called.
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

    /// Stores the new index. Must be called only after the layer was verified.
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
