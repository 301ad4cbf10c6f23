//! Resolves a reference to a layout: the servers of the image, its length, and its cache name.
//!
//! For web servers and object stores, every address is queried. Addresses with the same length as
//! the first one that answers are its mirrors. Without a table, nothing proves that mirrors have
//! the same bytes; the user who names them is responsible for that.

pub mod container;
pub mod facts;
pub mod remembered;
pub mod spool;
pub mod unknown_length;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use forerun_cache::Digest;
use futures_util::future::join_all;
use url::Url;

use crate::address::image_name::ImageName;
use crate::address::place_of;
use crate::http::client::{self, ClientOptions};
use crate::http::local_addresses;
use crate::http::retry::{Retries, retry};
use crate::http::site::check_plain;
use crate::options::registry::Mirror;
use crate::origin::S3Settings;
use crate::registry::{FoundContainer, FoundInRegistry, Registry};
use crate::{
    Description, HttpOrigin, Identity, Layout, Origin, Pinned, Reference, RemoteBlob, RemoteError,
    RemoteOptions, Result, S3Origin, runtime,
};

use facts::{Address, Facts};

/// Pause before the first retry.
pub const PAUSE: Duration = Duration::from_millis(200);

/// A resolved reference, with the state that later requests need.
pub struct Resolved {
    pub layout: Layout,
    /// The registry, to reload its tokens and passwords.
    pub registry: Option<Arc<Registry>>,
    pub facts: Option<Facts>,
    /// Set if the reference was resolved from remembered facts, without a server.
    pub memory: Option<FromMemory>,
    /// Chunk size of the image in the cache, if known.
    pub chunk_size: Option<u32>,
    /// Whether the image was already fetched into a temporary file and the download was reported.
    pub is_spooled: bool,
}

impl Resolved {
    pub const fn new(layout: Layout, registry: Option<Arc<Registry>>) -> Self {
        Self {
            layout,
            registry,
            facts: None,
            memory: None,
            chunk_size: None,
            is_spooled: false,
        }
    }
}

/// The earlier answer of a server from which an image was opened.
#[derive(Clone, Debug)]
pub struct FromMemory {
    pub answered: SystemTime,
    /// Why the server did not answer now. `None` if no server may be contacted.
    pub reason: Option<RemoteError>,
    /// Whether the reference is a digest, so that the old answer is still right.
    pub by_digest: bool,
}

pub enum ResolvedName {
    Image(Box<Resolved>),
    Container(FoundContainer, Arc<Registry>),
}

/// Resolves `reference` to one image, within the time limit for opening.
pub fn resolved(reference: &Reference, options: &RemoteOptions) -> Result<Resolved> {
    within_time(reference, options, async {
        if let Reference::Oci(name) = reference {
            let registry = registry(name, options)?;
            let layout = registry.open(name, options.require_verified).await?;
            return Ok(of_registry(layout, registry));
        }
        of_file(reference, options).await
    })
}

/// Resolves `reference` to an image or a container image, within the time limit for opening.
pub fn named(reference: &Reference, options: &RemoteOptions) -> Result<ResolvedName> {
    within_time(reference, options, async {
        let Reference::Oci(name) = reference else {
            let resolved = of_file(reference, options).await?;
            return Ok(ResolvedName::Image(Box::new(resolved)));
        };
        let registry = registry(name, options)?;
        let found = registry.find(name, options.require_verified).await?;
        Ok(match found {
            FoundInRegistry::Image(layout) => {
                ResolvedName::Image(Box::new(of_registry(*layout, registry)))
            }
            FoundInRegistry::Container(found) => ResolvedName::Container(found, registry),
        })
    })
}

/// Reads the configuration of a container image, within the time limit for opening.
pub fn config(
    reference: &Reference,
    name: &ImageName,
    (container, registry): (&FoundContainer, &Arc<Registry>),
    options: &RemoteOptions,
) -> Result<Bytes> {
    within_time(reference, options, registry.config(name, container))
}

/// Runs a request within the time limit for opening.
pub fn within_time<T>(
    reference: &Reference,
    options: &RemoteOptions,
    resolve: impl Future<Output = Result<T>>,
) -> Result<T> {
    runtime::wait_for(async {
        let asked = tokio::time::timeout(options.timeout, resolve);
        asked.await.unwrap_or_else(|_elapsed| {
            Err(RemoteError::Timeout {
                place: reference.place(),
                seconds: options.timeout.as_secs_f32(),
            })
        })
    })
}

pub fn of_registry(layout: Layout, registry: Arc<Registry>) -> Resolved {
    Resolved {
        facts: Facts::of(&layout, &[]),
        ..Resolved::new(layout, Some(registry))
    }
}

/// Resolves a file on a web server or an object in a store. If no address gives a usable answer,
/// fails with the error of the first one.
async fn of_file(reference: &Reference, options: &RemoteOptions) -> Result<Resolved> {
    let (layout, addresses) = plain(reference, candidates(reference, options)?, options).await?;
    let facts = Facts::of(&layout, &addresses);
    Ok(Resolved {
        facts,
        ..Resolved::new(layout, None)
    })
}

fn client(options: &RemoteOptions, follow_redirects: bool) -> Result<reqwest::Client> {
    client::build(&ClientOptions {
        ca_file: options.ca_file.clone(),
        connect_timeout: options.connect_timeout,
        follow_redirects,
    })
}

pub fn registry(name: &ImageName, options: &RemoteOptions) -> Result<Arc<Registry>> {
    let mut settings = options.registry.clone();
    settings
        .mirrors
        .extend(options.mirrors.iter().map(|location| Mirror {
            registry: name.registry.clone(),
            location: location.clone(),
        }));
    Ok(Registry::new(client(options, false)?, settings))
}

/// An origin that may have the image, and its address in the cache name.
pub struct Candidate {
    pub origin: Arc<dyn Origin>,
    /// The address without credentials.
    pub address: String,
}

/// Returns the origins that may have a file or object. Fails if an address is invalid.
pub fn candidates(reference: &Reference, options: &RemoteOptions) -> Result<Vec<Candidate>> {
    let mut candidates = vec![candidate(reference, options)?];
    for mirror in &options.mirrors {
        candidates.push(candidate(&Reference::parse(mirror)?, options)?);
    }
    Ok(candidates)
}

fn candidate(reference: &Reference, options: &RemoteOptions) -> Result<Candidate> {
    let plain = &options.registry.insecure;
    let origin: Arc<dyn Origin> = match reference {
        Reference::Http(url) => {
            check_plain(url, plain)?;
            let mut url = url.clone();
            options.credentials.fill(&mut url)?;
            Arc::new(HttpOrigin::new(client(options, true)?, url)?)
        }
        Reference::S3 { bucket, key } => {
            if let Some(Ok(endpoint)) = S3Settings::endpoint_of_user().map(|url| Url::parse(&url)) {
                local_addresses::allow(&endpoint);
                check_plain(&endpoint, plain)?;
            }
            // A redirect would lead to another endpoint, which must not get the session token that
            // each request carries.
            Arc::new(S3Origin::new(client(options, false)?, bucket, key)?)
        }
        Reference::Oci(name) => {
            return Err(RemoteError::Reference {
                text: name.to_string(),
                reason: "a registry cannot be a mirror of a file".to_owned(),
            });
        }
    };
    let address = address(reference);
    Ok(Candidate { origin, address })
}

/// Returns the address as part of a cache name. A query is replaced by its digest, since it may be
/// secret.
pub fn address(reference: &Reference) -> String {
    match reference {
        Reference::Http(url) => match url.query() {
            Some(query) => format!("{}?{}", place_of(url), Digest::of(query.as_bytes())),
            None => place_of(url),
        },
        Reference::S3 { bucket, key } => {
            let endpoint = S3Settings::endpoint_of_user()
                .and_then(|text| Url::parse(&text).ok())
                .map_or_else(String::new, |url| place_of(&url));
            format!("s3://{bucket}/{key} {endpoint}")
                .trim_end()
                .to_owned()
        }
        Reference::Oci(name) => name.to_string(),
    }
}

async fn plain(
    reference: &Reference,
    candidates: Vec<Candidate>,
    options: &RemoteOptions,
) -> Result<(Layout, Vec<Address>)> {
    if options.require_verified {
        return Err(RemoteError::Refused {
            place: reference.place(),
            reason:
                "a plain file has no table of digests, so its chunks cannot be verified; push it to a registry and open it from there"
                    .to_owned(),
        });
    }
    let asked = candidates
        .iter()
        .map(|candidate| described(&*candidate.origin, options));
    let answers = join_all(asked).await;
    let several = candidates.len() > 1;
    let mut found: Option<(String, Description)> = None;
    let mut failed = None;
    let mut mirrors: Vec<Arc<dyn Origin>> = Vec::new();
    let mut addresses = Vec::new();
    // If some servers support range requests, only those are used.
    let is_ranged = |answer: &Result<Description>| answer.as_ref().is_ok_and(|found| !found.whole);
    let ranged = answers.iter().any(is_ranged);
    for (candidate, answer) in candidates.into_iter().zip(answers) {
        let description = match answer {
            Ok(description) => description,
            Err(error) => {
                if several {
                    tracing::warn!(%error, "an address of the image is not used");
                }
                // A file of unknown length is fetched only if no server gives a length.
                let is_first = failed.is_none();
                if is_first || matches!(error, RemoteError::NoLength { .. }) {
                    failed = Some(error);
                }
                continue;
            }
        };
        if ranged && description.whole {
            let place = candidate.origin.place();
            tracing::warn!(
                place,
                "left out: this server does not answer range requests"
            );
            continue;
        }
        let first = || (candidate.address.clone(), description.clone());
        let (_, known) = found.get_or_insert_with(first);
        if known.len != description.len {
            let place = candidate.origin.place();
            tracing::warn!(place, "left out: the image has another length there");
            continue;
        }
        addresses.push(Address {
            address: candidate.address,
            version: description.version.clone(),
        });
        mirrors.push(Arc::new(Pinned::new(candidate.origin, description)));
    }
    let Some((url, description)) = found else {
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
    let layout = Layout::single(reference.place(), blob, identity);
    Ok((layout, addresses))
}

/// Creates a unique version for a server that gives none. The cached chunks cannot be reused later.
pub fn unversioned() -> String {
    let now = SystemTime::now();
    let now = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    format!("unknown {} {}", now.as_nanos(), std::process::id())
}

/// Requests a description, with retries within the limits of `options`.
async fn described(origin: &dyn Origin, options: &RemoteOptions) -> Result<Description> {
    let retries = Retries {
        attempts: options.retries.saturating_add(1),
        pause: PAUSE,
        within: options.timeout,
    };
    retry(retries, || async {
        patient(origin, options, origin.describe()).await?
    })
    .await
}

/// Waits for `work`, but not longer than a request may stall.
pub async fn patient<T>(
    origin: &dyn Origin,
    options: &RemoteOptions,
    work: impl Future<Output = T>,
) -> Result<T> {
    let patience = options.stall.min(options.timeout);
    let waited = tokio::time::timeout(patience, work).await;
    waited.map_err(|_elapsed| RemoteError::Timeout {
        place: origin.place().to_owned(),
        seconds: patience.as_secs_f32(),
    })
}
