//! Finds files with holes that are worth storing as chunks.
//!
//! Blocks of other files are contiguous, so their holes would be stored as zeros.

use std::collections::HashMap;
use std::ops::Range;

use forerun_build::{BuildError, NodeIndex, Unreadable, WHOLE, WalkedTree};

use super::options::ErofsOptions;
use super::pack::PART;

/// Bytes that chunks must save to be used; Linux reads chunk-based files only since 5.15.
const WORTH: u64 = 1 << 20;
/// Chunks are not compressed. In a compressed image they pay off only if the holes are at least
/// this long and the data at most `1 / SMALL_PART` of them: compressed holes cost a five-hundredth
/// of their length in the index.
const LONG: u64 = 64 << 20;
const SMALL_PART: u64 = 64;
const ENTRY: u64 = 4;

/// Returns the files to store as chunks because of their holes, with their chunk sizes.
pub fn chunked_for_holes(
    walked: &WalkedTree<'_>,
    options: &ErofsOptions,
) -> Result<HashMap<NodeIndex, u32>, BuildError> {
    let mut chunked = HashMap::new();
    let is_old = |with: &super::Compression| with.full_indexes;
    if options.chunk_size.is_some() || options.compression.as_ref().is_some_and(is_old) {
        return Ok(chunked);
    }
    for file in walked.files.iter().filter(|file| file.len > WHOLE) {
        let data = file.content.data(file.len);
        let data = data.map_err(|error| walked.unreadable(file, Unreadable::Io(error)))?;
        let Some(data) = data else { continue };
        let (chunk, cost) = best_chunk(&data, file.len, options.block_size);
        let held: u64 = data.iter().map(|range| range.end - range.start).sum();
        let holes = file.len - held;
        let pays_off = match options.compression {
            Some(_) => holes >= LONG && held <= holes / SMALL_PART,
            None => cost + WORTH <= file.len,
        };
        if pays_off {
            chunked.insert(file.node, chunk);
        }
    }
    Ok(chunked)
}

/// Returns the chunk size that takes the fewest bytes, and that number.
fn best_chunk(data: &[Range<u64>], len: u64, block: u32) -> (u32, u64) {
    let sizes = std::iter::successors(Some(block), |size| size.checked_mul(2));
    let sizes = sizes.take_while(|size| u64::from(*size) <= PART);
    let costs = sizes.map(|size| (size, cost(data, len, size.into())));
    costs
        .min_by_key(|(_, cost)| *cost)
        .unwrap_or((block, u64::MAX))
}

fn cost(data: &[Range<u64>], len: u64, chunk: u64) -> u64 {
    let (mut count, mut next) = (0, 0);
    for range in data {
        let first = (range.start / chunk).max(next);
        next = range.end.div_ceil(chunk).max(next);
        count += next - first;
    }
    count * chunk + len.div_ceil(chunk) * ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chunk_of_least_cost_is_taken() {
        let gib = 1 << 30;
        assert_eq!(best_chunk(&[], 64 * gib, 4096), (4 << 20, 16 * 4096));
        // Each of the two bytes costs a chunk, and every chunk a table entry.
        let ends = [0..1, 64 * gib - 1..64 * gib];
        let (chunk, cost) = best_chunk(&ends, 64 * gib, 4096);
        assert_eq!((chunk, cost), (256 << 10, (512 << 10) + (1 << 20)));
        // Two ranges in the same chunk count once.
        assert_eq!(super::cost(&[0..1, 5..6], 4096, 4096), 4096 + 4);
    }
}
