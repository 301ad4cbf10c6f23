//! Reads the files of a tree for a writer. Several threads read small files ahead of the writer.
//!
//! The writer gets all files in order. It reads a long file itself, in parts, so that the memory in
//! flight does not depend on file lengths. A writer that stores equal contents once hashes only
//! contents whose length occurs twice ([`RepeatedLens`]).

use std::collections::HashMap;

use forerun_io::usize_from;

use super::exact::read_whole;
use super::parallel::{Jobs, ParallelBounds, ParallelError, parallel_map};
use super::tree::BuildError;
use super::walked::{WalkedFile, WalkedTree};

/// Longest file that is read whole.
pub const WHOLE: u64 = 1 << 20;
/// Maximum number of files, and of bytes, in a batch of small files.
const BATCH: usize = 32;
const BATCH_BYTES: u64 = 256 << 10;
/// Threads that read small files: one waits for the disk while the other copies and hashes.
const FETCHERS: usize = 2;

/// A BLAKE3 hash of contents. Collisions are infeasible: contents with the same hash and length are
/// equal, and need not be compared.
pub type ContentHash = [u8; 32];

/// Records lengths that occur more than once. Contents with a unique length have no duplicate, and
/// need no hash.
#[derive(Debug, Default)]
pub struct RepeatedLens {
    lens: HashMap<u64, bool>,
}

impl RepeatedLens {
    pub fn add(&mut self, len: u64) {
        let seen = self.lens.entry(len);
        seen.and_modify(|again| *again = true).or_insert(false);
    }

    #[must_use]
    pub fn has(&self, len: u64) -> bool {
        self.lens.get(&len) == Some(&true)
    }
}

/// Reads a file of at most [`WHOLE`] bytes; returns `None` for a longer one.
pub fn read_small(
    walked: &WalkedTree<'_>,
    file: &WalkedFile<'_>,
) -> Result<Option<Vec<u8>>, BuildError> {
    if file.len > WHOLE {
        return Ok(None);
    }
    let bytes = read_whole(file.content, file.len);
    bytes
        .map(Some)
        .map_err(|reason| walked.unreadable(file, reason))
}

/// Calls `fetch` for each file on threads ahead of the caller, and `consume` for each result on
/// this thread, in the order of the files. `wanted` yields each file with its length. `memory`
/// bounds the bytes in flight.
pub fn fetch_files<W: Send, F: Send>(
    memory: usize,
    wanted: impl Iterator<Item = (W, u64)> + Send,
    fetch: impl Fn(W) -> Result<F, BuildError> + Sync,
    mut consume: impl FnMut(F) -> Result<(), ParallelError<BuildError>>,
) -> Result<(), ParallelError<BuildError>> {
    let bounds = ParallelBounds {
        threads: FETCHERS,
        memory,
    };
    parallel_map(
        bounds,
        || {
            let fetch = &fetch;
            Ok(move |batch: Vec<W>| batch.into_iter().map(fetch).collect::<Result<Vec<F>, _>>())
        },
        |jobs| send_batches(wanted, &jobs),
        |batch| batch.into_iter().try_for_each(&mut consume),
    )
}

/// Sends the files in batches, so that the cost of a job is shared by several small files. Long
/// files have no weight, because they are not read here.
fn send_batches<W>(
    wanted: impl Iterator<Item = (W, u64)>,
    jobs: &Jobs<'_, Vec<W>>,
) -> Result<(), ParallelError<BuildError>> {
    let (mut batch, mut bytes) = (Vec::with_capacity(BATCH), 0);
    for (file, len) in wanted {
        let len = if len > WHOLE { 0 } else { len };
        if batch.len() == BATCH || (bytes + len > BATCH_BYTES && !batch.is_empty()) {
            let next = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
            jobs.send(next, usize_from(bytes))?;
            bytes = 0;
        }
        batch.push(file);
        bytes += len;
    }
    if batch.is_empty() {
        Ok(())
    } else {
        jobs.send(batch, usize_from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Content, NewNode, NodeKind, Tree};

    #[test]
    fn files_are_consumed_in_their_order_whatever_their_lengths() {
        let lens = [1, WHOLE + 1, 0, BATCH_BYTES, 7].into_iter().cycle();
        let wanted: Vec<_> = (0..500_u64).zip(lens).collect();
        let mut consumed = Vec::new();
        let consume = |file| {
            consumed.push(file);
            Ok(())
        };
        fetch_files(1 << 20, wanted.into_iter(), Ok, consume).unwrap();
        assert_eq!(consumed, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_failure_ends_the_reading() {
        let wanted = (0..1000_u64).map(|file| (file, WHOLE));
        let fetch = |file| match file {
            500 => Err(BuildError::Format {
                format: "test",
                reason: "file 500".into(),
            }),
            file => Ok(file),
        };
        let mut consumed = 0;
        let failed = fetch_files(4 << 20, wanted, fetch, |_| {
            consumed += 1;
            Ok(())
        });
        let error = BuildError::from(failed.unwrap_err());
        assert!(error.to_string().contains("file 500"), "{error}");
        assert!(consumed <= 500, "{consumed}");
    }

    #[test]
    fn a_long_file_is_left_to_the_writer() {
        let mut tree = Tree::default();
        for (name, len) in [(&b"small"[..], 3), (b"whole", WHOLE), (b"x", WHOLE + 1)] {
            let content = Content::Bytes(vec![7; usize_from(len)].into());
            let node = NewNode::new(NodeKind::File { len, content }, 0o644);
            tree.add(Tree::ROOT, name, node).unwrap();
        }
        let walked = WalkedTree::new(&tree);
        let read = |file| read_small(&walked, file).unwrap();
        let lens = walked
            .files
            .iter()
            .map(|file| read(file).map(|it| it.len()));
        let lens: Vec<_> = lens.collect();
        assert_eq!(lens, [Some(3), Some(1 << 20), None]);
    }

    #[test]
    fn a_file_that_changed_is_an_error_with_its_path() {
        let mut tree = Tree::default();
        let content = Content::Bytes([7; 3].into());
        let node = NewNode::new(NodeKind::File { len: 4, content }, 0o644);
        let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
        tree.add(dir, b"file", node).unwrap();
        let walked = WalkedTree::new(&tree);
        let error = read_small(&walked, &walked.files[0]).unwrap_err();
        assert!(matches!(error, BuildError::Content { .. }), "{error}");
        assert!(error.to_string().contains("dir/file"), "{error}");
    }

    #[test]
    fn lengths_are_repeated_from_the_second_time_on() {
        let mut lens = RepeatedLens::default();
        for len in [5, 6, 5, 5] {
            lens.add(len);
        }
        assert_eq!([5, 6, 7].map(|len| lens.has(len)), [true, false, false]);
    }
}
