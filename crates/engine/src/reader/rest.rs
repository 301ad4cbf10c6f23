//! Blocks of which readers at random places wanted a part.

use std::ops::{ControlFlow, Range};

use forerun_io::usize_from;
use forerun_vfs::{NodeId, Place};

use super::Reader;
use crate::Data;
use crate::tuning::REST_WORTH;

impl Reader {
    /// Hands `keep` what the cache of decoded blocks holds of `node` around the start of `range`, and where in the file that
    /// begins. What `keep` returns is returned, and the bytes count as served from then on: no earlier, since the block may
    /// leave the cache then, and other readers may want it until its bytes are kept. Reads and decodes no data.
    ///
    /// Returns nothing where `range` has all of them, where they are few, where no decoded block holds them, where the
    /// driver clamps extents to what it is asked for, or where all of the block was served before.
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
        // An error is for the reader that comes to those bytes.
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
