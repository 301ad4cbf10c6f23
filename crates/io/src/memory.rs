use std::io;
use std::sync::Arc;

use crate::{ReadAt, past_end};

#[derive(Clone, Debug)]
pub struct MemorySource(Arc<[u8]>);

impl MemorySource {
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }
}

impl ReadAt for MemorySource {
    fn len(&self) -> u64 {
        crate::u64_from(self.0.len())
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let start = crate::usize_from(offset);
        out.copy_from_slice(&self.0[start..start + out.len()]);
        Ok(())
    }
}
