//! The part of HTTP/1.1 that is needed to find the ends of messages.

use std::io::{self, BufRead, Read};

/// Length limit of a head.
const MAX_HEAD: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Head {
    pub first: String,
    headers: Vec<(String, String)>,
}

impl Head {
    pub fn new(first: &str) -> Self {
        Self {
            first: first.to_string(),
            headers: Vec::new(),
        }
    }

    /// Reads a head. Returns `None` if the connection ends before it.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut from = from.take(MAX_HEAD);
        let Some(first) = line(&mut from)? else {
            return Ok(None);
        };
        let mut head = Self::new(&first);
        loop {
            let line = line(&mut from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line.is_empty() {
                return Ok(Some(head));
            }
            let (name, value) = line.split_once(':').ok_or(io::ErrorKind::InvalidData)?;
            head.headers
                .push((name.to_string(), value.trim().to_string()));
        }
    }

    pub fn word(&self, index: usize) -> &str {
        self.first.split(' ').nth(index).unwrap_or_default()
    }

    pub fn status(&self) -> u16 {
        self.word(1).parse().unwrap_or(0)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        let header = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        header.map(|(_, value)| value.as_str())
    }

    /// Returns whether a header's value is `value`, ignoring case.
    pub fn says(&self, name: &str, value: &str) -> bool {
        self.get(name)
            .is_some_and(|known| known.eq_ignore_ascii_case(value))
    }

    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.remove(name);
        self.headers.push((name.to_string(), value.to_string()));
    }

    pub fn remove(&mut self, name: &str) {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
    }

    /// Returns the headers, with names in lower case.
    pub fn lower(&self) -> Vec<(String, String)> {
        let lower = |(name, value): &(String, String)| (name.to_ascii_lowercase(), value.clone());
        self.headers.iter().map(lower).collect()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.first);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        text.into_bytes()
    }

    /// Parses a request's `Range` into its first and last byte, if it is a single range with a
    /// start.
    pub fn range(&self) -> Option<(u64, Option<u64>)> {
        let (first, last) = self.get("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let last = match last {
            "" => None,
            last => Some(last.parse().ok()?),
        };
        Some((first.parse().ok()?, last))
    }

    /// Parses an answer's `Content-Range` into its first byte, last byte and total.
    pub fn content_range(&self) -> Option<(u64, u64, u64)> {
        let value = self.get("content-range")?.strip_prefix("bytes ")?;
        let (range, total) = value.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        Some((first.parse().ok()?, last.parse().ok()?, total.parse().ok()?))
    }

    pub fn request_body(&self) -> Framing {
        self.framing().unwrap_or(Framing::Bytes(0))
    }

    pub fn answer_body(&self, method: &str) -> Framing {
        match self.status() {
            100..200 | 204 | 304 => Framing::Bytes(0),
            _ if method == "HEAD" => Framing::Bytes(0),
            _ => self.framing().unwrap_or(Framing::UntilClose),
        }
    }

    fn framing(&self) -> Option<Framing> {
        if self.says("transfer-encoding", "chunked") {
            return Some(Framing::Chunked);
        }
        let len = self.get("content-length")?.parse().ok()?;
        Some(Framing::Bytes(len))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Bytes(u64),
    /// In chunks, the last of which is empty.
    Chunked,
    /// By the end of the connection.
    UntilClose,
}

#[derive(Debug)]
pub struct Body {
    framing: Framing,
    /// Bytes left in the body or in the current chunk.
    left: u64,
    ended: bool,
}

impl Body {
    /// Creates the state before the first byte of a body.
    pub const fn new(framing: Framing) -> Self {
        let (left, ended) = match framing {
            Framing::Bytes(len) => (len, len == 0),
            Framing::Chunked => (0, false),
            Framing::UntilClose => (u64::MAX, false),
        };
        Self {
            framing,
            left,
            ended,
        }
    }

    /// Reads some bytes. Returns none at the end of the body.
    pub fn read(&mut self, from: &mut impl BufRead, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ended {
            return Ok(0);
        }
        if self.framing == Framing::Chunked && self.left == 0 {
            self.left = chunk_len(from)?;
            if self.left == 0 {
                // The proxy drops trailers.
                while line(from)?.is_some_and(|line| !line.is_empty()) {}
                self.ended = true;
                return Ok(0);
            }
        }
        let read = from.take(self.left).read(buffer)?;
        match (read, self.framing) {
            (0, Framing::UntilClose) => self.ended = true,
            (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => {}
        }
        self.left -= u64::try_from(read).unwrap_or(0);
        if self.left == 0 {
            match self.framing {
                Framing::Chunked => _ = line(from)?,
                Framing::Bytes(_) | Framing::UntilClose => self.ended = true,
            }
        }
        Ok(read)
    }
}

fn chunk_len(from: &mut impl BufRead) -> io::Result<u64> {
    let line = line(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    u64::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Reads a line without its end. Returns `None` at the end of the connection.
fn line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Ok(None),
        _ if !line.ends_with('\n') => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(Some(line.trim_end_matches(['\r', '\n']).to_string())),
    }
}
