//! A local file that is sent as a server behind a link would send it: for demonstrations of what a link
//! costs.
//!
//! The link is one line for all requests, each byte of which takes its time, and a round trip before the
//! first byte of an answer. It plays no loss of packets, no slow start and no limit on connections. No
//! socket is opened.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forerun_io::{Unpoisoned, u64_from, usize_from};
use futures_util::future::BoxFuture;
use futures_util::stream::{StreamExt as _, unfold};

use crate::{Body, Description, Origin, RemoteError, Result};

/// Bytes that cross the line together.
const PIECE: u64 = 16 << 10;

/// The properties of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Time between a request and the first byte of its answer.
    pub round_trip: Duration,
    /// Bytes that the line carries in a second; 0 for a line without a limit.
    pub bytes_per_second: u64,
}

/// A local file behind a link.
#[derive(Debug)]
pub struct FarFile {
    file: Arc<File>,
    len: u64,
    place: String,
    link: Link,
    line: Arc<Mutex<Instant>>,
}

impl FarFile {
    /// Opens the file at `path`, which must not change from now on.
    ///
    /// # Errors
    /// The errors of open(2).
    pub fn open(path: &Path, link: Link) -> io::Result<Self> {
        let file = File::open(path)?;
        Ok(Self {
            len: file.metadata()?.len(),
            file: Arc::new(file),
            place: format!("{}, behind a link", path.display()),
            link,
            line: Arc::new(Mutex::new(Instant::now())),
        })
    }
}

impl Origin for FarFile {
    fn place(&self) -> &str {
        &self.place
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        let description = Description {
            len: self.len,
            // A version is what keeps the chunks in the cache.
            version: Some("local".to_owned()),
            digest: None,
            whole: false,
        };
        Box::pin(async move {
            tokio::time::sleep(self.link.round_trip).await;
            Ok(description)
        })
    }

    fn fetch(&self, range: Range<u64>, _: &Description) -> BoxFuture<'_, Result<Body>> {
        let sender = Arc::new(Sender {
            file: Arc::clone(&self.file),
            place: self.place.clone(),
            link: self.link,
            line: Arc::clone(&self.line),
        });
        let end = range.end.min(self.len);
        let round_trip = self.link.round_trip;
        Box::pin(async move {
            tokio::time::sleep(round_trip).await;
            let body = unfold((sender, range.start), move |(sender, at)| async move {
                let piece = at..end.min(at.saturating_add(PIECE));
                if piece.is_empty() {
                    return None;
                }
                let next = piece.end;
                let sent = sender.send(piece).await;
                Some((sent, (sender, next)))
            });
            Ok(body.boxed())
        })
    }
}

/// The sending end of one answer.
struct Sender {
    file: Arc<File>,
    place: String,
    link: Link,
    /// When the line has carried all that was sent so far.
    line: Arc<Mutex<Instant>>,
}

impl Sender {
    /// Sends a piece of the file. It arrives when the line has carried it, after all that other answers
    /// have sent before.
    async fn send(&self, piece: Range<u64>) -> Result<Bytes> {
        let mut bytes = vec![0; usize_from(piece.end - piece.start)];
        let read = self.file.read_exact_at(&mut bytes, piece.start);
        read.map_err(|error| RemoteError::Refused {
            place: self.place.clone(),
            reason: error.to_string(),
        })?;
        let arrives = {
            let mut line = self.line.lock().unpoisoned();
            *line = (*line).max(Instant::now()) + self.time_of(u64_from(bytes.len()));
            *line
        };
        tokio::time::sleep_until(arrives.into()).await;
        Ok(bytes.into())
    }

    fn time_of(&self, bytes: u64) -> Duration {
        let nanoseconds = bytes.saturating_mul(1_000_000_000);
        let taken = nanoseconds.checked_div(self.link.bytes_per_second);
        Duration::from_nanos(taken.unwrap_or(0))
    }
}
