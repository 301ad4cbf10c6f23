//! Helpers that the tests of the cache share.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun_cache::{
    BlobSpec, Cache, CacheOptions, CachedBlob, ChunkTable, Digest, TableTrust, VerifiedTable,
};
use forerun_io::{MemorySource, u64_from, usize_from};

/// Chunk size of most tests. Small chunks make many table levels cheap.
pub const CHUNK: u32 = 4096;
pub const CHUNK_LEN: usize = 4096;

/// Returns the bytes of an image in which no two chunks are equal.
pub fn image(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = forerun_testkit::rng::Rng::new(seed);
    let words = std::iter::from_fn(|| Some(rng.next_u64().to_le_bytes()));
    words.flatten().take(len).collect()
}

pub fn table(bytes: &[u8], chunk: u32) -> ChunkTable {
    ChunkTable::of_source(&MemorySource::new(bytes), chunk).unwrap()
}

pub fn verified(bytes: &[u8], chunk: u32) -> Arc<VerifiedTable> {
    let table = table(bytes, chunk);
    let (geometry, root) = (table.geometry(), table.root());
    let source = Arc::new(MemorySource::new(table.into_bytes()));
    Arc::new(VerifiedTable::new(source, geometry, root).unwrap())
}

pub fn spec(bytes: &[u8], with_table: bool) -> BlobSpec {
    let table = with_table.then(|| verified(bytes, CHUNK));
    BlobSpec {
        identity: Digest::of(bytes).to_string(),
        len: u64_from(bytes.len()),
        chunk_size: CHUNK,
        table,
        trust: TableTrust::default(),
        temporary: false,
        label: "an image".to_string(),
    }
}

/// Creates a directory, in memory if possible, for tests that simulate power cuts.
pub fn memory_dir() -> tempfile::TempDir {
    forerun_testkit::memory_dir("cache", 64 << 20)
}

/// Opens a cache without background flushes.
pub fn quiet(dir: &Path) -> Cache {
    let mut options = CacheOptions::default();
    options.flush_after = Duration::from_secs(3600);
    options.flush_bytes = u64::MAX;
    Cache::open(dir, options).unwrap()
}

pub fn store(blob: &CachedBlob, bytes: &[u8], chunks: Range<u64>) {
    let place = blob.geometry().bytes_of(&chunks);
    blob.store(chunks.start, &bytes[slice(&place)]).unwrap();
}

pub fn slice(range: &Range<u64>) -> Range<usize> {
    usize_from(range.start)..usize_from(range.end)
}

/// Reads each chunk of a blob; each must have the image's bytes or be missing. Returns the chunks
/// served.
pub fn compare(blob: &CachedBlob, bytes: &[u8]) -> Vec<u64> {
    let mut served = Vec::new();
    for chunk in 0..blob.geometry().chunks() {
        let place = blob.geometry().bytes_of(&(chunk..chunk + 1));
        let expected = &bytes[slice(&place)];
        let mut out = vec![0x5A; expected.len()];
        match blob.read_exact_at(place.start, &mut out) {
            Ok(()) => {
                assert!(out == expected, "chunk {chunk} is wrong");
                served.push(chunk);
            }
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}"),
        }
    }
    served
}

/// Copies a cache directory without locks and times.
pub fn copy_tree(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}
