//! The limit: the least recently used blob is evicted, and never one in use.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use forerun_cache::{Cache, CacheError, CacheOptions, CachedBlob, Digest, Verified};
use forerun_testkit::{children, temp_dir};

use crate::common::{self, CHUNK_LEN, compare, image, quiet, spec, store};

const LEN: usize = 64 * CHUNK_LEN;

fn full(cache: &Cache, seed: u64) -> Arc<CachedBlob> {
    let bytes = image(seed, LEN);
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    store(&blob, &bytes, 0..64);
    blob.flush().unwrap();
    blob
}

fn age(cache: &Cache, blob: Arc<CachedBlob>, hours: u64) -> String {
    let identity = blob.identity().to_string();
    drop(blob);
    let file = fs::File::open(cache.layout().blob(&identity).join("use")).unwrap();
    let then = SystemTime::now() - Duration::from_secs(3600 * hours);
    file.set_modified(then).unwrap();
    identity
}

#[test]
fn the_blob_used_longest_ago_goes_first_and_none_in_use() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let cache = Cache::open(dir.path(), CacheOptions::with_limit(3 * LEN as u64)).unwrap();
    let names: Vec<String> = [5, 9, 1, 7]
        .into_iter()
        .map(|hours| {
            let blob = full(&cache, hours);
            age(&cache, blob, hours)
        })
        .collect();
    let kept = || {
        let entries = cache.list().unwrap();
        names
            .iter()
            .map(|name| entries.iter().any(|e| e.identity == *name))
            .collect::<Vec<_>>()
    };
    // Another process uses the blob of 9 hours again, and its time is set back.
    let other = Cache::open(dir.path(), CacheOptions::default()).unwrap();
    let used = full(&other, 9);
    let file = fs::File::open(cache.layout().blob(used.identity()).join("use")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let report = cache.gc().unwrap();
    assert_eq!(
        (report.removed, report.in_use, report.busy),
        (2, 1, false),
        "{report:?}"
    );
    assert!(report.left_bytes <= 3 * LEN as u64 && report.freed_bytes >= 2 * LEN as u64);
    assert_eq!(kept(), [false, true, true, false]);
    let refused = cache.remove(&names[1]).unwrap_err();
    assert!(matches!(refused, CacheError::InUse { .. }), "{refused}");
    assert_eq!(compare(&used, &image(9, LEN)).len(), 64);
    let report = cache.shrink_to(0).unwrap();
    assert_eq!((report.removed, report.in_use), (1, 1), "{report:?}");
    drop(used);
    cache.remove(&names[1]).unwrap();
    assert!(matches!(
        cache.remove(&names[1]),
        Err(CacheError::Unknown { .. })
    ));
    assert_eq!(kept(), [false; 4]);
    assert_eq!(cache.gc().unwrap().left_bytes, 0);
}

#[test]
fn storing_past_the_limit_collects_by_itself() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let mut options = CacheOptions::with_limit(2 * LEN as u64);
    options.flush_after = Duration::from_millis(1);
    let cache = Cache::open(dir.path(), options).unwrap();
    for seed in 0..6 {
        let blob = full(&cache, seed);
        age(&cache, blob, 10 - seed);
    }
    let _last = full(&cache, 6);
    let start = std::time::Instant::now();
    while cache.list().unwrap().len() > 2 {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no thread collects"
        );
        std::thread::yield_now();
    }
}

#[test]
fn lists_say_what_is_there() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let cache = quiet(dir.path());
    let (a, b) = (image(1, LEN), image(2, LEN - 5));
    let (with, without) = (
        cache.blob(spec(&a, true)).unwrap(),
        cache.blob(spec(&b, false)).unwrap(),
    );
    store(&with, &a, 0..10);
    store(&without, &b, 63..64);
    let root = with.table().unwrap().root();
    drop(with);
    let entries = cache.list().unwrap();
    let find = |bytes: &[u8]| {
        let identity = Digest::of(bytes).to_string();
        entries
            .iter()
            .find(|entry| entry.identity == identity)
            .unwrap()
    };
    let entry = find(&a);
    assert_eq!((entry.len, entry.local_bytes), (LEN as u64, 10 * 4096));
    assert_eq!(
        (entry.in_use, entry.verified),
        (false, Verified::Table(root))
    );
    assert_eq!(
        (&*entry.label, entry.chunk_size),
        ("an image", common::CHUNK)
    );
    assert!(entry.disk_bytes >= entry.local_bytes, "{entry:?}");
    let entry = find(&b);
    assert_eq!(
        (entry.local_bytes, entry.in_use, entry.verified),
        (4091, true, Verified::No)
    );
    store(&without, &b, 0..64);
    without.verify_whole(Digest::of(&b)).unwrap();
    let entries = cache.list().unwrap();
    assert_eq!(entries[0].verified, Verified::Whole(Digest::of(&b)));
}

#[test]
fn what_crashes_leave_is_cleared_away() {
    let _locks_count = children::forbid();
    let dir = temp_dir("cache");
    let cache = quiet(dir.path());
    let top = dir.path().join("v1");
    let blob = full(&cache, 1);
    let claim = blob.claim(&[0..1]).unwrap();
    let holders = || fs::read_dir(top.join("holders")).unwrap().count();
    assert_eq!(holders(), 1);
    fs::write(top.join("holders/0123456789abcdef"), "").unwrap();
    fs::create_dir(top.join("trash/x")).unwrap();
    fs::write(top.join("trash/x/data"), "x").unwrap();
    fs::create_dir(top.join("new/x")).unwrap();
    cache.gc().unwrap();
    assert_eq!(holders(), 1);
    assert_eq!(fs::read_dir(top.join("trash")).unwrap().count(), 0);
    // It may still be being made.
    assert_eq!(fs::read_dir(top.join("new")).unwrap().count(), 1);
    let made = fs::File::open(top.join("new/x")).unwrap();
    made.set_modified(SystemTime::now() - Duration::from_secs(7200))
        .unwrap();
    cache.gc().unwrap();
    assert_eq!(fs::read_dir(top.join("new")).unwrap().count(), 0);
    drop(claim);
}

#[test]
fn blobs_with_files_missing_or_cut_are_made_anew() {
    let _locks_count = children::forbid();
    let bytes = image(3, LEN);
    for name in ["info", "use", "data", "records", "state", "claims", "table"] {
        for cut in [true, false] {
            let dir = temp_dir("cache");
            let cache = quiet(dir.path());
            let blob = cache.blob(spec(&bytes, true)).unwrap();
            store(&blob, &bytes, 0..64);
            let path = cache.layout().blob(blob.identity()).join(name);
            drop(blob);
            if cut {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            } else {
                fs::remove_file(&path).unwrap()
            }
            cache.list().unwrap();
            let blob = cache.blob(spec(&bytes, true)).unwrap();
            compare(&blob, &bytes);
            store(&blob, &bytes, 0..64);
            assert_eq!(compare(&blob, &bytes).len(), 64, "{name} {cut}");
            blob.flush().unwrap();
        }
    }
}

fn blobs(cache: &Cache) -> usize {
    fs::read_dir(cache.layout().blobs()).unwrap().count()
}

/// Stores a blob of four chunks that is removed when it is closed.
fn temporary(cache: &Cache, bytes: &[u8]) -> Arc<CachedBlob> {
    let mut wanted = spec(bytes, false);
    wanted.temporary = true;
    let blob = cache.blob(wanted).unwrap();
    store(&blob, bytes, 0..4);
    blob
}

#[test]
fn a_temporary_blob_is_gone_when_it_is_closed() {
    let _locks_count = children::forbid();
    let dir = temp_dir("temporary");
    let cache = quiet(dir.path());
    let bytes = image(1, 4 * CHUNK_LEN);
    let blob = temporary(&cache, &bytes);
    let kept = cache.blob(spec(&image(2, CHUNK_LEN), false)).unwrap();
    assert_eq!(blobs(&cache), 2);
    blob.remove_temporary();
    kept.remove_temporary();
    assert_eq!(blobs(&cache), 1);
    // Its readers can go on.
    assert_eq!(compare(&blob, &bytes).len(), 4);
    drop((blob, kept));
    assert_eq!(blobs(&cache), 1);
}

#[test]
fn a_temporary_blob_of_a_killed_process_is_gone_when_the_cache_is_used_again() {
    let _locks_count = children::forbid();
    let dir = temp_dir("temporary");
    let cache = quiet(dir.path());
    let bytes = image(1, 4 * CHUNK_LEN);
    let blob = temporary(&cache, &bytes);
    let there = cache.layout().blob(blob.identity());
    let kept = temp_dir("kept");
    common::copy_tree(&there, &kept.path().join("blob"));
    // A blob in use stays.
    cache.tidy().unwrap();
    assert_eq!(blobs(&cache), 1);
    drop(blob);
    for collect in [false, true] {
        // A killed process leaves the blob in this state.
        common::copy_tree(&kept.path().join("blob"), &there);
        assert_eq!(blobs(&cache), 1);
        if collect {
            cache.gc().unwrap();
        } else {
            cache.tidy().unwrap();
        }
        assert_eq!(blobs(&cache), 0);
    }
}

#[test]
fn a_cache_over_its_limit_is_collected_when_it_is_used() {
    let _locks_count = children::forbid();
    let dir = temp_dir("limit");
    let cache = quiet(dir.path());
    for seed in 1..=4 {
        let bytes = image(seed, 100 * CHUNK_LEN);
        let blob = cache.blob(spec(&bytes, true)).unwrap();
        store(&blob, &bytes, 0..100);
        blob.flush().unwrap();
    }
    assert_eq!(blobs(&cache), 4);
    let tidy = |options: CacheOptions| {
        let cache = Cache::open(dir.path(), options).unwrap();
        cache.tidy().unwrap();
        blobs(&cache)
    };
    assert_eq!(tidy(CacheOptions::default()), 4);
    assert_eq!(tidy(CacheOptions::with_limit(1_200_000)), 2);
    // The required free space counts too; here it is more than the disk has.
    let mut full = CacheOptions::default();
    full.keep_free = u64::MAX;
    assert_eq!(tidy(full), 0);
}

#[test]
fn the_default_limit_is_a_share_of_the_disk() {
    let _locks_count = children::forbid();
    let dir = temp_dir("share");
    let options = CacheOptions::share_of_disk(&dir.path().join("not/there/yet")).unwrap();
    let disk = rustix::fs::statvfs(dir.path()).unwrap();
    let total = disk.f_blocks * disk.f_frsize;
    assert_eq!(
        (options.limit_bytes, options.keep_free),
        (total / 10, total / 20)
    );
}
