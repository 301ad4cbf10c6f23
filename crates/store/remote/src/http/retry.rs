//! Retries of requests with transient errors.
//!
//! This is for requests made once per image or upload: descriptions, manifests, tokens, uploads.
//! The fetcher retries reads of blobs itself. Pauses double, with a jitter of up to one half, so
//! that clients do not retry in step.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::{RemoteError, Result};

/// Longest pause, even if a server asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
pub struct Retries {
    pub attempts: u32,
    /// Pause before the second attempt. It doubles before each further one.
    pub pause: Duration,
    /// No attempt starts later than this after the first.
    pub within: Duration,
}

/// Runs `attempt` until it succeeds, fails permanently, or has failed as often as `retries` allows.
pub async fn retry<T, F>(retries: Retries, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let start = Instant::now();
    let mut pause = retries.pause.min(MAX_PAUSE);
    for _ in 1..retries.attempts {
        let error = match attempt().await {
            Err(error) if error.is_transient() => error,
            outcome => return outcome,
        };
        let wait = pause_after(&error, pause);
        if wait > retries.within.saturating_sub(start.elapsed()) {
            return Err(error);
        }
        tracing::debug!(%error, ?wait, "a request is made again");
        tokio::time::sleep(wait.min(MAX_PAUSE)).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
    attempt().await
}

fn pause_after(error: &RemoteError, pause: Duration) -> Duration {
    let wished = match error {
        RemoteError::Busy { retry_after, .. } => *retry_after,
        _ => None,
    };
    let jittered = pause.mul_f64(0.5 + fastrand::f64() / 2.0);
    wished.unwrap_or_default().max(jittered)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::runtime;

    #[test]
    fn a_transient_error_is_tried_again_as_often_and_as_long_as_allowed() {
        let busy = |retry_after| RemoteError::Busy {
            place: String::new(),
            status: 503,
            retry_after,
        };
        let attempts = |retries, error: RemoteError| {
            let mut made = 0;
            let failed = runtime::wait_for(retry(retries, || {
                made += 1;
                ready(Err::<(), _>(error.clone()))
            }));
            assert!(failed.is_err());
            made
        };
        let quick = Retries {
            attempts: 3,
            pause: Duration::from_millis(1),
            within: Duration::MAX,
        };
        assert_eq!(attempts(quick, busy(None)), 3);
        let place = String::new();
        assert_eq!(attempts(quick, RemoteError::NotFound { place }), 1);
        let short = Retries {
            within: Duration::from_secs(1),
            ..quick
        };
        assert_eq!(attempts(short, busy(Some(Duration::from_secs(10)))), 1);
    }
}
