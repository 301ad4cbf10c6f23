//! Reads whole manifests and configurations, and checks their digests.

use std::sync::Arc;

use bytes::Bytes;
use forerun_cache::Digest;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, LINK};
use reqwest::{Method, StatusCode};
use url::Url;

use crate::http::retry::retry;
use crate::http::{link, response};
use crate::oci::manifest::{Descriptor, MAX_MANIFEST};
use crate::oci::media;
use crate::registry::call::{Answer, Call};
use crate::registry::endpoint::Endpoint;
use crate::registry::{Registry, wire};
use crate::{RemoteError, Result};

/// The header with the digest of a manifest.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

#[derive(Clone, Debug)]
pub struct RawManifest {
    pub bytes: Bytes,
    /// The digest computed from the bytes.
    pub digest: Digest,
    /// The media type according to the server.
    pub media_type: Option<String>,
    pub url: Url,
    pub place: String,
    /// The next page of a list according to the server.
    pub next: Option<String>,
}

impl Registry {
    /// Reads the manifest `reference` (a tag, or the digest `expected`) from the first endpoint
    /// that has it.
    pub async fn manifest(
        &self,
        endpoints: &[Arc<Endpoint>],
        reference: &str,
        expected: Option<Digest>,
    ) -> Result<RawManifest> {
        first_of(endpoints, |endpoint| {
            retry(self.retries(), move || {
                self.manifest_at(endpoint, reference, expected)
            })
        })
        .await
    }

    /// Reads the manifest from this endpoint, without retries.
    pub async fn manifest_at(
        &self,
        endpoint: &Endpoint,
        reference: &str,
        expected: Option<Digest>,
    ) -> Result<RawManifest> {
        let url = endpoint.manifest(reference)?;
        self.document_at(endpoint, url, expected).await
    }

    /// Reads the document at an address of this endpoint, without retries.
    pub async fn document_at(
        &self,
        endpoint: &Endpoint,
        url: Url,
        expected: Option<Digest>,
    ) -> Result<RawManifest> {
        let mut call = Call::get(endpoint, url, self);
        for media_type in [
            media::OCI_MANIFEST,
            media::OCI_INDEX,
            media::DOCKER_MANIFEST,
            media::DOCKER_LIST,
        ] {
            call.headers
                .append(ACCEPT, HeaderValue::from_static(media_type));
        }
        let patience = self.options().timeout;
        let Answer {
            response,
            url,
            place,
        } = self.call(call).await?;
        if response.status() != StatusCode::OK {
            return Err(wire::failure(response, &place, patience).await);
        }
        let links = response.headers().get_all(LINK).iter();
        let mut links = links.filter_map(|links| links.to_str().ok());
        let next = links.find_map(link::next).map(ToString::to_string);
        let told = response::header(response.headers(), CONTENT_DIGEST)
            .and_then(|text| text.parse::<Digest>().ok());
        let media_type = response::header(response.headers(), CONTENT_TYPE)
            .map(|text| text.split(';').next().unwrap_or(text).trim().to_string());
        let bytes = wire::collect(response, &place, MAX_MANIFEST, patience).await?;
        let digest = verified(&bytes, expected.or(told), &place)?;
        Ok(RawManifest {
            bytes,
            digest,
            media_type,
            url,
            place,
            next,
        })
    }

    /// Reads the blob `descriptor`, of at most `limit` bytes, from the first endpoint that has it.
    pub async fn small_blob(
        &self,
        endpoints: &[Arc<Endpoint>],
        descriptor: &Descriptor,
        limit: usize,
    ) -> Result<Bytes> {
        first_of(endpoints, |endpoint| {
            retry(self.retries(), move || {
                self.small_blob_at(endpoint, descriptor, limit)
            })
        })
        .await
    }

    async fn small_blob_at(
        &self,
        endpoint: &Endpoint,
        descriptor: &Descriptor,
        limit: usize,
    ) -> Result<Bytes> {
        let call = Call::get(endpoint, endpoint.blob(&descriptor.digest)?, self);
        let Answer {
            response, place, ..
        } = self.call(call).await?;
        if response.status() != StatusCode::OK {
            return Err(wire::failure(response, &place, self.options().timeout).await);
        }
        let bytes = wire::collect(response, &place, limit, self.options().timeout).await?;
        verified(&bytes, Some(descriptor.digest), &place)?;
        Ok(bytes)
    }

    /// Returns the length of the blob, or `None` if `endpoint` does not have it.
    pub async fn blob_len(
        &self,
        endpoint: &Endpoint,
        access: super::auth::Access,
        digest: &Digest,
    ) -> Result<Option<u64>> {
        let mut call = Call::get(endpoint, endpoint.blob(digest)?, self);
        call.method = Method::HEAD;
        call.access = access;
        let Answer {
            response, place, ..
        } = self.call(call).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(
                response::header(response.headers(), reqwest::header::CONTENT_LENGTH)
                    .and_then(|text| text.parse().ok())
                    .ok_or_else(|| RemoteError::Refused {
                        place,
                        reason: "the server does not say how long the blob is".to_string(),
                    })?,
            )),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(wire::failure(response, &place, self.options().timeout).await),
        }
    }
}

/// Tries the endpoints in order and returns the first success. If all fail, returns the error of
/// the last one, which is the registry itself.
pub async fn first_of<'a, T, F>(
    endpoints: &'a [Arc<Endpoint>],
    mut ask: impl FnMut(&'a Endpoint) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut failed = None;
    for endpoint in endpoints {
        if let Some(error) = failed.take() {
            tracing::warn!(%error, "a mirror failed, and the next one is tried");
        }
        match ask(endpoint).await {
            Ok(found) => return Ok(found),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| RemoteError::NotFound {
        place: "registry".to_string(),
    }))
}

/// Returns the digest of `bytes`. Fails if it is not `expected`.
fn verified(bytes: &[u8], expected: Option<Digest>, place: &str) -> Result<Digest> {
    let digest = Digest::of(bytes);
    match expected {
        Some(expected) if expected != digest => Err(RemoteError::WrongDigest {
            place: place.to_string(),
            range: 0..forerun_io::u64_from(bytes.len()),
            expected,
        }),
        _ => Ok(digest),
    }
}
