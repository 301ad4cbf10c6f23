//! Remote images on the command line: pushed, listed, read, mounted, fetched, cached.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy, Network};
use forerun_testkit_servers::{Auth, DockerRegistry, Nginx, NginxOptions, get};
use rustix::process::Signal;

use crate::common;
use crate::common::place::{Place, name_at, noise};

#[test]
fn an_image_goes_into_a_registry_and_comes_back() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let place = Place::new();
    let name = name_at(&registry, "1");
    let pushed = place.run(&["push", "--json", "image", &name]).ok().json();
    assert_eq!(pushed["uploaded_parts"], pushed["parts"]);
    let again = place.run(&["push", "--json", "image", &name]).ok().json();
    assert_eq!(
        (&again["uploaded_parts"], &again["uploaded_bytes"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        again["name"], pushed["name"],
        "the same image makes the same manifest"
    );

    let listing = place.run(&["ls", &name]).ok();
    assert_eq!(listing.stdout, place.run(&["ls", "image"]).ok().stdout);
    let other = place.run(&["cat", &name, "/sub/other"]).ok();
    assert!(other.stdout == noise(9 << 20), "other bytes");
    place.run(&["check", "-q", &name]).ok();
    place.run(&["extract", "-q", "-C", "out", &name]).ok();
    assert!(fs::read(place.path("out/big")).unwrap() == noise(3 << 20));

    let by_digest = format!(
        "oci://{}",
        pushed["name"]
            .as_str()
            .unwrap()
            .trim_start_matches("oci://")
    );
    place.run(&["pull", "-q", &by_digest, "copy"]).ok();
    assert!(fs::read(place.path("copy")).unwrap() == fs::read(place.path("image")).unwrap());
    let exists = place.run(&["pull", &name, "copy"]);
    exists.fails(
        5,
        "forerun: copy: exists already\n  hint: --force replaces it",
    );
    place.run(&["pull", "-q", "--force", &name, "copy"]).ok();
}

/// Finds the data file of the only image in the cache of `place`.
fn cached_data(place: &Place) -> std::path::PathBuf {
    let blobs = fs::read_dir(place.path("cache/forerun/v1/blobs")).unwrap();
    let dirs: Vec<_> = blobs.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    dirs[0].join("data")
}

#[test]
fn a_chunk_that_was_altered_in_the_cache_is_fetched_again_and_never_served() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let place = Place::new();
    let name = name_at(&registry, "1");
    place.run(&["push", "-q", "image", &name]).ok();
    let cat = |args: &[&str]| {
        place.run(&[&["cat", "--stats", "--json"], args, &[&name, "/big"]].concat())
    };
    let altered = |ran: &common::Ran| {
        let lines = ran
            .stderr
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let remote = lines.map(|line: serde_json::Value| line["remote"]["altered_chunks"].clone());
        remote.filter_map(|count| count.as_u64()).sum::<u64>()
    };
    let alter = || {
        let path = cached_data(&place);
        let bytes = fs::read(&path).unwrap();
        let big = noise(3 << 20);
        // Both files start with the same bytes, so an equal chunk elsewhere could replace the
        // altered one.
        let file = fs::OpenOptions::new().write(true).open(path).unwrap();
        for at in 0..bytes.len() / 4096 {
            if bytes[at * 4096..].starts_with(&big[..64]) {
                let at = u64::try_from(at * 4096 + (1 << 20)).unwrap();
                file.write_all_at(b"altered", at).unwrap();
            }
        }
    };
    place.run(&["cache", "prefetch", "-q", &name]).ok();
    alter();
    let trusting = cat(&["--trust-cache"]);
    assert_eq!((trusting.code, altered(&trusting)), (Some(0), 0));
    assert!(trusting.stdout != noise(3 << 20));
    let verified = cat(&["--require-verified"]);
    assert!(
        verified.stdout == noise(3 << 20),
        "altered bytes were served"
    );
    assert_eq!((verified.code, altered(&verified)), (Some(0), 1));
    alter();
    let offline = cat(&["--offline"]);
    assert_eq!(offline.code, Some(4), "{}", offline.stderr);
    assert!(!offline.stdout.windows(7).any(|window| window == b"altered"));
    let fetched = cat(&[]);
    assert!(fetched.stdout == noise(3 << 20) && fetched.code == Some(0));
    alter();
    let mut mounted = place.mount(&["-v"], &name);
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    let status = place.run(&["status", "--json"]).ok().mounts();
    let altered = status[0]["remote"]["altered_chunks"].as_u64();
    assert!(altered >= Some(1), "{status}");
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("was altered since it was stored"), "{log}");
    // Everything that was read is verified; the rest needs the server.
    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    mounted.wait_for("the rest", || {
        let status = place.run(&["status", "--json"]).ok().mounts();
        status[0]["remote"]["complete"] == true
    });
    mounted.end();
}

#[test]
fn a_mount_fetches_what_is_read_and_tells_of_itself() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let place = Place::new();
    let name = name_at(&registry, "1");
    place.run(&["push", "-q", "image", &name]).ok();
    let mut mounted = place.mount(
        &["--fetch-ahead", "off", "--metrics", "127.0.0.1:0", "-v"],
        &name,
    );
    assert_eq!(fs::read(place.path("mnt/small")).unwrap(), b"small\n");
    // The mount answers before its process reports it.
    mounted.wait_for("the process to tell of itself", || {
        place.run(&["status", "--json"]).ok().mounts()[0].is_object()
    });
    let status = place.run(&["status", "--json"]).ok().mounts();
    let remote = &status[0]["remote"];
    assert_eq!(remote["complete"], false, "{remote}");
    assert_eq!(status[0]["via"], "fuse", "{status}");
    let requests = status[0]["fuse_requests"].as_object().unwrap();
    assert!(!requests.is_empty());
    assert_eq!(
        (&remote["verified"], &remote["errors"]),
        (&true.into(), &0.into())
    );
    let local = remote["local_bytes"].as_u64().unwrap();
    assert!(local > 0 && local < 4 << 20, "{local}");
    let shown = place.run(&["status", "-q"]).ok();
    assert!(shown.text().contains(&name), "{}", shown.text());

    let log = fs::read_to_string(place.path("log")).unwrap();
    let line = log.lines().find(|line| line.contains("serving metrics"));
    let bound = line
        .and_then(|line| line.split("127.0.0.1:").nth(1))
        .map(|rest| {
            let digits = rest
                .find(|char: char| !char.is_ascii_digit())
                .unwrap_or(rest.len());
            format!("127.0.0.1:{}", &rest[..digits])
        });
    let page = get(&bound.unwrap_or_else(|| panic!("{log}")), "/metrics");
    let bytes = fs::metadata(place.path("image")).unwrap().len();
    let label = format!("image=\"{name}\"");
    let line = format!("forerun_remote_image_bytes{{{label}}} {bytes}\n");
    assert!(page.contains(&line), "{page}");
    assert!(
        page.contains("# TYPE forerun_fuse_requests_total counter\n"),
        "{page}"
    );

    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    mounted.wait_for("status", || {
        let status = place.run(&["status", "--json"]).ok().mounts();
        status[0]["remote"]["refetched_bytes"] == 0
    });
    mounted.end();
    assert_eq!(
        place.run(&["status", "--json"]).ok().mounts(),
        serde_json::json!([])
    );
}

#[test]
fn what_was_recorded_is_fetched_ahead_and_the_rest_works_without_a_network() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let url = proxy.url_of("image");
    let mounted = place.mount(&["--record", "list", "--fetch-ahead", "off"], &url);
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    mounted.end();
    let list = fs::read_to_string(place.path("list")).unwrap();
    assert!(list.lines().count() > 1, "{list}");
    let again = place.run(&["cat", "--record", "list", &url, "/small"]);
    assert_eq!(again.code, Some(5));
    assert!(
        again.stderr.contains("list: exists already"),
        "{}",
        again.stderr
    );
    assert_eq!(fs::read_to_string(place.path("list")).unwrap(), list);

    fs::remove_dir_all(place.path("cache")).unwrap();
    proxy.forget();
    let ran = place
        .run(&["cache", "prefetch", "-q", "--prefetch", "list", &url])
        .ok();
    assert!(ran.stdout.is_empty());
    let kept = place.run(&["cache", "ls", "--json"]).ok().json();
    let local = kept[0]["local_bytes"].as_u64().unwrap();
    assert!((3 << 20..8 << 20).contains(&local), "{local}");

    // A failing server ends the command, at the opening or later. Chunks already received are not
    // fetched again.
    proxy.faults(|_| Some(Fault::ResetBeforeHead));
    let gone = [
        "cache",
        "prefetch",
        "-q",
        "--timeout",
        "2",
        "--retries",
        "0",
        &url,
    ];
    assert_eq!(place.run(&gone).code, Some(4));
    proxy.faults(|request| {
        (request.range.is_some() && request.number > 1).then_some(Fault::ResetBeforeHead)
    });
    proxy.forget();
    let gone = place.run(&gone);
    assert_eq!(gone.code, Some(4), "{}", gone.stderr);
    proxy.clear_faults();

    place.run(&["cache", "prefetch", "-q", &url]).ok();
    let kept = place.run(&["cache", "ls", "--json"]).ok().json();
    assert_eq!(kept[0]["local_bytes"], kept[0]["bytes"]);
    assert_eq!(proxy.log().sent_twice("/image"), 0, "no byte twice");
    place.run(&["cache", "verify", "-q"]).ok();

    // Without a table, chunks are compared at first use with their recorded digests.
    let mut mounted = place.mount(&["--prefetch", "all"], &url);
    proxy.set_network(Network::Refused);
    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    mounted.wait_for("detached", || {
        let status = place.run(&["status", "--json"]).ok().mounts();
        status[0]["remote"]["detached"] == true
    });
    let gc = place.run(&["cache", "gc", "--json"]).ok().json();
    assert_eq!(
        (&gc["removed"], &gc["in_use"]),
        (&0.into(), &1.into()),
        "in use"
    );
    mounted.end();
    let gc = place.run(&["cache", "gc", "--json"]).ok().json();
    assert_eq!((&gc["removed"], &gc["left_bytes"]), (&1.into(), &0.into()));
}

#[test]
fn mirrors_are_read_again_on_sighup() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let url = proxy.url_of("image");
    fs::write(place.path("mirrors"), "").unwrap();
    let args = [
        "--mirror",
        "@mirrors",
        "--timeout",
        "3",
        "--retries",
        "1",
        "--fetch-ahead",
        "off",
    ];
    let mut mounted = place.mount(&args, &url);
    proxy.set_network(Network::Refused);
    assert!(
        fs::read(place.path("mnt/sub/other")).is_err(),
        "the network is gone"
    );
    assert_eq!(
        fs::read(place.path("mnt/small")).unwrap(),
        b"small\n",
        "what is here goes on"
    );

    fs::write(
        place.path("mirrors"),
        format!("# another\n{}\n", nginx.url_of("image")),
    )
    .unwrap();
    mounted.signal(Signal::HUP);
    let other = place.path("mnt/sub/other");
    mounted.wait_for("the mirror", || {
        fs::read(&other).is_ok_and(|bytes| bytes == noise(9 << 20))
    });
    mounted.end();
}

#[test]
fn a_file_that_the_user_named_and_that_fails_is_an_error() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let url = nginx.url_of("image");
    let refused = place.run(&["cat", "--mirror", "@nothing", &url, "/small"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("No such file"),
        "{}",
        refused.stderr
    );
    let unwritten = place.run(&["cat", "--record", "/dev/full", &url, "/small"]);
    assert_eq!(unwritten.stdout, b"small\n");
    assert_eq!(unwritten.code, Some(5), "{}", unwritten.stderr);
    assert!(
        unwritten.stderr.contains("--record"),
        "{}",
        unwritten.stderr
    );
}

#[test]
fn copies_of_files_without_a_version_are_gone_when_they_are_closed() {
    let place = Place::new();
    let options = NginxOptions {
        directives: "etag off; add_header Last-Modified '';".to_string(),
        ..NginxOptions::default()
    };
    let Some(nginx) = Nginx::start(place.dir.path(), &options) else {
        return;
    };
    let url = nginx.url_of("image");
    let kept = || {
        fs::read_dir(place.path("cache/forerun/v1/blobs"))
            .unwrap()
            .count()
    };
    for _ in 0..2 {
        let read = place.run(&["cat", &url, "/big"]).ok();
        assert!(read.stdout == noise(3 << 20));
        assert_eq!(kept(), 0);
    }
    let mounted = place.mount(&[], &url);
    assert_eq!(kept(), 1);
    mounted.signal(Signal::KILL);
    drop(mounted);
    assert_eq!(kept(), 1, "a killed process removes nothing");
    place.run(&["ls", &url]).ok();
    assert_eq!(kept(), 0);
    // With a version, cached chunks stay.
    let Some(other) = Nginx::serve(place.dir.path()) else {
        return;
    };
    place.run(&["ls", &other.url_of("image")]).ok();
    assert_eq!(kept(), 1);
}

#[test]
fn a_server_that_does_not_answer_holds_up_no_signal() {
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let args = ["--timeout", "300", "--fetch-ahead", "off", "-v"];
    let mut mounted = place.mount(&args, &proxy.url_of("image"));
    proxy.forget();
    proxy.set_network(Network::Silent);
    mounted.signal(Signal::HUP);
    assert!(proxy.wait_for_requests(1, Duration::from_secs(30)));
    mounted.signal(Signal::HUP);
    mounted.signal(Signal::TERM);
    assert!(mounted.child.wait().unwrap().success());
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(!log.contains("mirrors and credentials"), "{log}");
}

const IDLE: u64 = 16 << 20;

/// Mounts that are detached at the end of a test, even if it fails.
struct Many<'p> {
    place: &'p Place,
    dirs: Vec<String>,
}

impl Drop for Many<'_> {
    fn drop(&mut self) {
        for dir in &self.dirs {
            let _is_unmounted = self.place.run(&["umount", "--lazy", dir]);
        }
    }
}

#[test]
fn many_mounts_are_shown_by_one_status() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let place = Place::new();
    let name = name_at(&registry, "1");
    place.run(&["push", "-q", "image", &name]).ok();
    let mut many = Many {
        place: &place,
        dirs: (0..30).map(|n| format!("mnt{n:02}")).collect(),
    };
    let dirs = &many.dirs;
    for dir in dirs {
        fs::create_dir(place.path(dir)).unwrap();
        place.run(&["mount", &name, dir]).ok();
    }
    let shown = place.run(&["status", "--json"]).ok().mounts();
    let shown = shown.as_array().unwrap();
    assert_eq!(shown.len(), dirs.len());
    for (mount, dir) in shown.iter().zip(dirs) {
        let path = place.path(dir).canonicalize().unwrap();
        assert_eq!(mount["dir"], path.to_str().unwrap());
        let memory = mount["memory_bytes"].as_u64().unwrap();
        assert!(memory > 0 && memory < IDLE, "{memory}");
    }
    while let Some(dir) = many.dirs.pop() {
        place.run(&["umount", &dir]).ok();
    }
}

#[test]
fn mistakes_are_told() {
    let place = Place::new();
    for (args, code, told) in [
        (
            &["push", "image", "registry/name"][..],
            2,
            "registry/name: not a name in a registry",
        ),
        (
            &["push", "image", "https://x/y"],
            2,
            "images are pushed to registries only",
        ),
        (
            &["push", "tree/small", "oci://127.0.0.1:1/a"],
            3,
            "tree/small: ",
        ),
        (&["push", "missing", "oci://127.0.0.1:1/a"], 4, "missing: "),
        (
            &[
                "push",
                "--chunk-size",
                "5000",
                "image",
                "oci://127.0.0.1:1/a",
            ],
            2,
            "power of two",
        ),
        (
            &["pull", "image", "copy"],
            2,
            "image: not the address of an image at a server",
        ),
        (&["ls", "oci://UPPER/Case"], 2, "UPPER/Case: "),
        (
            &[
                "ls",
                "--timeout",
                "1",
                "--retries",
                "0",
                "http://127.0.0.1:1/x",
            ],
            4,
            "http://127.0.0.1:1/x: ",
        ),
        (
            &["cache", "prefetch", "image"],
            2,
            "image: not the address of an image at a server",
        ),
        (
            &["mount", "--metrics", "nowhere", "image", "mnt"],
            7,
            "nowhere: ",
        ),
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(told), "{args:?}: {}", ran.stderr);
    }
    assert!(!Path::new(&place.path("copy")).exists());
}
