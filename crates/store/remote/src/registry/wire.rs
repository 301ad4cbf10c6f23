//! One HTTP request and its answer, with limits on time and size, and with this crate's errors.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use reqwest::{RequestBuilder, Response};
use serde::Deserialize;

use crate::http::{client, response};
use crate::redact::plain;
use crate::{RemoteError, Result};

/// Most bytes that are read of a server's error text.
const MAX_ERROR: usize = 16 * 1024;
/// Most characters that are shown of a server's error text.
const MAX_SHOWN: usize = 200;

/// Sends a request and waits for the head of its answer.
pub async fn send(request: RequestBuilder, place: &str, patience: Duration) -> Result<Response> {
    match tokio::time::timeout(patience, request.send()).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(client::failure(place, &error)),
        Err(_) => Err(timeout(place, patience)),
    }
}

/// Collects the body of an answer. Fails if it is longer than `limit` bytes.
pub async fn collect(
    response: Response,
    place: &str,
    limit: usize,
    patience: Duration,
) -> Result<Bytes> {
    let too_long = || RemoteError::Refused {
        place: place.to_string(),
        reason: format!("the answer is longer than {limit} bytes"),
    };
    let mut body = response.bytes_stream();
    let mut bytes = BytesMut::new();
    loop {
        let next = tokio::time::timeout(patience, body.next())
            .await
            .map_err(|_| timeout(place, patience))?;
        let Some(piece) = next else {
            return Ok(bytes.freeze());
        };
        let piece = piece.map_err(|error| client::failure(place, &error))?;
        if piece.len() > limit - bytes.len() {
            return Err(too_long());
        }
        bytes.extend_from_slice(&piece);
    }
}

fn timeout(place: &str, patience: Duration) -> RemoteError {
    RemoteError::Timeout {
        place: place.to_string(),
        seconds: patience.as_secs_f32(),
    }
}

pub async fn failure(response: Response, place: &str, patience: Duration) -> RemoteError {
    match response::refusal(place, response.status(), response.headers()) {
        RemoteError::Refused { place, reason } => {
            let text = text_of(response, &place, patience).await;
            let reason = format!("{reason}{text}");
            RemoteError::Refused { place, reason }
        }
        error => error,
    }
}

#[derive(Deserialize)]
struct Errors {
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Reads the server's explanation of an error, in the form of the distribution specification, and
/// makes it safe to print.
async fn text_of(response: Response, place: &str, patience: Duration) -> String {
    let Ok(body) = collect(response, place, MAX_ERROR, patience).await else {
        return String::new();
    };
    let Ok(Errors { errors }) = serde_json::from_slice(&body) else {
        return String::new();
    };
    let texts = errors.iter().map(|error| {
        format!("{} {}", error.code, error.message)
            .trim()
            .to_string()
    });
    let text = texts.collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        return String::new();
    }
    format!(": {}", plain(&text, MAX_SHOWN))
}
