//! Injects every fault at every request, and expects the right bytes or a clear error, in time.
//!
//! A scenario runs once without faults, to count its requests. Then it runs again for each fault
//! and each request, with an empty cache. If a retry can succeed, the scenario must succeed.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use forerun_io::ReadAt;
use forerun_remote::{Readahead, RemoteImage, RemoteOptions};
use forerun_testkit::temp_dir;
use forerun_testkit_servers::DockerRegistry;
use forerun_testkit_servers::fault_proxy::{Fault, FaultProxy};

use crate::support::{
    PATIENT, Proxied, Served, TIMEOUT, name_at, noise, options, pushed, read, try_open, try_read,
};

const LEN: usize = 600_001;
/// Threads of the test. Cases with faults spend most of their time waiting.
const THREADS: usize = 4;

/// Longest silence of a request, in tests of silent servers.
const STALL: Duration = Duration::from_secs(2);

/// Whether the scenario must succeed despite a single fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mends {
    Yes,
    /// An error is allowed.
    Maybe,
}

/// Returns all faults that can be detected without digests.
fn faults() -> Vec<(Fault, Mends)> {
    let status = |code, retry_after| Fault::Status { code, retry_after };
    vec![
        (Fault::ResetBeforeHead, Mends::Yes),
        (Fault::ResetAt { after: 0 }, Mends::Yes),
        (Fault::ResetAt { after: 1000 }, Mends::Yes),
        (Fault::Truncate { after: 0 }, Mends::Yes),
        (Fault::Truncate { after: 70_000 }, Mends::Yes),
        (status(429, None), Mends::Yes),
        (status(429, Some(0)), Mends::Yes),
        (status(500, None), Mends::Yes),
        (status(503, Some(0)), Mends::Yes),
        (status(401, None), Mends::Maybe),
        (status(403, None), Mends::Maybe),
        (status(404, None), Mends::Maybe),
        (status(416, None), Mends::Maybe),
        (Fault::Stall, Mends::Yes),
        (Fault::StallAt { after: 20_000 }, Mends::Yes),
        (Fault::WrongContentRange, Mends::Maybe),
        (Fault::WrongTotal, Mends::Maybe),
        (Fault::Whole, Mends::Maybe),
        (Fault::Short { len: 100 }, Mends::Maybe),
        (Fault::Garbage, Mends::Yes),
    ]
}

/// Opens the image at address `text`, reads three ranges and then the whole image. Returns the
/// first error as text.
fn scenario(text: &str, options: &RemoteOptions, bytes: &[u8]) -> Result<(), String> {
    let image = try_open(text, options)?;
    if image.len() != bytes.len() as u64 {
        return Err(format!("{} bytes long", image.len()));
    }
    let timeout = options.timeout;
    for (at, len) in [(LEN - 10, 10), (130_000, 4096), (65_530, 12)] {
        try_read(&image, bytes, at, len, timeout)?;
    }
    for at in (0..LEN).step_by(100_000) {
        try_read(&image, bytes, at, 100_000.min(LEN - at), timeout)?;
    }
    Ok(())
}

/// An image behind a proxy, and how to open it.
struct Setting<'a> {
    bytes: &'a [u8],
    server: String,
    /// Returns the reference for the proxy's authority.
    reference: &'a (dyn Fn(&str) -> String + Sync),
    adapt: &'a (dyn Fn(&mut RemoteOptions) + Sync),
}

impl Setting<'_> {
    /// Runs the scenario. Readers wait for `timeout`, a request for `stall`.
    fn run(
        &self,
        proxy: &FaultProxy,
        cache: &Path,
        (timeout, stall): (Duration, Duration),
    ) -> Result<(), String> {
        let mut options = options(cache);
        options.timeout = timeout;
        options.stall = stall;
        options.connect_timeout = stall;
        options.registry.timeout = stall;
        (self.adapt)(&mut options);
        scenario(&(self.reference)(&proxy.authority()), &options, self.bytes)
    }

    fn requests(&self) -> usize {
        let proxy = FaultProxy::start(&self.server);
        let cache = temp_dir("cache");
        self.run(&proxy, cache.path(), (PATIENT, PATIENT)).unwrap();
        assert_eq!(proxy.log().all_sent_twice(), 0);
        proxy.log().requests()
    }

    /// Tests each fault at each request, and then at all requests. Each case has its own cache, and
    /// each thread its own proxy.
    fn each(&self, faults: &[(Fault, Mends)]) {
        let requests = self.requests();
        assert!(requests > 3, "{requests} requests");
        println!("{requests} requests, {} faults", faults.len());
        let cases = faults
            .iter()
            .flat_map(|(fault, mends)| (0..requests).map(move |at| (fault, *mends, Some(at))))
            .chain(faults.iter().map(|(fault, _)| (fault, Mends::Maybe, None)));
        let cases = Mutex::new(cases);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let proxy = FaultProxy::start(&self.server);
                    loop {
                        let case = cases.lock().unwrap().next();
                        let Some((fault, mends, at)) = case else {
                            break;
                        };
                        self.one(&proxy, fault, mends, at);
                    }
                });
            }
        });
    }

    fn one(&self, proxy: &FaultProxy, fault: &Fault, mends: Mends, at: Option<usize>) {
        // Only waits for bytes that never arrive have a short limit, because everything takes long
        // on a busy machine.
        let patience = match (at, fault) {
            (None, _) => (TIMEOUT, Duration::from_millis(500)),
            (Some(_), Fault::Stall | Fault::StallAt { .. }) => (PATIENT, STALL),
            (Some(_), _) => (PATIENT, PATIENT),
        };
        let cache = temp_dir("cache");
        proxy.forget();
        proxy.clear_faults();
        match at {
            Some(at) => proxy.fault_at(at, fault.clone()),
            None => {
                let fault = fault.clone();
                proxy.faults(move |_| Some(fault.clone()));
            }
        }
        let ended = self.run(proxy, cache.path(), patience);
        if mends == Mends::Yes {
            assert_eq!(ended, Ok(()), "{fault:?} at request {at:?}");
        }
        // The cache must have only right bytes: without faults, the image opens and can be read to
        // the end.
        proxy.clear_faults();
        let afterwards = self.run(proxy, cache.path(), (PATIENT, PATIENT));
        assert_eq!(afterwards, Ok(()), "after {fault:?} at request {at:?}");
    }
}

#[test]
fn a_web_server_fails_in_every_way() {
    let Some(served) = Served::new(LEN, 1) else {
        return;
    };
    let setting = Setting {
        bytes: &served.bytes,
        server: served.nginx.url(),
        reference: &|authority| format!("http://{authority}/image"),
        adapt: &|options| options.readahead = Readahead::Off,
    };
    setting.each(&faults());
}

#[test]
fn a_registry_fails_in_every_way() {
    let bytes = noise(LEN, 2);
    let Some(registry) = pushed(&bytes) else {
        return;
    };
    let setting = Setting {
        bytes: &bytes,
        server: registry.url(),
        reference: &name_at,
        adapt: &|options| options.readahead = Readahead::Off,
    };
    let mut all = faults();
    // Wrong bytes of chunks, documents and tables are detected by their digests and requested
    // again.
    for (offset, len) in [(0, 1), (30, 1), (65_536, 1), (0, 1 << 20)] {
        all.push((Fault::WrongBytes { offset, len }, Mends::Maybe));
    }
    setting.each(&all);
}

/// Opens an image on a registry with a mirror, which is tried first and suffers from `fault`.
/// Returns the image and the two proxies, the mirror's first.
fn mirrored(
    registry: &DockerRegistry,
    cache: &Path,
    fault: impl Fn() -> Fault + Send + 'static,
) -> (std::sync::Arc<RemoteImage>, FaultProxy, FaultProxy) {
    let (mirror, good) = (
        FaultProxy::start(&registry.url()),
        FaultProxy::start(&registry.url()),
    );
    // The mirror describes the image correctly and sends wrong bytes.
    mirror.faults(move |request| request.range.is_some().then(&fault));
    let mut options = options(cache);
    options.stall = STALL;
    options.mirrors = vec![mirror.url()];
    let image = try_open(&name_at(&good.authority()), &options).unwrap();
    (image, mirror, good)
}

#[test]
fn wrong_bytes_are_refused_and_fetched_elsewhere() {
    let bytes = noise(LEN, 3);
    let Some(registry) = pushed(&bytes) else {
        return;
    };
    let cache = temp_dir("cache");
    let (image, mirror, good) = mirrored(&registry, cache.path(), || Fault::WrongBytes {
        offset: 0,
        len: 1,
    });
    for at in (0..LEN).step_by(50_000) {
        read(&image, &bytes, at, 50_000.min(LEN - at));
    }
    let status = image.status();
    assert!(status.verified, "{status:?}");
    assert!(status.wrong_bytes > 0 && status.errors > 0, "{status:?}");
    let asked = |proxy: &FaultProxy| {
        let log = proxy.log();
        let ranges = log.entries.iter().filter(|entry| entry.range.is_some());
        ranges.count()
    };
    // After the wrong bytes the mirror ranks last, so not all requests go to it.
    assert!(asked(&mirror) > 0 && asked(&good) > asked(&mirror) / 2);
}

#[test]
fn other_failures_are_fetched_elsewhere_too() {
    let bytes = noise(LEN, 4);
    let Some(registry) = pushed(&bytes) else {
        return;
    };
    let status = |code, retry_after| Fault::Status { code, retry_after };
    for fault in [
        Fault::ResetBeforeHead,
        Fault::Truncate { after: 10 },
        status(404, None),
        status(429, Some(3600)),
        Fault::Stall,
    ] {
        let cache = temp_dir("cache");
        let of_proxy = fault.clone();
        let made = mirrored(&registry, cache.path(), move || of_proxy.clone());
        let (image, _mirror, _good) = made;
        let outcome = try_read(&image, &bytes, 0, LEN, PATIENT);
        assert_eq!(outcome, Ok(()), "{fault:?}");
    }
}

#[test]
fn a_client_that_is_told_to_wait_waits() {
    let Some(served) = Proxied::new(100_000, 5) else {
        return;
    };
    let image = served.open(&served.options());
    let proxy = &served.proxy;
    proxy.forget();
    proxy.fault_at(
        0,
        Fault::Status {
            code: 429,
            retry_after: Some(1),
        },
    );
    read(&image, served.bytes(), 0, 1000);
    let log = proxy.log();
    let waited = log.entries[1].at - log.entries[0].at;
    assert!(waited >= Duration::from_millis(990), "{waited:?}");
}
