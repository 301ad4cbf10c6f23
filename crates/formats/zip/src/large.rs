//! Members that are longer than a block. When such a member is first read, a pass over it divides
//! it into spans.
//!
//! Spans of DEFLATE are decoded on their own, from the middle of the member. A Zstandard member
//! that is one frame is decoded into a temporary file.

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_io::{BlobId, Limits, ReadAt, u32_from, u64_from};
use forerun_spans::{Compression, IndexOptions, SPOOL, Spans, Spool, index_part};
use forerun_vfs::{Blobs, EncodedBlock, Error, History, MakeSpool, NodeId, Place, Result};
use libdeflater::Crc;

use crate::error::Check;

/// The members that were divided into spans so far.
pub struct Large {
    options: IndexOptions,
    members: Mutex<Members>,
    /// Held during a pass, because two passes must not write to one temporary file.
    pass: Mutex<()>,
}

#[derive(Default)]
struct Members {
    by_node: HashMap<NodeId, Arc<CutMember>>,
    /// The nodes of blocks, keyed by the offset of the member's contents in the archive.
    by_offset: BTreeMap<u64, NodeId>,
    spools: Vec<Spool>,
}

pub struct CutMember {
    spans: Spans,
    /// The blob of its temporary file.
    blob: Option<BlobId>,
}

/// The facts that the archive states about a member.
#[derive(Clone, Copy, Debug)]
pub struct Stated {
    pub compression: Compression,
    pub size: u64,
    pub crc: u32,
}

impl Large {
    pub fn new(limits: &Limits, spool: Option<Arc<dyn MakeSpool>>) -> Self {
        let usual = IndexOptions::default();
        let options = IndexOptions {
            limits: limits.clone(),
            spool,
            // A span ends with the first DEFLATE block after this length, and must not become too
            // long.
            span_len: usual.span_len.min(u64::from(limits.block_len / 2)),
            ..usual
        };
        Self {
            options,
            members: Mutex::default(),
            pass: Mutex::default(),
        }
    }

    /// Returns the spans of the member whose contents are in `part` of the file. The first call for
    /// a member decodes it once, and verifies its length and its CRC-32.
    ///
    /// # Errors
    /// `Corrupt` for a damaged member, `Limit`, `Unsupported` if a temporary file is needed but not
    /// allowed, `Spool`, `Io`.
    pub fn member(
        &self,
        source: &dyn ReadAt,
        node: NodeId,
        part: &Range<u64>,
        stated: Stated,
    ) -> Result<Arc<CutMember>> {
        if let Some(member) = self.cut(node) {
            return Ok(member);
        }
        // Readers of other large members wait too: a pass uses one CPU, and reads in order.
        let _pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(member) = self.cut(node) {
            return Ok(member);
        }
        let (mut found, mut crc) = (0_u64, Crc::new());
        let size = stated.size;
        let mut take = |bytes: &[u8]| {
            found += u64_from(bytes.len());
            crc.update(bytes);
            if found <= size {
                Ok(())
            } else {
                Err(Check::Long { size }.of(node, part.start))
            }
        };
        let indexed = index_part(
            source,
            part.clone(),
            stated.compression,
            &self.options,
            &mut take,
        )?;
        if let Some(offset) = indexed.trailing {
            let left = part.end - offset;
            return Err(Check::Behind { left }.of(node, offset));
        }
        if found != size {
            return Err(Check::Short { found, size }.of(node, part.start));
        }
        let (stored, found) = (stated.crc, crc.sum());
        if stored != found {
            return Err(Check::Crc { stored, found }.of(node, part.start));
        }
        let mut members = self.lock();
        let blob = indexed.spool.map(|spool| {
            members.spools.push(spool);
            BlobId(u32_from(u64_from(members.spools.len())))
        });
        let spans = indexed.spans;
        let member = Arc::new(CutMember { spans, blob });
        members.by_offset.insert(part.start, node);
        members.by_node.insert(node, Arc::clone(&member));
        Ok(member)
    }

    fn cut(&self, node: NodeId) -> Option<Arc<CutMember>> {
        self.lock().by_node.get(&node).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl History for Large {
    fn history(&self, block: &EncodedBlock) -> Result<Vec<u8>> {
        let members = self.lock();
        let last = members.by_offset.range(..=block.offset).next_back();
        let member = last
            .and_then(|(_, node)| members.by_node.get(node))
            .cloned();
        drop(members);
        member.map_or_else(|| Ok(Vec::new()), |member| member.spans.history(block))
    }
}

impl Blobs for Large {
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        let place = usize::try_from(blob.0)
            .ok()
            .and_then(|id| id.checked_sub(1));
        let spool = place.and_then(|place| self.lock().spools.get(place).cloned());
        match spool {
            Some(spool) => Ok(spool),
            None => Err(Error::no_blob(blob)),
        }
    }
}

impl CutMember {
    /// Visits each part of `range` with its place: in the archive or in the temporary file.
    pub fn map(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Place) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.spans.map(range, &mut |part, place| {
            let place = match (place, self.blob) {
                (
                    Place::Stored {
                        blob: SPOOL,
                        offset,
                    },
                    Some(blob),
                ) => Place::Stored { blob, offset },
                (place, _) => place,
            };
            visit(part, place)
        })
    }
}
