//! The search for the length of input whose encoded form fills a block.
//!
//! Neighbouring blocks of a file compress about equally, so the first guess uses the last ratio. A
//! few more trials, each guessed from the earlier ones, bring the output close to the length of the
//! block; a result within a sixteenth of it is accepted.

use super::Filled;

const TRIALS: usize = 6;
/// First guess of the input per byte of output, in 1/256.
const FIRST_RATIO: usize = 2 * 256;

pub struct Search {
    ratio: usize,
}

impl Default for Search {
    fn default() -> Self {
        Self { ratio: FIRST_RATIO }
    }
}

impl Search {
    /// Fills `out` with the encoded form of as much of `input` as the trials find to fit. `encode`
    /// returns the length of the encoded input, or `None` if it does not fit.
    pub fn fill(
        &mut self,
        input: &[u8],
        out: &mut [u8],
        mut encode: impl FnMut(&[u8], &mut [u8]) -> Option<usize>,
    ) -> Option<Filled> {
        let room = out.len();
        let mut best: Option<(Filled, Vec<u8>)> = None;
        let (mut fits, mut too_long) = (0, input.len() + 1);
        let mut next = self.guess(room);
        for _ in 0..TRIALS {
            let len = next.clamp(fits + 1, too_long - 1);
            let trial = input.get(..len)?;
            match encode(trial, out) {
                Some(produced) if produced <= room => {
                    let filled = Filled {
                        consumed: len,
                        produced,
                    };
                    self.learn(filled);
                    fits = len;
                    let enough = produced >= room - room / 16 || len == input.len();
                    if enough {
                        return Some(filled);
                    }
                    best = Some((filled, out.get(..produced)?.to_vec()));
                    // Guess a little less than the ratio suggests, because an output that is too
                    // short costs less than one that does not fit.
                    next = self.guess(room - room / 64);
                }
                _ => {
                    too_long = len;
                    next = match &best {
                        Some(_) => fits + (too_long - fits) / 2,
                        None => len - len / 4,
                    };
                }
            }
            // A further trial is not worth its cost.
            if too_long - fits <= 1 + room / 64 {
                break;
            }
        }
        let (filled, bytes) = best?;
        out.get_mut(..bytes.len())?.copy_from_slice(&bytes);
        Some(filled)
    }

    fn guess(&self, room: usize) -> usize {
        room * self.ratio / 256
    }

    fn learn(&mut self, filled: Filled) {
        let ratio = filled.consumed * 256 / filled.produced.max(1);
        self.ratio = ratio.max(256);
    }
}
