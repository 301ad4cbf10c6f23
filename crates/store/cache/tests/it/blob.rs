//! One image: stored chunks are served, others are missing, and both survive reopening the cache.

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use forerun_cache::{Cache, CacheError, CacheOptions, Digest, Waited};
use forerun_testkit::{children, temp_dir};

use crate::common::{self, CHUNK, CHUNK_LEN, compare, image, quiet, slice, spec, store};

#[test]
fn what_is_stored_is_served_and_the_rest_is_missing() {
    let _locks_count = children::forbid();
    for with_table in [true, false] {
        let dir = temp_dir("cache");
        let cache = quiet(dir.path());
        let bytes = image(1, 10 * CHUNK_LEN + 100);
        let blob = cache.blob(spec(&bytes, with_table)).unwrap();
        assert_eq!(blob.missing(0..99).unwrap(), [0..11]);
        store(&blob, &bytes, 2..4);
        store(&blob, &bytes, 9..11);
        assert_eq!(blob.missing(0..11).unwrap(), [0..2, 4..9]);
        assert_eq!(blob.known_present(0..11), [2..4, 9..11]);
        assert_eq!(compare(&blob, &bytes), [2, 3, 9, 10]);
        assert_eq!(blob.local_bytes(), 4 * u64::from(CHUNK));
        let mut across = [0; 200];
        assert!(!blob.read_if_present(2 * 4096 - 100, &mut across).unwrap());
        assert!(blob.read_if_present(3 * 4096 - 100, &mut across).unwrap());
        assert_eq!(across, bytes[3 * 4096 - 100..][..200]);
        let past = blob.read_if_present(bytes.len() as u64 - 1, &mut across);
        assert_eq!(past.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
        assert!(!blob.is_complete());
        store(&blob, &bytes, 0..11);
        assert!(blob.is_complete() && blob.is_verified() == with_table);
        assert_eq!(blob.local_bytes(), bytes.len() as u64);
        let mut all = vec![0; bytes.len()];
        blob.data_file().read_exact_at(&mut all, 0).unwrap();
        assert!(all == bytes);
    }
}

#[test]
fn flushed_or_not_it_is_there_when_opened_again() {
    let _locks_count = children::forbid();
    for with_table in [true, false] {
        for flushed in [true, false] {
            let (dir, copy) = (temp_dir("cache"), temp_dir("cache-copy"));
            let cache = quiet(dir.path());
            let bytes = image(2, 40 * CHUNK_LEN + 1);
            let blob = cache.blob(spec(&bytes, with_table)).unwrap();
            store(&blob, &bytes, 3..30);
            if flushed {
                blob.flush().unwrap();
            }
            // A copy is like the cache after a kill: nothing was dropped.
            common::copy_tree(dir.path(), copy.path());
            let again = quiet(copy.path()).blob(spec(&bytes, with_table)).unwrap();
            let known = again.known_present(0..41);
            assert_eq!(known == [3..30], flushed, "{known:?}");
            assert_eq!(compare(&again, &bytes), (3..30).collect::<Vec<_>>());
        }
    }
}

#[test]
fn the_background_makes_it_durable() {
    let _locks_count = children::forbid();
    let (dir, copy) = (temp_dir("cache"), temp_dir("cache-copy"));
    let mut options = CacheOptions::default();
    options.flush_after = Duration::from_millis(1);
    let cache = Cache::open(dir.path(), options).unwrap();
    let bytes = image(3, 9 * CHUNK_LEN);
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    store(&blob, &bytes, 0..9);
    let start = std::time::Instant::now();
    loop {
        common::copy_tree(dir.path(), copy.path());
        let again = quiet(copy.path()).blob(spec(&bytes, true)).unwrap();
        if again.known_present(0..9) == [0..9] {
            break;
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no thread flushes"
        );
        drop(again);
        fs::remove_dir_all(copy.path()).unwrap();
    }
}

#[test]
fn wrong_chunks_are_refused_and_right_ones_beside_them_kept() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let bytes = image(4, 8 * CHUNK_LEN);
    let blob = quiet(dir.path()).blob(spec(&bytes, true)).unwrap();
    let mut bad = bytes.clone();
    bad[3 * CHUNK_LEN] ^= 1;
    bad[5 * CHUNK_LEN] ^= 1;
    let refused = blob.store(0, &bad).unwrap_err();
    assert!(
        matches!(refused, CacheError::WrongDigest { chunk: 3, .. }),
        "{refused}"
    );
    assert_eq!(compare(&blob, &bytes), [0, 1, 2, 4, 6, 7]);
    store(&blob, &bytes, 3..6);
    assert!(blob.is_complete());
    // These chunks are present, so their bytes are neither compared nor written.
    blob.store(0, &bad[..3 * CHUNK_LEN]).unwrap();
    for (first, len) in [(0, 100), (8, 4096), (7, 8192), (0, 0), (u64::MAX, 4096)] {
        let refused = blob.store(first, &bytes[..len]).unwrap_err();
        assert!(matches!(refused, CacheError::NotChunks { .. }), "{refused}");
    }
    assert_eq!(compare(&blob, &bytes).len(), 8);
}

#[test]
fn a_whole_is_verified_once_or_dropped() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let bytes = image(6, 5 * CHUNK_LEN + 5);
    let cache = quiet(dir.path());
    let blob = cache.blob(spec(&bytes, false)).unwrap();
    store(&blob, &bytes, 0..5);
    let early = blob.verify_whole(Digest::of(&bytes)).unwrap_err();
    assert!(matches!(early, CacheError::Missing { chunk: 5 }), "{early}");
    store(&blob, &bytes, 5..6);
    assert!(!blob.is_verified());
    blob.verify_whole(Digest::of(&bytes)).unwrap();
    assert!(blob.is_verified());
    drop(blob);
    // The image counts as verified, so no chunk is hashed again.
    let blob = cache.blob(spec(&bytes, false)).unwrap();
    assert!(blob.is_verified() && blob.is_complete());
    assert_eq!(compare(&blob, &bytes).len(), 6);
    let wrong = blob.verify_whole(Digest::of(b"")).unwrap_err();
    assert!(matches!(wrong, CacheError::WrongWhole { .. }), "{wrong}");
    assert!(!blob.is_verified() && !blob.is_complete());
    assert!(compare(&blob, &bytes).is_empty());
    drop(blob);
    let blob = cache.blob(spec(&bytes, false)).unwrap();
    assert!(!blob.is_verified());
    assert_eq!(blob.missing(0..6).unwrap(), [0..6]);
}

#[test]
fn chunks_of_other_images_and_of_zeros_are_not_fetched() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let cache = quiet(dir.path());
    let old = image(7, 20 * CHUNK_LEN + 10);
    let mut new = image(8, 30 * CHUNK_LEN + 10);
    new[4 * CHUNK_LEN..9 * CHUNK_LEN].copy_from_slice(&old[10 * CHUNK_LEN..15 * CHUNK_LEN]);
    new[12 * CHUNK_LEN..14 * CHUNK_LEN].fill(0);
    // The last chunk, with the same padding.
    let end = 30 * CHUNK_LEN;
    new[end..].copy_from_slice(&old[20 * CHUNK_LEN..]);
    let first = cache.blob(spec(&old, true)).unwrap();
    store(&first, &old, 0..13);
    store(&first, &old, 20..21);
    let blob = cache.blob(spec(&new, true)).unwrap();
    let claim = blob.claim(&[0..31]).unwrap();
    let adopted = blob.adopt(claim.mine()).unwrap();
    assert_eq!(adopted, [4..7, 12..14, 30..31]);
    assert_eq!(compare(&blob, &new), [4, 5, 6, 12, 13, 30]);
    // Finds chunks of the image itself too, if they were present when the index was built.
    let twice = [&new[..], &new[..4 * CHUNK_LEN]].concat();
    let other = cache.blob(spec(&twice, true)).unwrap();
    assert_eq!(other.adopt(&[4..7]).unwrap(), [4..7]);
    // An image without a table copies nothing.
    let plain = cache.blob(spec(&image(9, 5 * CHUNK_LEN), false)).unwrap();
    assert_eq!(plain.adopt(&[0..5]).unwrap(), []);
}

#[test]
fn a_record_that_lies_does_no_harm_to_the_process_that_adopts_it() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let cache = quiet(dir.path());
    let old = image(10, 6 * CHUNK_LEN);
    let first = cache.blob(spec(&old, true)).unwrap();
    store(&first, &old, 0..6);
    let data = cache.layout().blob(first.identity()).join("data");
    let data = fs::OpenOptions::new().write(true).open(data).unwrap();
    data.write_all_at(b"spoiled", 2 * 4096).unwrap();
    let mut new = old.clone();
    new.extend(image(11, CHUNK_LEN));
    let blob = cache.blob(spec(&new, true)).unwrap();
    assert_eq!(blob.adopt(&[0..7]).unwrap(), [0..2, 3..6]);
    assert_eq!(compare(&blob, &new), [0, 1, 3, 4, 5]);
    store(&blob, &new, 2..3);
    assert_eq!(compare(&blob, &new), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn one_claims_and_the_others_wait() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let (one, two) = (quiet(dir.path()), quiet(dir.path()));
    let bytes = image(12, 16 * CHUNK_LEN);
    for with_table in [true, false] {
        let (a, b) = (
            one.blob(spec(&bytes, with_table)),
            two.blob(spec(&bytes, with_table)),
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        let claim = a.claim(&[2..8]).unwrap();
        assert_eq!((claim.mine(), claim.busy()), (&[2..8][..], &[][..]));
        let other = b.claim(&[0..4, 6..12]).unwrap();
        assert_eq!(
            (other.mine(), other.busy()),
            (&[0..2, 8..12][..], &[2..4, 6..8][..])
        );
        // Claims also exclude each other within a process.
        let again = a.claim(&[7..9]).unwrap();
        assert_eq!((again.mine(), again.busy()), (&[][..], &[7..9][..]));
        assert_eq!(b.poll(3).unwrap(), Waited::TimedOut);
        assert_eq!(
            b.wait(3, Duration::from_millis(5)).unwrap(),
            Waited::TimedOut
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| b.wait(3, Duration::from_secs(60)).unwrap());
            let inside = scope.spawn(|| a.wait(3, Duration::from_secs(60)).unwrap());
            store(&a, &bytes, 2..6);
            assert_eq!(waits.join().unwrap(), Waited::Present);
            assert_eq!(inside.join().unwrap(), Waited::Present);
        });
        assert_eq!(b.wait(6, Duration::ZERO).unwrap(), Waited::TimedOut);
        drop(claim);
        assert_eq!(b.wait(6, Duration::from_secs(60)).unwrap(), Waited::Free);
        let rest = b.claim(&[2..8]).unwrap();
        assert_eq!((rest.mine(), rest.busy()), (&[6..8][..], &[][..]));
        assert_eq!(compare(&b, &bytes), [2, 3, 4, 5]);
        let identity = a.identity().to_string();
        drop((a, b, other, again, rest));
        one.remove(&identity).unwrap();
    }
}

#[test]
fn what_another_process_has_stored_is_not_written_again() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let (one, two) = (quiet(dir.path()), quiet(dir.path()));
    let bytes = image(16, 6 * CHUNK_LEN);
    let a = one.blob(spec(&bytes, false)).unwrap();
    let b = two.blob(spec(&bytes, false)).unwrap();
    store(&a, &bytes, 1..4);
    b.store(0, &vec![0x33; 6 * CHUNK_LEN]).unwrap();
    for blob in [a, b] {
        let mut out = [0; 6 * CHUNK_LEN];
        blob.read_exact_at(0, &mut out).unwrap();
        let (stored, other) = (&out[CHUNK_LEN..4 * CHUNK_LEN], &out[..CHUNK_LEN]);
        assert!(stored == &bytes[CHUNK_LEN..4 * CHUNK_LEN] && other == [0x33; CHUNK_LEN]);
    }
}

#[test]
fn damaged_claims_are_no_claims() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let (one, two) = (quiet(dir.path()), quiet(dir.path()));
    let bytes = image(13, 16 * CHUNK_LEN);
    let (a, b) = (
        one.blob(spec(&bytes, true)).unwrap(),
        two.blob(spec(&bytes, true)).unwrap(),
    );
    let claim = a.claim(&[2..8, 10..12]).unwrap();
    let path = one.layout().blob(a.identity()).join("claims");
    let good = fs::read(&path).unwrap();
    forerun_testkit::mutate::each(&good, 300, |mutated| {
        fs::write(&path, mutated).unwrap();
        let other = b.claim(&[0..16]).unwrap();
        let all = [other.mine(), other.busy()].concat();
        let mut all: Vec<u64> = all.into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
    });
    drop(claim);
}

#[test]
fn the_same_identity_with_another_shape_is_replaced_unless_it_is_in_use() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let (one, two) = (quiet(dir.path()), quiet(dir.path()));
    let bytes = image(14, 5 * CHUNK_LEN);
    let longer = image(15, 6 * CHUNK_LEN);
    let named = |bytes: &[u8]| {
        let mut spec = spec(bytes, false);
        spec.identity = "https://host/image".to_string();
        spec
    };
    let blob = one.blob(named(&bytes)).unwrap();
    store(&blob, &bytes, 0..5);
    assert!(Arc::ptr_eq(&blob, &one.blob(named(&bytes)).unwrap()));
    for cache in [&one, &two] {
        let refused = cache.blob(named(&longer)).unwrap_err();
        assert!(matches!(refused, CacheError::Conflict { .. }), "{refused}");
    }
    drop(blob);
    let blob = two.blob(named(&longer)).unwrap();
    assert_eq!(blob.missing(0..6).unwrap(), [0..6]);
    let mut other = spec(&bytes, true);
    other.len += 1;
    assert!(matches!(two.blob(other), Err(CacheError::Spec { .. })));
    let mut other = named(&bytes);
    other.identity = "a\nb".to_string();
    assert!(matches!(two.blob(other), Err(CacheError::Spec { .. })));
    let mut other = named(&bytes);
    other.len = u64::MAX;
    assert!(matches!(two.blob(other), Err(CacheError::Geometry(_))));
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let path = dir.path().join("made/here");
    drop(quiet(&path));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("v1/blobs")), 0o700);
    for (inner, bad) in [("", 0o720), ("", 0o702), ("v1", 0o750), ("v1/blobs", 0o701)] {
        let inner = path.join(inner);
        fs::set_permissions(&inner, fs::Permissions::from_mode(bad)).unwrap();
        let refused = Cache::open(&path, CacheOptions::default()).unwrap_err();
        assert!(matches!(refused, CacheError::Refused { .. }), "{refused}");
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(Cache::open(&file, CacheOptions::default()).is_err());
}

#[test]
fn empty_images_and_images_of_one_byte() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let cache = quiet(dir.path());
    for with_table in [true, false] {
        for len in [0, 1] {
            let bytes = vec![7; len];
            let mut spec = spec(&bytes, with_table);
            spec.identity = format!("{len} {with_table}");
            let blob = cache.blob(spec).unwrap();
            assert_eq!(blob.is_complete(), len == 0);
            let chunks = blob.geometry().chunks();
            if len > 0 {
                blob.store(0, &bytes[slice(&blob.geometry().bytes_of(&(0..chunks)))])
                    .unwrap();
            }
            assert!(blob.is_complete());
            compare(&blob, &bytes);
            blob.verify_whole(Digest::of(&bytes)).unwrap();
        }
    }
}
