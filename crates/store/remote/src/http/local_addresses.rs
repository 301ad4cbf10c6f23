//! Blocks redirects from other machines to addresses of this one, because local servers trust local
//! clients.
//!
//! The name of a redirect target or token server can resolve to any address, so addresses are
//! checked when a connection is made. Names that the user gave may resolve to any address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{LazyLock, Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Url;

/// The hosts that the user named, and whether each resolved to an address of this machine or of a
/// private network.
static OWN: LazyLock<Mutex<HashMap<String, bool>>> = LazyLock::new(Mutex::default);

fn own() -> MutexGuard<'static, HashMap<String, bool>> {
    OWN.lock().unpoisoned()
}

/// Allows the host of an address that the user gave to be inward.
pub fn allow(url: &Url) {
    if let Some(host) = url.host_str() {
        own().entry(host.to_owned()).or_default();
    }
}

/// Returns whether a host that the user gave resolved to an inward address.
pub fn is_known(host: &str) -> bool {
    own().get(host).copied().unwrap_or_default()
}

/// Returns whether an address is inward: of this machine or link-local, such as a cloud's metadata server.
pub fn is_inward(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.octets()[0] == 0,
        IpAddr::V6(v6) => {
            let [first, second, .., high, low] = v6.segments();
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            let is_translated = (first, second) == (0x64, 0xff9b);
            // `::` and `::1` also have the form of an embedded address.
            let embedded = if is_translated {
                Some(Ipv4Addr::new(a, b, c, d))
            } else {
                v6.to_ipv4()
            };
            first & 0xffc0 == 0xfe80 || embedded.is_some_and(|v4| is_inward(v4.into()))
        }
    }
}

/// The error for a name that another machine gave and that resolves to an inward address.
#[derive(Clone, Debug, thiserror::Error)]
#[error("another machine redirects to {0}, an address of this machine")]
pub struct LeadsInward(String);

fn allowed(host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, LeadsInward> {
    let is_inward = |address: &SocketAddr| is_inward(address.ip());
    if !found.iter().any(is_inward) {
        return Ok(found);
    }
    if host == "localhost" {
        // Redirects to this host are refused by name.
        return Ok(found);
    }
    if let Some(known) = own().get_mut(host) {
        *known = true;
        return Ok(found);
    }
    let outward: Vec<_> = found.into_iter().filter(|it| !is_inward(it)).collect();
    if outward.is_empty() {
        Err(LeadsInward(host.to_owned()))
    } else {
        Ok(outward)
    }
}

/// Resolves names with the system's resolver, and refuses those with inward addresses.
pub struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let host = name.as_str();
            let found = tokio::net::lookup_host((host, 0)).await?.collect();
            let addresses: Addrs = Box::new(allowed(host, found)?.into_iter());
            Ok(addresses)
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn addresses_of_this_machine_and_its_link_are_inward() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("0.0.0.0", true),
            ("169.254.169.254", true),
            ("::1", true),
            ("::", true),
            ("::ffff:127.0.0.1", true),
            ("::127.0.0.1", true),
            ("::ffff:169.254.1.1", true),
            ("64:ff9b::7f00:1", true),
            ("fe80::1", true),
            ("10.0.0.1", false),
            ("192.168.1.1", false),
            ("8.8.8.8", false),
            ("::ffff:8.8.8.8", false),
            ("2606:4700::1111", false),
            ("64:ff9b::808:808", false),
        ] {
            assert_eq!(is_inward(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_name_that_resolves_to_this_machine_is_for_the_user_to_give() {
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            let parsed = texts.iter().map(|text| text.parse().unwrap());
            parsed.collect()
        };
        let both = addresses(&["127.0.0.1:0", "8.8.8.8:0"]);
        let inside = addresses(&["169.254.169.254:0", "[::1]:0"]);
        assert_eq!(allowed("cdn.test", both.clone()).unwrap(), both[1..]);
        let error = allowed("cdn.test", inside.clone()).unwrap_err();
        assert!(error.to_string().contains("cdn.test"), "{error}");
        allow(&Url::parse("https://registry.test/v2/").unwrap());
        assert!(!is_known("registry.test"));
        assert_eq!(allowed("registry.test", inside.clone()).unwrap(), inside);
        assert!(is_known("registry.test") && !is_known("cdn.test"));
    }
}
