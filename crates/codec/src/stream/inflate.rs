//! DEFLATE by miniz_oxide, which reports the bit at which a block ends. The faster zlib-rs and
//! libdeflate do not.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY,
    TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use super::{STEP, Step, StreamPlace};
use crate::DecodeError;

/// The farthest that a match refers back.
const HISTORY: usize = 32 << 10;
const FLAGS: u32 = TINFL_FLAG_HAS_MORE_INPUT
    | TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY
    | TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;

pub struct Inflate {
    state: Box<DecompressorOxide>,
    /// The history, followed by the bytes that the last step decoded.
    out: Vec<u8>,
    /// Start and end of the bytes that the last step decoded.
    from: usize,
    to: usize,
}

impl Inflate {
    pub fn new() -> Self {
        Self {
            state: Box::default(),
            out: vec![0; HISTORY + STEP],
            from: 0,
            to: 0,
        }
    }

    /// Creates a decoder of blocks that follow `history`, of which only the last 32 KiB are used.
    pub fn after(history: &[u8]) -> Self {
        let history = &history[history.len().saturating_sub(HISTORY)..];
        let mut inflate = Self::new();
        let place = inflate.out.iter_mut().zip(history);
        place.for_each(|(to, byte)| *to = *byte);
        inflate.to = history.len();
        inflate
    }

    pub fn restart(&mut self) {
        self.state.init();
        (self.from, self.to) = (0, 0);
    }

    pub fn step(&mut self, input: &[u8]) -> Result<Step, DecodeError> {
        if self.to == self.out.len() {
            // Distances count from the end, so the start can move.
            self.out.copy_within(self.to - HISTORY.., 0);
            self.to = HISTORY;
        }
        self.from = self.to;
        let (status, used, decoded) =
            decompress(&mut self.state, input, &mut self.out, self.from, FLAGS);
        self.to = self.from + decoded;
        let place = match status {
            TINFLStatus::Done => StreamPlace::End,
            TINFLStatus::BlockBoundary => {
                let state = self.state.block_boundary_state();
                let unused_bits = state.ok_or(DecodeError::Damaged)?.num_bits;
                StreamPlace::Between { unused_bits }
            }
            TINFLStatus::NeedsMoreInput | TINFLStatus::HasMoreOutput => StreamPlace::Within,
            _ => return Err(DecodeError::Damaged),
        };
        Ok(Step { used, place })
    }

    pub fn decoded(&self) -> &[u8] {
        &self.out[self.from..self.to]
    }

    pub fn history(&self) -> &[u8] {
        let from = self.to.saturating_sub(HISTORY);
        &self.out[from..self.to]
    }
}
