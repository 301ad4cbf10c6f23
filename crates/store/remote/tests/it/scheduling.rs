//! The order of requests, seen from the server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun_cache::{Cache, CacheOptions};
use forerun_io::{Pattern, ReadAt};
use forerun_remote::{Prefetch, Readahead, RemoteImage, RemoteOptions};
use forerun_testkit::{TempDir, eventually, temp_dir};
use forerun_testkit_servers::fault_proxy::{Link, Network};

use crate::support::{self, Proxied, options, read, try_open};

const CHUNK: usize = 64 << 10;
const MIB: usize = 1 << 20;

struct Far(Proxied);

impl std::ops::Deref for Far {
    type Target = Proxied;

    fn deref(&self) -> &Proxied {
        &self.0
    }
}

impl Far {
    fn new(len: usize) -> Option<Self> {
        Proxied::new(len, 11).map(Self)
    }

    fn open(&self, options: &RemoteOptions) -> Arc<RemoteImage> {
        let image = self.0.open(options);
        self.proxy.forget();
        image
    }

    fn assert_nothing_twice(&self, image: &RemoteImage) {
        assert_eq!(self.proxy.log().sent_twice("/image"), 0);
        assert_eq!(image.status().refetched_bytes, 0);
    }
}

fn still(cache: &TempDir) -> RemoteOptions {
    RemoteOptions {
        readahead: Readahead::Off,
        ..options(cache.path())
    }
}

#[test]
fn adjacent_chunks_are_one_request() {
    let Some(far) = Far::new(4 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let image = far.open(&still(&cache));
    read(&image, far.bytes(), 5, MIB - 10);
    assert_eq!(far.proxy.log().requests(), 1);
    read(&image, far.bytes(), 0, 2 * MIB);
    assert_eq!(far.proxy.log().requests(), 2);
    read(&image, far.bytes(), 3 * MIB, 1);
    read(&image, far.bytes(), 2 * MIB, 2 * MIB);
    let log = far.proxy.log();
    let last: Vec<_> = log
        .entries
        .iter()
        .skip(3)
        .map(|entry| entry.range)
        .collect();
    let range = |start: usize, end: usize| Some((start as u64, Some(end as u64 - 1)));
    let after = 3 * MIB + CHUNK;
    assert_eq!(last.len(), 2, "{last:?}");
    assert!(last.contains(&range(2 * MIB, 3 * MIB)) && last.contains(&range(after, 4 * MIB)));
    far.assert_nothing_twice(&image);
    assert!(image.wait_complete(support::PATIENT));
}

#[test]
fn demand_overtakes_the_background() {
    let Some(far) = Far::new(32 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let options = RemoteOptions {
        requests: 4,
        ..still(&cache)
    };
    let image = far.open(&options);
    // At 2 MiB per second the whole image takes 16 seconds, and two background requests two.
    far.proxy.set_link(Link {
        bytes_per_second: Some(2 << 20),
        ..Link::default()
    });
    image.prefetch_all();
    assert!(far.proxy.wait_for_requests(2, support::PATIENT));
    read(&image, far.bytes(), 31 * MIB, 100);
    let status = image.status();
    assert!(
        !status.complete && status.local_bytes < (16 * MIB) as u64,
        "{status:?}"
    );
    let log = far.proxy.log();
    let number = log
        .entries
        .iter()
        .position(|entry| entry.range.unwrap().0 == (31 * MIB) as u64);
    assert!(number.unwrap() < 5, "{number:?}");
    far.proxy.set_link(Link::default());
    assert!(image.wait_complete(support::PATIENT));
    read(&image, far.bytes(), 0, far.bytes().len());
    far.assert_nothing_twice(&image);
    assert_eq!(far.proxy.log().sent(), far.bytes().len() as u64);

    // The network is no longer needed.
    far.proxy.set_network(Network::Refused);
    assert!(image.status().detached);
    read(&image, far.bytes(), 0, far.bytes().len());
}

#[test]
fn a_chunk_is_served_before_its_request_has_ended() {
    let Some(far) = Far::new(4 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let image = far.open(&still(&cache));
    far.proxy.set_link(Link {
        bytes_per_second: Some(1 << 20),
        ..Link::default()
    });
    image.prefetch_all();
    assert!(far.proxy.wait_for_requests(1, support::PATIENT));
    read(&image, far.bytes(), CHUNK, 1);
    let status = image.status();
    assert!(status.local_bytes < (2 * MIB) as u64, "{status:?}");
    assert_eq!(far.proxy.log().requests(), 1);
}

#[test]
fn many_readers_of_one_chunk_are_one_request() {
    let Some(far) = Far::new(MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let image = far.open(&still(&cache));
    far.proxy.set_link(Link {
        rtt: Duration::from_millis(50),
        ..Link::default()
    });
    std::thread::scope(|scope| {
        for n in 0..32 {
            let (image, bytes) = (&image, far.bytes());
            scope.spawn(move || read(image, bytes, n * 1000, 1000));
        }
    });
    assert_eq!(far.proxy.log().requests(), 1);
    far.assert_nothing_twice(&image);
}

/// Reads the whole image in small steps. Returns the time it took.
fn sequentially(image: &RemoteImage, bytes: &[u8]) -> Duration {
    let start = Instant::now();
    for at in (0..bytes.len()).step_by(16 << 10) {
        read(image, bytes, at, (16 << 10).min(bytes.len() - at));
    }
    start.elapsed()
}

#[test]
fn readers_that_wait_for_windows_wait_longer() {
    let Some(far) = Far::new(24 * MIB + 5) else {
        return;
    };
    // The round trip is so long that a busy machine does not hide it.
    let link = Link {
        rtt: Duration::from_millis(200),
        bytes_per_second: Some(100_000_000),
    };
    let mut took = Vec::new();
    for readahead in [Readahead::Sync, Readahead::Async] {
        let cache = temp_dir("cache");
        let options = RemoteOptions {
            readahead,
            ..still(&cache)
        };
        let image = far.open(&options);
        far.proxy.set_link(link);
        took.push(sequentially(&image, far.bytes()));
        let status = image.status();
        assert_eq!(status.fetched_bytes, far.bytes().len() as u64);
        if readahead == Readahead::Sync {
            assert!(status.waits >= 24, "one wait for each window: {status:?}");
        }
        far.assert_nothing_twice(&image);
    }
    let [sync, ahead] = took[..] else {
        unreachable!()
    };
    eprintln!("24 MiB over 200 ms at 100 MB/s: {sync:?} waiting for windows, {ahead:?} not");
    assert!(
        sync.as_secs_f64() > 1.5 * ahead.as_secs_f64(),
        "{sync:?} {ahead:?}"
    );
}

#[test]
fn random_reads_fetch_what_they_touch() {
    let Some(far) = Far::new(32 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let options = RemoteOptions {
        readahead: Readahead::Async,
        ..still(&cache)
    };
    let image = far.open(&options);
    let mut touched = 0;
    for n in 0..40_usize {
        // 613 and 512, the number of chunks, are coprime.
        let chunk = n * 613 * 7 % 512;
        read(&image, far.bytes(), chunk * CHUNK + 77, 1000);
        touched += 1;
    }
    let status = image.status();
    assert_eq!(status.fetched_bytes, (touched * CHUNK) as u64, "{status:?}");
}

#[test]
fn long_blocks_side_by_side_are_no_sequential_reader() {
    let Some(far) = Far::new(16 * MIB) else {
        return;
    };
    let fetched = |pattern| {
        let cache = temp_dir("cache");
        let options = RemoteOptions {
            readahead: Readahead::Async,
            ..still(&cache)
        };
        let image = far.open(&options);
        let mut out = vec![0; MIB];
        for at in [2 * MIB, 3 * MIB, 4 * MIB, 3 * MIB] {
            image.read_ahead_at(at as u64, &mut out, pattern).unwrap();
            assert!(out == far.bytes()[at..at + MIB]);
        }
        let fetched = move || image.status().fetched_bytes;
        (cache, fetched)
    };
    let read = 3 * MIB as u64;
    let (_cache, forward) = fetched(Pattern::Forward);
    eventually("more is fetched than was read", || forward() > read);
    let (_cache, single) = fetched(Pattern::Single);
    // Readahead would arrive after the answers.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(single(), read);
}

#[test]
fn what_was_recorded_is_fetched_ahead_in_its_order() {
    let Some(far) = Far::new(8 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let list = cache.path().join("list");
    let recording = RemoteOptions {
        record: Some(list.clone()),
        ..still(&cache)
    };
    let image = far.open(&recording);
    let order = [90, 3, 4, 5, 40, 100];
    for chunk in order {
        read(&image, far.bytes(), chunk * CHUNK + 9, 9);
        read(&image, far.bytes(), 90 * CHUNK, 9);
    }
    drop(image);

    let other = temp_dir("cache");
    let options = RemoteOptions {
        prefetch: Prefetch::List(list),
        requests: 1,
        ..still(&other)
    };
    far.proxy.forget();
    let image = try_open(&far.proxy.url_of("image"), &options).unwrap();
    let expected = (order.len() * CHUNK) as u64;
    eventually("all is fetched", || image.status().local_bytes >= expected);
    let starts = |log: forerun_testkit_servers::fault_proxy::Log| -> Vec<u64> {
        let ranges = log.entries.into_iter().filter_map(|entry| entry.range);
        ranges.map(|(start, _)| start / CHUNK as u64).collect()
    };
    assert_eq!(starts(far.proxy.log()), [90, 3, 40, 100]);
    far.proxy.set_network(Network::Refused);
    for chunk in order {
        read(&image, far.bytes(), chunk * CHUNK, 10);
    }
}

#[test]
fn the_background_goes_on_when_the_network_is_back() {
    let Some(far) = Far::new(4 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let options = RemoteOptions {
        timeout: Duration::from_millis(600),
        retries: 1,
        ..options(cache.path())
    };
    let image = far.open(&options);
    far.proxy.set_network(Network::Refused);
    image.prefetch_all();
    assert!(!image.wait_complete(Duration::from_millis(1500)));
    far.proxy.set_network(Network::Up);
    assert!(
        image.wait_complete(support::PATIENT),
        "{:?}",
        image.status()
    );
    read(&image, far.bytes(), 0, far.bytes().len());
}

#[test]
fn an_image_that_was_closed_asks_for_nothing_again() {
    let Some(far) = Far::new(4 * MIB) else {
        return;
    };
    let dir = temp_dir("cache");
    let image = far.open(&RemoteOptions {
        requests: 1,
        ..still(&dir)
    });
    far.proxy.set_link(Link {
        bytes_per_second: Some(1 << 20),
        ..Link::default()
    });
    image.prefetch_all();
    assert!(far.proxy.wait_for_requests(1, support::PATIENT));
    drop(image);
    // A request in flight keeps the blob in use.
    let cache = Cache::open(dir.path(), CacheOptions::default()).unwrap();
    eventually("the request has ended", || {
        cache.list().unwrap().iter().all(|blob| !blob.in_use)
    });
    assert_eq!(far.proxy.log().requests(), 1);
}

#[test]
fn hints_are_fetched_without_waiting() {
    let Some(far) = Far::new(4 * MIB) else {
        return;
    };
    let cache = temp_dir("cache");
    let image = far.open(&still(&cache));
    assert!(image.will_need(MIB as u64..(MIB + 3 * CHUNK) as u64));
    eventually("the hint is fetched", || {
        image.status().local_bytes >= (3 * CHUNK) as u64
    });
    assert_eq!(far.proxy.log().requests(), 1);
    read(&image, far.bytes(), MIB, 3 * CHUNK);
    assert_eq!(far.proxy.log().requests(), 1);
    assert_eq!(image.status().waits, 0);
}

#[test]
fn two_caches_in_one_directory_fetch_each_chunk_once() {
    let Some(far) = Far::new(8 * MIB + 3) else {
        return;
    };
    far.proxy.set_link(Link {
        rtt: Duration::from_millis(3),
        bytes_per_second: Some(50 << 20),
    });
    let cache = temp_dir("cache");
    let options = still(&cache);
    let images: Vec<_> = (0..3).map(|_| far.open(&options)).collect();
    images[0].prefetch_all();
    std::thread::scope(|scope| {
        for (n, image) in images.iter().enumerate() {
            let bytes = far.bytes();
            scope.spawn(move || {
                for step in 0..129 {
                    let at = (step * (37 + n)) % 129 * CHUNK;
                    read(image, bytes, at, CHUNK.min(bytes.len() - at));
                }
            });
        }
    });
    let sent: u64 = images
        .iter()
        .map(|image| image.status().fetched_bytes)
        .sum();
    assert_eq!(sent, far.bytes().len() as u64);
    far.assert_nothing_twice(&images[0]);
}
