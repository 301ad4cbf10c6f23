//! Several processes share a cache: each chunk is fetched once, and no blob in use is evicted.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use forerun_cache::{Cache, CacheOptions, CachedBlob, Waited};
use forerun_testkit::rng::Rng;
use forerun_testkit::{children, temp_dir};

use crate::common::{self, CHUNK_LEN, compare, image, slice, spec};

/// Variable with the child's task: the directory, the child's number, and the number of images.
const TASK: &str = "FORERUN_CACHE_PROCESSES";
const CHUNKS: u64 = 64;
const LEN: usize = 64 * CHUNK_LEN - 500;
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);

/// Fetches missing chunks of `run` as a scheduler does. Returns how many it fetched.
fn fetch(blob: &Arc<CachedBlob>, bytes: &[u8], run: std::ops::Range<u64>) -> u64 {
    let mut fetched = 0;
    loop {
        let claim = blob.claim(std::slice::from_ref(&run)).unwrap();
        blob.adopt(claim.mine()).unwrap();
        for mine in claim.mine() {
            for missing in blob.missing(mine.clone()).unwrap() {
                fetched += missing.end - missing.start;
                let place = blob.geometry().bytes_of(&missing);
                // Simulates the duration of a fetch.
                std::thread::sleep(Duration::from_micros(300));
                blob.store(missing.start, &bytes[slice(&place)]).unwrap();
            }
        }
        let busy = claim.busy().to_vec();
        drop(claim);
        for chunk in busy.into_iter().flatten() {
            assert_ne!(
                blob.wait(chunk, CHUNK_TIMEOUT).unwrap(),
                Waited::TimedOut,
                "chunk {chunk}"
            );
        }
        if blob.missing(run.clone()).unwrap().is_empty() {
            return fetched;
        }
    }
}

#[test]
#[ignore = "run by the other tests as a process of its own"]
fn child() {
    let task = std::env::var(TASK).unwrap();
    let task: Vec<&str> = task.split('|').collect();
    let number: u64 = task[1].parse().unwrap();
    let images: u64 = task[2].parse().unwrap();
    let rounds: u64 = task[3].parse().unwrap();
    // The limit allows two and a half images.
    let mut options = CacheOptions::with_limit(if images > 1 {
        LEN as u64 * 5 / 2
    } else {
        u64::MAX
    });
    options.flush_after = Duration::from_millis(5);
    let cache = Cache::open(Path::new(task[0]), options).unwrap();
    let mut rng = Rng::new(number);
    let mut fetched = 0;
    for _ in 0..rounds {
        let seed = rng.below(images);
        let bytes = image(seed, LEN);
        let blob = cache.blob(spec(&bytes, !seed.is_multiple_of(3))).unwrap();
        let mut order: Vec<u64> = (0..CHUNKS / 4).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, rng.below(at as u64 + 1) as usize);
        }
        for start in order {
            fetched += fetch(&blob, &bytes, start * 4..start * 4 + 4);
        }
        assert!(blob.is_complete());
        if rng.below(2) == 0 {
            cache.gc().unwrap();
        }
        assert_eq!(compare(&blob, &bytes).len() as u64, CHUNKS);
    }
    println!("\nfetched {fetched}");
}

/// Runs children. Returns how many chunks they fetched in total.
fn run(children: u64, images: u64, rounds: u64, dir: &Path) -> u64 {
    let start = |number| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", "--ignored", "--nocapture", "processes::child"])
            .env(
                TASK,
                format!("{}|{number}|{images}|{rounds}", dir.display()),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        children::spawn(&mut child).unwrap()
    };
    let children: Vec<_> = (0..children).map(start).collect();
    let mut fetched = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}\n{errors}");
        let count = text.lines().find_map(|line| line.strip_prefix("fetched "));
        fetched += count.unwrap().parse::<u64>().unwrap();
    }
    fetched
}

#[test]
fn processes_fetch_each_chunk_of_an_image_once() {
    for _ in 0..3 {
        let dir = temp_dir("cache");
        assert_eq!(run(3, 1, 1, dir.path()), CHUNKS);
        // Present chunks are not fetched again.
        assert_eq!(run(1, 1, 1, dir.path()), 0);
    }
}

#[test]
fn processes_that_evict_take_nothing_from_each_other() {
    let dir = temp_dir("cache");
    let fetched = run(2, 6, 40, dir.path());
    assert!(fetched > 6 * CHUNKS, "nothing was ever evicted: {fetched}");
    let cache = Cache::open(dir.path(), CacheOptions::with_limit(LEN as u64 * 5 / 2)).unwrap();
    let report = cache.gc().unwrap();
    assert_eq!(report.in_use, 0);
    assert!(report.left_bytes <= LEN as u64 * 5 / 2, "{report:?}");
    let mut wrong = 0;
    cache.verify(|report| wrong += report.wrong.len()).unwrap();
    assert_eq!(wrong, 0);
}

#[test]
fn threads_of_one_process_fetch_each_chunk_once() {
    let dir = temp_dir("cache");
    let bytes = image(1, LEN);
    let cache = common::quiet(dir.path());
    let blob = cache.blob(spec(&bytes, true)).unwrap();
    let fetched: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|seed| {
                let (blob, bytes) = (&blob, &bytes);
                scope.spawn(move || {
                    let mut rng = Rng::new(seed);
                    let starts = (0..40).map(|_| rng.below(CHUNKS));
                    starts
                        .map(|at| fetch(blob, bytes, at..(at + 9).min(CHUNKS)))
                        .sum::<u64>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(fetched, blob.local_bytes().div_ceil(CHUNK_LEN as u64));
}
