//! A local file behind a simulated link.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun_io::ReadAt;
use forerun_remote::{FarFile, Link, RemoteImage, open_origin};
use forerun_testkit::temp_dir;

use crate::support::{noise, options, read};

const LINK: Link = Link {
    round_trip: Duration::from_millis(5),
    bytes_per_second: 50 << 20,
};

#[test]
fn a_far_file_is_fetched_once_and_takes_the_time_of_its_link() {
    let (files, cache) = (temp_dir("files"), temp_dir("cache"));
    let path = files.path().join("image");
    let bytes = noise(3_000_001, 5);
    std::fs::write(&path, &bytes).unwrap();
    let open = || -> Arc<RemoteImage> {
        let far = FarFile::open(&path, LINK).unwrap();
        open_origin(Arc::new(far), &options(cache.path())).unwrap()
    };
    let start = Instant::now();
    let image = open();
    assert_eq!(image.len(), 3_000_001);
    read(&image, &bytes, 0, bytes.len());
    // At the least: two round trips, and the bytes at the rate of the line.
    assert!(start.elapsed() > Duration::from_millis(2 * 5 + 57));
    let status = image.status();
    assert_eq!(status.fetched_bytes, 3_000_001);
    assert!(status.requests > 0 && status.refetched_bytes == 0);
    image.reopen(&options(cache.path())).unwrap();
    drop(image);
    let again = open();
    read(&again, &bytes, 7, 2_000_000);
    assert_eq!(again.status().requests, 0);
    let missing = FarFile::open(&files.path().join("missing"), LINK);
    assert!(missing.is_err());
}
