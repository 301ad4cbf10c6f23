//! A proxy that answers `CONNECT` to any host with a connection to one server of the test.
//!
//! It gives a server on this machine a name that no resolver knows. Clients then use TLS with it,
//! under the name in its certificate.

use std::io::{BufRead, BufReader, Write, copy};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::port::listen;

#[derive(Debug)]
pub struct Tunnel {
    port: u16,
    inner: Arc<TunnelShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct TunnelShared {
    /// The target of all connections.
    target: String,
    connections: AtomicUsize,
    stop: AtomicBool,
}

impl Tunnel {
    /// Starts a proxy to `authority`, a host and port.
    pub fn start(authority: &str) -> Self {
        let (listener, port) = listen();
        let inner = Arc::new(TunnelShared {
            target: authority.to_string(),
            connections: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&inner);
        let thread = thread::spawn(move || of_thread.serve(&listener));
        Self {
            port,
            inner,
            thread: Some(thread),
        }
    }

    /// Returns the value for `HTTPS_PROXY`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns how many connections were made so far.
    pub fn connections(&self) -> usize {
        self.inner.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        // Wakes the thread.
        let _it_may_be_gone = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _its_panic_was_printed = thread.join();
        }
    }
}

impl TunnelShared {
    fn serve(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let this = Arc::clone(self);
            thread::spawn(move || {
                let _the_client_sees_it = this.connect(&stream);
            });
        }
    }

    fn connect(&self, client: &TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(client);
        let mut first = String::new();
        lines.read_line(&mut first)?;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? <= 2 {
                break;
            }
        }
        // A client waits for the answer before it sends more, so the buffer is empty.
        let mut answers = client;
        if !first.starts_with("CONNECT ") {
            return answers.write_all(b"HTTP/1.1 405 Not Allowed\r\nContent-Length: 0\r\n\r\n");
        }
        let server = TcpStream::connect(&self.target)?;
        answers.write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| pass(client, &server));
            pass(&server, client);
        });
        Ok(())
    }
}

/// Forwards bytes until the end.
fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _the_other_end_sees_it = copy(&mut from, &mut to);
    let _it_may_be_gone = to.shutdown(Shutdown::Write);
}
