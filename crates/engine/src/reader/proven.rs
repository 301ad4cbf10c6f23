//! The check whether a checksum or a digest covers bytes.

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{DecodedLen, EncodedBlock, Padding, Place, Result};

use super::Reader;
use crate::read::Use;

/// How far into a block to look for the start of a stream. Zeros may precede it, up to the largest
/// block of a format.
const START: usize = (64 << 10) + 16;

impl Reader {
    /// Returns whether reads of a place compare its bytes with a checksum or a digest. If only the
    /// header of a compressed stream tells, reads the start of the stream.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn is_proven(&self, place: &Place) -> Result<bool> {
        let verifier = self.inner.driver.capabilities().verifier;
        if verifier.is_some_and(|verifier| verifier.proves(place)) {
            return Ok(true);
        }
        match place {
            Place::Zero => Ok(true),
            Place::Stored { .. } | Place::Inline(_) => Ok(false),
            // A decoder of a prefix stops before the checksum at the end of the stream.
            Place::Encoded { block, .. } if matches!(block.decoded_len, DecodedLen::Prefix(_)) => {
                Ok(false)
            }
            Place::Encoded { block, .. } => match block.codec.has_checksum() {
                Some(has) => Ok(has),
                None => self.stream_has_checksum(block),
            },
        }
    }

    fn stream_has_checksum(&self, block: &EncodedBlock) -> Result<bool> {
        const HEADER: usize = 16;
        let most = match block.padding {
            Padding::None => HEADER,
            Padding::Leading => START,
        };
        let len = usize_from(u64::from(block.len).min(u64_from(most)));
        let mut bytes = vec![0; len];
        let stored = &self.inner.moves.stored;
        stored.read(block.blob, block.offset, &mut bytes, Use::Decode)?;
        let start = match block.padding {
            Padding::None => 0,
            Padding::Leading => bytes.iter().position(|byte| *byte != 0).unwrap_or(0),
        };
        Ok(block.codec.stream_has_checksum(&bytes[start..]))
    }
}
