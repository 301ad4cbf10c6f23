//! A client's connection: requests one after the other, each forwarded and answered.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::answer::{Answer, End};
use super::http::{Body, Framing, Head};
use super::link::SLICE;
use super::shared::{Shared, Ticket};
use super::{Exchange, Fault};

/// The buffered reader of a connection, to the server or to the client.
pub type Reader<'a> = BufReader<&'a TcpStream>;

pub fn serve(shared: &Shared, stream: TcpStream, number: usize) {
    let accepted = Instant::now();
    let Some(client) = shared.keep(stream) else {
        return;
    };
    // An error on either side ends the connection, which the client sees.
    let end = requests(shared, &client, number, accepted).unwrap_or(End::Close);
    match end {
        End::Reset => reset(&client),
        End::Next | End::Close => {}
    }
}

/// Closes with a reset instead of an orderly end.
fn reset(client: &TcpStream) {
    let no_time = Some(Duration::ZERO);
    rustix::net::sockopt::set_socket_linger(client, no_time).expect("an open socket has options");
}

fn requests(
    shared: &Shared,
    client: &TcpStream,
    number: usize,
    accepted: Instant,
) -> io::Result<End> {
    client.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(SLICE, client);
    let mut server: Option<Arc<TcpStream>> = None;
    // The first request of a connection follows its start.
    let mut connected = Some(accepted);
    while let Some(head) = Head::read(&mut reader)? {
        let mut exchange = exchange(&head, number);
        let ticket = shared.enter(&mut exchange);
        let since = connected.take();
        let from = Asked {
            client,
            reader: &mut reader,
            head,
            exchange,
            ticket,
            since,
        };
        match from.answer(shared, &mut server)? {
            End::Next => {}
            end => return Ok(end),
        }
    }
    Ok(End::Close)
}

fn exchange(head: &Head, connection: usize) -> Exchange {
    let target = head.word(1);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Exchange {
        number: 0,
        connection,
        method: head.word(0).to_string(),
        path: path.to_string(),
        query: query.to_string(),
        range: head.range(),
        headers: head.lower(),
        status: None,
        start: 0,
        sent: 0,
        fault: None,
        finished: false,
        at: Duration::ZERO,
    }
}

/// A request that was received, except for its body.
struct Asked<'a, 'b> {
    client: &'a TcpStream,
    reader: &'b mut Reader<'a>,
    head: Head,
    exchange: Exchange,
    ticket: Ticket,
    /// When the connection was made, if this is its first request.
    since: Option<Instant>,
}

impl Asked<'_, '_> {
    fn answer(mut self, shared: &Shared, server: &mut Option<Arc<TcpStream>>) -> io::Result<End> {
        if !self.travel(shared) {
            return Ok(End::Close);
        }
        if let Some(end) = self.instead(shared)? {
            return Ok(end);
        }
        if self.exchange.fault == Some(Fault::Whole) {
            self.head.remove("range");
            self.head.remove("if-range");
        }
        let closes = self.head.says("connection", "close");
        let Some(stream) = self.pass_on(shared, server)? else {
            return self.refuse(shared, 502, None);
        };
        let mut reader = BufReader::with_capacity(SLICE, &*stream);
        let mut head = Head::read(&mut reader)?;
        while head.as_ref().is_some_and(|head| head.status() == 100) {
            head = Head::read(&mut reader)?;
        }
        let Some(head) = head else {
            *server = None;
            return self.refuse(shared, 502, None);
        };
        if head.says("connection", "close") {
            *server = None;
        }
        let answer = Answer {
            shared,
            client: self.client,
            request: &self.exchange,
            ticket: self.ticket,
            head,
        };
        match answer.give(&mut reader)? {
            End::Next if closes => Ok(End::Close),
            end => Ok(end),
        }
    }

    /// Waits for the time that the request and the answer's first byte take. Returns whether the
    /// network is up then.
    fn travel(&self, shared: &Shared) -> bool {
        let rtt = shared.lines.link().rtt;
        let handshake = self
            .since
            .map_or(Duration::ZERO, |since| rtt.saturating_sub(since.elapsed()));
        shared.pause(handshake + rtt) && shared.moves()
    }

    /// Answers without the server. Returns `None` if the server must be asked.
    fn instead(&mut self, shared: &Shared) -> io::Result<Option<End>> {
        let fault = self.exchange.fault.clone();
        Ok(Some(match fault {
            Some(Fault::ResetBeforeHead) => End::Reset,
            Some(Fault::Status { code, retry_after }) => {
                let after = retry_after.map(|seconds| seconds.to_string());
                let after = after.as_deref().map(|seconds| ("Retry-After", seconds));
                self.refuse(shared, code, after)?
            }
            Some(Fault::Redirect { location }) => {
                self.refuse(shared, 307, Some(("Location", &location)))?
            }
            Some(Fault::Garbage) => {
                let mut client = self.client;
                client.write_all(b"\x16\x03\x01 this is not the protocol you seek\r\n\r\n")?;
                End::Close
            }
            Some(Fault::Stall) => {
                until_closed(self.client);
                End::Close
            }
            Some(_) | None => return Ok(None),
        }))
    }

    /// Answers with a status and no body, once the whole request was read.
    fn refuse(
        &mut self,
        shared: &Shared,
        code: u16,
        header: Option<(&str, &str)>,
    ) -> io::Result<End> {
        let mut body = Body::new(self.head.request_body());
        let mut buffer = vec![0; SLICE];
        while body.read(self.reader, &mut buffer)? > 0 {}
        let mut head = Head::new(&format!("HTTP/1.1 {code} By the proxy"));
        head.set("Content-Length", 0);
        if let Some((name, value)) = header {
            head.set(name, value);
        }
        let mut client = self.client;
        client.write_all(&head.to_bytes())?;
        shared.note(self.ticket, |entry| {
            entry.status = Some(code);
            entry.finished = true;
        });
        Ok(if self.head.says("connection", "close") {
            End::Close
        } else {
            End::Next
        })
    }

    /// Sends the request to the server. Returns `None` if the server cannot be reached.
    fn pass_on(
        &mut self,
        shared: &Shared,
        server: &mut Option<Arc<TcpStream>>,
    ) -> io::Result<Option<Arc<TcpStream>>> {
        if self.head.says("expect", "100-continue") {
            self.head.remove("expect");
            let mut client = self.client;
            client.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        if server.as_ref().is_none_or(|stream| is_closed(stream)) {
            *server = connect(shared);
        }
        let Some(stream) = server.clone() else {
            return Ok(None);
        };
        let framing = self.head.request_body();
        let mut to = &*stream;
        to.write_all(&self.head.to_bytes())?;
        let mut body = Body::new(framing);
        let mut buffer = vec![0; SLICE];
        loop {
            let read = body.read(self.reader, &mut buffer)?;
            if read > 0 {
                shared.lines.pass(&shared.lines.up, read);
                if !shared.moves() {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
            }
            if framing == Framing::Chunked {
                write!(to, "{read:x}\r\n")?;
            }
            to.write_all(&buffer[..read])?;
            if framing == Framing::Chunked {
                to.write_all(b"\r\n")?;
            }
            if read == 0 {
                return Ok(Some(stream));
            }
        }
    }
}

fn connect(shared: &Shared) -> Option<Arc<TcpStream>> {
    let stream = TcpStream::connect(&shared.upstream).ok()?;
    stream.set_nodelay(true).ok()?;
    shared.keep(stream)
}

/// Returns whether the server has closed an idle connection.
fn is_closed(stream: &TcpStream) -> bool {
    let mut byte = [0];
    let looked = stream
        .set_nonblocking(true)
        .and_then(|()| stream.peek(&mut byte));
    let blocks = stream.set_nonblocking(false);
    blocks.is_err() || !looked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// Waits until the client gives up, or the proxy cuts the connection.
pub fn until_closed(client: &TcpStream) {
    let mut client = client;
    let mut buffer = [0; 1024];
    while client.read(&mut buffer).is_ok_and(|read| read > 0) {}
    let _it_is_over = client.shutdown(Shutdown::Both);
}
