//! Servers that answer range requests with the whole file and do not give its length.

use std::sync::{Arc, Mutex};

use forerun_io::ReadAt as _;
use forerun_remote::{DownloadReport, Reference, pull_to};
use forerun_testkit::temp_dir;
use forerun_testkit_servers::{Ending, EndlessServer};

use crate::support::{PATIENT, TIMEOUT, noise, options, read, try_open};

const LEN: usize = 1_300_003;

#[test]
fn a_chunked_file_is_downloaded_once_and_then_read_from_the_cache() {
    let (bytes, cache) = (noise(LEN, 80), temp_dir("cache"));
    let server = EndlessServer::start(bytes.clone(), Some("\"1\""), Ending::LastChunk);
    let mut options = options(cache.path());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    options.download = DownloadReport::new(move |_, progress| sink.lock().unwrap().push(progress));
    let image = try_open(&server.url(), &options).unwrap();
    assert_eq!(image.len(), LEN as u64);
    assert!(image.status().complete);
    read(&image, &bytes, 0, LEN);
    assert_eq!(server.downloads(), 1);
    let progress = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!((progress[0].done, progress[0].total), (0, 0));
    assert_eq!(progress.last().unwrap().done, LEN as u64);
    drop(image);

    // The same version is not downloaded again, with or without the server.
    let image = try_open(&server.url(), &options).unwrap();
    read(&image, &bytes, 0, LEN);
    assert_eq!(server.downloads(), 1);
    assert!(seen.lock().unwrap().is_empty());
    drop(image);
    options.offline = true;
    let image = try_open(&server.url(), &options).unwrap();
    read(&image, &bytes, LEN - 100_000, 100_000);
}

#[test]
fn a_file_without_a_version_is_downloaded_by_each_opening() {
    let (bytes, cache) = (noise(LEN, 81), temp_dir("cache"));
    let server = EndlessServer::start(bytes.clone(), None, Ending::LastChunk);
    for downloads in 1..3 {
        let image = try_open(&server.url(), &options(cache.path())).unwrap();
        read(&image, &bytes, 0, LEN);
        assert_eq!(server.downloads(), downloads);
    }
}

#[test]
fn a_chunked_answer_without_its_last_chunk_is_never_taken_as_whole() {
    let (bytes, cache) = (noise(LEN, 82), temp_dir("cache"));
    let server = EndlessServer::start(bytes.clone(), Some("\"1\""), Ending::Cut);
    let mut options = options(cache.path());
    options.retries = 1;
    options.timeout = TIMEOUT;
    let error = try_open(&server.url(), &options).unwrap_err();
    assert!(error.starts_with(&server.url()), "{error}");
    assert_eq!(server.downloads(), 2);
    let output = cache.path().join("output");
    let reference = Reference::parse(&server.url()).unwrap();
    pull_to(&reference, &output, &options, false, &mut |_| {}).unwrap_err();
    assert!(!output.exists());

    server.end_with(Ending::LastChunk);
    options.timeout = PATIENT;
    let image = try_open(&server.url(), &options).unwrap();
    read(&image, &bytes, 0, LEN);
}

#[test]
fn an_answer_that_ends_with_its_connection_is_taken_as_it_came() {
    let (bytes, cache) = (noise(LEN, 83), temp_dir("cache"));
    let server = EndlessServer::start(bytes.clone(), Some("\"1\""), Ending::Close);
    let image = try_open(&server.url(), &options(cache.path())).unwrap();
    read(&image, &bytes, 0, LEN);
}

#[test]
fn a_file_longer_than_the_cache_may_be_is_given_up() {
    let cache = temp_dir("cache");
    let server = EndlessServer::start_repeating(noise(100_000, 84));
    let mut options = options(cache.path());
    options.cache_limit = Some(1_000_000);
    let error = try_open(&server.url(), &options).unwrap_err();
    assert!(
        error.contains("longer than the cache's limit of 1000000 bytes"),
        "{error}"
    );
    assert_eq!(server.downloads(), 1);
}

#[test]
fn a_pull_takes_one_request() {
    let (bytes, dir) = (noise(LEN, 85), temp_dir("pull"));
    for ending in [Ending::LastChunk, Ending::Close] {
        let server = EndlessServer::start(bytes.clone(), None, ending);
        let reference = Reference::parse(&server.url()).unwrap();
        let output = dir.path().join(format!("{ending:?}"));
        let mut last = 0;
        let options = options(dir.path());
        let pulled = pull_to(&reference, &output, &options, false, &mut |progress| {
            last = progress.done;
        });
        assert_eq!((pulled.unwrap().len, last), (LEN as u64, LEN as u64));
        assert!(std::fs::read(&output).unwrap() == bytes);
        assert_eq!(server.downloads(), 1);
    }
}

#[test]
fn an_altered_chunk_is_downloaded_again() {
    let (bytes, cache) = (noise(LEN, 86), temp_dir("cache"));
    let server = EndlessServer::start(bytes.clone(), Some("\"1\""), Ending::LastChunk);
    let options = options(cache.path());
    drop(try_open(&server.url(), &options).unwrap());
    let blobs = std::fs::read_dir(cache.path().join("v1/blobs")).unwrap();
    let dir = blobs.map(|entry| entry.unwrap().path()).next().unwrap();
    let mut data = std::fs::read(dir.join("data")).unwrap();
    data[1_000_000] ^= 1;
    std::fs::write(dir.join("data"), data).unwrap();
    let image = try_open(&server.url(), &options).unwrap();
    read(&image, &bytes, 0, LEN);
    assert_eq!(server.downloads(), 2);
}
