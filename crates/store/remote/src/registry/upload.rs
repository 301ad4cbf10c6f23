//! Writes blobs and manifests to a repository.
//!
//! Before each attempt to send a blob, the registry is asked whether it has the blob, so that a
//! blob that arrived although the answer was lost is not sent twice. Short blobs are sent in one
//! request, long ones in several, because proxies in front of registries limit the length of a
//! request. Nothing is written to mirrors.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forerun_cache::Digest;
use forerun_io::u64_from;
use reqwest::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION,
};
use reqwest::{Method, StatusCode};
use url::Url;

use crate::address::image_name::ImageName;
use crate::http::redirect::follow;
use crate::http::response;
use crate::http::retry::retry;
use crate::oci::manifest::MAX_MANIFEST;
use crate::oci::media;
use crate::registry::auth::Access;
use crate::registry::call::{Answer, Call};
use crate::registry::endpoint::Endpoint;
use crate::registry::read::RawManifest;
use crate::registry::{Registry, wire};
use crate::{RemoteError, Result};

/// Longest body of one request.
const MAX_BODY: usize = 16 << 20;
/// An upload below this rate, in bytes per second, counts as stalled.
const SLOWEST: u64 = 16 << 10;
/// The header with the digest that the registry computed for the uploaded bytes.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// The header by which a registry says that it lists referrers itself.
const SUBJECT: HeaderName = HeaderName::from_static("oci-subject");

#[derive(Clone, Debug)]
pub struct Repository {
    registry: Arc<Registry>,
    endpoint: Arc<Endpoint>,
}

impl Repository {
    pub fn new(registry: &Arc<Registry>, name: &ImageName) -> Result<Self> {
        Ok(Self {
            endpoint: Arc::new(Endpoint::of_registry(name, registry.options())?),
            registry: Arc::clone(registry),
        })
    }

    /// Uploads a blob unless the repository has it. Returns whether it was sent.
    pub async fn put_blob(&self, digest: Digest, bytes: &Bytes) -> Result<bool> {
        retry(self.registry.retries(), || {
            self.put_blob_once(digest, bytes)
        })
        .await
    }

    async fn put_blob_once(&self, digest: Digest, bytes: &Bytes) -> Result<bool> {
        let there = self
            .registry
            .blob_len(&self.endpoint, Access::Push, &digest)
            .await?;
        if there == Some(u64_from(bytes.len())) {
            return Ok(false);
        }
        let begin = self.call(Method::POST, self.endpoint.uploads()?, Some(Bytes::new()));
        let (mut location, _) = self.expect(begin, StatusCode::ACCEPTED).await?;
        let mut rest = bytes.clone();
        if rest.len() > MAX_BODY {
            let mut sent = 0;
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(MAX_BODY));
                let end = sent + u64_from(piece.len());
                let mut patch = self.call(Method::PATCH, location, Some(piece));
                patch.headers = binary();
                patch.headers.insert(CONTENT_RANGE, range(sent, end));
                (location, _) = self.expect(patch, StatusCode::ACCEPTED).await?;
                sent = end;
            }
        }
        location
            .query_pairs_mut()
            .append_pair("digest", &digest.to_string());
        let mut put = self.call(Method::PUT, location, Some(rest));
        put.headers = binary();
        self.finish(put, digest).await?;
        Ok(true)
    }

    pub async fn put_manifest(&self, tag: &str, bytes: &Bytes) -> Result<Digest> {
        self.put_document(tag, media::OCI_MANIFEST, bytes).await?;
        Ok(Digest::of(bytes))
    }

    /// Stores a manifest or index under a tag or its digest. Returns whether the registry itself
    /// will list it among the referrers of its subject.
    pub async fn put_document(
        &self,
        reference: &str,
        media_type: &'static str,
        bytes: &Bytes,
    ) -> Result<bool> {
        let digest = Digest::of(bytes);
        let url = self.endpoint.manifest(reference)?;
        if bytes.len() > MAX_MANIFEST {
            return Err(RemoteError::Refused {
                place: crate::place_of(&url),
                reason: format!(
                    "a manifest of {} bytes is too large for registries",
                    bytes.len()
                ),
            });
        }
        let headers = retry(self.registry.retries(), || {
            let mut put = self.call(Method::PUT, url.clone(), Some(bytes.clone()));
            put.headers
                .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
            self.finish(put, digest)
        });
        Ok(headers.await?.contains_key(SUBJECT))
    }

    pub async fn read_manifest(&self, tag: &str) -> Result<RawManifest> {
        retry(self.registry.retries(), || {
            self.registry.manifest_at(&self.endpoint, tag, None)
        })
        .await
    }

    pub fn place(&self) -> String {
        let url = self.endpoint.manifest("");
        url.map_or_else(|_| String::new(), |url| crate::place_of(&url))
    }

    fn call(&self, method: Method, url: Url, body: Option<Bytes>) -> Call<'_> {
        let mut call = Call::get(&self.endpoint, url, &self.registry);
        let len = body.as_ref().map_or(0, Bytes::len);
        call.patience += Duration::from_secs(u64_from(len) / SLOWEST);
        call.access = Access::Push;
        call.method = method;
        call.body = body;
        if len == 0 {
            // Some registries require this header.
            call.headers
                .insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        call
    }

    /// Sends a request whose answer contains the address of the next request.
    async fn expect(&self, call: Call<'_>, status: StatusCode) -> Result<(Url, HeaderMap)> {
        let Answer {
            response,
            url,
            place,
        } = self.registry.call(call).await?;
        if response.status() != status {
            let patience = self.registry.options().timeout;
            return Err(wire::failure(response, &place, patience).await);
        }
        let headers = response.headers().clone();
        let location =
            response::header(&headers, LOCATION).ok_or_else(|| RemoteError::Refused {
                place,
                reason: "the registry does not say where to send the blob".to_string(),
            })?;
        Ok((follow(&url, location)?, headers))
    }

    /// Sends the last request of an upload, and compares digests if the registry returns one.
    /// Returns the headers of the answer.
    async fn finish(&self, call: Call<'_>, digest: Digest) -> Result<HeaderMap> {
        let Answer {
            response, place, ..
        } = self.registry.call(call).await?;
        if response.status() != StatusCode::CREATED {
            let patience = self.registry.options().timeout;
            return Err(wire::failure(response, &place, patience).await);
        }
        let told = response::header(response.headers(), CONTENT_DIGEST)
            .and_then(|text| text.parse::<Digest>().ok());
        match told {
            Some(told) if told != digest => Err(RemoteError::Refused {
                place,
                reason: format!("the registry stored {told} instead of {digest}"),
            }),
            _ => Ok(response.headers().clone()),
        }
    }
}

fn binary() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers
}

/// Returns `first-last`, the form of the distribution specification, which has no unit and no
/// total.
fn range(start: u64, end: u64) -> HeaderValue {
    let text = format!("{start}-{}", end.saturating_sub(1));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("0-0"))
}
