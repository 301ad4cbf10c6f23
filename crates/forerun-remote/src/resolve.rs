//! From a reference to a layout: who has the image, how long it is, and what names it.
//!
//! For web servers and object stores every address is asked; those that answer with the length of the
//! first that answers are mirrors of it. Nothing proves that mirrors hold the same bytes where there is
//! no table: whoever names mirrors vouches for that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun_cache::Digest;
use futures_util::future::join_all;
use url::Url;

use crate::client::{self, ClientOptions};
use crate::reference::place_of;
use crate::registry::{Mirror, Registry};
use crate::{
    Description, HttpOrigin, Identity, Layout, Origin, Pinned, Reference, RemoteBlob, RemoteError,
    RemoteOptions, Result, S3Origin,
};

/// Pause before the second question; doubled each time.
const PAUSE: Duration = Duration::from_millis(200);

/// What a reference turned out to be, and what is needed to ask again.
pub struct Resolved {
    /// The image.
    pub layout: Layout,
    /// Whose tokens and passwords can be forgotten.
    pub registry: Option<Arc<Registry>>,
}

/// Finds out what `reference` names.
///
/// # Errors
/// Of the first address, where none answers as it should.
pub async fn resolve(reference: &Reference, options: &RemoteOptions) -> Result<Resolved> {
    let follow_redirects = !matches!(reference, Reference::Oci(_));
    let client = client::build(&ClientOptions {
        ca_file: options.ca_file.clone(),
        connect_timeout: options.connect_timeout,
        follow_redirects,
    })?;
    if let Reference::Oci(name) = reference {
        let mut settings = options.registry.clone();
        settings
            .mirrors
            .extend(options.mirrors.iter().map(|location| Mirror {
                registry: name.registry.clone(),
                location: location.clone(),
            }));
        let registry = Registry::new(client, settings);
        let layout = registry.open(name, options.require_verified).await?;
        let registry = Some(registry);
        return Ok(Resolved { layout, registry });
    }
    let mut origins = vec![origin(&client, reference)?];
    for mirror in &options.mirrors {
        origins.push(origin(&client, &Reference::parse(mirror)?)?);
    }
    let layout = plain(reference, origins, options).await?;
    Ok(Resolved {
        layout,
        registry: None,
    })
}

/// An origin and what names its address in the cache.
struct Candidate {
    origin: Arc<dyn Origin>,
    address: String,
}

fn origin(client: &reqwest::Client, reference: &Reference) -> Result<Candidate> {
    match reference {
        Reference::Http(url) => Ok(Candidate {
            origin: Arc::new(HttpOrigin::new(client.clone(), url.clone())?),
            address: address(url),
        }),
        Reference::S3 { bucket, key } => {
            let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]
                .iter()
                .find_map(|name| std::env::var(name).ok())
                .and_then(|text| Url::parse(&text).ok())
                .map_or_else(String::new, |url| place_of(&url));
            Ok(Candidate {
                origin: Arc::new(S3Origin::new(client.clone(), bucket, key)?),
                address: format!("s3://{bucket}/{key} {endpoint}")
                    .trim_end()
                    .to_owned(),
            })
        }
        Reference::Oci(name) => Err(RemoteError::Reference {
            text: name.to_string(),
            reason: "a mirror of a file is no registry".to_owned(),
        }),
    }
}

/// The address as part of a name: a query is part of it, but may be secret.
fn address(url: &Url) -> String {
    let place = place_of(url);
    match url.query() {
        Some(query) => format!("{place}?{}", Digest::of(query.as_bytes())),
        None => place,
    }
}

/// A file or object, at one or more addresses.
async fn plain(
    reference: &Reference,
    candidates: Vec<Candidate>,
    options: &RemoteOptions,
) -> Result<Layout> {
    if options.require_verified {
        return Err(RemoteError::Refused {
            place: reference.place(),
            reason:
                "a plain file comes without a table of its chunks, so they cannot be verified; \
                     push it to a registry and open it from there"
                    .to_owned(),
        });
    }
    let asked = candidates
        .iter()
        .map(|candidate| described(&*candidate.origin, options));
    let answers = join_all(asked).await;
    let mut first: Option<(String, Description)> = None;
    let mut failed = None;
    let mut mirrors: Vec<Arc<dyn Origin>> = Vec::new();
    for (candidate, answer) in candidates.into_iter().zip(answers) {
        let description = match answer {
            Ok(description) => description,
            Err(error) => {
                tracing::warn!(%error, "this address of the image is left out");
                failed = failed.or(Some(error));
                continue;
            }
        };
        let (_, known) = first.get_or_insert_with(|| (candidate.address, description.clone()));
        if known.len != description.len {
            let place = candidate.origin.place();
            tracing::warn!(place, "left out: the image is of another length there");
            continue;
        }
        mirrors.push(Arc::new(Pinned::new(candidate.origin, description)));
    }
    let Some((url, description)) = first else {
        return Err(failed.unwrap_or_else(|| RemoteError::NotFound {
            place: reference.place(),
        }));
    };
    let version = description.version.clone().unwrap_or_else(unversioned);
    let identity = Identity::Version { url, version };
    let blob = RemoteBlob {
        description,
        mirrors,
    };
    Ok(Layout::single(reference.place(), blob, identity))
}

/// Where the server has no name for the version, nothing says that it will be the same next time:
/// what is fetched now is for now.
fn unversioned() -> String {
    let now = std::time::SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!("unknown {} {}", now.as_nanos(), std::process::id())
}

/// Asks for a description until there is one or patience ends.
async fn described(origin: &dyn Origin, options: &RemoteOptions) -> Result<Description> {
    let start = Instant::now();
    let mut pause = PAUSE;
    let mut tries = 0_u32;
    loop {
        let patience = options.stall.min(options.timeout);
        let asked = tokio::time::timeout(patience, origin.describe()).await;
        let error = match asked {
            Ok(Ok(description)) => return Ok(description),
            Ok(Err(error)) => error,
            Err(_elapsed) => RemoteError::Timeout {
                place: origin.place().to_owned(),
                seconds: patience.as_secs(),
            },
        };
        let asked_to_wait = match &error {
            RemoteError::Busy { retry_after, .. } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        let wait = pause.max(asked_to_wait);
        let late = start.elapsed().saturating_add(wait) > options.timeout;
        if !error.is_transient() || tries >= options.retries || late {
            return Err(error);
        }
        tracing::debug!(%error, "asked again");
        tokio::time::sleep(wait).await;
        pause = pause.saturating_mul(2);
        tries = tries.saturating_add(1);
    }
}
