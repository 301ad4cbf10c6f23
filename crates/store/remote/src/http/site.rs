//! The identity of servers, and the rule for servers without TLS.

use std::fmt;
use std::net::IpAddr;

use url::Url;

use crate::address::place_of;
use crate::http::local_addresses;
use crate::{RemoteError, Result};

/// Scheme, host and port: the server that credentials belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    scheme: String,
    host: String,
    port: u16,
}

impl Site {
    pub fn of(url: &Url) -> Option<Self> {
        if !matches!(url.scheme(), "http" | "https") {
            return None;
        }
        Some(Self {
            scheme: url.scheme().to_string(),
            host: url.host_str()?.to_string(),
            port: url.port_or_known_default()?,
        })
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    /// Returns whether the host is this machine, by name or address.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }

    /// Returns whether the host is inward: this machine or a link-local address. Names are not
    /// resolved here.
    pub fn is_inward(&self) -> bool {
        let name = self.host.trim_end_matches('.');
        name == "localhost"
            || name.ends_with(".localhost")
            || number(&self.host).is_some_and(local_addresses::is_inward)
            || local_addresses::is_known(&self.host)
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)
    }
}

pub fn is_loopback(host: &str) -> bool {
    host == "localhost" || number(host).is_some_and(|ip| ip.is_loopback())
}

fn number(host: &str) -> Option<IpAddr> {
    let number = host.trim_start_matches('[').trim_end_matches(']');
    number.parse().ok()
}

/// Refuses a plain HTTP URL, unless its host is this machine or one of `allowed` (`host` or
/// `host:port`). The error names the option to use.
pub fn check_plain(url: &Url, allowed: &[String]) -> Result<()> {
    let Some(site) = Site::of(url) else {
        return Ok(());
    };
    let with_port = format!("{}:{}", site.host, site.port);
    let is_allowed = |host: &String| *host == site.host || *host == with_port;
    if site.is_secure() || site.is_loopback() || allowed.iter().any(is_allowed) {
        return Ok(());
    }
    Err(RemoteError::Reference {
        text: place_of(url),
        reason: format!(
            "plain HTTP can be read and changed on the way to the server; --plain-http {} allows it",
            site.host
        ),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_and_where_the_user_says_so() {
        let allowed = ["10.0.0.1".to_owned(), "a.org:8080".to_owned()];
        for (url, expected) in [
            ("https://b.org/x", true),
            ("http://localhost:1/x", true),
            ("http://[::1]/x", true),
            ("http://127.1.2.3/x", true),
            ("http://10.0.0.1:99/x", true),
            ("http://a.org:8080/x", true),
            ("http://a.org/x", false),
            ("http://localhost.a.org/x", false),
            ("http://user:secret@b.org/x", false),
        ] {
            let checked = check_plain(&Url::parse(url).unwrap(), &allowed);
            assert_eq!(checked.is_ok(), expected, "{url}");
            let text = checked.err().map(|error| error.to_string());
            let text = text.unwrap_or_default();
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
