//! Servers that answer range requests with the whole file.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use forerun_io::ReadAt as _;
use forerun_remote::{DownloadReport, Reference, pull_to};
use forerun_testkit_servers::NginxOptions;
use forerun_testkit_servers::fault_proxy::{Exchange, Fault};

use crate::support::{Proxied, Served, noise, options, read, try_open};

const LEN: usize = 1_500_001;

/// Serves an image of noise without range requests.
fn served(seed: u64) -> Option<Proxied> {
    let wanted = NginxOptions {
        directives: "max_ranges 0;".to_string(),
        ..NginxOptions::default()
    };
    Served::with(LEN, seed, &wanted).map(Served::behind_proxy)
}

fn downloads(served: &Proxied) -> usize {
    let log = served.proxy.log();
    let is_whole = |request: &&Exchange| request.method == "GET" && request.range.is_none();
    log.of("/image").filter(is_whole).count()
}

#[test]
fn the_file_is_downloaded_once_and_then_read_from_the_cache() {
    let Some(served) = served(60) else {
        return;
    };
    let mut options = served.options();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    options.download = DownloadReport::new(move |_, progress| sink.lock().unwrap().push(progress));
    let image = served.open(&options);
    assert_eq!(image.len(), LEN as u64);
    assert_eq!(downloads(&served), 1);
    let progress = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(progress.first().unwrap().done, 0);
    assert_eq!(progress.last().unwrap().done, LEN as u64);
    read(&image, served.bytes(), 0, LEN);
    assert!(image.status().complete);
    drop(image);

    // The same version is not downloaded again, with or without the server.
    let image = served.open(&options);
    read(&image, served.bytes(), 0, LEN);
    assert_eq!(downloads(&served), 1);
    assert!(seen.lock().unwrap().is_empty());
    drop(image);
    options.offline = true;
    let image = served.open(&options);
    read(&image, served.bytes(), LEN - 100_000, 100_000);
    drop(image);

    // A new version is downloaded.
    options.offline = false;
    let new = noise(LEN + 7, 61);
    served.served.replace(&new);
    let image = served.open(&options);
    read(&image, &new, 0, new.len());
    assert_eq!(downloads(&served), 2);
}

#[test]
fn an_interrupted_download_is_resumed_and_never_taken_as_whole() {
    let Some(served) = served(62) else {
        return;
    };
    let mut options = served.options();
    options.retries = 0;
    let is_download = |request: &Exchange| request.method == "GET" && request.range.is_none();
    served
        .proxy
        .faults(move |request| is_download(request).then_some(Fault::Truncate { after: 700_000 }));
    let error = try_open(&served.url(), &options).unwrap_err();
    assert!(!error.is_empty());
    let mut offline = options.clone();
    offline.offline = true;
    let error = try_open(&served.url(), &offline).unwrap_err();
    assert!(error.contains("not in the cache"), "{error}");

    served.proxy.clear_faults();
    let image = served.open(&options);
    read(&image, served.bytes(), 0, LEN);
    let stored = image.status().fetched_bytes;
    assert!(stored < LEN as u64, "{stored} bytes were fetched again");
    assert_eq!(downloads(&served), 2);
}

#[test]
fn a_file_that_the_cache_may_not_take_is_refused_before_it_is_downloaded() {
    let Some(served) = served(63) else {
        return;
    };
    let mut options = served.options();
    options.cache_limit = Some(1_000_000);
    let error = try_open(&served.url(), &options).unwrap_err();
    assert!(error.contains("1500001 bytes"), "{error}");
    assert!(error.contains("its limit is 1000000"), "{error}");
    assert_eq!(downloads(&served), 0);
}

#[test]
fn an_image_that_is_opened_many_times_at_once_is_downloaded_once() {
    let Some(served) = served(64) else {
        return;
    };
    let (options, bytes) = (served.options(), served.bytes());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let image = served.open(&options);
                read(&image, bytes, 0, LEN);
            });
        }
    });
    assert_eq!(downloads(&served), 1);
}

#[test]
fn an_altered_chunk_is_downloaded_again() {
    let Some(served) = served(65) else {
        return;
    };
    let options = served.options();
    let image = served.open(&options);
    read(&image, served.bytes(), 0, 100);
    drop(image);
    let blobs = std::fs::read_dir(served.served.cache.path().join("v1/blobs")).unwrap();
    let dir = blobs.map(|entry| entry.unwrap().path()).next().unwrap();
    let mut bytes = std::fs::read(dir.join("data")).unwrap();
    bytes[1_000_000] ^= 1;
    std::fs::write(dir.join("data"), bytes).unwrap();
    let image = served.open(&options);
    read(&image, served.bytes(), 0, LEN);
    assert_eq!(downloads(&served), 2);
}

#[test]
fn a_pull_takes_one_request() {
    let Some(served) = served(66) else {
        return;
    };
    let reference = Reference::parse(&served.url()).unwrap();
    let output = served.served.cache.path().join("output");
    let mut last = 0;
    let pulled = pull_to(
        &reference,
        &output,
        &served.options(),
        false,
        &mut |progress| {
            last = progress.done;
        },
    );
    assert_eq!(pulled.unwrap().len, LEN as u64);
    assert!(std::fs::read(&output).unwrap() == served.bytes());
    assert_eq!((downloads(&served), last), (1, LEN as u64));
}

/// Serves `head` and `body` to each request until dropped. Returns the address and the number of
/// requests.
fn answering(head: &'static str, body: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/image", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&requests);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::Relaxed);
            // The client may close early.
            let _ = answer(&stream, head, &body);
        }
    });
    (url, requests)
}

fn answer(stream: &TcpStream, head: &str, body: &[u8]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    while lines
        .next()
        .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
    {}
    let mut stream = stream;
    write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\n{head}\r\n")?;
    if request.starts_with("HEAD") {
        Ok(())
    } else {
        stream.write_all(body)
    }
}

#[test]
fn bodies_of_another_length_are_errors() {
    let cache = forerun_testkit::temp_dir("cache");
    let mut options = options(cache.path());
    options.retries = 1;
    // Shorter than announced.
    let (url, requests) = answering(
        "etag: \"1\"\r\ncontent-length: 200000\r\n",
        noise(150_000, 67),
    );
    try_open(&url, &options).unwrap_err();
    assert!(requests.load(Ordering::Relaxed) <= 5, "{requests:?}");
    // Longer than announced: the excess is not part of the answer.
    let bytes = noise(250_000, 68);
    let (url, _) = answering("etag: \"1\"\r\ncontent-length: 200000\r\n", bytes.clone());
    let image = try_open(&url, &options).unwrap();
    assert_eq!(image.len(), 200_000);
    read(&image, &bytes, 0, 200_000);
}
