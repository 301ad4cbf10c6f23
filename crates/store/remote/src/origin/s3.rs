//! An object in an S3-compatible store.
//!
//! The object store library signs requests and reads most sources of credentials: the usual `AWS_*`
//! variables, web identity tokens, container and instance roles. `aws_profile.rs` reads profiles.
//! Custom endpoints (`AWS_ENDPOINT_URL`) are addressed by path. Requests go through forerun's HTTP
//! client, for its TLS roots, and are not retried here. Redirects are not followed: a request
//! carries the session token in a header that clients do not remove.

use std::error::Error as _;
use std::fmt;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, RwLock};

use forerun_io::Unpoisoned;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use object_store::aws::AmazonS3;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpService,
};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore as _, ObjectStoreExt as _, RetryConfig};
use reqwest::{Client, StatusCode};

use crate::http::client::failure;
use crate::http::response::refusal;
use crate::origin::S3Settings;
use crate::{Body, Description, Origin, RemoteError, Result};

pub struct S3Origin {
    store: RwLock<Arc<AmazonS3>>,
    client: Client,
    bucket: String,
    key: Path,
    place: String,
}

impl fmt::Debug for S3Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Origin({})", self.place)
    }
}

/// Forerun's HTTP client, wrapped for the library. It reports busy servers and their `Retry-After`,
/// which the library would hide.
#[derive(Clone, Debug)]
struct OurClient {
    client: Client,
    place: String,
}

impl HttpConnector for OurClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

type HttpAnswer = std::result::Result<HttpResponse, HttpError>;

impl HttpService for OurClient {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = HttpAnswer> + Send + 'async_trait>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let answer = HttpService::call(&self.client, request).await?;
            if answer.status().is_redirection() && answer.status() != StatusCode::NOT_MODIFIED {
                let refused = RemoteError::Refused {
                    place: self.place.clone(),
                    reason: redirected(&answer),
                };
                return Err(HttpError::new(HttpErrorKind::Unknown, refused));
            }
            match refusal(&self.place, answer.status(), answer.headers()) {
                busy @ RemoteError::Busy { .. } => {
                    Err(HttpError::new(HttpErrorKind::Unknown, busy))
                }
                _ => Ok(answer),
            }
        })
    }
}

/// Explains a redirect. The usual cause is that the bucket is in another region.
fn redirected(answer: &HttpResponse) -> String {
    let region = answer.headers().get("x-amz-bucket-region");
    let region = region.and_then(|region| region.to_str().ok());
    match region.filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')) {
        Some(region) => format!("the bucket is in another region: set AWS_REGION={region}"),
        None => "forerun does not follow redirects of object stores: check AWS_REGION and AWS_ENDPOINT_URL"
            .to_owned(),
    }
}

impl S3Origin {
    /// Creates an origin for the object `key` of `bucket`, with endpoint and credentials from the
    /// environment or the profile. Fails if settings are missing or the name is invalid.
    pub fn new(client: Client, bucket: &str, key: &str) -> Result<Self> {
        let place = format!("s3://{bucket}/{key}");
        let bad = |reason: String| RemoteError::Reference {
            text: place.clone(),
            reason,
        };
        let store = connect(&client, bucket, &place).map_err(bad)?;
        let key = Path::parse(key).map_err(|error| bad(error.to_string()))?;
        Ok(Self {
            store: RwLock::new(Arc::new(store)),
            client,
            bucket: bucket.to_owned(),
            key,
            place,
        })
    }

    fn store(&self) -> Arc<AmazonS3> {
        let store = self.store.read().unpoisoned();
        Arc::clone(&store)
    }

    async fn ask(&self) -> Result<Description> {
        let head = self.store().head(&self.key).await;
        let head = head.map_err(|error| meaning(&self.place, &error))?;
        Ok(Description {
            len: head.size,
            version: head.e_tag,
            digest: None,
            whole: false,
        })
    }

    async fn part(&self, range: Range<u64>, description: Description) -> Result<Body> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(range.clone())),
            if_match: description.version,
            ..GetOptions::default()
        };
        let answer = self.store().get_opts(&self.key, options).await;
        let answer = answer.map_err(|error| meaning(&self.place, &error))?;
        let place = self.place.clone();
        if answer.meta.size != description.len {
            return Err(RemoteError::Changed { place });
        }
        if answer.range.start != range.start || answer.range.end > range.end {
            return Err(RemoteError::NoRanges { place });
        }
        let Some(mut left) = answer.range.end.checked_sub(range.start) else {
            return Err(RemoteError::NoRanges { place });
        };
        let body = answer.into_stream().map(move |piece| {
            let piece = piece.map_err(|error| meaning(&place, &error))?;
            left = left
                .checked_sub(forerun_io::u64_from(piece.len()))
                .ok_or_else(|| RemoteError::Refused {
                    place: place.clone(),
                    reason: "more bytes than announced".to_owned(),
                })?;
            Ok(piece)
        });
        Ok(body.boxed())
    }
}

impl Origin for S3Origin {
    fn place(&self) -> &str {
        &self.place
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        self.ask().boxed()
    }

    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>> {
        self.part(range, description.clone()).boxed()
    }

    fn reload(&self) {
        match connect(&self.client, &self.bucket, &self.place) {
            Ok(store) => {
                *self.store.write().unpoisoned() = Arc::new(store);
            }
            Err(reason) => tracing::warn!(
                reason,
                place = self.place,
                "the new credentials are not used"
            ),
        }
    }
}

/// Connects to the store with the current settings from the environment and the profile.
fn connect(client: &Client, bucket: &str, place: &str) -> std::result::Result<AmazonS3, String> {
    let once = RetryConfig {
        max_retries: 0,
        ..RetryConfig::default()
    };
    S3Settings::builder()?
        .with_bucket_name(bucket)
        .with_retry(once)
        // The user sets the endpoint, so an `http:` endpoint is intended.
        .with_allow_http(true)
        .with_http_connector(OurClient {
            client: client.clone(),
            place: place.to_owned(),
        })
        .build()
        .map_err(|error| error.to_string())
}

/// Converts an error of the library. Drops its text, which contains the server's answer and
/// possibly keys.
fn meaning(place: &str, error: &object_store::Error) -> RemoteError {
    use object_store::Error;
    let place = place.to_owned();
    let refused = |reason: &str| RemoteError::Refused {
        place: place.clone(),
        reason: reason.to_owned(),
    };
    let denied = |status| RemoteError::Denied {
        place: place.clone(),
        status,
        has_credentials: true,
    };
    match error {
        Error::NotFound { .. } => RemoteError::NotFound { place },
        Error::Precondition { .. } | Error::NotModified { .. } => RemoteError::Changed { place },
        Error::PermissionDenied { .. } => denied(403),
        Error::Unauthenticated { .. } => denied(401),
        Error::InvalidPath { .. } => refused("not the name of an object"),
        _ => {
            let mut cause = error.source();
            let mut last = None;
            while let Some(this) = cause {
                if let Some(busy) = this.downcast_ref::<RemoteError>() {
                    return busy.clone();
                }
                if let Some(failed) = this.downcast_ref::<reqwest::Error>() {
                    return failure(&place, failed);
                }
                last = Some(this);
                cause = this.source();
            }
            let reason = last.map_or_else(|| error.to_string(), ToString::to_string);
            match reason.find("non-2xx status code: ") {
                Some(at) => refused(
                    reason
                        .get(at..)
                        .and_then(|text| text.lines().next())
                        .map_or("the store refused", |text| text.get(..25).unwrap_or(text)),
                ),
                None => RemoteError::Network { place, reason },
            }
        }
    }
}
