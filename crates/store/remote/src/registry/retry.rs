//! Retries of requests with transient errors.
//!
//! It is for requests that are made once per image or upload: manifests, tokens, uploads. The fetcher
//! retries reads of blobs. Pauses double, with a jitter of up to one half so that many clients do not come
//! back together.

use std::future::Future;
use std::time::Duration;

use crate::options::registry::RegistryOptions;
use crate::{RemoteError, Result};

/// Longest pause, even if a server asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Runs `attempt` until it succeeds, fails for good, or has failed as often as `options` allows.
pub async fn retry<T, F>(options: &RegistryOptions, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut pause = options.backoff;
    for _ in 1..options.attempts {
        let error = match attempt().await {
            Err(error) if error.is_transient() => error,
            outcome => return outcome,
        };
        let wait = pause_after(&error, pause);
        tracing::debug!(%error, ?wait, "a request is made again");
        tokio::time::sleep(wait).await;
        pause = pause.saturating_mul(2).min(MAX_PAUSE);
    }
    attempt().await
}

fn pause_after(error: &RemoteError, pause: Duration) -> Duration {
    let wished = match error {
        RemoteError::Busy { retry_after, .. } => *retry_after,
        _ => None,
    };
    let jittered = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    wished.unwrap_or_default().max(jittered).min(MAX_PAUSE)
}
