//! Proxies from the environment. Servers on this machine are contacted directly.
//!
//! A proxy on another machine cannot reach servers on this machine, and would see the requests and
//! credentials.

use reqwest::{ClientBuilder, NoProxy, Proxy};
use url::Url;

use crate::http::local_addresses;

/// This machine, in the syntax of `NO_PROXY`.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

type MakeProxy = fn(String) -> reqwest::Result<Proxy>;

/// Sets the proxies of the variables `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY`, in capitals or
/// not, except for the hosts of `NO_PROXY`. Fails if the address of a proxy is invalid.
pub fn set(builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
    let variable = |name: &str| {
        let value = std::env::var(name).or_else(|_| std::env::var(name.to_lowercase()));
        value.ok().filter(|value| !value.is_empty())
    };
    let except = match variable("NO_PROXY") {
        Some(hosts) => format!("{hosts},{LOOPBACK}"),
        None => LOOPBACK.to_owned(),
    };
    // A program run by a web server (CGI) gets the client's `Proxy` header as HTTP_PROXY.
    let is_cgi = std::env::var_os("REQUEST_METHOD").is_some();
    let kinds: [(&str, MakeProxy); 3] = [
        ("HTTP_PROXY", Proxy::http),
        ("HTTPS_PROXY", Proxy::https),
        ("ALL_PROXY", Proxy::all),
    ];
    let mut builder = builder.no_proxy();
    for (name, proxy) in kinds {
        let Some(value) = variable(name).filter(|_| name != "HTTP_PROXY" || !is_cgi) else {
            continue;
        };
        let url = address(&value);
        if let Some(url) = &url {
            local_addresses::allow(url);
        }
        let proxy = proxy(url.map_or(value, String::from))?;
        builder = builder.proxy(proxy.no_proxy(NoProxy::from_string(&except)));
    }
    Ok(builder)
}

/// Parses the address of a proxy. The scheme may be missing: `proxy:3128`.
fn address(value: &str) -> Option<Url> {
    let parse = |text: &str| Url::parse(text).ok().filter(Url::has_host);
    parse(value).or_else(|| parse(&format!("http://{value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_without_a_scheme_is_one_of_http() {
        for (value, expected) in [
            ("127.0.0.1:3128", "http://127.0.0.1:3128/"),
            ("proxy:3128", "http://proxy:3128/"),
            ("proxy", "http://proxy/"),
            (
                "user:password@proxy:3128",
                "http://user:password@proxy:3128/",
            ),
            ("[::1]:3128", "http://[::1]:3128/"),
            ("https://proxy:3128", "https://proxy:3128/"),
            ("socks5h://proxy:1080", "socks5h://proxy:1080"),
        ] {
            let found = address(value).map(String::from);
            assert_eq!(found.as_deref(), Some(expected), "{value}");
        }
        assert_eq!(address(""), None);
        assert_eq!(address("a b"), None);
    }
}
