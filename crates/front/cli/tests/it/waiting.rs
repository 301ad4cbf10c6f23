//! Readers of a mount wait for a server that has stopped answering. Other commands continue, and
//! signals end the process.

use std::fs;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use forerun_testkit::{DirectReaders, eventually, require};
use forerun_testkit_servers::Nginx;
use forerun_testkit_servers::fault_proxy::{FaultProxy, Network};
use rustix::process::Signal;

use crate::common::place::{Mounted, Place};

/// One reader for each chunk of the file.
const READERS: usize = 140;
const CHUNK: usize = 64 << 10;
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

fn readers(place: &Place) -> DirectReaders {
    let file = place.path("mnt/sub/other").canonicalize().unwrap();
    DirectReaders::waiting(&file, CHUNK, READERS)
}

/// Mounts an image whose server then stops answering, with readers that wait longer than the test.
fn silent<'p>(place: &'p Place, proxy: &FaultProxy) -> Mounted<'p> {
    let mounted = place.mount(
        &["--fetch-ahead", "off", "--timeout", "600"],
        &proxy.url_of("image"),
    );
    assert!(fs::metadata(place.path("mnt/sub/other")).is_ok());
    assert_eq!(fs::read_dir(place.path("mnt")).unwrap().count(), 3);
    proxy.set_network(Network::Silent);
    mounted
}

fn ends(mounted: &mut Mounted<'_>) {
    eventually("the process ends", || {
        mounted.child.try_wait().unwrap().is_some()
    });
}

#[test]
fn signals_end_a_mount_whose_readers_wait_for_its_server() {
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    for signal in [Signal::TERM, Signal::INT] {
        let proxy = FaultProxy::start(&nginx.url());
        let mut mounted = silent(&place, &proxy);
        let waiting = readers(&place);
        mounted.signal(signal);
        assert_eq!(waiting.wait(), 0);
        ends(&mut mounted);
        proxy.set_network(Network::Up);
        fs::remove_dir_all(place.path("cache")).unwrap();
    }
}

#[test]
fn names_are_looked_up_while_readers_wait_and_umount_ends_the_process() {
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let mut mounted = silent(&place, &proxy);
    let mut waiting = readers(&place);
    let (done, finished) = channel();
    let mnt = place.path("mnt");
    std::thread::spawn(move || {
        for n in 0..100 {
            assert!(!mnt.join(format!("missing{n}")).exists());
            rustix::fs::statvfs(&mnt).unwrap();
        }
        done.send(()).unwrap();
    });
    finished.recv_timeout(STEP_TIMEOUT).unwrap();
    waiting.kill();
    assert_eq!(waiting.wait(), 0);
    place.run(&["umount", "mnt"]).ok();
    ends(&mut mounted);
}

/// `--timeout` is the time until a program gets its error, although the kernel repeats a failed
/// read several times, page by page.
#[test]
fn a_read_fails_after_the_timeout_and_not_after_several() {
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place::new();
    let Some(nginx) = Nginx::serve(place.dir.path()) else {
        return;
    };
    for network in [Network::Silent, Network::Refused] {
        let proxy = FaultProxy::start(&nginx.url());
        let options = ["--fetch-ahead", "off", "--timeout", "5"];
        let mounted = place.mount(&options, &proxy.url_of("image"));
        assert!(fs::metadata(place.path("mnt/sub/other")).is_ok());
        proxy.set_network(network);
        for tries in 1..=2 {
            let begin = Instant::now();
            let error = fs::read(place.path("mnt/sub/other")).unwrap_err();
            let took = begin.elapsed();
            assert_eq!(
                error.raw_os_error(),
                Some(5),
                "{network:?}, try {tries}: {error}"
            );
            assert!(
                took < Duration::from_secs(10),
                "{network:?}, try {tries}: {took:?}, as long as two timeouts"
            );
        }
        proxy.set_network(Network::Up);
        // The limit applies to each attempt: once the server is back, reads work again.
        eventually("the file can be read", || {
            fs::read(place.path("mnt/sub/other")).is_ok()
        });
        drop(mounted);
        fs::remove_dir_all(place.path("cache")).unwrap();
    }
}
