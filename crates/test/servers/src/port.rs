//! Ports to listen on.
//!
//! They are outside the range from which the kernel assigns ports. A server that restarts or a
//! proxy that simulates an outage releases its port for a moment, and the kernel could give a port
//! of its range to another connection meanwhile.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use forerun_testkit::require;

/// First port. The ports are below those of outgoing connections, which start at 32768.
const FIRST: u16 = 12_000;
/// Number of ports.
const COUNT: u16 = 20_000;

/// Returns whether programs on this machine can connect to each other. In build chroots without a
/// network the loopback interface may be down.
pub fn loopback() -> bool {
    let (_listener, port) = listen();
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    require::that(connected.is_ok(), "a loopback interface that is up")
}

/// Returns a port of the loopback interface without a listener.
pub fn free_port() -> u16 {
    let (_listener, port) = listen();
    port
}

/// Listens on a free port of the loopback interface.
pub fn listen() -> (TcpListener, u16) {
    let found = (0..COUNT).find_map(|_| {
        let port = next();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?;
        Some((listener, port))
    });
    found.expect("a free port")
}

/// Returns ports in turn, from a start that no other process is likely to have chosen.
fn next() -> u16 {
    static TURN: AtomicU32 = AtomicU32::new(0);
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos());
    let start = match turn {
        0 => {
            let start = nanos.rotate_left(7) ^ std::process::id().wrapping_mul(0x9E37_79B9);
            TURN.store(start.wrapping_add(1), Ordering::Relaxed);
            start
        }
        turn => turn,
    };
    let offset = start % u32::from(COUNT);
    FIRST + u16::try_from(offset).expect("below the count")
}
