//! The network disappears under an open image. Cached data stays readable, other reads fail after
//! the timeout, and everything works when the network is back.

use std::time::Duration;

use forerun_remote::Readahead;
use forerun_testkit_servers::fault_proxy::{Link, Network};

use crate::support::{PATIENT, Proxied, impatient, read, read_at_last, try_open, try_read};

const LEN: usize = 2_000_000;

fn goes_and_comes_back(network: Network) {
    let Some(served) = Proxied::new(LEN, 1) else {
        return;
    };
    let (proxy, bytes) = (&served.proxy, served.bytes());
    let mut options = impatient(served.options());
    options.readahead = Readahead::Off;
    options.timeout = Duration::from_secs(2);
    let timeout = options.timeout;
    let mut image = None;
    forerun_testkit::eventually("the image opens", || {
        image = try_open(&served.url(), &options).ok();
        image.is_some()
    });
    let image = image.unwrap();
    read_at_last(&image, bytes, 0, 500_000);
    proxy.set_network(network);
    for _ in 0..2 {
        // These reads use only memory and disk.
        let before = image.status().waits;
        read(&image, bytes, 0, 500_000);
        assert_eq!(image.status().waits, before, "{network:?}");
        let error = try_read(&image, bytes, LEN - 1000, 1000, timeout).unwrap_err();
        assert!(error.contains("127.0.0.1"), "{network:?}: {error}");
    }
    let status = image.status();
    assert!(
        status.errors > 0 && status.last_error.is_some(),
        "{status:?}"
    );
    proxy.set_network(Network::Up);
    read_at_last(&image, bytes, LEN - 1000, 1000);
    read_at_last(&image, bytes, 0, LEN);
}

#[test]
fn refused_and_back() {
    goes_and_comes_back(Network::Refused);
}

#[test]
fn silent_and_back() {
    goes_and_comes_back(Network::Silent);
}

#[test]
fn a_reader_that_waits_has_its_bytes_when_the_network_is_back_in_time() {
    let Some(served) = Proxied::new(LEN, 2) else {
        return;
    };
    let (proxy, bytes) = (&served.proxy, served.bytes());
    let image = served.open(&served.options());
    proxy.forget();
    proxy.set_network(Network::Silent);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&image, bytes, 100_000, 100_000));
        assert!(proxy.wait_for_requests(1, PATIENT));
        proxy.set_network(Network::Refused);
        proxy.set_network(Network::Up);
        reader.join().unwrap();
    });
}

#[test]
fn once_all_of_it_is_here_no_network_is_needed() {
    let Some(served) = Proxied::new(LEN, 3) else {
        return;
    };
    served.proxy.set_link(Link {
        rtt: Duration::from_millis(5),
        bytes_per_second: None,
    });
    let image = served.open(&served.options());
    image.prefetch_all();
    assert!(image.wait_complete(PATIENT));
    let Proxied { proxy, served } = served;
    drop((proxy, served.nginx));
    read(&image, &served.bytes, 0, LEN);
    assert_eq!(image.status().refetched_bytes, 0);
}
