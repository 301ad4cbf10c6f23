//! Checks the heads of answers to range requests, and limits the length of their bodies.

use std::future::ready;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use forerun_io::{u64_from, usize_from};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use reqwest::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderName, RETRY_AFTER,
};
use reqwest::{Response, StatusCode};

use crate::http::client::failure;
use crate::{RemoteError, Result};

/// The bytes of an answer as they arrive.
pub type Body = BoxStream<'static, Result<Bytes>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// Start and end (exclusive) in bytes. `None` if the header has only the length of the blob.
    pub range: Option<(u64, u64)>,
    pub total: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes FIRST-LAST/TOTAL`. Each side of the slash may be `*`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (range, total) = text.trim().strip_prefix("bytes ")?.trim().split_once('/')?;
        let total = match total {
            "*" => None,
            digits => Some(number(digits)?),
        };
        let range = match range {
            "*" => None,
            range => {
                let (first, last) = range.split_once('-')?;
                let (first, end) = (number(first)?, number(last)?.checked_add(1)?);
                if end <= first || total.is_some_and(|total| end > total) {
                    return None;
                }
                Some((first, end))
            }
        };
        Some(Self { range, total })
    }
}

/// Parses a number. Rejects the sign that `str::parse` would accept.
fn number(text: &str) -> Option<u64> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())?
}

#[must_use]
pub fn header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns the error for an answer with an unexpected status.
#[must_use]
pub fn refusal(place: &str, status: StatusCode, headers: &HeaderMap) -> RemoteError {
    let place = place.to_owned();
    match status.as_u16() {
        404 | 410 => RemoteError::NotFound { place },
        code @ (401 | 403 | 407) => RemoteError::Denied {
            place,
            status: code,
            has_credentials: false,
        },
        412 | 416 => RemoteError::Changed { place },
        code @ (408 | 421 | 425 | 429 | 500..=599) => RemoteError::Busy {
            place,
            status: code,
            retry_after: header(headers, RETRY_AFTER).and_then(retry_after),
        },
        code => RemoteError::Refused {
            place,
            reason: format!("the server answered {code}"),
        },
    }
}

/// Parses a `Retry-After`, given in seconds or as a date.
fn retry_after(text: &str) -> Option<Duration> {
    if let Some(seconds) = number(text.trim()) {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    // A date in the past means now.
    Some(
        date.duration_since(std::time::SystemTime::now())
            .unwrap_or_default(),
    )
}

/// Checks the head of an answer to a request for `range` of a blob of `total` bytes. Returns the
/// body, which is never longer than the head says.
///
/// # Errors
/// The error in the head; [`RemoteError::NoRanges`] for the whole blob instead of a part;
/// [`RemoteError::Changed`] for another length of the blob.
pub fn partial(place: &str, answer: Response, range: &Range<u64>, total: u64) -> Result<Body> {
    let refused = |reason: String| RemoteError::Refused {
        place: place.to_owned(),
        reason,
    };
    let status = answer.status();
    if status == StatusCode::OK {
        return Err(RemoteError::NoRanges {
            place: place.to_owned(),
        });
    }
    if status != StatusCode::PARTIAL_CONTENT {
        return Err(refusal(place, status, answer.headers()));
    }
    let headers = answer.headers();
    if let Some(coding) = header(headers, CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        return Err(refused(format!("the answer is encoded as {coding}")));
    }
    let told = header(headers, CONTENT_RANGE).unwrap_or_default();
    let parsed = ContentRange::parse(told);
    let Some((parsed, (first, end))) = parsed.and_then(|parsed| Some((parsed, parsed.range?)))
    else {
        return Err(refused(format!(
            "part of the blob without a usable Content-Range: {told:?}"
        )));
    };
    if parsed.total.is_some_and(|len| len != total) {
        return Err(RemoteError::Changed {
            place: place.to_owned(),
        });
    }
    if first != range.start || end > range.end {
        return Err(refused(format!(
            "bytes {first}..{end} in answer to a request for {}..{}",
            range.start, range.end
        )));
    }
    let len = end - first;
    let wrong = |text: &&str| number(text) != Some(len);
    if let Some(told) = header(headers, CONTENT_LENGTH).filter(wrong) {
        return Err(refused(format!(
            "Content-Length {told} of a part of {len} bytes"
        )));
    }
    Ok(bounded(place.to_owned(), answer, len))
}

/// Checks the head of an answer with the whole blob of `total` bytes. Returns the bytes of `range`.
/// The body has an empty piece for each piece of the answer that lies before the range.
///
/// # Errors
/// The error in the head; [`RemoteError::Changed`] for another length of the blob.
pub fn whole(place: &str, answer: Response, range: &Range<u64>, total: u64) -> Result<Body> {
    check_whole(place, &answer)?;
    let headers = answer.headers();
    let other = |text: &&str| number(text) != Some(total);
    if header(headers, CONTENT_LENGTH).filter(other).is_some() {
        return Err(RemoteError::Changed {
            place: place.to_owned(),
        });
    }
    Ok(cut(bounded(place.to_owned(), answer, total), range))
}

/// Checks the head of an answer with the whole blob of unknown length. Returns the body.
pub fn endless(place: &str, answer: Response) -> Result<Body> {
    check_whole(place, &answer)?;
    Ok(bounded(place.to_owned(), answer, u64::MAX))
}

/// Checks that an answer is the whole blob without a content encoding.
fn check_whole(place: &str, answer: &Response) -> Result<()> {
    let (status, headers) = (answer.status(), answer.headers());
    if status != StatusCode::OK {
        return Err(refusal(place, status, headers));
    }
    match header(headers, CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        Some(coding) => Err(RemoteError::Refused {
            place: place.to_owned(),
            reason: format!("the answer is encoded as {coding}"),
        }),
        None => Ok(()),
    }
}

fn cut(body: Body, range: &Range<u64>) -> Body {
    let mut skip = range.start;
    let mut left = range.end - range.start;
    body.map(move |piece| {
        let mut piece = piece?;
        let skipped = skip.min(u64_from(piece.len()));
        drop(piece.split_to(usize_from(skipped).min(piece.len())));
        skip -= skipped;
        piece.truncate(usize_from(left));
        left -= u64_from(piece.len());
        Ok((piece, left == 0))
    })
    .scan(false, |ended, piece: Result<(Bytes, bool)>| {
        let go_on = !std::mem::replace(ended, piece.as_ref().is_ok_and(|(_, last)| *last));
        ready(go_on.then(|| piece.map(|(piece, _)| piece)))
    })
    .boxed()
}

/// Returns the body of `answer` without empty pieces. Fails if it is longer than `len` bytes.
#[must_use]
pub fn bounded(place: String, answer: Response, len: u64) -> Body {
    let mut left = len;
    answer
        .bytes_stream()
        .filter(|piece| ready(!piece.as_ref().is_ok_and(Bytes::is_empty)))
        .map(move |piece: reqwest::Result<Bytes>| {
            let piece = piece.map_err(|error| failure(&place, &error))?;
            left = left
                .checked_sub(u64_from(piece.len()))
                .ok_or_else(|| RemoteError::Refused {
                    place: place.clone(),
                    reason: format!("more than the {len} announced bytes"),
                })?;
            Ok(piece)
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read_strictly() {
        let range = |first, end, total| {
            Some(ContentRange {
                range: Some((first, end)),
                total,
            })
        };
        for (text, expected) in [
            ("bytes 0-0/1", range(0, 1, Some(1))),
            ("bytes 5-9/*", range(5, 10, None)),
            (
                "bytes */7",
                Some(ContentRange {
                    range: None,
                    total: Some(7),
                }),
            ),
            ("bytes 0-7/7", None),
            ("bytes 5-4/7", None),
            ("bytes +1-2/7", None),
            ("bytes 0-18446744073709551615/*", None),
            ("items 0-1/7", None),
            ("", None),
        ] {
            assert_eq!(ContentRange::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn waits_are_read_as_seconds_and_as_dates() {
        assert_eq!(retry_after("3"), Some(Duration::from_secs(3)));
        assert_eq!(
            retry_after("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon"), None);
    }
}
