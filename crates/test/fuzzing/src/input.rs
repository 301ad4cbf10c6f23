//! The bytes of a fuzzer as a stream of decisions.
//!
//! Past the end all bytes are zeros, so that every input is complete, and a shorter one means less.

use forerun_testkit::rng::Rng;

#[derive(Clone, Debug)]
pub struct Input<'b> {
    rest: &'b [u8],
}

impl<'b> Input<'b> {
    pub const fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    pub fn word(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn long(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    /// Takes a number below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::from(self.word()) % end
    }

    /// Takes one of `choices`, which must not be empty.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Takes the next `len` bytes, or the remaining ones if there are fewer.
    pub fn bytes(&mut self, len: usize) -> &'b [u8] {
        let (bytes, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Takes all remaining bytes.
    pub fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.rest)
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let bytes = self.bytes(N);
        array[..bytes.len()].copy_from_slice(bytes);
        array
    }

    /// Takes the contents of a file of up to `most` bytes: either the bytes themselves, or a short
    /// description.
    pub fn contents(&mut self, most: usize) -> Vec<u8> {
        let len = usize::from(self.word()) % (most + 1);
        match self.byte() % 5 {
            0 => self.bytes(len).to_vec(),
            1 => vec![0; len],
            2 => {
                let pattern = self.bytes(7).to_vec();
                let pattern = if pattern.is_empty() {
                    vec![b'x']
                } else {
                    pattern
                };
                pattern.into_iter().cycle().take(len).collect()
            }
            3 => random(self.byte(), len),
            _ => {
                // Data, a hole, data.
                let (head, tail) = (self.bytes(5).to_vec(), self.bytes(5).to_vec());
                let mut bytes = vec![0; len.max(head.len() + tail.len())];
                let end = bytes.len() - tail.len();
                bytes[..head.len()].copy_from_slice(&head);
                bytes[end..].copy_from_slice(&tail);
                bytes
            }
        }
    }
}

fn random(seed: u8, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed.into());
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.flatten().take(len).collect()
}

/// Returns seeds of random bytes, for targets that treat any bytes as decisions.
pub fn random_seeds(count: u8, len: usize) -> Vec<(String, Vec<u8>)> {
    let seeds = (0..count).map(|seed| (format!("random-{seed}"), random(seed, len)));
    seeds.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_has_ended_goes_on_with_zeros() {
        let mut input = Input::new(&[7, 1]);
        assert_eq!((input.byte(), input.long(), input.flag()), (7, 1, false));
        assert!(input.is_empty() && input.bytes(9).is_empty());
        assert_eq!((input.below(5), input.one_of(&[3, 4])), (0, 3));
    }

    #[test]
    fn contents_have_the_length_that_was_asked_for_at_most() {
        for kind in 0..5 {
            for most in [0, 1, 300, 20_000] {
                let contents = Input::new(&[0xFF, 0xFF, kind, 1, 2, 3]).contents(most);
                assert!(contents.len() <= most.max(10), "{kind}");
            }
        }
    }
}
