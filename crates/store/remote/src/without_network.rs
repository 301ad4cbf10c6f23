//! Replaces remote images in a program without network support: their names are recognised and
//! refused. The types have the same names as with a network, but no values.

use std::io;
use std::sync::Arc;

use forerun_io::{Observer, ReadAt};

use crate::redact::for_message;
use crate::{RemoteError, RemoteOptions, RemoteStatus, Result};

const SCHEMES: [&str; 4] = ["https", "http", "s3", "oci"];

/// A remote image by name. It has no values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoReference {}

impl NoReference {
    /// Returns whether `text` names a remote image rather than a local file.
    #[must_use]
    pub fn is_remote(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|name| SCHEMES.iter().any(|known| name.eq_ignore_ascii_case(known)))
    }

    pub fn parse(text: &str) -> Result<Self> {
        Err(RemoteError::Reference {
            text: for_message(text),
            reason:
                "this program was built without network support; images at servers need the full forerun"
                    .to_string(),
        })
    }

    #[must_use]
    pub fn place(&self) -> String {
        match *self {}
    }
}

/// A remote image. It has no values.
#[derive(Debug)]
pub enum NoRemoteImage {}

impl NoRemoteImage {
    #[must_use]
    pub const fn place(&self) -> &str {
        match *self {}
    }

    #[must_use]
    pub const fn identity(&self) -> &str {
        match *self {}
    }

    pub fn observe(&self, _observer: Arc<Observer>) {
        match *self {}
    }

    #[must_use]
    pub fn status(&self) -> RemoteStatus {
        match *self {}
    }

    pub const fn reopen(&self, _options: &RemoteOptions) -> Result<()> {
        match *self {}
    }
}

impl ReadAt for NoRemoteImage {
    fn len(&self) -> u64 {
        match *self {}
    }

    fn read_exact_at(&self, _offset: u64, _out: &mut [u8]) -> io::Result<()> {
        match *self {}
    }
}

pub const fn open(reference: &NoReference, _options: &RemoteOptions) -> Result<Arc<NoRemoteImage>> {
    match *reference {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_servers_are_refused_without_their_secrets() {
        for name in [
            "https://u:secret@h/x",
            "S3://bucket/x",
            "oci://h/a:1",
            "http://h/?secret",
        ] {
            assert!(NoReference::is_remote(name), "{name}");
            let error = NoReference::parse(name).map_err(|error| error.to_string());
            let error = error.err().unwrap_or_default();
            assert!(error.contains("without a network"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(!NoReference::is_remote("oci-layout:dir"));
        assert!(!NoReference::is_remote("./https:x"));
    }
}
