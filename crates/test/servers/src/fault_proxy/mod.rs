//! A proxy that simulates a network: latency, bandwidth, and every way in which answers go wrong.
//!
//! It runs before one server that speaks plain HTTP/1.1, on its own port of the loopback interface,
//! and forwards requests unchanged, including `Host`, so that signatures stay valid. It finds the
//! ends of requests and answers, counts them, and can alter any answer that is chosen by its number
//! or by a function. It uses plain threads, so that it does not share the asynchronous runtime
//! under test.
//!
//! The simulated link is one line for all connections: each byte takes its time, and the first byte
//! of an answer takes a round trip (two on a new connection). It simulates no packet loss and no
//! slow start, and supports no TLS, HTTP/2 or pipelining.

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Up,
    /// New connections are refused, and open ones are cut.
    Refused,
    /// Connections stay and can be made, but transfer nothing. Pending data continues when the
    /// network is back; requests that arrive meanwhile are in the log.
    Silent,
}

/// A running proxy. Dropping it stops it and cuts all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    port: u16,
    acceptor: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy before `upstream`: `http://HOST:PORT` or `HOST:PORT`.
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

    /// Returns the address of a file or an object on the server.
    pub fn url_of(&self, path: &str) -> String {
        format!("{}/{path}", self.url())
    }

    /// Returns `127.0.0.1:PORT`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn set_link(&self, link: Link) {
        self.shared.lines.set(link);
    }

    /// Alters the answer to one request, by its number: from 0, since the start or
    /// [`forget`](Self::forget).
    pub fn fault_at(&self, request: usize, fault: Fault) {
        self.shared.faults().at.insert(request, fault);
    }

    /// Calls `choose` for every request without a fault from [`fault_at`](Self::fault_at). `choose`
    /// must not call the proxy.
    pub fn faults(&self, choose: impl Fn(&Exchange) -> Option<Fault> + Send + 'static) {
        self.shared.faults().choose = Some(Box::new(choose));
    }

    pub fn clear_faults(&self) {
        *self.shared.faults() = fault::Faults::default();
    }

    /// Sets the state of the network. It is in effect on return.
    pub fn set_network(&self, network: Network) {
        self.shared.set_network(network, self.port);
    }

    pub fn log(&self) -> Log {
        self.shared.log()
    }

    pub fn forget(&self) {
        self.shared.forget();
    }

    /// Waits until this many requests have arrived, answered or not. Returns whether they have.
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

/// Listens on the same port again. The kernel gives it to no other process by chance: see
/// [`listen`].
fn listen_again(port: u16) -> TcpListener {
    for _ in 0..500 {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("port {port} was taken while the network was gone")
}
