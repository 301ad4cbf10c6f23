//! A web server that sends files whole and does not give their length.

use std::io::{self, BufReader, BufWriter, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use forerun_io::Unpoisoned;

use crate::fault_proxy::http::Head;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Chunked, with the last chunk.
    LastChunk,
    /// Chunked, and the connection is closed before the last chunk.
    Cut,
    /// HTTP/1.0: the end of the connection is the end of the answer.
    Close,
}

/// A server with one file at every path. It runs until the process ends.
#[derive(Debug)]
pub struct EndlessServer {
    address: SocketAddr,
    file: Arc<File>,
}

#[derive(Debug)]
struct File {
    body: Vec<u8>,
    /// Whether the body is repeated forever.
    repeats: bool,
    etag: Option<&'static str>,
    ending: Mutex<Ending>,
    whole: Mutex<usize>,
}

impl EndlessServer {
    pub fn start(body: Vec<u8>, etag: Option<&'static str>, ending: Ending) -> Self {
        Self::with(File {
            body,
            repeats: false,
            etag,
            ending: Mutex::new(ending),
            whole: Mutex::new(0),
        })
    }

    /// Serves `body` repeatedly in an answer that never ends.
    pub fn start_repeating(body: Vec<u8>) -> Self {
        Self::with(File {
            body,
            repeats: true,
            etag: Some("\"endless\""),
            ending: Mutex::new(Ending::Close),
            whole: Mutex::new(0),
        })
    }

    fn with(file: File) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a server");
        let address = listener.local_addr().expect("the port of a server");
        let file = Arc::new(file);
        let of_thread = Arc::clone(&file);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let file = Arc::clone(&of_thread);
                // The client may close early.
                thread::spawn(move || file.answer(&stream));
            }
        });
        Self { address, file }
    }

    pub fn url(&self) -> String {
        format!("http://{}/image", self.address)
    }

    /// Sets how later answers end.
    pub fn end_with(&self, ending: Ending) {
        *self.file.ending.lock().unpoisoned() = ending;
    }

    pub fn downloads(&self) -> usize {
        *self.file.whole.lock().unpoisoned()
    }
}

impl File {
    fn answer(&self, stream: &TcpStream) -> io::Result<()> {
        let request = Head::read(&mut BufReader::new(stream))?;
        let request = request.ok_or(io::ErrorKind::UnexpectedEof)?;
        let is_head = request.word(0) == "HEAD";
        let is_ranged = request.get("range").is_some();
        if !is_head && !is_ranged {
            *self.whole.lock().unpoisoned() += 1;
        }
        let ending = *self.ending.lock().unpoisoned();
        let mut out = BufWriter::new(stream);
        match ending {
            Ending::Close => write!(out, "HTTP/1.0 200 OK\r\n")?,
            Ending::LastChunk | Ending::Cut => write!(
                out,
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n"
            )?,
        }
        if let Some(etag) = self.etag {
            write!(out, "etag: {etag}\r\n")?;
        }
        write!(out, "\r\n")?;
        if !is_head {
            self.body(&mut out, ending)?;
        }
        out.flush()
    }

    fn body(&self, out: &mut impl io::Write, ending: Ending) -> io::Result<()> {
        loop {
            for piece in self.body.chunks(50_000) {
                match ending {
                    Ending::Close => out.write_all(piece)?,
                    Ending::LastChunk | Ending::Cut => {
                        write!(out, "{:x}\r\n", piece.len())?;
                        out.write_all(piece)?;
                        write!(out, "\r\n")?;
                    }
                }
            }
            if !self.repeats {
                break;
            }
        }
        match ending {
            Ending::LastChunk => write!(out, "0\r\n\r\n"),
            Ending::Cut | Ending::Close => Ok(()),
        }
    }
}
