//! A proxy that plays a network: latency, bandwidth, and every way in which answers go wrong.
//!
//! It stands before one server that speaks plain HTTP/1.1, on a port of its own of the loopback
//! interface, and passes requests on unchanged, `Host` included, so that signatures hold. It knows
//! where requests and answers end, counts them, and can spoil any one that is chosen by its number or
//! by a function. Plain threads: what is tested may be asynchronous, its judge is better not.
//!
//! The link it plays is one line for all connections, each byte of which takes its time, and a round
//! trip before the first byte of an answer (two on a new connection). It plays no loss of packets and
//! no slow start, and knows no TLS, HTTP/2 or pipelining.

mod answer;
mod connection;
mod fault;
pub(crate) mod http;
mod link;
mod log;
mod shared;
#[cfg(test)]
mod tests;

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::listen;
pub use fault::Fault;
pub use link::Link;
pub use log::{Exchange, Log};
use shared::Shared;

/// Whether there is a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Up,
    /// New connections are refused, and those that were open are cut.
    Refused,
    /// Connections stay and can be made, and nothing moves on them. What is under way goes on when
    /// the network is back; requests that come meanwhile are in the log.
    Silent,
}

/// A running proxy; stops, with all its connections cut, when dropped.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts one before `upstream`: `http://HOST:PORT` or `HOST:PORT`.
    pub fn start(upstream: &str) -> Self {
        let authority = upstream.strip_prefix("http://").unwrap_or(upstream);
        let authority = authority.trim_end_matches('/');
        assert!(
            !authority.contains('/') && authority.contains(':'),
            "{upstream}: the proxy takes http://HOST:PORT"
        );
        let (listener, port) = listen();
        let shared = Arc::new(Shared::new(authority));
        let of_thread = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&of_thread, listener, port));
        Self {
            shared,
            port,
            acceptor: Some(acceptor),
        }
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.authority())
    }

    /// Returns the address of a file or an object at the server.
    pub fn url_of(&self, path: &str) -> String {
        format!("{}/{path}", self.url())
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Sets the link from now on.
    pub fn set_link(&self, link: Link) {
        self.shared.lines.set(link);
    }

    /// Spoils the answer to one request, by its number: from 0, since the start or
    /// [`forget`](Self::forget).
    pub fn fault_at(&self, request: usize, fault: Fault) {
        self.shared.faults().at.insert(request, fault);
    }

    /// Asks `choose` about every request that [`fault_at`](Self::fault_at) says nothing about. It may
    /// ask the proxy nothing.
    pub fn faults(&self, choose: impl Fn(&Exchange) -> Option<Fault> + Send + 'static) {
        self.shared.faults().choose = Some(Box::new(choose));
    }

    pub fn clear_faults(&self) {
        *self.shared.faults() = fault::Faults::default();
    }

    /// Takes the network away, or brings it back. It is so when this returns.
    pub fn set_network(&self, network: Network) {
        self.shared.set_network(network, self.port);
    }

    /// Returns the requests and answers so far.
    pub fn log(&self) -> Log {
        self.shared.log()
    }

    /// Forgets the log; the next request is number 0.
    pub fn forget(&self) {
        self.shared.forget();
    }

    /// Waits until so many requests have come, answered or not. Returns whether they have.
    pub fn wait_for_requests(&self, requests: usize, at_most: Duration) -> bool {
        self.shared.wait_for_requests(requests, at_most)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.stop(self.port);
        if let Some(acceptor) = self.acceptor.take() {
            let _its_panic_was_printed = acceptor.join();
        }
    }
}

/// Accepts connections while there is a network.
fn accept(shared: &Arc<Shared>, mut listener: TcpListener, port: u16) {
    let mut connections = 0;
    loop {
        for stream in listener.incoming() {
            if !shared.is_listening_wanted() {
                break;
            }
            let Ok(stream) = stream else { continue };
            let shared = Arc::clone(shared);
            let number = connections;
            connections += 1;
            thread::spawn(move || connection::serve(&shared, stream, number));
        }
        drop(listener);
        if !shared.wait_for_network() {
            return;
        }
        listener = listen_again(port);
        shared.is_listening_again();
    }
}

/// Listens on the same port again. The kernel gives it to no other process by chance: see [`listen`].
fn listen_again(port: u16) -> TcpListener {
    for _ in 0..500 {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("port {port} was taken while the network was gone")
}
