//! Builds HTTP clients: TLS roots, redirects, user agent, connection timeout.
//!
//! A client follows either no redirects or those that `redirect.rs` allows. It sends credentials
//! only while host and port stay the same. It has no total timeout, since bodies are as long as
//! images; the fetcher detects stalls.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};

use crate::http::local_addresses::{self, LeadsInward};
use crate::http::proxies;
use crate::{RemoteError, Result};

/// Variable that names a PEM file of certificates to trust in addition to the system's.
pub const CA_FILE_VARIABLE: &str = "FORERUN_CA_FILE";

/// Largest number of redirects followed per request.
const REDIRECTS: usize = 8;

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// A PEM file of additional trusted certificates. If `None`, the variable [`CA_FILE_VARIABLE`]
    /// names it.
    pub ca_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// Whether to follow redirects. A caller that checks each target itself turns this off.
    pub follow_redirects: bool,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            ca_file: None,
            connect_timeout: Duration::from_secs(10),
            follow_redirects: false,
        }
    }
}

/// Builds a client. Fails if the certificate file cannot be used.
pub fn build(options: &ClientOptions) -> Result<reqwest::Client> {
    let failed = |reason: String| RemoteError::Reference {
        text: "TLS".to_owned(),
        reason,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(roots(options)?)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let redirects = if options.follow_redirects {
        redirect::Policy::custom(follow)
    } else {
        redirect::Policy::none()
    };
    let builder = proxies::set(reqwest::Client::builder()).map_err(|error| failed_proxy(&error))?;
    builder
        .tls_backend_preconfigured(tls)
        .redirect(redirects)
        .dns_resolver(local_addresses::Resolver)
        .user_agent(concat!("forerun/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(options.connect_timeout)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_idle_timeout(Duration::from_secs(60))
        .referer(false)
        .build()
        .map_err(|error| failed(describe(&error)))
}

fn failed_proxy(error: &reqwest::Error) -> RemoteError {
    RemoteError::Reference {
        text: "the proxy of the environment".to_owned(),
        reason: describe(error),
    }
}

/// Reads the system's certificates and those of the user's file.
fn roots(options: &ClientOptions) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    for error in &system.errors {
        tracing::debug!(%error, "a certificate of the system was left out");
    }
    roots.add_parsable_certificates(system.certs);
    let file = options
        .ca_file
        .clone()
        .or_else(|| std::env::var_os(CA_FILE_VARIABLE).map(PathBuf::from));
    if let Some(file) = file {
        let failed = |reason: String| RemoteError::Reference {
            text: file.display().to_string(),
            reason,
        };
        let certificates =
            CertificateDer::pem_file_iter(&file).map_err(|error| failed(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| failed(error.to_string()))?;
            roots
                .add(certificate)
                .map_err(|error| failed(error.to_string()))?;
        }
    }
    Ok(roots)
}

fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let from = attempt.previous().last();
    if let Some(Err(reason)) = from.map(|from| crate::http::redirect::check(from, attempt.url())) {
        return attempt.error(reason);
    }
    if attempt.previous().len() > REDIRECTS {
        return attempt.error("too many redirects");
    }
    attempt.follow()
}

/// Formats an error of the client with all causes but without the address, which may contain
/// credentials.
#[must_use]
pub fn describe(error: &reqwest::Error) -> String {
    let first = std::error::Error::source(error);
    let causes = std::iter::successors(first, |cause| cause.source());
    let causes = causes.map(ToString::to_string);
    // Skips the client's internal layers, whose names mean nothing to a user.
    let is_layer =
        |text: &String| text.starts_with("client error (") || text == "tcp connect error";
    let mut texts: Vec<_> = causes.filter(|text| !is_layer(text)).collect();
    if error.is_connect() {
        texts.insert(0, "cannot connect".to_owned());
    }
    if texts.is_empty() {
        let text = match () {
            () if error.is_timeout() => "timeout",
            () if error.is_body() || error.is_decode() => "the answer ended early",
            () => "the request failed",
        };
        texts.push(text.to_owned());
    }
    texts.join(": ")
}

#[must_use]
pub fn failure(place: &str, error: &reqwest::Error) -> RemoteError {
    let place = place.to_owned();
    let reason = describe(error);
    if error.is_redirect() || error.is_builder() || leads_inward(error) {
        return RemoteError::Refused { place, reason };
    }
    if let Some(reason) = untrusted(error) {
        return RemoteError::Untrusted { place, reason };
    }
    RemoteError::Network { place, reason }
}

/// Returns whether the connection was refused because a redirect led to this machine.
fn leads_inward(error: &reqwest::Error) -> bool {
    let first = std::error::Error::source(error);
    let mut causes = std::iter::successors(first, |cause| cause.source());
    causes.any(|cause| cause.is::<LeadsInward>())
}

/// Returns the defect of the server's certificate, if that caused the error.
fn untrusted(error: &reqwest::Error) -> Option<String> {
    forerun_io::causes(error).find_map(|cause| match cause.downcast_ref()? {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            Some("its issuer is not known".to_owned())
        }
        rustls::Error::InvalidCertificate(wrong) => Some(wrong.to_string()),
        _ => None,
    })
}
