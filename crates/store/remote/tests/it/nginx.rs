//! Images on a web server: nginx, plain, with a password, and with TLS.

use forerun_io::ReadAt;
use forerun_testkit_servers::{NginxOptions, PASSWORD, USER};

use crate::support::{self, Proxied, Served, noise, read, try_open, try_read};

const LEN: usize = 1_000_001;

#[test]
fn an_image_is_read_on_demand_and_each_byte_comes_once() {
    let Some(served) = Proxied::new(LEN, 1) else {
        return;
    };
    let (proxy, bytes) = (&served.proxy, served.bytes());
    let options = served.options();
    let image = served.open(&options);
    assert_eq!(image.len(), bytes.len() as u64);
    for (at, len) in [(0, 1), (LEN - 1, 1), (65_535, 2), (300_000, 200_000)] {
        read(&image, bytes, at, len);
    }
    for at in (0..LEN).step_by(4096) {
        read(&image, bytes, at, 4096.min(LEN - at));
    }
    assert!(image.wait_complete(support::PATIENT));
    let log = proxy.log();
    assert_eq!(log.union("/image"), [0..bytes.len() as u64]);
    assert_eq!(log.sent_twice("/image"), 0);
    let status = image.status();
    assert_eq!((status.refetched_bytes, status.wrong_bytes), (0, 0));
    assert_eq!(status.fetched_bytes, bytes.len() as u64);
    assert!(status.complete);
    drop(image);

    // The second time, no chunk is requested again.
    proxy.forget();
    let image = served.open(&options);
    // The image is known to be complete before the first read, so the engine treats it as a local
    // file.
    assert!(image.status().complete && !image.is_slow());
    read(&image, bytes, 0, LEN);
    assert_eq!(proxy.log().sent(), 0);
}

#[test]
fn the_wrong_password_is_refused_and_not_told() {
    let wanted = NginxOptions {
        basic_auth: true,
        ..NginxOptions::default()
    };
    let Some(served) = Served::with(100_000, 2, &wanted) else {
        return;
    };
    let with = |user: &str| served.url().replace("://", &format!("://{user}"));
    let options = served.options();
    for user in ["", "tester:not-the-password@"] {
        let error = try_open(&with(user), &options).unwrap_err();
        assert!(error.contains("401"), "{error}");
        assert!(!error.contains("not-the-password"), "{error}");
    }
    let image = try_open(&with(&format!("{USER}:{PASSWORD}@")), &options).unwrap();
    assert!(!image.place().contains(PASSWORD), "{}", image.place());
    read(&image, &served.bytes, 0, served.bytes.len());
}

#[test]
fn only_known_authorities_are_trusted() {
    let wanted = NginxOptions {
        tls: true,
        ..NginxOptions::default()
    };
    let Some(served) = Served::with(300_000, 3, &wanted) else {
        return;
    };
    let mut options = served.options();
    let error = try_open(&served.url(), &options).unwrap_err();
    assert!(error.contains("its issuer is not known"), "{error}");
    options.ca_file = served.nginx.ca().map(Into::into);
    let image = try_open(&served.url(), &options).unwrap();
    read(&image, &served.bytes, 0, served.bytes.len());
    // The certificate is valid for this address and its name only.
    let other = served.url().replace("127.0.0.1", "127.0.0.2");
    try_open(&other, &options).unwrap_err();
}

#[test]
fn what_is_not_there_is_refused() {
    let Some(served) = Served::new(100_000, 4) else {
        return;
    };
    let options = served.options();
    let error = try_open(&served.nginx.url_of("other"), &options).unwrap_err();
    assert!(error.contains("not found"), "{error}");
}

#[test]
fn an_image_that_changes_is_not_mixed_with_what_it_was() {
    let Some(served) = Served::new(LEN, 5) else {
        return;
    };
    let old = &served.bytes;
    let mut options = served.options();
    options.window = 64 << 10;
    let image = try_open(&served.url(), &options).unwrap();
    read(&image, old, 0, 1000);
    let local = image.status().local_bytes as usize;
    // nginx derives versions from length and time in seconds.
    let new = noise(LEN + 1, 6);
    served.replace(&new);
    let error = try_read(&image, old, LEN - 1000, 1000, support::PATIENT).unwrap_err();
    assert!(error.contains("changed"), "{error}");
    // The cached part still has the old bytes.
    assert!(local < LEN);
    read(&image, old, 0, 1000);
    let image = try_open(&served.url(), &options).unwrap();
    read(&image, &new, 0, LEN + 1);
}
