//! A chunk table on a server as a source. Fetches a hash block when a digest in it is needed.
//!
//! The reader verifies the blocks. If it reads a block again, the block was wrong, so the second
//! fetch goes to another mirror.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex};

use forerun_io::{ReadAt, Unpoisoned, past_end, u64_from, usize_from};

use crate::fetch::counters::Counters;
use crate::fetch::{ChunkOutcome, Fetcher, Patience};
use crate::origin::layout::{Part, TableLayout};
use crate::{RemoteError, runtime};

pub struct TableSource {
    len: u64,
    place: String,
    fetcher: Mutex<Option<Arc<Fetcher>>>,
    read: Mutex<HashSet<u64>>,
}

impl TableSource {
    #[must_use]
    pub fn new(layout: &TableLayout, patience: Patience, counters: Arc<Counters>) -> Self {
        let blob = layout.blob.clone();
        let place = blob
            .mirrors
            .first()
            .map_or_else(String::new, |origin| origin.place().to_owned());
        let len = blob.description.len;
        let parts = vec![Part { offset: 0, blob }];
        let fetcher = Fetcher::new(parts, layout.chunk_size, patience, counters);
        Self {
            len,
            place,
            fetcher: Mutex::new(Some(Arc::new(fetcher))),
            read: Mutex::default(),
        }
    }

    pub fn close(&self) {
        *self.fetcher.lock().unpoisoned() = None;
    }

    fn fetcher(&self) -> Option<Arc<Fetcher>> {
        self.fetcher.lock().unpoisoned().clone()
    }
}

impl ReadAt for TableSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len)?;
        let Some(fetcher) = self.fetcher() else {
            let place = self.place.clone();
            let reason = "the table was let go of".to_owned();
            return Err(io::Error::other(RemoteError::Refused { place, reason }));
        };
        let again = {
            let mut read = self.read.lock().unpoisoned();
            !read.insert(offset)
        };
        if again {
            fetcher.distrust(offset);
        }
        let end = offset + u64_from(out.len());
        let mut got = Vec::with_capacity(out.len());
        let take = |at: u64, bytes: Vec<u8>| {
            // Pieces arrive in order. A repeated piece replaces everything from its offset on.
            got.truncate(usize_from(at - offset));
            got.extend_from_slice(&bytes);
            std::future::ready(ChunkOutcome::Kept)
        };
        let fetched = runtime::wait_for(fetcher.fetch(offset..end, take));
        if let Err(error) = fetched {
            // The block did not arrive, so it was not wrong.
            self.read.lock().unpoisoned().remove(&offset);
            return Err(io::Error::other(error));
        }
        if got.len() != out.len() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        out.copy_from_slice(&got);
        Ok(())
    }
}
