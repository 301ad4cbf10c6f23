//! Names of remote images: `https://`, `http://`, `s3://`, `oci://`.
//!
//! Parsing checks only the spelling; it contacts no server. The printed form of a reference never
//! contains a user, password or query.

use std::fmt;

use url::Url;

use crate::address::image_name::ImageName;
use crate::address::place_of;
use crate::{RemoteError, Result, redact};

const SCHEMES: [&str; 4] = ["https", "http", "s3", "oci"];

#[derive(Clone, PartialEq, Eq)]
pub enum Reference {
    /// A file on a web server. A user and password in the address are sent to that server only.
    Http(Url),
    /// An object in an S3-compatible store. Endpoint and credentials come from the environment.
    S3 {
        bucket: String,
        key: String,
    },
    Oci(ImageName),
}

impl Reference {
    /// Returns whether `text` names a remote image rather than a local file.
    #[must_use]
    pub fn is_remote(text: &str) -> bool {
        scheme(text).is_some()
    }

    pub fn parse(text: &str) -> Result<Self> {
        let bad = |reason: &str| RemoteError::Reference {
            text: redact::for_message(text),
            reason: reason.to_owned(),
        };
        let Some((scheme, rest)) = scheme(text) else {
            return Err(bad(
                "not an address: it must begin with https://, http://, s3:// or oci://",
            ));
        };
        match scheme {
            "s3" => s3(rest).map_err(bad),
            "oci" => rest.parse().map(Self::Oci),
            _ => {
                let mut url = Url::parse(text).map_err(|error| bad(&error.to_string()))?;
                url.set_fragment(None);
                Ok(Self::Http(url))
            }
        }
    }

    #[must_use]
    pub fn place(&self) -> String {
        match self {
            Self::Http(url) => place_of(url),
            Self::S3 { bucket, key } => format!("s3://{bucket}/{key}"),
            Self::Oci(oci) => oci.to_string(),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())
    }
}

/// Returns the scheme in lower case and the text after `://`; `None` for unknown schemes.
fn scheme(text: &str) -> Option<(&'static str, &str)> {
    let (name, rest) = text.split_once("://")?;
    let known = SCHEMES
        .iter()
        .find(|known| name.eq_ignore_ascii_case(known))?;
    Some((*known, rest))
}

fn s3(rest: &str) -> std::result::Result<Reference, &'static str> {
    let (bucket, key) = rest
        .split_once('/')
        .ok_or("the name must be s3://BUCKET/KEY")?;
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if bucket.len() < 3 || bucket.len() > 255 || !bucket.bytes().all(allowed) {
        return Err("not the name of a bucket");
    }
    if key.is_empty() || key.len() > 1024 {
        return Err("not the name of an object");
    }
    Ok(Reference::S3 {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use forerun_cache::Digest;

    use super::*;

    #[test]
    fn references_are_read_and_shown_without_secrets() {
        let digest = Digest::of(b"x");
        for (text, shown) in [
            (
                "https://u:p@h.example:8443/a%20b.erofs?sig=1#f",
                "https://h.example:8443/a%20b.erofs",
            ),
            ("HTTP://h/x", "http://h/x"),
            ("s3://bucket/a/b c", "s3://bucket/a/b c"),
            ("oci://h:5000/a/b:1.0", "oci://h:5000/a/b:1.0"),
            ("oci://[::1]:5000/a", "oci://[::1]:5000/a"),
            (
                &format!("oci://h/a__b-c:t@{digest}"),
                &format!("oci://h/a__b-c:t@{digest}"),
            ),
        ] {
            assert!(Reference::is_remote(text));
            assert_eq!(Reference::parse(text).unwrap().to_string(), shown);
        }
        let Reference::Oci(oci) = Reference::parse("oci://h/a").unwrap() else {
            panic!("not of a registry");
        };
        assert_eq!(oci.reference(), "latest");
    }

    #[test]
    fn what_is_no_reference_is_refused_without_telling_secrets() {
        for text in [
            "file",
            "/a/b",
            "ftp://h/x",
            "https://",
            "s3://b",
            "s3://bucket/",
            "s3://b/x",
            "oci://h",
            "oci:///a",
            "oci://h/A",
            "oci://h/a//b",
            "oci://h/a..b",
            "oci://h/a-",
            "oci://h/a:",
            "oci://h/a:.x",
            "oci://h/a@sha256:12",
            "oci://u:secret@h/a",
            "https://u:secret@:x/y?secret",
            "https:///u:secret@:x/y",
        ] {
            let error = Reference::parse(text).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        assert!(!Reference::is_remote("./http:x"));
    }
}
