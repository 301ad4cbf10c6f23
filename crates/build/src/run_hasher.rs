//! A hash of contents with long holes, which are not hashed byte by byte.

use super::content::is_zero;
use super::fetch::ContentHash;
use forerun_io::u64_from;

/// Hashes data bytes, and only the lengths of zero runs. Contents that arrive in chunks of the same
/// lengths have the same hash, whether zeros arrive as data or as holes. Other chunk lengths may
/// give another hash.
#[derive(Default)]
pub struct RunHasher {
    hasher: blake3::Hasher,
    zeros: u64,
}

impl RunHasher {
    pub fn data(&mut self, bytes: &[u8]) {
        if is_zero(bytes) {
            return self.zeros(u64_from(bytes.len()));
        }
        self.end_zeros();
        self.hasher.update(&u64_from(bytes.len()).to_le_bytes());
        self.hasher.update(bytes);
    }

    pub fn zeros(&mut self, len: u64) {
        self.zeros += len;
    }

    #[must_use]
    pub fn finish(mut self) -> ContentHash {
        self.end_zeros();
        *self.hasher.finalize().as_bytes()
    }

    fn end_zeros(&mut self) {
        if self.zeros > 0 {
            // Data chunks are never empty, so a length of 0 marks a run of zeros.
            self.hasher.update(&0_u64.to_le_bytes());
            self.hasher.update(&self.zeros.to_le_bytes());
            self.zeros = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(pieces: &[Result<&[u8], u64>]) -> ContentHash {
        let mut hasher = RunHasher::default();
        for piece in pieces {
            match piece {
                Ok(bytes) => hasher.data(bytes),
                Err(zeros) => hasher.zeros(*zeros),
            }
        }
        hasher.finish()
    }

    #[test]
    fn a_hole_counts_as_the_zeros_in_it() {
        let hole = hash(&[Ok(b"ab"), Err(4), Ok(b"cd")]);
        assert_eq!(hole, hash(&[Ok(b"ab"), Ok(&[0; 2]), Err(2), Ok(b"cd")]));
        for other in [
            [Ok(&b"ab"[..]), Err(5), Ok(b"cd")],
            [Ok(b"ab"), Err(4), Ok(b"ce")],
            [Err(4), Ok(b"ab"), Ok(b"cd")],
        ] {
            assert_ne!(hole, hash(&other));
        }
    }
}
