//! A blob of a registry as an [`Origin`].
//!
//! Many registries redirect to an object store, with a signature in the address that is valid for
//! minutes. The store is contacted without credentials. The redirect target is remembered and
//! requested directly while that works, which halves the round trips of every read.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use forerun_cache::Digest;
use forerun_io::Unpoisoned;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use reqwest::header::{ACCEPT_ENCODING, CONTENT_LENGTH, HeaderValue, RANGE};
use reqwest::{Method, RequestBuilder, StatusCode};
use url::Url;

use crate::http::response;
use crate::http::site::Site;
use crate::registry::call::{Answer, Call};
use crate::registry::endpoint::Endpoint;
use crate::registry::{Registry, wire};
use crate::{Body, Description, Origin, RemoteError, Result, place_of};

pub struct RegistryBlob {
    registry: Arc<Registry>,
    endpoint: Arc<Endpoint>,
    digest: Digest,
    url: Url,
    place: String,
    /// Target of the last redirect.
    target: Mutex<Option<Url>>,
}

impl RegistryBlob {
    pub fn new(registry: Arc<Registry>, endpoint: Arc<Endpoint>, digest: Digest) -> Result<Self> {
        let url = endpoint.blob(&digest)?;
        Ok(Self {
            registry,
            endpoint,
            digest,
            place: place_of(&url),
            url,
            target: Mutex::new(None),
        })
    }

    fn target(&self) -> Option<Url> {
        self.target.lock().unpoisoned().clone()
    }

    fn keep_target(&self, target: Option<Url>) {
        *self.target.lock().unpoisoned() = target;
    }

    async fn get(&self, range: Range<u64>, total: u64) -> Result<Body> {
        if let Some(target) = self.target() {
            let place = place_of(&target);
            let request = with_range(self.registry.client().get(target), &range, total);
            let patience = self.registry.options().timeout;
            let head = wire::send(request, &place, patience).await;
            if let Ok(body) = head.and_then(|answer| judged(answer, &place, &range, total)) {
                return Ok(body);
            }
            // The address may have expired; the registry returns another one.
            self.keep_target(None);
        }
        let mut call = Call::get(&self.endpoint, self.url.clone(), &self.registry);
        call.headers
            .insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(range) = range_header(&range, total) {
            call.headers.insert(RANGE, range);
        }
        let Answer {
            response,
            url,
            place,
        } = self.registry.call(call).await?;
        let moved = Site::of(&url).as_ref() != Some(&self.endpoint.site);
        if !response.status().is_success() {
            return Err(wire::failure(response, &place, self.registry.options().timeout).await);
        }
        let body = judged(response, &place, &range, total)?;
        if moved {
            self.keep_target(Some(url));
        }
        Ok(body)
    }

    async fn head(&self) -> Result<Description> {
        let mut call = Call::get(&self.endpoint, self.url.clone(), &self.registry);
        call.method = Method::HEAD;
        let Answer {
            response, place, ..
        } = self.registry.call(call).await?;
        if response.status() != StatusCode::OK {
            return Err(wire::failure(response, &place, self.registry.options().timeout).await);
        }
        let len = response::header(response.headers(), CONTENT_LENGTH)
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| RemoteError::Refused {
                place,
                reason: "the server does not say how long the blob is".to_string(),
            })?;
        Ok(Description {
            len,
            version: None,
            digest: Some(self.digest),
            whole: false,
        })
    }
}

/// Returns the range header for a part of a blob. `None` for the whole blob, which every server can
/// send.
fn range_header(range: &Range<u64>, total: u64) -> Option<HeaderValue> {
    if *range == (0..total) {
        return None;
    }
    let last = range.end - 1;
    HeaderValue::from_str(&format!("bytes={}-{last}", range.start)).ok()
}

fn with_range(request: RequestBuilder, range: &Range<u64>, total: u64) -> RequestBuilder {
    let request = request.header(ACCEPT_ENCODING, "identity");
    match range_header(range, total) {
        Some(range) => request.header(RANGE, range),
        None => request,
    }
}

/// Checks that the head of an answer fits `range` of a blob of `total` bytes. Returns the body.
fn judged(
    response: reqwest::Response,
    place: &str,
    range: &Range<u64>,
    total: u64,
) -> Result<Body> {
    if response.status() != StatusCode::OK || *range != (0..total) {
        return response::partial(place, response, range, total);
    }
    let len = response::header(response.headers(), CONTENT_LENGTH);
    if let Some(len) = len.filter(|len| len.parse() != Ok(total)) {
        return Err(RemoteError::Refused {
            place: place.to_string(),
            reason: format!("the blob has {len} bytes, not {total}"),
        });
    }
    Ok(response::bounded(place.to_string(), response, total))
}

impl fmt::Debug for RegistryBlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryBlob({})", self.place)
    }
}

impl Origin for RegistryBlob {
    fn place(&self) -> &str {
        &self.place
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        self.head().boxed()
    }

    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>> {
        let total = description.len;
        self.get(range, total).boxed()
    }

    fn reload(&self) {
        self.keep_target(None);
        self.registry.reload();
    }
}
