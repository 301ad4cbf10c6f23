//! The `Authorization` header: obtained when a registry asks for it, kept until it expires.
//!
//! There is one entry per registry, repository and kind of access. While one request obtains a
//! token, other requests of the same entry wait for it. Only challenges of the registry itself are
//! answered; [`realm`](super::realm) decides which other servers may see its credentials.

pub mod challenge;
mod realm;
mod token;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forerun_io::Unpoisoned;
use forerun_sys::threads;
use reqwest::header::HeaderValue;

use crate::credentials::docker_config::{self, Credentials};
use crate::http::site::Site;
use crate::options::registry::RegistryOptions;
use crate::registry::endpoint::Endpoint;
use crate::{RemoteError, Result};

use challenge::Challenge;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    Pull,
    Push,
}

type Key = (Site, String, Access);

#[derive(Debug)]
pub struct Auth {
    client: reqwest::Client,
    options: Arc<RegistryOptions>,
    slots: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<AuthSlot>>>>,
}

#[derive(Debug, Default)]
struct AuthSlot {
    /// The registry's most recent challenge.
    challenge: Option<Challenge>,
    granted: Option<Granted>,
}

#[derive(Clone, Debug)]
pub struct Granted {
    pub header: HeaderValue,
    /// From then on, the header is renewed before it is sent. `None` means that it is renewed only
    /// after a refusal.
    pub until: Option<Instant>,
    /// Whether the header was obtained with a user's credentials. Otherwise it may be an anonymous
    /// token, which every user gets.
    pub by_credentials: bool,
}

impl Granted {
    fn is_good(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl Auth {
    pub fn new(client: reqwest::Client, options: Arc<RegistryOptions>) -> Self {
        Self {
            client,
            options,
            slots: Mutex::new(HashMap::new()),
        }
    }

    /// Forgets all headers, so that credentials are read again.
    pub fn forget(&self) {
        self.slots.lock().unpoisoned().clear();
    }

    /// Returns the known header for `endpoint`, to be sent before the registry asks for one.
    pub async fn header(&self, endpoint: &Endpoint, access: Access) -> Result<Option<HeaderValue>> {
        let slot = self.slot(endpoint, access);
        let mut slot = slot.lock().await;
        if let Some(granted) = slot.granted.as_ref().filter(|granted| granted.is_good()) {
            return Ok(Some(granted.header.clone()));
        }
        match slot.challenge.clone() {
            Some(challenge) => self
                .obtain(&mut slot, challenge, endpoint, access)
                .await
                .map(Some),
            None => Ok(None),
        }
    }

    /// Returns the header to send after `endpoint` refused `sent`. `asked` are the refusal's
    /// `WWW-Authenticate` headers.
    pub async fn answer(
        &self,
        endpoint: &Endpoint,
        access: Access,
        sent: Option<&HeaderValue>,
        asked: &[&str],
    ) -> Result<HeaderValue> {
        let slot = self.slot(endpoint, access);
        let mut slot = slot.lock().await;
        let renewed = slot
            .granted
            .as_ref()
            .filter(|granted| granted.is_good() && Some(&granted.header) != sent);
        if let Some(granted) = renewed {
            return Ok(granted.header.clone());
        }
        let challenge =
            challenge::parse(&asked.join(", ")).ok_or_else(|| denied(endpoint, false))?;
        self.obtain(&mut slot, challenge, endpoint, access).await
    }

    /// Returns whether requests to `endpoint` use an account of the user.
    pub async fn has_credentials(&self, endpoint: &Endpoint, access: Access) -> bool {
        let slot = self.slot(endpoint, access);
        let slot = slot.lock().await;
        let granted = slot.granted.as_ref();
        granted.is_some_and(|granted| granted.by_credentials)
    }

    fn slot(&self, endpoint: &Endpoint, access: Access) -> Arc<tokio::sync::Mutex<AuthSlot>> {
        let key = (endpoint.site.clone(), endpoint.repository.clone(), access);
        let mut slots = self.slots.lock().unpoisoned();
        Arc::clone(slots.entry(key).or_default())
    }

    async fn obtain(
        &self,
        slot: &mut AuthSlot,
        challenge: Challenge,
        endpoint: &Endpoint,
        access: Access,
    ) -> Result<HeaderValue> {
        slot.granted = None;
        slot.challenge = Some(challenge.clone());
        let credentials = self.credentials(endpoint).await;
        let granted = match (challenge, credentials) {
            (_, Some(Credentials::Bearer(token))) => Granted {
                header: bearer(&token.0).ok_or_else(|| denied(endpoint, true))?,
                until: None,
                by_credentials: true,
            },
            (Challenge::Basic, Some(Credentials::Password { user, password })) => Granted {
                header: basic(&user, &password.0).ok_or_else(|| denied(endpoint, true))?,
                until: None,
                by_credentials: true,
            },
            (Challenge::Basic, _) => return Err(denied(endpoint, false)),
            (Challenge::Bearer { realm, service, .. }, credentials) => {
                let wanted = token::Wanted {
                    endpoint,
                    realm,
                    service,
                    scope: scope(endpoint, access),
                };
                token::fetch(&self.client, &self.options, &wanted, credentials).await?
            }
        };
        let header = granted.header.clone();
        slot.granted = Some(granted);
        Ok(header)
    }

    /// Reads the user's credentials, which may have changed since the last time.
    async fn credentials(&self, endpoint: &Endpoint) -> Option<Credentials> {
        let files = self.options.auth_files.clone();
        let (registry, repository) = (endpoint.credentials_of.clone(), endpoint.repository.clone());
        let (sender, found) = tokio::sync::oneshot::channel();
        // This needs its own thread: all blocking threads of the runtime may be waiting for this
        // result.
        let started = threads::spawn("credentials", move || {
            let files = files.unwrap_or_else(docker_config::usual_files);
            // The receiver is gone if the request was cancelled.
            let _ = sender.send(docker_config::find(&files, &registry, &repository));
        });
        if let Err(error) = started {
            tracing::warn!("no credentials are looked up: {error}");
        }
        found.await.unwrap_or(None)
    }
}

fn scope(endpoint: &Endpoint, access: Access) -> String {
    let actions = match access {
        Access::Pull => "pull",
        Access::Push => "pull,push",
    };
    format!("repository:{}:{actions}", endpoint.repository)
}

fn denied(endpoint: &Endpoint, has_credentials: bool) -> RemoteError {
    RemoteError::Denied {
        place: format!("{}/{}", endpoint.site, endpoint.repository),
        status: 401,
        has_credentials,
    }
}

pub fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&format!("Bearer {token}"))
}

pub fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    sensitive(&format!(
        "Basic {}",
        STANDARD.encode(format!("{user}:{password}"))
    ))
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}
