//! Chunks altered on disk are detected at their first use.

use std::fs;
use std::os::unix::fs::FileExt;

use forerun_cache::{Cache, CacheOptions};
use forerun_testkit::{children, temp_dir};

use crate::common::{CHUNK_LEN, compare, image, quiet, spec, store};

#[test]
fn what_became_wrong_on_disk_is_found_where_it_is_looked_at() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let bytes = image(5, 8 * CHUNK_LEN);
    let spoil = |cache: &Cache, identity: &str| {
        let data = cache.layout().blob(identity).join("data");
        let data = fs::OpenOptions::new().write(true).open(data).unwrap();
        data.write_all_at(b"spoiled", 5 * 4096 + 17).unwrap();
    };
    for with_table in [true, false] {
        let cache = quiet(dir.path());
        let identity = spec(&bytes, with_table).identity;
        let blob = cache.blob(spec(&bytes, with_table)).unwrap();
        store(&blob, &bytes, 0..8);
        drop(blob);
        spoil(&cache, &identity);
        let mut options = CacheOptions::default();
        options.recheck = true;
        let careful = Cache::open(dir.path(), options).unwrap();
        let blob = careful.blob(spec(&bytes, with_table)).unwrap();
        assert_eq!(compare(&blob, &bytes), [0, 1, 2, 3, 4, 6, 7]);
        // The state file no longer has the chunk, so a crash while it is written again does no
        // harm.
        let other = quiet(dir.path()).blob(spec(&bytes, with_table)).unwrap();
        assert_eq!(compare(&other, &bytes), [0, 1, 2, 3, 4, 6, 7]);
        store(&blob, &bytes, 5..6);
        blob.flush().unwrap();
        assert_eq!(compare(&other, &bytes).len(), 8);
        drop((blob, other));
        // A check of the whole cache finds it too.
        spoil(&cache, &identity);
        let mut reports = Vec::new();
        cache.verify(|report| reports.push(report)).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].checked, &*reports[0].wrong), (8, &[5..6][..]));
        assert_eq!(reports[0].unverified, if with_table { 0 } else { 7 });
        let blob = cache.blob(spec(&bytes, with_table)).unwrap();
        assert_eq!(compare(&blob, &bytes), [0, 1, 2, 3, 4, 6, 7]);
        drop(blob);
        cache.remove(&identity).unwrap();
    }
}

#[test]
fn a_chunk_that_was_altered_in_the_cache_is_missing_at_its_first_use() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let bytes = image(8, 8 * CHUNK_LEN + 9);
    let cache = quiet(dir.path());
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    store(&blob, &bytes, 0..9);
    drop(blob);
    let alter = |at: u64| {
        let data = cache
            .layout()
            .blob(&spec(&bytes, true).identity)
            .join("data");
        let data = fs::OpenOptions::new().write(true).open(data).unwrap();
        data.write_all_at(b"altered", at).unwrap();
    };
    alter(5 * 4096 + 17);
    alter(8 * 4096 + 1);
    let mut options = CacheOptions::default();
    options.trust = true;
    let trusting = Cache::open(dir.path(), options).unwrap();
    let blob = trusting.blob(spec(&bytes, true)).unwrap();
    let mut trusted = [0; 7];
    assert!(blob.is_checked() && blob.read_if_present(5 * 4096 + 17, &mut trusted).unwrap());
    assert_eq!(&trusted, b"altered");
    drop(blob);
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    assert!(blob.is_complete() && !blob.is_checked());
    // Alter a few bytes of one chunk, then several chunks, then all chunks.
    let mut few = [0; 10];
    assert!(blob.read_if_present(4 * 4096 + 1, &mut few).unwrap());
    assert_eq!(few, bytes[4 * 4096 + 1..][..10]);
    let mut across = vec![0; 2 * CHUNK_LEN];
    assert!(!blob.read_if_present(4 * 4096 + 100, &mut across).unwrap());
    assert_eq!((blob.altered_chunks(), blob.is_complete()), (1, false));
    assert_eq!(blob.missing(0..9).unwrap(), [5..6]);
    blob.check_rest().unwrap();
    assert_eq!(blob.altered_chunks(), 2);
    assert_eq!(blob.missing(0..9).unwrap(), [5..6, 8..9]);
    store(&blob, &bytes, 5..6);
    store(&blob, &bytes, 8..9);
    assert!(blob.is_complete() && blob.is_checked());
    // One read from the middle of a chunk to the end.
    let mut most = vec![0; bytes.len() - 100];
    drop(blob);
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    assert!(blob.read_if_present(100, &mut most).unwrap());
    assert!(most == bytes[100..]);
    assert!(blob.is_checked() && blob.altered_chunks() == 0);
}

#[test]
fn a_chunk_that_was_cut_off_in_the_cache_is_missing() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let bytes = image(9, 4 * CHUNK_LEN);
    let cache = quiet(dir.path());
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    store(&blob, &bytes, 0..4);
    drop(blob);
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    let data = cache.layout().blob(blob.identity()).join("data");
    let data = fs::OpenOptions::new().write(true).open(data).unwrap();
    data.set_len(3 * 4096 + 5).unwrap();
    let mut all = vec![0; bytes.len()];
    assert!(!blob.read_if_present(0, &mut all).unwrap());
    assert_eq!(blob.missing(0..4).unwrap(), [3..4]);
    store(&blob, &bytes, 3..4);
    assert!(blob.read_if_present(0, &mut all).unwrap() && all == bytes);
}

#[test]
fn an_image_without_digests_is_known_to_be_here_and_checked_as_it_is_read() {
    let _locks_count = children::forbid();
    // The records of an image with a digest are the first bytes of chunk digests. Others are quick
    // hashes.
    for name in [None, Some("https://host/image \"1\"")] {
        let of = |bytes: &[u8]| {
            let mut spec = spec(bytes, false);
            spec.identity = name.map_or(spec.identity, str::to_string);
            spec
        };
        let dir = temp_dir("cache");
        let bytes = image(21, 5 * CHUNK_LEN + 5);
        let cache = quiet(dir.path());
        let blob = cache.blob(of(&bytes)).unwrap();
        store(&blob, &bytes, 0..6);
        drop(blob);
        let blob = cache.blob(of(&bytes)).unwrap();
        assert!(blob.is_complete() && !blob.is_checked() && !blob.is_verified());
        let data = cache.layout().blob(blob.identity()).join("data");
        let data = fs::OpenOptions::new().write(true).open(data).unwrap();
        data.write_all_at(b"spoiled", 2 * 4096).unwrap();
        assert_eq!(compare(&blob, &bytes), [0, 1, 3, 4, 5]);
        assert_eq!(blob.altered_chunks(), 1);
        assert_eq!(blob.missing(0..6).unwrap(), [2..3]);
        store(&blob, &bytes, 2..3);
        assert!(blob.is_complete() && blob.is_checked());
        drop(blob);
        // With `recheck`, each chunk is hashed before it counts as present.
        let mut options = CacheOptions::default();
        options.recheck = true;
        drop(cache);
        let cache = Cache::open(dir.path(), options).unwrap();
        let blob = cache.blob(of(&bytes)).unwrap();
        assert!(!blob.is_complete());
        assert_eq!(compare(&blob, &bytes).len(), 6);
        assert!(blob.is_complete());
    }
}

/// Replaces the records by BLAKE3 hashes: earlier versions used these for images without a digest.
#[test]
fn records_of_earlier_versions_stay_valid() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let bytes = image(22, 5 * CHUNK_LEN + 5);
    let of = || {
        let mut spec = spec(&bytes, false);
        spec.identity = "https://host/image \"2\"".to_string();
        spec
    };
    let cache = quiet(dir.path());
    let blob = cache.blob(of()).unwrap();
    store(&blob, &bytes, 0..6);
    drop(blob);
    let blob_dir = cache.layout().blob(&of().identity);
    let info = fs::read_to_string(blob_dir.join("info")).unwrap();
    let old = info.replace("records: xxh3\n", "records: blake3\n");
    assert_ne!(old, info);
    fs::write(blob_dir.join("info"), old).unwrap();
    let hashes = bytes.chunks(CHUNK_LEN).map(blake3::hash);
    let records: Vec<u8> = hashes
        .flat_map(|hash| hash.as_bytes()[..8].to_vec())
        .collect();
    fs::write(blob_dir.join("records"), records).unwrap();
    let data = fs::OpenOptions::new()
        .write(true)
        .open(blob_dir.join("data"))
        .unwrap();
    data.write_all_at(b"spoiled", 2 * 4096).unwrap();
    let blob = cache.blob(of()).unwrap();
    assert_eq!(compare(&blob, &bytes), [0, 1, 3, 4, 5]);
    assert_eq!(blob.altered_chunks(), 1);
    store(&blob, &bytes, 2..3);
    drop(blob);
    let blob = cache.blob(of()).unwrap();
    assert_eq!(
        (compare(&blob, &bytes).len(), blob.altered_chunks()),
        (6, 0)
    );
}
