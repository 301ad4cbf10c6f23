//! Proxies of requests: those of the environment, but none for servers on this machine.
//!
//! A proxy on another machine cannot reach a server on this one, and would see the requests for it,
//! credentials included.

use reqwest::{ClientBuilder, NoProxy, Proxy};

use crate::http::local_addresses;

/// This machine, as `NO_PROXY` lists hosts.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// Sets the proxies that `HTTP_PROXY`, `HTTPS_PROXY` and `ALL_PROXY` name, in capitals or not, except
/// for the hosts of `NO_PROXY`.
///
/// # Errors
/// What is wrong with the address of a proxy.
pub fn set(builder: ClientBuilder) -> reqwest::Result<ClientBuilder> {
    let variable = |name: &str| {
        let value = std::env::var(name).or_else(|_| std::env::var(name.to_lowercase()));
        value.ok().filter(|value| !value.is_empty())
    };
    let except = match variable("NO_PROXY") {
        Some(hosts) => format!("{hosts},{LOOPBACK}"),
        None => LOOPBACK.to_owned(),
    };
    let except = || NoProxy::from_string(&except);
    // In a program that a web server runs, HTTP_PROXY is the header `Proxy` of a client.
    let is_cgi = std::env::var_os("REQUEST_METHOD").is_some();
    let mut builder = builder.no_proxy();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        if let Some(url) = variable(name).and_then(|proxy| proxy.parse().ok()) {
            local_addresses::allow(&url);
        }
    }
    if let Some(url) = variable("HTTP_PROXY").filter(|_| !is_cgi) {
        builder = builder.proxy(Proxy::http(url)?.no_proxy(except()));
    }
    if let Some(url) = variable("HTTPS_PROXY") {
        builder = builder.proxy(Proxy::https(url)?.no_proxy(except()));
    }
    if let Some(url) = variable("ALL_PROXY") {
        builder = builder.proxy(Proxy::all(url)?.no_proxy(except()));
    }
    Ok(builder)
}
