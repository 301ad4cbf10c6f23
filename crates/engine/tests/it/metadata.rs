//! Metadata: each block is read once, and large requests are made only on evidence that they pay.

use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource};
use forerun_io::{BlobId, Counted, Counter, MemorySource, Observer, ReadAt};
use forerun_testkit::{FaultSource, MemFsBuilder, eventually};

use crate::common::{Hinted, KIB, MIB, open, pattern};

fn source(
    bytes: impl ReadAt + 'static,
    options: &EngineOptions,
) -> (MetadataSource, Arc<Observer>) {
    let observer = Arc::new(Observer::default());
    let counted = Counted::new(Arc::new(bytes), BlobId::IMAGE, observer.clone());
    let geometry = options.geometry(counted.len());
    (
        MetadataSource::new(counted, geometry, 32 * MIB as u64),
        observer,
    )
}

fn read(source: &MetadataSource, at: usize, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    source.read_exact_at(at as u64, &mut out).unwrap();
    out
}

#[test]
fn dense_metadata_is_read_in_growing_requests_and_once() {
    let bytes = pattern(4 * MIB + 1024, 1);
    let (source, observer) = source(MemorySource::new(bytes.clone()), &EngineOptions::default());
    for at in (0..bytes.len()).step_by(1000) {
        let len = 100.min(bytes.len() - at);
        assert_eq!(read(&source, at, len), bytes[at..at + len]);
    }
    let stats = observer.stats();
    assert!(
        stats.get(Counter::SourceRequests) <= 20,
        "{}",
        stats.get(Counter::SourceRequests)
    );
    assert_eq!(stats.get(Counter::SourceBytes), bytes.len() as u64);
    assert_eq!(
        stats.get(Counter::MetadataRequests),
        stats.get(Counter::SourceRequests)
    );
}

#[test]
fn strewn_metadata_is_read_in_single_blocks() {
    let bytes = pattern(8 * MIB, 1);
    let (source, observer) = source(MemorySource::new(bytes.clone()), &EngineOptions::default());
    for at in (0..bytes.len()).step_by(64 * KIB) {
        assert_eq!(read(&source, at + 16, 32), bytes[at + 16..at + 48]);
    }
    assert_eq!(observer.stats().get(Counter::SourceRequests), 128);
    assert_eq!(observer.stats().get(Counter::SourceBytes), 128 * 4096);
}

#[test]
fn what_is_expected_is_asked_for_once_in_the_order_of_places() {
    let hinted = Hinted::new(MemorySource::new(pattern(8 * MIB, 1)));
    let hints = Arc::clone(&hinted.hints);
    let (source, observer) = source(hinted, &EngineOptions::default());
    read(&source, 4 * MIB, 16);
    hints.lock().unwrap().clear();
    let (page, mib) = (4096, MIB as u64);
    // Two offsets in one block, one close behind, one far off, one in a cached block, one past the
    // end.
    let places = vec![mib, 100, 164, 2 * page, 4 * mib + 64, 9 * mib];
    source.expect(places.clone(), page);
    source.expect(Vec::new(), page);
    let asked = std::mem::take(&mut *hints.lock().unwrap());
    assert_eq!(asked, [0..3 * page, mib..mib + page]);
    source.expect(places.clone(), 0);
    let asked = std::mem::take(&mut *hints.lock().unwrap());
    assert_eq!(asked, [0..page, 2 * page..3 * page, mib..mib + page]);
    source.expect(places, mib);
    let asked = hints.lock().unwrap().clone();
    assert_eq!(asked.as_slice(), std::slice::from_ref(&(0..mib + page)));
    let stats = observer.stats();
    assert!(stats.get(Counter::HintedBytes) >= 4 * page);
    assert_eq!(stats.get(Counter::SourceRequests), 1);
}

#[test]
fn the_legacy_way_is_a_kibibyte_at_a_time() {
    let legacy = EngineOptions {
        large_blocks: false,
        ..EngineOptions::default()
    };
    let bytes = pattern(64 * KIB + 100, 1);
    let (source, observer) = source(MemorySource::new(bytes.clone()), &legacy);
    assert_eq!(read(&source, 0, bytes.len()), bytes);
    assert_eq!(observer.stats().get(Counter::SourceRequests), 65);
}

#[test]
fn without_guesses_each_block_is_one_request_and_nothing_else_is_asked_for() {
    let bytes = pattern(8 * MIB, 1);
    let hinted = Hinted::new(MemorySource::new(bytes.clone()));
    let hints = Arc::clone(&hinted.hints);
    let (source, observer) = source(hinted, &EngineOptions::default());
    let source = source.guessing(false);
    for at in (0..40 * KIB).step_by(1000).chain([4 * MIB, 6 * MIB]) {
        assert_eq!(read(&source, at, 100), bytes[at..at + 100]);
    }
    let stats = observer.stats();
    assert_eq!(stats.get(Counter::SourceRequests), 12);
    assert_eq!(stats.get(Counter::SourceBytes), 12 * 4096);
    assert!(hints.lock().unwrap().is_empty());
    // The driver locates this block, so it is no guess.
    source.expect(vec![MIB as u64], 0);
    assert_eq!(hints.lock().unwrap().len(), 1);
}

#[test]
fn a_failed_step_costs_only_the_block_that_is_bad() {
    let bytes = pattern(MIB, 1);
    let bad = 300 * KIB;
    let fault =
        FaultSource::bad_range(MemorySource::new(bytes.clone()), bad as u64..bad as u64 + 1);
    let (source, _) = source(fault, &EngineOptions::default());
    for at in (0..bytes.len()).step_by(4 * KIB) {
        let mut out = [0; 64];
        let result = source.read_exact_at(at as u64, &mut out);
        assert_eq!(result.is_ok(), at != bad, "at {at}");
        if result.is_ok() {
            assert_eq!(out, bytes[at..at + 64]);
        }
    }
}

#[test]
fn blocks_from_before_the_ranges_were_known_are_not_read_again() {
    let bytes = pattern(2 * MIB, 1);
    let hinted = Hinted::new(MemorySource::new(bytes.clone()));
    let (source, observer) = source(hinted, &EngineOptions::default());
    // The driver reads these blocks before the ranges are known; the prefetch begins and ends far
    // from them.
    for at in (300 * KIB..460 * KIB).step_by(4 * KIB) {
        read(&source, at, 1);
    }
    // One cached block between others: reading it again costs less than one more request.
    read(&source, MIB, 1);
    let before = observer.stats().get(Counter::SourceRequests);
    source.set_ranges(std::iter::once(0..bytes.len() as u64).collect());
    source.prefetch();
    assert_eq!(read(&source, 0, MIB), bytes[..MIB]);
    let stats = observer.stats();
    let again = stats.get(Counter::SourceBytes) - bytes.len() as u64;
    assert_eq!(again, 4096);
    assert_eq!(stats.get(Counter::SourceRequests), before + 2);
}

#[test]
fn a_walk_prefetches_what_the_driver_names() {
    let mut builder = MemFsBuilder::new();
    let table = builder.store(&pattern(10 * MIB, 1));
    #[allow(clippy::single_range_in_vec_init)]
    builder.metadata_ranges(vec![table..table + 10 * MIB as u64]);
    let image = builder.build();
    let opened = open(
        &image,
        EngineOptions {
            threads: 1,
            ..EngineOptions::default()
        },
    );
    opened.reader.prefetch_metadata();
    assert_eq!(opened.reader.walk(MemFsBuilder::ROOT).count(), 1);
    // The pool has one thread, so the prefetch ends before a read that is queued behind it.
    eventually("the metadata", || {
        opened.count(Counter::SourceBytes) >= 10 * MIB as u64
    });
    assert!(opened.count(Counter::SourceRequests) <= 4);
}
