//! Partly cached images, opened while their servers do not answer. They open in the last known
//! version, and versions are never mixed.

use std::time::{Duration, SystemTime};

use forerun_cache::{Cache, CacheOptions};
use forerun_io::ReadAt;
use forerun_remote::{Readahead, Reference, RemoteError, RemoteImage, RemoteOptions, open};
use forerun_testkit::temp_dir;
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy, Network};

use crate::support::{
    PATIENT, Proxied, TIMEOUT, impatient, name_at, noise, options, push_to, pushed, read,
    read_at_last, try_open, try_read,
};

const LEN: usize = 1_000_001;

/// Returns options with short timeouts and without readahead.
fn brief(mut options: RemoteOptions) -> RemoteOptions {
    options.retries = 1;
    options.registry.attempts = 2;
    options.readahead = Readahead::Off;
    options
}

/// Asserts that the image was opened from remembered facts, and returns the reason.
fn assert_from_memory(image: &RemoteImage) -> String {
    let memory = image.from_memory().unwrap();
    let age = memory.answered.elapsed().unwrap();
    assert!(age < Duration::from_secs(600), "{age:?}");
    assert_eq!(image.status().answered, Some(memory.answered));
    memory
        .reason
        .as_ref()
        .map_or_else(String::new, ToString::to_string)
}

#[test]
fn a_web_server_that_is_gone_is_not_needed() {
    let Some(served) = Proxied::new(LEN, 1) else {
        return;
    };
    let options = brief(served.options());
    let image = served.open(&options);
    assert!(image.from_memory().is_none());
    assert_eq!(image.status().answered, None);
    read(&image, served.bytes(), 0, LEN);
    drop(image);
    let before = SystemTime::now();
    let url = served.url();
    let Proxied { proxy, served } = served;
    drop((proxy, served.nginx));
    let image = try_open(&url, &options).unwrap();
    assert!(!assert_from_memory(&image).is_empty());
    assert!(image.from_memory().unwrap().answered <= before);
    read(&image, &served.bytes, 0, LEN);
    // An image unknown to the cache cannot be opened.
    let error = try_open(&url.replace("/image", "/other"), &options).unwrap_err();
    assert!(error.contains("127.0.0.1"), "{error}");
}

#[test]
fn what_is_missing_is_an_error_until_the_server_is_back() {
    let Some(served) = Proxied::new(LEN, 2) else {
        return;
    };
    let options = brief(served.options());
    let image = served.open(&options);
    read(&image, served.bytes(), 0, 300_000);
    drop(image);
    for network in [Network::Silent, Network::Refused] {
        served.proxy.set_network(network);
        let image = served.open(&impatient(options.clone()));
        assert_from_memory(&image);
        read(&image, served.bytes(), 0, 300_000);
        let late = try_read(&image, served.bytes(), LEN - 10, 10, TIMEOUT);
        assert!(late.is_err(), "{network:?}");
        drop(image);
    }
    let image = served.open(&options);
    served.proxy.set_network(Network::Up);
    read(&image, served.bytes(), LEN - 70_000, 70_000);
    drop(image);
    // The new version is not mixed with the old one, however long no server answered.
    served.proxy.set_network(Network::Refused);
    let image = served.open(&options);
    let new = noise(LEN + 1, 3);
    served.served.replace(&new);
    served.proxy.set_network(Network::Up);
    let error = try_read(&image, served.bytes(), 500_000, 10, PATIENT).unwrap_err();
    assert!(error.contains("changed"), "{error}");
    read(&image, served.bytes(), 0, 300_000);
    drop(image);
    let image = served.open(&options);
    assert!(image.from_memory().is_none());
    read(&image, &new, 0, LEN + 1);
}

#[test]
fn only_want_of_an_answer_is_made_up_for() {
    let Some(served) = Proxied::new(200_000, 4) else {
        return;
    };
    let options = brief(served.options());
    read(&served.open(&options), served.bytes(), 0, 200_000);
    let status = |code| Fault::Status {
        code,
        retry_after: None,
    };
    for fault in [
        status(500),
        status(503),
        Fault::ResetBeforeHead,
        Fault::Stall,
    ] {
        let of_proxy = fault.clone();
        served.proxy.faults(move |_| Some(of_proxy.clone()));
        let image = served.open(&impatient(options.clone()));
        assert!(!assert_from_memory(&image).is_empty(), "{fault:?}");
        read(&image, served.bytes(), 0, 200_000);
    }
    for code in [401, 403, 404, 410] {
        served.proxy.faults(move |_| Some(status(code)));
        let error = try_open(&served.url(), &options).unwrap_err();
        let says = error.contains("denied") || error.contains("not found");
        assert!(says, "{code}: {error}");
    }
}

#[test]
fn offline_no_server_is_asked() {
    let Some(served) = Proxied::new(LEN, 5) else {
        return;
    };
    let mut options = brief(served.options());
    let image = served.open(&options);
    read(&image, served.bytes(), 0, 300_000);
    drop(image);
    served.proxy.forget();
    options.offline = true;
    let image = served.open(&options);
    assert_eq!(assert_from_memory(&image), "");
    assert_eq!(image.len(), LEN as u64);
    read(&image, served.bytes(), 0, 300_000);
    let error = try_read(&image, served.bytes(), LEN - 10, 10, PATIENT).unwrap_err();
    assert!(error.contains("forbids contacting a server"), "{error}");
    image.reopen(&options).unwrap();
    drop(image);
    let error = try_open(&served.proxy.url_of("other"), &options).unwrap_err();
    assert!(error.contains("forbids contacting a server"), "{error}");
    // The same query finds the cached image; another query does not.
    let query = |text: &str| try_open(&format!("{}?{text}", served.url()), &options);
    query("a").unwrap_err();
    assert_eq!(served.proxy.log().requests(), 0);
    options.require_verified = true;
    let error = try_open(&served.url(), &options).unwrap_err();
    assert!(error.contains("no table of digests"), "{error}");
}

#[test]
fn a_registry_that_is_gone_is_not_needed() {
    let bytes = noise(LEN, 6);
    let Some(registry) = pushed(&bytes) else {
        return;
    };
    let digest = push_to(&registry.authority(), &bytes);
    let proxy = FaultProxy::start(&registry.url());
    let cache = temp_dir("cache");
    let mut options = brief(options(cache.path()));
    let tag = name_at(&proxy.authority());
    let by_digest = tag.replace(":v1", &format!("@{digest}"));
    for name in [&tag, &by_digest] {
        let image = try_open(name, &options).unwrap();
        read(&image, &bytes, 0, 400_000);
    }
    // The tag moves. While no server answers, the image has the old version and reports that.
    let new = noise(LEN, 7);
    push_to(&registry.authority(), &new);
    proxy.set_network(Network::Refused);
    for (name, certain, missing) in [(&tag, false, LEN - 10), (&by_digest, true, 600_000)] {
        let hasty = RemoteOptions {
            timeout: TIMEOUT,
            ..options.clone()
        };
        let image = try_open(name, &hasty).unwrap();
        assert!(!assert_from_memory(&image).is_empty());
        assert_eq!(image.from_memory().unwrap().by_digest, certain);
        assert!(image.status().verified);
        read(&image, &bytes, 0, 400_000);
        try_read(&image, &bytes, missing, 10, TIMEOUT).unwrap_err();
        // Missing chunks are requested by digest, so they come from the old version.
        proxy.set_network(Network::Up);
        read_at_last(&image, &bytes, missing, 10);
        proxy.set_network(Network::Refused);
    }
    options.require_verified = true;
    read(&try_open(&tag, &options).unwrap(), &bytes, 0, 400_000);
    proxy.set_network(Network::Up);
    read(&try_open(&tag, &options).unwrap(), &new, 0, LEN);
    // If the registry answers that the tag is gone, opening fails.
    proxy.faults(|_| {
        Some(Fault::Status {
            code: 404,
            retry_after: None,
        })
    });
    let error = try_open(&tag, &options).unwrap_err();
    assert!(error.contains("not found"), "{error}");
    proxy.clear_faults();
    drop((proxy, registry));
    options.offline = true;
    read(&try_open(&tag, &options).unwrap(), &new, 0, LEN);
}

#[test]
fn what_is_spoilt_or_evicted_is_not_remembered() {
    let Some(served) = Proxied::new(200_000, 8) else {
        return;
    };
    let mut options = brief(served.options());
    options.offline = true;
    let fill = || {
        let asking = brief(served.options());
        read(&served.open(&asking), served.bytes(), 0, 200_000);
        try_open(&served.url(), &options).unwrap();
    };
    fill();
    let names = served.served.cache.path().join("v1/names");
    let record = std::fs::read_dir(&names).unwrap().next().unwrap().unwrap();
    let text = std::fs::read(record.path()).unwrap();
    for at in (0..text.len()).step_by(7) {
        let mut bad = text.clone();
        bad[at] ^= 1;
        std::fs::write(record.path(), bad).unwrap();
        assert!(try_open(&served.url(), &options).is_err(), "{at}");
    }
    fill();
    let cache = Cache::open(served.served.cache.path(), CacheOptions::default()).unwrap();
    // The record has a valid checksum but impossible values.
    let identity = cache.list().unwrap()[0].identity.clone();
    let url = served.url();
    for facts in [&b"{}"[..], b"", &[0xff; 5000]] {
        cache.remember(&url, &identity, facts).unwrap();
        let error = open(&Reference::parse(&url).unwrap(), &options).unwrap_err();
        assert!(matches!(error, RemoteError::Offline { .. }), "{error}");
    }
    fill();
    // Tasks may still use the image that was just closed.
    forerun_testkit::eventually("it is evicted", || {
        cache.shrink_to(0).unwrap();
        cache.list().unwrap().is_empty()
    });
    assert!(try_open(&served.url(), &options).is_err());
    assert_eq!(std::fs::read_dir(&names).unwrap().count(), 0);
    served.proxy.set_network(Network::Refused);
    options.offline = false;
    let error = try_open(&served.url(), &options).unwrap_err();
    assert!(error.contains("127.0.0.1"), "{error}");
}
