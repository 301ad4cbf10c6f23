//! Requests a token from a token server.
//!
//! There are two protocols, both from Docker and used by every registry: a GET with the password in
//! `Authorization`, and an OAuth 2 POST with a refresh token.

use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::credentials::docker_config::Credentials;
use crate::options::registry::RegistryOptions;
use crate::registry::auth::realm::{self, Trust};
use crate::registry::auth::{Granted, basic, bearer};
use crate::registry::endpoint::Endpoint;
use crate::registry::wire;
use crate::{RemoteError, Result, place_of};

/// Longest accepted answer of a token server, in bytes.
const MAX_ANSWER: usize = 1 << 20;
/// Lifetime of a token in seconds, if the server gives none. This is the specification's default.
const USUAL_LIFE: u64 = 60;
/// Longer lifetimes are reduced to this many seconds.
const MAX_LIFE: u64 = 24 * 60 * 60;
const CLIENT_ID: &str = "forerun";

pub struct Wanted<'a> {
    pub endpoint: &'a Endpoint,
    /// The token server, as the registry named it.
    pub realm: String,
    pub service: Option<String>,
    pub scope: String,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

/// Obtains a token. Sends `credentials` if the token server may receive them.
pub async fn fetch(
    client: &reqwest::Client,
    options: &RegistryOptions,
    wanted: &Wanted<'_>,
    credentials: Option<Credentials>,
) -> Result<Granted> {
    let (realm, credentials, withheld) = checked(options, wanted, credentials)?;
    let place = place_of(&realm);
    let asked_at = Instant::now();
    let request = request(client, realm, wanted, credentials.as_ref());
    let response = wire::send(request, &place, options.timeout).await?;
    let status = response.status().as_u16();
    if matches!(status, 400 | 401 | 403) {
        return Err(if withheld {
            RemoteError::Refused {
                place,
                reason: "this token server is outside of the registry's domain, so forerun sent it no credentials; list its host in your credentials to trust it"
                    .to_string(),
            }
        } else {
            RemoteError::Denied {
                place,
                status,
                has_credentials: credentials.is_some(),
            }
        });
    }
    if status != 200 {
        return Err(wire::failure(response, &place, options.timeout).await);
    }
    let answer = wire::collect(response, &place, MAX_ANSWER, options.timeout).await?;
    let by_credentials = credentials.is_some();
    granted(&answer, asked_at, by_credentials).ok_or_else(|| RemoteError::Refused {
        place,
        reason: "the answer of the token server has no token".to_string(),
    })
}

/// Checks the realm. Returns its URL, the credentials that it may receive, and whether credentials
/// are withheld from it.
fn checked(
    options: &RegistryOptions,
    wanted: &Wanted<'_>,
    credentials: Option<Credentials>,
) -> Result<(Url, Option<Credentials>, bool)> {
    let refused = |realm: &str| RemoteError::Refused {
        place: wanted.endpoint.site.to_string(),
        reason: format!(
            "the registry sends forerun to {realm} for a token, which forerun does not contact"
        ),
    };
    let realm = Url::parse(&wanted.realm).map_err(|_| refused("no URL"))?;
    match realm::trust(&realm, wanted.endpoint, options) {
        Trust::Never => Err(refused(&place_of(&realm))),
        Trust::Credentials => Ok((realm, credentials, false)),
        Trust::Anonymous => {
            if credentials.is_some() {
                let realm = place_of(&realm);
                tracing::warn!(
                    realm,
                    "a token server of another domain gets no credentials"
                );
            }
            Ok((realm, None, credentials.is_some()))
        }
    }
}

fn request(
    client: &reqwest::Client,
    mut realm: Url,
    wanted: &Wanted<'_>,
    credentials: Option<&Credentials>,
) -> reqwest::RequestBuilder {
    let service = wanted.service.as_deref().unwrap_or_default();
    if let Some(Credentials::Identity(secret)) = credentials {
        let form = Serializer::new(String::new())
            .append_pair("grant_type", "refresh_token")
            .append_pair("service", service)
            .append_pair("client_id", CLIENT_ID)
            .append_pair("scope", &wanted.scope)
            .append_pair("refresh_token", &secret.0)
            .finish();
        return client
            .request(Method::POST, realm)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form);
    }
    {
        let mut query = realm.query_pairs_mut();
        if !service.is_empty() {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &wanted.scope);
        query.append_pair("client_id", CLIENT_ID);
    }
    let request = client.request(Method::GET, realm);
    match credentials {
        Some(Credentials::Password { user, password }) => match basic(user, &password.0) {
            Some(header) => request.header(AUTHORIZATION, header),
            None => request,
        },
        _ => request,
    }
}

fn granted(answer: &[u8], asked_at: Instant, by_credentials: bool) -> Option<Granted> {
    let answer: TokenAnswer = serde_json::from_slice(answer).ok()?;
    let token = answer
        .token
        .or(answer.access_token)
        .filter(|token| !token.is_empty())?;
    let life = answer.expires_in.unwrap_or(USUAL_LIFE).min(MAX_LIFE);
    // A token is renewed before it expires, so that a request in flight does not outlive it.
    let life =
        Duration::from_secs(life) - Duration::from_secs(life / 10).min(Duration::from_secs(30));
    Some(Granted {
        header: bearer(&token)?,
        until: asked_at.checked_add(life),
        by_credentials,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn answers_of_token_servers() {
        let now = Instant::now();
        let life = |text: &str| {
            granted(text.as_bytes(), now, true).map(|granted| {
                let header = granted.header.to_str().unwrap().to_string();
                (header, (granted.until.unwrap() - now).as_secs())
            })
        };
        let good = |token: &str, seconds| Some((format!("Bearer {token}"), seconds));
        assert_eq!(life(r#"{"token":"a"}"#), good("a", 54));
        assert_eq!(
            life(r#"{"access_token":"b","expires_in":600}"#),
            good("b", 570)
        );
        assert_eq!(
            life(r#"{"token":"c","access_token":"d","expires_in":5,"x":1}"#),
            good("c", 5)
        );
        assert_eq!(
            life(r#"{"token":"c","expires_in":18446744073709551615}"#),
            good("c", 86_370)
        );
        for bad in [
            "",
            "{}",
            r#"{"token":""}"#,
            "{\"token\":\"a\\nb\"}",
            r#"{"token":3}"#,
            "[]",
        ] {
            assert_eq!(life(bad), None, "{bad}");
        }
    }
}
