//! Contents of files: read without the interpreter's lock, then copied once with the lock.
//!
//! A read releases the lock only once, because each time it takes the lock again, another Python
//! thread has to stop.

use std::io;
use std::ops::{Deref, Range};
use std::sync::Arc;

use forerun::vfs::NodeId;
use forerun::{Reader, vfs};
use forerun_engine::Data;

use crate::errors::ENOMEM;

/// Longest part that is read at once. A longer length may be a false claim of the image.
const TRUSTED: u64 = 16 << 20;
/// Bytes read at a time of a longer part.
const STEP: usize = 4 << 20;

/// Contents of a file or of a part of one.
pub enum Bytes {
    /// A buffer of the engine.
    Data(Data),
    /// Several reads put together.
    Long(Vec<u8>),
    /// A range of a buffer with the contents of several files.
    Copied(Arc<Vec<u8>>, Range<usize>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Data(data) => data,
            Self::Long(bytes) => bytes,
            Self::Copied(bytes, range) => bytes.get(range.clone()).unwrap_or_default(),
        }
    }
}

/// Reads `range` of a file, or less if the file ends earlier. Calls `short` for a part that is read
/// at once.
pub fn read(
    reader: &Reader,
    node: NodeId,
    range: Range<u64>,
    short: impl FnOnce(Range<u64>) -> vfs::Result<Data>,
) -> vfs::Result<Bytes> {
    if range.end.saturating_sub(range.start) <= TRUSTED {
        return short(range).map(Bytes::Data);
    }
    let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    let (mut bytes, mut at) = (Vec::new(), range.start);
    // Allocate everything first, so that an impossible length fails before any reads.
    if bytes.try_reserve_exact(len).is_err() {
        let error = io::Error::from_raw_os_error(ENOMEM);
        return Err(vfs::Error::io(range.start, len, error));
    }
    while at < range.end {
        let want = usize::try_from(range.end - at).unwrap_or(STEP).min(STEP);
        let data = reader.read(node, at, want)?;
        if data.is_empty() {
            break;
        }
        at = at.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        bytes.extend_from_slice(&data);
    }
    Ok(Bytes::Long(bytes))
}
