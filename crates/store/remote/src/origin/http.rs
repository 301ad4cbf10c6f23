//! A file on a web server.
//!
//! A server without range requests answers each request with the whole file, and the bytes before
//! the range are skipped. [`Description::whole`](super::Description::whole) tells the caller, who
//! then requests the file once. If the server does not give the length either, describing fails
//! with [`RemoteError::NoLength`].
//!
//! The answer to a HEAD request is used if it has everything. Otherwise one byte is requested,
//! because some servers support ranges without announcing it, and some addresses are signed for GET
//! only. The version is a strong ETag or else the modification date. Later requests carry the
//! version as a condition, and answers with another version are refused. Redirect targets are not
//! remembered, because many are signed for minutes only.

use std::ops::Range;

use base64::Engine as _;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    ETAG, HeaderMap, HeaderValue, IF_MATCH, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE,
};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use url::Url;

use crate::address::place_of;
use crate::http::client::failure;
use crate::http::local_addresses;
use crate::http::response::{ContentRange, endless, header, partial, refusal, whole};
use crate::{Body, Description, Origin, RemoteError, Result};

/// Prefix of versions that are dates rather than ETags.
const MODIFIED: &str = "modified ";

pub struct HttpOrigin {
    client: Client,
    url: Url,
    place: String,
    authorization: Option<HeaderValue>,
}

impl std::fmt::Debug for HttpOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpOrigin({})", self.place)
    }
}

impl HttpOrigin {
    /// Creates an origin at `url`. A user and password in the URL become basic authentication for
    /// that scheme, host and port only. Fails if they cannot be sent.
    pub fn new(client: Client, mut url: Url) -> Result<Self> {
        local_addresses::allow(&url);
        let place = place_of(&url);
        let authorization = basic(&url).ok_or_else(|| RemoteError::Reference {
            text: place.clone(),
            reason: "it has a user or password that cannot be sent".to_owned(),
        })?;
        // Both calls fail only for addresses without a host, which no client accepts.
        let _no_host = (url.set_username(""), url.set_password(None));
        Ok(Self {
            client,
            url,
            place,
            authorization,
        })
    }

    fn get(&self, range: &Range<u64>) -> RequestBuilder {
        let last = range.end - 1;
        self.request(Method::GET)
            .header(RANGE, format!("bytes={}-{last}", range.start))
    }

    fn request(&self, method: Method) -> RequestBuilder {
        let mut request = self
            .client
            .request(method, self.url.clone())
            .header(ACCEPT_ENCODING, "identity");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        request
    }

    async fn ask(&self) -> Result<Description> {
        let answer = self.request(Method::HEAD).send().await;
        let answer = answer.map_err(|error| failure(&self.place, &error))?;
        let (status, headers) = (answer.status(), answer.headers());
        let ranges = header(headers, ACCEPT_RANGES).is_some_and(|units| units.contains("bytes"));
        let plain = header(headers, CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
        let len = header(headers, CONTENT_LENGTH).and_then(|len| len.parse().ok());
        match len.filter(|_| status == StatusCode::OK && ranges && plain) {
            Some(len) => Ok(Description {
                len,
                version: version(headers),
                digest: None,
                whole: false,
            }),
            None => match refusal(&self.place, status, headers) {
                error @ (RemoteError::NotFound { .. } | RemoteError::Busy { .. }) => Err(error),
                _ => self.probe().await,
            },
        }
    }

    async fn probe(&self) -> Result<Description> {
        let answer = self.get(&(0..1)).send().await;
        let answer = answer.map_err(|error| failure(&self.place, &error))?;
        let (status, headers) = (answer.status(), answer.headers());
        let range = header(headers, CONTENT_RANGE).and_then(ContentRange::parse);
        let len = match status {
            StatusCode::PARTIAL_CONTENT => range.and_then(|range| range.total),
            // There is no first byte: the file is empty.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                range.and_then(|range| range.total).filter(|len| *len == 0)
            }
            StatusCode::OK => return self.whole_file(headers),
            _ => return Err(refusal(&self.place, status, headers)),
        };
        let version = version(headers);
        let Some(len) = len else {
            let place = self.place.clone();
            return Err(RemoteError::NoLength { place, version });
        };
        // Reads the body to its end so that the connection can be reused.
        let _one_byte = answer.bytes().await;
        Ok(Description {
            len,
            version,
            digest: None,
            whole: false,
        })
    }

    /// Describes a file whose server answers a range request with the whole file.
    fn whole_file(&self, headers: &HeaderMap) -> Result<Description> {
        if header(headers, CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            return Err(RemoteError::Refused {
                place: self.place.clone(),
                reason: "the server sends the file in another encoding".to_owned(),
            });
        }
        let version = version(headers);
        let len = header(headers, CONTENT_LENGTH).and_then(|len| len.parse().ok());
        let Some(len) = len else {
            let place = self.place.clone();
            return Err(RemoteError::NoLength { place, version });
        };
        Ok(Description {
            len,
            version,
            digest: None,
            whole: true,
        })
    }

    async fn part(&self, range: Range<u64>, description: &Description) -> Result<Body> {
        let request = if description.whole {
            self.request(Method::GET)
        } else {
            self.get(&range)
        };
        let answer = self.of_version(request, description.version.as_deref());
        let answer = answer.await?;
        if description.whole {
            whole(&self.place, answer, &range, description.len)
        } else {
            partial(&self.place, answer, &range, description.len)
        }
    }
}

impl HttpOrigin {
    /// Adds to an error whether the request had credentials.
    fn of_request<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| error.with_credentials(self.authorization.is_some()))
    }

    /// Sends a request for a version of the file. Refuses an answer with another version.
    async fn of_version(&self, request: RequestBuilder, known: Option<&str>) -> Result<Response> {
        let request = match known.map(|known| (known, known.strip_prefix(MODIFIED))) {
            Some((_, Some(date))) => request.header(IF_UNMODIFIED_SINCE, date),
            Some((known, None)) => request.header(IF_MATCH, known),
            None => request,
        };
        let answer = request.send().await;
        let answer = answer.map_err(|error| failure(&self.place, &error))?;
        let told = version(answer.headers());
        let is_other = |known| told.as_deref().is_some_and(|told| told != known);
        if answer.status().is_success() && known.is_some_and(is_other) {
            return Err(RemoteError::Changed {
                place: self.place.clone(),
            });
        }
        Ok(answer)
    }
}

impl Origin for HttpOrigin {
    fn place(&self) -> &str {
        &self.place
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        async move { self.of_request(self.ask().await) }.boxed()
    }

    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>> {
        let description = description.clone();
        async move { self.of_request(self.part(range, &description).await) }.boxed()
    }

    fn fetch_whole<'a>(&'a self, version: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        let request = self.request(Method::GET);
        async move {
            let answer = self.of_version(request, version).await?;
            self.of_request(endless(&self.place, answer))
        }
        .boxed()
    }
}

/// Returns the strong ETag, or else the modification date. A weak ETag does not identify the bytes.
fn version(headers: &HeaderMap) -> Option<String> {
    let etag = header(headers, ETAG).filter(|tag| tag.starts_with('"'));
    etag.map(str::to_owned).or_else(|| {
        let date = header(headers, LAST_MODIFIED)?;
        Some(format!("{MODIFIED}{date}"))
    })
}

/// Returns the header of basic authentication, or `Some(None)` if the address has no user or
/// password.
fn basic(url: &Url) -> Option<Option<HeaderValue>> {
    if url.username().is_empty() && url.password().is_none() {
        return Some(None);
    }
    let user = decoded(url.username())?;
    let password = decoded(url.password().unwrap_or_default())?;
    let pair = [user.as_slice(), b":", &password].concat();
    let text = base64::engine::general_purpose::STANDARD.encode(pair);
    let mut value = HeaderValue::from_str(&format!("Basic {text}")).ok()?;
    value.set_sensitive(true);
    Some(Some(value))
}

/// Decodes percent-encoded text. Returns `None` for an invalid escape.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = tail.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    Some(bytes)
}
