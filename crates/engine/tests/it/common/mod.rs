use std::ops::Range;
use std::sync::{Arc, Mutex};

use forerun_io::{MemorySource, ReadAt};

pub use forerun_testkit::generate::pattern;
pub use forerun_testkit::opened::{Opened, open, open_on};

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

/// A source that takes hints and records them.
pub struct Hinted {
    pub bytes: MemorySource,
    pub hints: Arc<Mutex<Vec<Range<u64>>>>,
    pub is_slow: bool,
}

impl Hinted {
    pub fn new(bytes: MemorySource) -> Self {
        Self {
            bytes,
            hints: Arc::default(),
            is_slow: false,
        }
    }
}

impl ReadAt for Hinted {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.bytes.read_exact_at(offset, out)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.hints.lock().unwrap().push(range);
        true
    }

    fn is_slow(&self) -> bool {
        self.is_slow
    }
}
