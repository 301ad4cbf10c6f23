//! Images at servers that the kernel mounts while they are being fetched: their status, and signals.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use forerun_testkit::{TempDir, eventually, generate, require, temp_dir};
use forerun_testkit_servers::fault_proxy::{FaultProxy, Link, Network};
use forerun_testkit_servers::{Auth, DockerRegistry, Nginx, get};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Ran, command, ran};

const BIG: usize = 8 << 20;

/// An image behind a server and a proxy, a mountpoint, and places for the cache and for sockets.
struct Scene {
    dir: TempDir,
    _nginx: Nginx,
    proxy: FaultProxy,
}

impl Scene {
    /// Creates a scene; nothing where this machine lacks what it takes.
    fn new() -> Option<Self> {
        if !require::root() || !require::kernel_filesystem("erofs") {
            return None;
        }
        let dir = temp_dir("on-demand-cli");
        for name in ["tree", "run", "mnt"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("tree/big"), generate::bytes(1, BIG)).unwrap();
        fs::write(dir.path().join("tree/small"), "small\n").unwrap();
        let nginx = Nginx::serve(dir.path())?;
        let proxy = FaultProxy::start(&nginx.url());
        let scene = Self {
            dir,
            _nginx: nginx,
            proxy,
        };
        let words = ["pack", "-q", "--format", "erofs", "tree", "image"];
        scene.run(&words).ok();
        Some(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command
            .current_dir(self.path("."))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    /// Mounts, and returns the messages until it answers.
    #[track_caller]
    fn mounted(&self, args: &[&str]) -> String {
        let told = self.mount(args);
        assert_eq!(told.code, Some(0), "{}", told.stderr);
        told.stderr
    }

    fn mount(&self, args: &[&str]) -> Ran {
        self.mount_by_name(args, &self.proxy.url_of("image"))
    }

    fn mount_by_name(&self, args: &[&str], name: &str) -> Ran {
        let words = ["mount", "--via", "kernel", "-v", "--log", "log"];
        self.run(&[&words, args, &[name, "mnt"]].concat())
    }

    fn status(&self) -> Vec<Value> {
        let mounts = self.run(&["status", "--json"]).ok().json();
        mounts.as_array().unwrap().clone()
    }

    /// Returns the process that fetches.
    fn filler(&self) -> Pid {
        let pid = self.status()[0]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(self.path("mnt").to_str().unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _unmounted = self.run(&["umount", "--lazy", "mnt"]);
        }
    }
}

fn has_ended(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

/// Finds the address of the metrics in the log.
fn metrics_of(log: &str) -> String {
    let line = log.lines().find(|line| line.contains("serving metrics"));
    let rest = line.and_then(|line| line.split("127.0.0.1:").nth(1));
    let digits = rest.map(|rest| rest.split(|char: char| !char.is_ascii_digit()).next());
    let port = digits.flatten().unwrap_or_else(|| panic!("{log}"));
    format!("127.0.0.1:{port}")
}

/// Checks what the status says of the mount whatever happens to it.
#[track_caller]
fn assert_identity(scene: &Scene, mount: &Value) {
    assert_eq!(mount["via"], "kernel");
    assert_eq!(mount["dir"], scene.path("mnt").to_str().unwrap());
    assert_eq!(mount["image"], scene.proxy.url_of("image"));
    let dev = fs::metadata(scene.path("mnt")).unwrap().dev();
    let device = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    assert_eq!(mount["device"], device);
    assert!(mount["memory_bytes"].as_u64().unwrap() > 0);
}

/// Checks the counters of reads, some of which failed, and the process that guards the kernel's reads.
#[track_caller]
fn assert_kernel_reads(mount: &Value) {
    let reads = &mount["kernel_reads"];
    let of = |name: &str| reads[name].as_u64().unwrap();
    assert!(of("asked") > of("failed") && of("fetched") > 0, "{mount}");
    assert!(of("failed") > 0 && of("guard") > 0, "{mount}");
    // Nothing in it that the filler is ended by.
    let guard = format!("/proc/{}", of("guard"));
    let named = ["comm", "cmdline"].map(|name| fs::read_to_string(format!("{guard}/{name}")));
    let named = named.map(Result::unwrap);
    assert_eq!(named, ["erofs-guard\n", "erofs-guard\0"]);
}

/// Checks the status as users read it, once and continuously.
#[track_caller]
fn assert_status_for_people(scene: &Scene) {
    let text = scene.run(&["status", "-q"]).ok();
    let text = text.text();
    assert!(text.contains("  by the kernel  pid "), "{text}");
    for part in [" % of 8", " errors, ", " reads failed\n", "  last error: "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut watch = scene.command(&["status", "--watch"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for line in lines.map(Result::unwrap).take(2) {
        assert!(line.contains("  1 mount  "), "{line}");
        assert!(line.contains(" requests/s  served "), "{line}");
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Checks the metrics that the mount serves. `told` are the messages of the mount.
#[track_caller]
fn assert_metrics(scene: &Scene, told: &str) {
    let page = get(&metrics_of(told), "/metrics");
    let label = format!("{{image=\"{}\"}}", scene.proxy.url_of("image"));
    let bytes = fs::metadata(scene.path("image")).unwrap().len();
    for line in [
        format!("# TYPE forerun_kernel_reads_total counter\nforerun_kernel_reads_total{label} "),
        format!("\nforerun_kernel_reads_failed_total{label} "),
        format!("\nforerun_kernel_guards{label} 1\n"),
        format!("\nforerun_remote_image_bytes{label} {bytes}\n"),
        format!("\nforerun_remote_bytes_per_second{label} "),
        format!("\nforerun_remote_complete{label} 0\n"),
    ] {
        assert!(page.contains(&line), "{line}: {page}");
    }
}

#[test]
fn it_tells_of_itself_while_it_is_fetched() {
    let Some(scene) = Scene::new() else { return };
    let args = ["--fetch-ahead", "off", "--timeout", "1", "--retries", "0"];
    let metrics = ["--metrics", "127.0.0.1:0"];
    let told_first = scene.mounted(&[&args[..], &metrics].concat());
    let told = scene.status();
    let [mount] = &told[..] else {
        panic!("{told:?}")
    };
    assert_identity(&scene, mount);
    let local = mount["remote"]["local_bytes"].as_u64().unwrap();
    assert!(local > 0 && local < 4 << 20, "{mount}");
    assert_eq!(mount["remote"]["complete"], false);

    let file = File::open(scene.path("mnt/big")).unwrap();
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 3 << 20).unwrap();
    assert_eq!(block[..], generate::bytes(1, BIG)[3 << 20..][..4096]);
    scene.proxy.set_network(Network::Refused);
    let error = file.read_exact_at(&mut block, 6 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    drop(file);
    let mount = &scene.status()[0];
    assert_kernel_reads(mount);
    assert!(mount["remote"]["local_bytes"].as_u64().unwrap() > local);
    assert!(mount["remote"]["errors"].as_u64().unwrap() > 0, "{mount}");
    assert!(mount["fuse_requests"].as_object().unwrap().is_empty());

    assert_status_for_people(&scene);
    assert_metrics(&scene, &told_first);
    scene.run(&["restart", "mnt"]).fails(
        7,
        "forerun: mnt: the kernel serves it; the process that fetches for it cannot be replaced",
    );
    let filler = scene.filler();
    scene.run(&["umount", "mnt"]).ok();
    eventually("the process has ended", || has_ended(filler));
    assert_eq!(scene.status(), Vec::<Value>::new());
}

#[test]
fn when_all_is_here_no_process_tells_of_it() {
    let Some(scene) = Scene::new() else { return };
    scene.proxy.set_link(Link {
        rtt: Duration::ZERO,
        bytes_per_second: Some(2_000_000),
    });
    scene.mounted(&["--prefetch", "all"]);
    let filler = scene.filler();
    scene.proxy.set_link(Link {
        rtt: Duration::ZERO,
        bytes_per_second: None,
    });
    eventually("the process has ended", || has_ended(filler));
    let log = scene.log();
    assert!(log.contains("the kernel goes on alone"), "{log}");
    scene.proxy.set_network(Network::Refused);
    assert!(scene.is_mounted());
    let big = fs::read(scene.path("mnt/big")).unwrap();
    assert!(big == generate::bytes(1, BIG), "wrong bytes");
    assert_eq!(scene.status(), Vec::<Value>::new());
    let status = scene.run(&["status"]);
    let told = &status.stderr;
    assert!(told.contains(" more by the kernel alone"), "{told}");
    scene
        .run(&["restart", "mnt"])
        .fails(7, "forerun: mnt: the kernel serves it, and no process");
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn what_the_cache_has_needs_no_process() {
    let Some(scene) = Scene::new() else { return };
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    let name = format!("oci://{}/a/app:1", registry.authority());
    scene.run(&["push", "-q", "image", &name]).ok();
    scene.run(&["cache", "prefetch", "-q", &name]).ok();
    let trusting = ["--trust-cache", "--metrics", "127.0.0.1:0"];
    let told = scene.mount_by_name(&trusting, &name);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let note = "all of the image is here: no process stays to serve metrics";
    assert!(told.stderr.contains(note), "{}", told.stderr);
    assert_eq!(scene.status(), Vec::<Value>::new());
    let read = || {
        let big = fs::read(scene.path("mnt/big")).unwrap();
        assert!(big == generate::bytes(1, BIG), "wrong bytes");
    };
    read();
    scene.run(&["umount", "mnt"]).ok();
    // Without trust a process stays until all of it was verified.
    let told = scene.mount_by_name(&[], &name);
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    let note = "erofs from the cache, on demand";
    assert!(told.stderr.contains(note), "{}", told.stderr);
    read();
    eventually("no process is left", || scene.status().is_empty());
    drop(registry);
    read();
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn metrics_that_cannot_be_served_leave_no_mount() {
    let Some(scene) = Scene::new() else { return };
    let told = scene.mount(&["--metrics", "nowhere"]);
    assert_eq!(told.code, Some(7), "{}", told.stderr);
    assert!(told.stderr.contains("nowhere: "), "{}", told.stderr);
    assert!(!scene.is_mounted());
    assert_eq!(scene.status(), Vec::<Value>::new());
}

#[test]
fn signals_are_not_held_up_by_servers() {
    let Some(scene) = Scene::new() else { return };
    scene.mounted(&["--timeout", "300", "--fetch-ahead", "off"]);
    let filler = scene.filler();
    scene.proxy.forget();
    scene.proxy.set_network(Network::Silent);
    kill_process(filler, Signal::HUP).unwrap();
    assert!(scene.proxy.wait_for_requests(1, Duration::from_secs(30)));
    kill_process(filler, Signal::HUP).unwrap();
    // In use: it goes on until the second signal, and then the guard fails what is not here.
    let file = File::open(scene.path("mnt/big")).unwrap();
    kill_process(filler, Signal::TERM).unwrap();
    eventually("it is unmounted", || !scene.is_mounted());
    assert!(!has_ended(filler));
    kill_process(filler, Signal::TERM).unwrap();
    eventually("the process has ended", || has_ended(filler));
    let error = file.read_exact_at(&mut [0; 4096], 5 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    let log = scene.log();
    assert!(!log.contains("mirrors and credentials"), "{log}");
}
