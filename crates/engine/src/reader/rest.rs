//! Blocks of which random reads wanted only a part.

use std::ops::{ControlFlow, Range};

use forerun_io::usize_from;
use forerun_vfs::{NodeId, Place};

use super::Reader;
use crate::Data;
use crate::tuning::REST_WORTH;

impl Reader {
    /// Passes `keep` the bytes of `node` around the start of `range` that a cached decoded block
    /// holds, and their offset in the file. Returns the result of `keep`. The bytes count as served
    /// only after `keep` has returned: the block may be evicted then, and until then other readers
    /// may need it. Reads and decodes no data.
    ///
    /// Returns `None` if `range` has all of these bytes, if they are few, if no decoded block holds
    /// them, if the driver clamps extents to the requested range, or if the whole block was served
    /// before.
    pub fn keep_rest_of_block<T>(
        &self,
        node: NodeId,
        range: Range<u64>,
        keep: impl FnOnce(u64, &Data) -> T,
    ) -> Option<T> {
        let mut first = None;
        let visit = &mut |extent| {
            first = Some(extent);
            ControlFlow::Break(())
        };
        // The reader that comes to those bytes reports the error.
        self.fs()
            .map(node, range.start..range.start.checked_add(1)?, visit)
            .ok()?;
        let extent = first?;
        let Range { start, end } = extent.logical;
        let len = end.checked_sub(start)?;
        let has_all = range.start <= start && end <= range.end;
        if has_all || len < REST_WORTH {
            return None;
        }
        let Place::Encoded { block, skip } = extent.place else {
            return None;
        };
        let decoded = &self.inner.moves.decoded;
        let block = decoded.unserved(&block)?;
        let from = usize_from(u64::from(skip));
        let to = from + usize_from(len);
        let kept = keep(start, &block.clone().into_data().part(from..to)?);
        decoded.served(&block, len);
        Some(kept)
    }
}
