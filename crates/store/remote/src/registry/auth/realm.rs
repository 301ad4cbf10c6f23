//! Decides whether a token server may see the credentials of the registry that named it.
//!
//! A registry, or an attacker in its place, can name any token server. Sending credentials to any
//! of them was CVE-2020-15157. Credentials go only to the registry's own host, its parent and child
//! domains, Docker Hub's known token server, and hosts that the user named. Other token servers are
//! contacted without credentials. A token server without TLS is never contacted for a registry with
//! TLS.

use url::Url;

use crate::http::site::Site;
use crate::options::registry::RegistryOptions;
use crate::registry::endpoint::Endpoint;

/// Docker Hub's registry and token server, which are sibling domains.
const DOCKER_HUB: (&str, &str) = ("registry-1.docker.io", "auth.docker.io");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It may receive the credentials.
    Credentials,
    /// It may be contacted without credentials.
    Anonymous,
    /// It must not be contacted.
    Never,
}

pub fn trust(realm: &Url, endpoint: &Endpoint, options: &RegistryOptions) -> Trust {
    let Some(site) = Site::of(realm) else {
        return Trust::Never;
    };
    if !realm.username().is_empty() || realm.password().is_some() {
        return Trust::Never;
    }
    let registry = &endpoint.site;
    if site.is_inward() && !registry.is_inward() {
        return Trust::Never;
    }
    let listed = |list: &[String]| {
        let with_port = realm.port().map(|port| format!("{}:{port}", site.host()));
        list.iter()
            .any(|host| host == site.host() || Some(host) == with_port.as_ref())
    };
    if !site.is_secure() {
        let plain = !registry.is_secure()
            && (site.is_loopback() || site.host() == registry.host() || listed(&options.insecure));
        if !plain {
            return Trust::Never;
        }
    }
    let own = site.host() == registry.host()
        || (registry.is_loopback() && site.is_loopback())
        || is_below(site.host(), registry.host())
        || is_below(registry.host(), site.host())
        || (registry.host(), site.host()) == DOCKER_HUB
        || listed(&options.auth_realms);
    if own {
        Trust::Credentials
    } else {
        Trust::Anonymous
    }
}

/// Returns whether `host` is a subdomain of `domain`, and `domain` is not a top-level domain.
fn is_below(host: &str, domain: &str) -> bool {
    domain.contains('.')
        && domain.parse::<std::net::IpAddr>().is_err()
        && host
            .strip_suffix(domain)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Trust::{Anonymous, Credentials, Never};
    use super::*;

    #[test]
    fn credentials_stay_with_their_registry() {
        let options = RegistryOptions {
            insecure: vec!["10.0.0.1:5000".into(), "10.0.0.2".into()],
            auth_realms: vec!["login.other.org".into()],
            ..RegistryOptions::default()
        };
        for (registry, realm, expected) in [
            ("docker.io", "https://auth.docker.io/token", Credentials),
            ("ghcr.io", "https://ghcr.io/token", Credentials),
            ("ghcr.io", "https://ghcr.io:444/token", Credentials),
            (
                "registry.gitlab.com",
                "https://gitlab.com/jwt/auth",
                Credentials,
            ),
            ("example.org", "https://auth.example.org/", Credentials),
            ("a.co.uk", "https://b.co.uk/", Anonymous),
            ("a.org", "https://org/", Anonymous),
            ("a.org", "https://ba.org/", Anonymous),
            ("a.org", "https://evil.com/", Anonymous),
            ("a.org", "https://auth.docker.io/token", Anonymous),
            ("a.org", "https://login.other.org/", Credentials),
            ("a.org", "http://a.org/", Never),
            ("a.org", "http://localhost/", Never),
            ("a.org", "https://127.0.0.1/", Never),
            ("a.org", "https://0.0.0.0/", Never),
            ("a.org", "https://[::ffff:127.0.0.1]/", Never),
            ("a.org", "https://169.254.169.254/", Never),
            ("a.org", "https://u:p@a.org/", Never),
            ("a.org", "ftp://a.org/", Never),
            ("localhost:5000", "http://localhost:5001/token", Credentials),
            ("127.0.0.1:5000", "http://localhost:5001/token", Credentials),
            ("localhost:5000", "http://evil.com/token", Never),
            ("localhost:5000", "https://evil.com/token", Anonymous),
            ("10.0.0.1:5000", "http://10.0.0.1:6000/token", Credentials),
            ("10.0.0.1:5000", "http://10.0.0.2/token", Anonymous),
            ("10.0.0.1:5000", "http://10.0.0.3/token", Never),
        ] {
            let name = format!("oci://{registry}/x").parse().unwrap();
            let endpoint = Endpoint::of_registry(&name, &options).unwrap();
            let realm = Url::parse(realm).unwrap();
            assert_eq!(
                trust(&realm, &endpoint, &options),
                expected,
                "{registry} {realm}"
            );
        }
    }
}
