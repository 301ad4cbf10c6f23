//! State that the connections of a proxy share.

use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;

use super::fault::Faults;
use super::link::Lines;
use super::{Exchange, Log, Network};

/// Everything except the threads.
#[derive(Debug)]
pub struct Shared {
    /// `HOST:PORT` of the server.
    pub upstream: String,
    pub lines: Lines,
    faults: Mutex<Faults>,
    state: Mutex<State>,
    changed: Condvar,
    started: Instant,
}

#[derive(Debug)]
struct State {
    network: Network,
    is_listening: bool,
    is_stopped: bool,
    streams: Vec<Weak<TcpStream>>,
    log: Log,
    /// Increases when the log is emptied. An earlier request does not belong to the new log.
    generation: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Ticket {
    generation: usize,
    number: usize,
}

impl Shared {
    pub fn new(upstream: &str) -> Self {
        Self {
            upstream: upstream.to_string(),
            lines: Lines::new(),
            faults: Mutex::default(),
            state: Mutex::new(State {
                network: Network::Up,
                is_listening: true,
                is_stopped: false,
                streams: Vec::new(),
                log: Log::default(),
                generation: 0,
            }),
            changed: Condvar::new(),
            started: Instant::now(),
        }
    }

    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unpoisoned()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unpoisoned()
    }

    /// Changes the network, and waits until the port is closed or open accordingly.
    pub fn set_network(&self, network: Network, port: u16) {
        let mut state = self.state();
        state.network = network;
        self.changed.notify_all();
        if network == Network::Refused {
            cut(&mut state.streams);
            drop(state);
            wake(port);
            state = self.state();
        }
        while state.is_listening != (network != Network::Refused) && !state.is_stopped {
            state = self.wait(state);
        }
    }

    pub fn stop(&self, port: u16) {
        let mut state = self.state();
        state.is_stopped = true;
        cut(&mut state.streams);
        self.changed.notify_all();
        drop(state);
        wake(port);
    }

    pub fn is_listening_wanted(&self) -> bool {
        let state = self.state();
        !state.is_stopped && state.network != Network::Refused
    }

    /// Called by the acceptor after it has closed its port. Waits until there is a network. Returns
    /// `false` if the proxy has stopped.
    pub fn wait_for_network(&self) -> bool {
        let mut state = self.state();
        state.is_listening = false;
        self.changed.notify_all();
        while state.network == Network::Refused && !state.is_stopped {
            state = self.wait(state);
        }
        !state.is_stopped
    }

    pub fn is_listening_again(&self) {
        self.state().is_listening = true;
        self.changed.notify_all();
    }

    /// Records an open connection. Returns `None` if it must be closed at once.
    pub fn keep(&self, stream: TcpStream) -> Option<Arc<TcpStream>> {
        let stream = Arc::new(stream);
        let mut state = self.state();
        if state.is_stopped || state.network == Network::Refused {
            return None;
        }
        state.streams.retain(|known| known.strong_count() > 0);
        state.streams.push(Arc::downgrade(&stream));
        Some(stream)
    }

    /// Waits while the network is silent. Returns `false` if connections are cut meanwhile.
    pub fn moves(&self) -> bool {
        let mut state = self.state();
        while state.network == Network::Silent && !state.is_stopped {
            state = self.wait(state);
        }
        !state.is_stopped && state.network == Network::Up
    }

    /// Waits for `time`, or until there is no network. Returns whether there is one.
    pub fn pause(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut state = self.state();
        while !state.is_stopped && state.network != Network::Refused {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unpoisoned();
        }
        false
    }

    /// Adds a request to the log, and sets its number and time.
    pub fn enter(&self, exchange: &mut Exchange) -> Ticket {
        exchange.at = self.started.elapsed();
        let mut state = self.state();
        exchange.number = state.log.entries.len();
        exchange.fault = self.faults().of(exchange);
        state.log.entries.push(exchange.clone());
        self.changed.notify_all();
        Ticket {
            generation: state.generation,
            number: exchange.number,
        }
    }

    pub fn note(&self, ticket: Ticket, change: impl FnOnce(&mut Exchange)) {
        let mut state = self.state();
        if state.generation == ticket.generation
            && let Some(entry) = state.log.entries.get_mut(ticket.number)
        {
            change(entry);
        }
    }

    pub fn log(&self) -> Log {
        self.state().log.clone()
    }

    pub fn forget(&self) {
        let mut state = self.state();
        state.generation += 1;
        state.log = Log::default();
    }

    pub fn wait_for_requests(&self, requests: usize, at_most: Duration) -> bool {
        let end = Instant::now() + at_most;
        let mut state = self.state();
        while state.log.requests() < requests {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unpoisoned();
        }
        true
    }
}

fn cut(streams: &mut Vec<Weak<TcpStream>>) {
    for stream in streams.drain(..).filter_map(|stream| stream.upgrade()) {
        let _it_may_be_closed = stream.shutdown(Shutdown::Both);
    }
}

/// Wakes the acceptor, so that it checks the state.
fn wake(port: u16) {
    let _it_may_be_gone = TcpStream::connect(("127.0.0.1", port));
}
