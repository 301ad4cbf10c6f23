//! Images at servers on the command line: pushed, listed, read, mounted, fetched, kept.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use common::{Ran, command, ran};
use forerun_testkit::fault_proxy::{Fault, FaultProxy, Network};
use forerun_testkit::servers::{Auth, DockerRegistry, Nginx, NginxOptions, PASSWORD, USER, get};
use forerun_testkit::{TempDir, temp_dir};

/// A directory with a tree, an image of it, and places of its own for the cache and for sockets.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = temp_dir("remote-cli");
        let at = dir.path();
        fs::create_dir_all(at.join("tree/sub")).unwrap();
        fs::create_dir_all(at.join("run")).unwrap();
        fs::create_dir_all(at.join("mnt")).unwrap();
        fs::write(at.join("tree/big"), noise(3 << 20)).unwrap();
        fs::write(at.join("tree/sub/other"), noise(9 << 20)).unwrap();
        fs::write(at.join("tree/small"), "small\n").unwrap();
        let place = Self { dir };
        place
            .run(&["pack", "-q", "--format", "erofs", "tree", "image"])
            .ok();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = command(args);
        command
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("DOCKER_CONFIG", self.path("docker"));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    /// Mounts in the foreground; answers when this returns.
    fn mount(&self, args: &[&str], name: &str) -> Mounted<'_> {
        let mut command = self.command(&[&["mount", "-f"], args, &[name, "mnt"]].concat());
        let log = fs::File::create(self.path("log")).unwrap();
        let child = command.stderr(log).spawn().unwrap();
        let mut mounted = Mounted { place: self, child };
        let dir = self.path("mnt");
        mounted.wait_for("the mount", || dir.join("small").exists());
        mounted
    }
}

struct Mounted<'p> {
    place: &'p Place,
    child: Child,
}

impl Mounted<'_> {
    fn wait_for(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            let ended = self.child.try_wait().unwrap();
            let log = fs::read_to_string(self.place.path("log")).unwrap();
            assert!(ended.is_none(), "{what}: {ended:?}: {log}");
            assert!(start.elapsed() < Duration::from_secs(30), "{what}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(mut self) {
        self.place.run(&["umount", "mnt"]).ok();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // After a failed test only: what was ended is gone.
        let _ = self.place.run(&["umount", "mnt"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn name_at(registry: &DockerRegistry, tag: &str) -> String {
    format!("oci://{}/a/app:{tag}", registry.authority())
}

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
    let status = place.run(&["status", "--json"]).ok().json();
    let remote = &status[0]["remote"];
    assert_eq!(remote["complete"], false, "{remote}");
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
        let status = place.run(&["status", "--json"]).ok().json();
        status[0]["remote"]["refetched_bytes"] == 0
    });
    mounted.end();
    assert_eq!(
        place.run(&["status", "--json"]).ok().json(),
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

    fs::remove_dir_all(place.path("cache")).unwrap();
    proxy.forget();
    let ran = place
        .run(&["cache", "prefetch", "-q", "--prefetch", "list", &url])
        .ok();
    assert!(ran.stdout.is_empty());
    let kept = place.run(&["cache", "ls", "--json"]).ok().json();
    let local = kept[0]["local_bytes"].as_u64().unwrap();
    assert!((3 << 20..8 << 20).contains(&local), "{local}");

    // A server that fails ends it, at the opening or on the way, and what came is not fetched again.
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
        (request.range.is_some() && request.number > 3).then_some(Fault::ResetBeforeHead)
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

    // Without a table, chunks are compared with what was recorded of them when they are used first.
    let mut mounted = place.mount(&["--prefetch", "all"], &url);
    proxy.set_network(Network::Refused);
    assert!(fs::read(place.path("mnt/sub/other")).unwrap() == noise(9 << 20));
    assert!(fs::read(place.path("mnt/big")).unwrap() == noise(3 << 20));
    mounted.wait_for("detached", || {
        let status = place.run(&["status", "--json"]).ok().json();
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
    let pid = mounted.child.id().to_string();
    let killed = std::process::Command::new("kill")
        .args(["-HUP", &pid])
        .status()
        .unwrap();
    assert!(killed.success());
    let other = place.path("mnt/sub/other");
    mounted.wait_for("the mirror", || {
        fs::read(&other).is_ok_and(|bytes| bytes == noise(9 << 20))
    });
    mounted.end();
}

#[test]
fn credentials_are_used_and_never_shown() {
    let place = Place::new();
    let options = NginxOptions {
        basic_auth: true,
        ..NginxOptions::default()
    };
    let Some(nginx) = Nginx::start(place.dir.path(), &options) else {
        return;
    };
    let plain = nginx.url_of("image");
    let refused = place.run(&["ls", &plain]);
    assert_eq!(refused.code, Some(4));
    assert!(
        refused.stderr.contains("access denied (401)"),
        "{}",
        refused.stderr
    );
    let url = plain.replace("http://", &format!("http://{USER}:{PASSWORD}@"));
    place.run(&["ls", &url]).ok();
    let mounted = place.mount(&["-v"], &url);
    let shown = fs::read_to_string("/proc/self/mounts").unwrap();
    let status = place.run(&["status", "--json"]).ok();
    let log = fs::read_to_string(place.path("log")).unwrap();
    for text in [&shown, status.text(), &log] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    assert!(shown.contains(&plain), "{shown}");
    mounted.end();
    let missing = place.run(&["ls", &url.replace("/image", "/missing")]);
    assert_eq!(missing.code, Some(4));
    assert!(missing.stderr.contains("not found") && !missing.stderr.contains(PASSWORD));
}

/// Memory that one idle mount may take.
const IDLE: u64 = 16 << 20;

#[test]
fn many_mounts_are_shown_by_one_status() {
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let place = Place::new();
    let name = name_at(&registry, "1");
    place.run(&["push", "-q", "image", &name]).ok();
    let dirs: Vec<_> = (0..30).map(|n| format!("mnt{n:02}")).collect();
    for dir in &dirs {
        fs::create_dir(place.path(dir)).unwrap();
        place.run(&["mount", &name, dir]).ok();
    }
    let shown = place.run(&["status", "--json"]).ok().json();
    let shown = shown.as_array().unwrap();
    assert_eq!(shown.len(), dirs.len());
    for (mount, dir) in shown.iter().zip(&dirs) {
        let path = place.path(dir).canonicalize().unwrap();
        assert_eq!(mount["dir"], path.to_str().unwrap());
        let memory = mount["memory_bytes"].as_u64().unwrap();
        assert!(memory > 0 && memory < IDLE, "{memory}");
    }
    for dir in &dirs {
        place.run(&["umount", dir]).ok();
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
        (&["pull", "image", "copy"], 2, "image is not at a server"),
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
            "image is not at a server",
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
