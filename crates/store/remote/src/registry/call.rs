//! A request to a registry. Sends credentials when asked, and follows redirects itself.
//!
//! `Authorization` goes only to the registry's own scheme, host and port. Only read requests follow
//! redirects, as far as [`redirect`] allows.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Method, Response, StatusCode};
use url::Url;

use crate::http::site::Site;
use crate::http::{redirect, response};
use crate::registry::auth::Access;
use crate::registry::endpoint::Endpoint;
use crate::registry::{Registry, wire};
use crate::{RemoteError, Result, place_of};

/// Largest number of redirects followed per request.
const REDIRECTS: usize = 5;

pub struct Call<'a> {
    pub endpoint: &'a Endpoint,
    pub access: Access,
    pub method: Method,
    pub url: Url,
    /// Headers except `Authorization`.
    pub headers: HeaderMap,
    pub body: Option<Bytes>,
    /// Longest time from the first byte sent to the head of the answer.
    pub patience: Duration,
}

/// An answer. Its status is neither 401, 403 or 407 nor a redirect that was followed.
#[derive(Debug)]
pub struct Answer {
    pub response: Response,
    pub url: Url,
    pub place: String,
}

impl<'a> Call<'a> {
    pub fn get(endpoint: &'a Endpoint, url: Url, registry: &Registry) -> Self {
        Self {
            endpoint,
            access: Access::Pull,
            method: Method::GET,
            url,
            headers: HeaderMap::new(),
            body: None,
            patience: registry.options().timeout,
        }
    }
}

impl Registry {
    pub async fn call(&self, call: Call<'_>) -> Result<Answer> {
        let mut url = call.url.clone();
        let mut redirects = 0;
        let mut asked = false;
        loop {
            let place = place_of(&url);
            let at_home = Site::of(&url).as_ref() == Some(&call.endpoint.site);
            let sent = if at_home {
                self.auth().header(call.endpoint, call.access).await?
            } else {
                None
            };
            let mut headers = call.headers.clone();
            if let Some(header) = &sent {
                headers.insert(AUTHORIZATION, header.clone());
            }
            let mut request = self
                .client()
                .request(call.method.clone(), url.clone())
                .headers(headers);
            if let Some(body) = &call.body {
                request = request.body(body.clone());
            }
            let response = wire::send(request, &place, call.patience).await?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && at_home && !asked {
                asked = true;
                let texts: Vec<&str> = response
                    .headers()
                    .get_all(WWW_AUTHENTICATE)
                    .iter()
                    .filter_map(|value| value.to_str().ok())
                    .collect();
                self.auth()
                    .answer(call.endpoint, call.access, sent.as_ref(), &texts)
                    .await?;
                continue;
            }
            let reading = matches!(call.method, Method::GET | Method::HEAD);
            if reading && is_redirect(status) {
                redirects += 1;
                url = target(&url, &response, redirects)?;
                continue;
            }
            if matches!(status.as_u16(), 401 | 403 | 407) {
                let auth = self.auth();
                let has_credentials =
                    at_home && auth.has_credentials(call.endpoint, call.access).await;
                let refusal = response::refusal(&place, status, response.headers());
                return Err(refusal.with_credentials(has_credentials));
            }
            return Ok(Answer {
                response,
                url,
                place,
            });
        }
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns the target of a redirect. Fails if it may not be followed.
fn target(from: &Url, response: &Response, redirects: usize) -> Result<Url> {
    let refused = |reason: &str| RemoteError::Refused {
        place: place_of(from),
        reason: reason.to_string(),
    };
    if redirects > REDIRECTS {
        return Err(refused("too many redirects"));
    }
    let location = response
        .headers()
        .get(LOCATION)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(|| refused("a redirect without a valid address"))?;
    redirect::follow(from, location)
}
