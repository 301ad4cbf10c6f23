//! Rules for redirects.
//!
//! A redirect is not followed if it leads from https to http or from another machine to this one
//! (`local_addresses.rs`), or if its address contains credentials.

use url::Url;

use crate::address::place_of;
use crate::http::local_addresses;
use crate::http::site::Site;
use crate::{RemoteError, Result};

/// Resolves `location` against `from`. Fails if the redirect may not be followed.
pub fn follow(from: &Url, location: &str) -> Result<Url> {
    let refused = |reason: &str| RemoteError::Refused {
        place: place_of(from),
        reason: reason.to_string(),
    };
    let to = from
        .join(location)
        .map_err(|_| refused("a redirect to an invalid URL"))?;
    check(from, &to).map_err(refused)?;
    Ok(to)
}

/// Checks that a redirect may be followed. Otherwise returns the reason.
pub fn check(from: &Url, to: &Url) -> std::result::Result<(), &'static str> {
    let (Some(old), Some(new)) = (Site::of(from), Site::of(to)) else {
        return Err("a redirect to an address that is neither http nor https");
    };
    if old.is_secure() && !new.is_secure() {
        return Err("a redirect from https to http is not followed");
    }
    if new.is_inward() && !old.is_inward() {
        return Err("a redirect to this machine is not followed");
    }
    // An inward server may redirect to other inward names.
    if old.is_inward() {
        local_addresses::allow(to);
    }
    if !to.username().is_empty() || to.password().is_some() {
        return Err("a redirect with credentials in it is not followed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn redirects_that_lead_down_or_inward_are_refused() {
        for (from, location, expected) in [
            (
                "https://a.org/v2/",
                "https://cdn.org/x?y",
                Some("https://cdn.org/x?y"),
            ),
            ("https://a.org/v2/", "/z", Some("https://a.org/z")),
            ("https://a.org/v2/", "http://a.org/x", None),
            ("https://a.org/v2/", "https://127.0.0.1/x", None),
            ("https://a.org/v2/", "https://u:p@b.org/x", None),
            ("https://a.org/v2/", "file:///etc/passwd", None),
            (
                "http://localhost:1/",
                "http://127.0.0.1:2/x",
                Some("http://127.0.0.1:2/x"),
            ),
            ("http://10.0.0.1/", "http://[::1]/x", None),
            ("http://a.org/", "http://0.0.0.0/x", None),
            ("http://a.org/", "http://0/x", None),
            ("http://a.org/", "http://0x7f.1/x", None),
            ("http://a.org/", "http://[::ffff:127.0.0.1]/x", None),
            ("http://a.org/", "http://169.254.169.254/latest/", None),
            ("http://a.org/", "http://[fe80::1]/x", None),
            ("http://a.org/", "http://localhost./x", None),
            ("http://a.org/", "http://a.localhost/x", None),
            (
                "http://127.0.0.1:1/",
                "http://[::1]:2/x",
                Some("http://[::1]:2/x"),
            ),
            (
                "http://a.org/",
                "http://10.0.0.2/x",
                Some("http://10.0.0.2/x"),
            ),
        ] {
            let from = Url::parse(from).unwrap();
            let url = follow(&from, location).ok().map(|url| url.to_string());
            assert_eq!(url.as_deref(), expected, "{from} {location}");
        }
    }
}
