//! Servers that are gone or disappear during a transfer: cached chunks are used, received ones are
//! kept, and missing ones are reported.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy, Link, Network};
use forerun_testkit_servers::{Auth, DockerRegistry, Nginx};

use crate::common;
use crate::common::place::{Place, name_at, noise};

const BRIEF: [&str; 4] = ["--timeout", "3", "--retries", "1"];

#[test]
fn what_is_in_the_cache_is_opened_without_its_server() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let url = proxy.url_of("image");
    let offline = ["ls", "--offline", &url];
    let unknown = place.run(&offline);
    assert_eq!(unknown.code, Some(4));
    let told = "not in the cache, and --offline forbids contacting a server";
    assert!(unknown.stderr.contains(told), "{}", unknown.stderr);
    assert_eq!(proxy.log().requests(), 0);

    place.run(&["cache", "prefetch", "-q", &url]).ok();
    let listing = place.run(&["ls", "-l", &url]).ok().stdout;
    proxy.set_network(Network::Refused);
    let cached = place.run(&[&["ls", "-l"][..], &BRIEF, &[&url]].concat());
    assert_eq!((cached.code, &cached.stdout), (Some(0), &listing));
    let year = |text: &str| text.contains("is opened from the cache, as it was on 20");
    assert!(year(&cached.stderr), "{}", cached.stderr);
    assert!(
        cached.stderr.contains("forerun: warning: "),
        "{}",
        cached.stderr
    );
    let asked = place.run(&offline);
    assert_eq!(asked.code, Some(0));
    assert!(
        asked.stderr.contains(" as it was on 20"),
        "{}",
        asked.stderr
    );
    place.run(&["cat", "-q", "--offline", &url, "small"]).ok();

    // A mount reports it too, and uses the server again when it is back.
    let mounted = place.mount(&BRIEF, &url);
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(year(&log), "{log}");
    let status = place.run(&["status", "--json"]).ok().mounts();
    let answered = status[0]["remote"]["answered"].as_u64().unwrap();
    assert!(answered > 1_700_000_000, "{answered}");
    mounted.end();
    proxy.set_network(Network::Up);
    let mounted = place.mount(&BRIEF, &url);
    let status = place.run(&["status", "--json"]).ok().mounts();
    assert!(status[0]["remote"]["answered"].is_null(), "{status}");
    mounted.end();

    // A refusal counts as an answer.
    fs::rename(place.path("image"), place.path("elsewhere")).unwrap();
    let gone = place.run(&["ls", &url]);
    assert_eq!(gone.code, Some(4));
    assert!(gone.stderr.contains("not found"), "{}", gone.stderr);
    place.run(&["ls", "-q", "--offline", &url]).ok();
}

/// Waits until the data file below `part` has `bytes` bytes.
fn wait_for_bytes(part: &Path, bytes: u64) {
    use std::os::unix::fs::MetadataExt as _;
    let start = Instant::now();
    let here = || {
        let blob = fs::read_dir(part.join("v1/blobs")).ok()?.next()?.ok()?;
        Some(blob.path().join("data").metadata().ok()?.blocks() * 512)
    };
    while here().unwrap_or(0) < bytes {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const SLOW: Link = Link {
    rtt: Duration::ZERO,
    bytes_per_second: Some(6 << 20),
};

/// Pulls `name` through `proxy` in three attempts: the first is killed, the second loses the
/// server, the third completes.
fn pulled_in_three_goes(place: &Place, proxy: &FaultProxy, name: &str) {
    let image = fs::read(place.path("image")).unwrap();
    let pull = [&["pull", "-q"][..], &BRIEF, &[name, "copy"]].concat();
    let part = place.path("copy.part");
    proxy.set_link(SLOW);
    proxy.forget();
    let mut child = place.command(&pull).spawn().unwrap();
    wait_for_bytes(&part, 3 << 20);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!place.path("copy").exists());

    let mut command = place.command(&pull);
    let child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_bytes(&part, 6 << 20);
    // Only one process may pull at a time.
    let other = place.run(&pull);
    assert_eq!(other.code, Some(4));
    assert!(other.stderr.contains("another process"), "{}", other.stderr);
    proxy.set_network(Network::Refused);
    let ended = common::ran(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(4), "{}", ended.stderr);
    assert!(ended.stderr.contains("copy.part"), "{}", ended.stderr);
    assert!(!place.path("copy").exists());

    proxy.set_network(Network::Up);
    proxy.set_link(Link::default());
    place.run(&pull).ok();
    assert!(
        fs::read(place.path("copy")).unwrap() == image,
        "other bytes"
    );
    assert!(!part.exists());
    // Two interruptions lose at most an incomplete chunk in each of up to eight requests, and the
    // contents of socket buffers.
    let sent = proxy.log().sent();
    let most = u64::try_from(image.len()).unwrap() + (4 << 20);
    assert!(sent <= most, "{sent} of {}", image.len());
    fs::remove_file(place.path("copy")).unwrap();
}

#[test]
fn a_pull_goes_on_where_it_was_interrupted() {
    let place = Place::new();
    let (Some(nginx), Some(registry)) = (
        Nginx::serve(place.dir.path()),
        DockerRegistry::start(Auth::None),
    ) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    pulled_in_three_goes(&place, &proxy, &proxy.url_of("image"));
    let pushed = name_at(&registry, "1");
    place.run(&["push", "-q", "image", &pushed]).ok();
    let proxy = FaultProxy::start(&registry.url());
    let name = format!("oci://{}/a/app:1", proxy.authority());
    pulled_in_three_goes(&place, &proxy, &name);
}

#[test]
fn a_pull_takes_nothing_of_another_version_and_nothing_that_was_spoilt() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let url = proxy.url_of("image");
    let pull = [&["pull", "-q"][..], &BRIEF, &[&*url, "copy"]].concat();
    let interrupt = || {
        proxy.set_link(SLOW);
        let mut child = place.command(&pull).spawn().unwrap();
        wait_for_bytes(&place.path("copy.part"), 4 << 20);
        child.kill().unwrap();
        child.wait().unwrap();
        proxy.set_link(Link::default());
    };
    interrupt();
    let new: Vec<u8> = noise(14 << 20).into_iter().rev().collect();
    fs::write(place.path("new"), &new).unwrap();
    fs::rename(place.path("new"), place.path("image")).unwrap();
    place.run(&pull).ok();
    assert!(fs::read(place.path("copy")).unwrap() == new, "a mixture");
    fs::remove_file(place.path("copy")).unwrap();

    interrupt();
    let blobs = place.path("copy.part/v1/blobs");
    let blob = fs::read_dir(blobs).unwrap().next().unwrap().unwrap();
    let mut data = fs::read(blob.path().join("data")).unwrap();
    data[..1 << 20].fill(7);
    fs::write(blob.path().join("data"), data).unwrap();
    place.run(&pull).ok();
    assert!(fs::read(place.path("copy")).unwrap() == new, "spoilt bytes");

    // An unrelated file with the name of the partial image stays.
    fs::remove_file(place.path("copy")).unwrap();
    fs::write(place.path("copy.part"), "mine").unwrap();
    let refused = place.run(&pull);
    assert_eq!(refused.code, Some(4), "{}", refused.stderr);
    assert_eq!(fs::read(place.path("copy.part")).unwrap(), b"mine");
}

#[test]
fn a_list_that_was_not_fetched_to_its_end_is_told() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let url = proxy.url_of("image");
    let mounted = place.mount(&["--record", "list"], &url);
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    mounted.end();
    fs::remove_dir_all(place.path("cache")).unwrap();
    let prefetch = |with: &str| {
        let fetch = ["cache", "prefetch", "--prefetch", with];
        place.run(&[&fetch[..], &BRIEF, &[&url]].concat())
    };
    for with in ["list", "all"] {
        proxy.forget();
        proxy.faults(|request| {
            (request.range.is_some() && request.number > 2).then_some(Fault::ResetBeforeHead)
        });
        let cut = prefetch(with);
        assert_eq!(cut.code, Some(4), "{with}: {}", cut.stderr);
        assert!(
            cut.stderr.contains(" could not be fetched: "),
            "{}",
            cut.stderr
        );
        proxy.clear_faults();
        assert_eq!(prefetch(with).code, Some(0));
        proxy.set_network(Network::Refused);
        // Nothing is missing, so an unreachable server is no failure.
        assert_eq!(prefetch(with).code, Some(0));
        proxy.set_network(Network::Up);
        fs::remove_dir_all(place.path("cache")).unwrap();
    }
}
