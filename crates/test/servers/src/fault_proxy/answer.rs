//! The server's answer on its way to the client: slowed down, and altered if a fault was chosen.

use std::io::{self, Write};
use std::net::TcpStream;

use super::connection::{Reader, until_closed};
use super::http::{Body, Framing, Head};
use super::link::SLICE;
use super::shared::{Shared, Ticket};
use super::{Exchange, Fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The next request may follow.
    Next,
    Close,
    Reset,
}

/// An answer whose head was read.
pub struct Answer<'a> {
    pub shared: &'a Shared,
    pub client: &'a TcpStream,
    /// The request that it answers, with the fault.
    pub request: &'a Exchange,
    pub ticket: Ticket,
    pub head: Head,
}

impl Answer<'_> {
    pub fn give(mut self, reader: &mut Reader<'_>) -> io::Result<End> {
        let framing = self.head.answer_body(&self.request.method);
        let announced = match framing {
            Framing::Bytes(len) => len,
            Framing::Chunked | Framing::UntilClose => u64::MAX,
        };
        let wanted = self.spoil_head(announced);
        let (status, start) = (self.head.status(), self.head.content_range());
        let start = start.map_or(0, |(first, _, _)| first);
        self.shared.note(self.ticket, |entry| {
            entry.status = Some(status);
            entry.start = start;
        });
        let mut client = self.client;
        client.write_all(&self.head.to_bytes())?;
        let stop = self.stop();
        let sent = match stop {
            Some((0, end)) => return Ok(end),
            _ => self.body(reader, framing, wanted, stop.map(|(after, _)| after))?,
        };
        match stop {
            Some((after, end)) if sent >= after => return Ok(end),
            _ => self.shared.note(self.ticket, |entry| entry.finished = true),
        }
        Ok(match framing {
            Framing::UntilClose => End::Close,
            _ if self.head.says("connection", "close") => End::Close,
            Framing::Bytes(_) | Framing::Chunked => End::Next,
        })
    }

    /// Changes the head as the fault requires. Returns how much of the body to send.
    fn spoil_head(&mut self, announced: u64) -> u64 {
        let range = self.head.content_range();
        match (&self.request.fault, range) {
            (Some(Fault::WrongContentRange), Some((first, last, total))) => {
                let moved = format!("bytes {}-{}/{total}", first + 1, last + 1);
                self.head.set("Content-Range", moved);
            }
            (Some(Fault::WrongTotal), Some((first, last, total))) => {
                let longer = format!("bytes {first}-{last}/{}", total + 1);
                self.head.set("Content-Range", longer);
            }
            (Some(Fault::Short { len }), Some((first, _, total)))
                if (1..announced).contains(len) && self.head.status() == 206 =>
            {
                let shorter = format!("bytes {first}-{}/{total}", first + len - 1);
                self.head.set("Content-Range", shorter);
                self.head.set("Content-Length", len);
                return *len;
            }
            _ => {}
        }
        announced
    }

    /// Returns where the body ends early, and how.
    const fn stop(&self) -> Option<(u64, End)> {
        match self.request.fault {
            Some(Fault::ResetAt { after }) => Some((after, End::Reset)),
            Some(Fault::Truncate { after }) => Some((after, End::Close)),
            _ => None,
        }
    }

    /// Sends the body, or its first `wanted` bytes and at most `stop` bytes. Returns the number of
    /// bytes sent.
    fn body(
        &self,
        reader: &mut Reader<'_>,
        framing: Framing,
        wanted: u64,
        stop: Option<u64>,
    ) -> io::Result<u64> {
        let mut body = Body::new(framing);
        let mut buffer = vec![0; SLICE];
        let mut sent = 0_u64;
        loop {
            let read = body.read(reader, &mut buffer)?;
            if read == 0 {
                self.chunk(framing, &[])?;
                return Ok(sent);
            }
            let limit = wanted.min(stop.unwrap_or(u64::MAX));
            let limit = limit.min(self.silence().unwrap_or(u64::MAX));
            let room = usize::try_from(limit - sent).unwrap_or(usize::MAX);
            let part = &mut buffer[..read.min(room)];
            self.spoil(part, sent);
            self.shared.lines.pass(&self.shared.lines.down, part.len());
            if !self.shared.moves() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            if !part.is_empty() {
                self.chunk(framing, part)?;
            }
            let len = u64::try_from(part.len()).unwrap_or(u64::MAX);
            sent += len;
            self.shared.note(self.ticket, |entry| entry.sent += len);
            if stop.is_some_and(|stop| sent >= stop) {
                return Ok(sent);
            }
            if self.silence().is_some_and(|after| sent >= after) {
                until_closed(self.client);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Returns the number of bytes after which no more are sent.
    const fn silence(&self) -> Option<u64> {
        match self.request.fault {
            Some(Fault::StallAt { after }) => Some(after),
            _ => None,
        }
    }

    fn chunk(&self, framing: Framing, bytes: &[u8]) -> io::Result<()> {
        let mut client = self.client;
        match framing {
            Framing::Chunked => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(bytes);
                chunk.extend_from_slice(b"\r\n");
                client.write_all(&chunk)
            }
            Framing::Bytes(_) | Framing::UntilClose => client.write_all(bytes),
        }
    }

    /// Inverts the bytes of the body that must be wrong.
    fn spoil(&self, part: &mut [u8], at: u64) {
        let Some(Fault::WrongBytes { offset, len }) = self.request.fault else {
            return;
        };
        for (position, byte) in (at..).zip(part) {
            if (offset..offset.saturating_add(len)).contains(&position) {
                *byte = !*byte;
            }
        }
    }
}
