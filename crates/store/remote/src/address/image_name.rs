//! Names of images in registries: host, repository, tag, digest.
//!
//! The grammar is that of the OCI distribution specification. Other names are refused before a
//! request is built, so that no part of a name can change the meaning of a URL.

use std::fmt;
use std::str::FromStr;

use forerun_cache::Digest;
use url::Url;

use crate::redact::plain;
use crate::{RemoteError, Result};

const MAX_TEXT: usize = 1024;
/// Longest repository name that the OCI specification allows.
const MAX_REPOSITORY: usize = 255;
/// Longest tag that the OCI specification allows.
const MAX_TAG: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageName {
    /// `HOST` or `HOST:PORT`.
    pub registry: String,
    pub repository: String,
    /// `None` means `latest`, unless there is a digest.
    pub tag: Option<String>,
    /// Digest of the manifest. It takes precedence over the tag.
    pub digest: Option<Digest>,
}

impl ImageName {
    /// Returns the digest or tag by which the manifest is requested.
    #[must_use]
    pub fn reference(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_string(),
        }
    }

    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

impl FromStr for ImageName {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|reason| RemoteError::Reference {
            text: shown(text),
            reason: reason.to_string(),
        })
    }
}

/// Returns `text` for messages: shortened, and without credentials (before an `@` in the host
/// part).
fn shown(text: &str) -> String {
    let (scheme, rest) = text
        .split_once("://")
        .map_or(("", text), |(_, rest)| ("oci://", rest));
    let slash = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(slash);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    plain(&format!("{scheme}{host}{path}"), 200)
}

fn parse(text: &str) -> std::result::Result<ImageName, &'static str> {
    if text.len() > MAX_TEXT {
        return Err("the name is too long");
    }
    let rest = text.strip_prefix("oci://").unwrap_or(text);
    let (host, rest) = rest
        .split_once('/')
        .ok_or("a name in a registry needs a host and a repository: oci://HOST/REPOSITORY:TAG")?;
    let registry = host_of(host)?;
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) => {
            let digest = digest
                .parse()
                .map_err(|_| "after @ comes sha256: and 64 hexadecimal digits in lower case")?;
            (rest, Some(digest))
        }
        None => (rest, None),
    };
    let (repository, tag) = match rest.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (rest, None),
    };
    if !is_repository(repository) {
        return Err(
            "the repository may have only lower-case letters, digits and . _ - between slashes",
        );
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("the tag may have at most 128 letters, digits and . _ -");
    }
    Ok(ImageName {
        repository: canonical(&registry, repository),
        registry,
        tag: tag.map(ToString::to_string),
        digest,
    })
}

/// Expands a one-component repository on Docker Hub to `library/NAME`.
fn canonical(registry: &str, repository: &str) -> String {
    if registry == "docker.io" && !repository.contains('/') {
        return format!("library/{repository}");
    }
    repository.to_string()
}

/// Returns the host and port in lower case if they are valid.
fn host_of(text: &str) -> std::result::Result<String, &'static str> {
    if text.contains('@') {
        return Err("credentials are not taken from names: log in with docker or podman instead");
    }
    const BAD: &str = "the host is not valid";
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    if text.is_empty() || !text.bytes().all(plain) || text.ends_with(':') {
        return Err(BAD);
    }
    // The scheme is a placeholder: `Url` removes the default port of a known scheme.
    let url = Url::parse(&format!("oci://{text}/")).map_err(|_| BAD)?;
    let url_host = url.host_str().ok_or(BAD)?.to_ascii_lowercase();
    if url_host.is_empty() || url_host.starts_with(['.', '-']) {
        return Err(BAD);
    }
    match url.port() {
        Some(0) => Err(BAD),
        Some(port) => Ok(format!("{url_host}:{port}")),
        None => Ok(url_host),
    }
}

fn is_repository(text: &str) -> bool {
    text.len() <= MAX_REPOSITORY && text.split('/').all(is_component)
}

/// Returns whether `text` is `[a-z0-9]+` joined by one dot, one or two underscores, or hyphens.
fn is_component(text: &str) -> bool {
    let alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let separator = |run: &str| matches!(run, "." | "_" | "__") || run.bytes().all(|b| b == b'-');
    let mut rest = text;
    loop {
        let end = rest
            .bytes()
            .position(|b| !alphanumeric(b))
            .unwrap_or(rest.len());
        if end == 0 {
            return false;
        }
        rest = &rest[end..];
        let Some(next) = rest.bytes().position(alphanumeric) else {
            return rest.is_empty();
        };
        if !separator(&rest[..next]) {
            return false;
        }
        rest = &rest[next..];
    }
}

fn is_tag(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MAX_TAG).contains(&text.len())
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|byte| word(byte) || b".-".contains(&byte))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_come_back() {
        let digest = Digest::of(b"x");
        for (text, registry, repository, reference) in [
            (
                "oci://localhost:5000/a/b:v1",
                "localhost:5000",
                "a/b",
                "v1".to_string(),
            ),
            (
                "ghcr.io/who/what",
                "ghcr.io",
                "who/what",
                "latest".to_string(),
            ),
            (
                "oci://docker.io/alpine:3",
                "docker.io",
                "library/alpine",
                "3".to_string(),
            ),
            (
                "oci://[::1]:5000/a__b/c-d.e",
                "[::1]:5000",
                "a__b/c-d.e",
                "latest".to_string(),
            ),
            (
                "oci://EXAMPLE.org/a",
                "example.org",
                "a",
                "latest".to_string(),
            ),
            (
                &format!("oci://h:443/a:t@{digest}"),
                "h:443",
                "a",
                digest.to_string(),
            ),
        ] {
            let name: ImageName = text.parse().unwrap();
            assert_eq!(
                (&*name.registry, &*name.repository),
                (registry, repository),
                "{text}"
            );
            assert_eq!(name.reference(), reference, "{text}");
            assert_eq!(name.to_string().parse::<ImageName>().unwrap(), name);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in [
            "",
            "a",
            "oci://",
            "oci://host",
            "oci://host/",
            "oci:///a",
            "oci://host/A",
            "oci://host/a//b",
            "oci://host/../a",
            "oci://host/a/..",
            "oci://host/a?x",
            "oci://host/a#x",
            "oci://host/a%2fb",
            "oci://host/a:",
            "oci://host/a:-x",
            "oci://host/a:b/c",
            "oci://host/a@sha256:00",
            "oci://ho st/a",
            "oci://host:/a",
            "oci://host:0/a",
            "oci://host:99999/a",
            "oci://host/a___b",
            "oci://host/a..b",
            "oci://host/a-",
            "oci://.host/a",
            "oci://[::1/a",
            "http://host/a",
            "oci://host/a\n",
            &format!("oci://host/{}", "a".repeat(256)),
            &format!("oci://host/a:{}", "t".repeat(129)),
        ] {
            assert!(text.parse::<ImageName>().is_err(), "{text}");
        }
    }

    #[test]
    fn credentials_are_not_repeated() {
        let error = "oci://me:secret@host/a"
            .parse::<ImageName>()
            .unwrap_err()
            .to_string();
        assert!(!error.contains("secret"), "{error}");
        assert!(error.contains("oci://host/a"), "{error}");
    }
}
