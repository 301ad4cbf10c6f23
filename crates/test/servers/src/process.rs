//! A program that serves until it is dropped.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::free_port;

/// How long a server may take to answer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Attempts to start, because another process may take a free port before the server does.
const TRIES: u32 = 3;

#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server with the command that `command` builds for a free port. The output goes to
    /// `dir/log`. Returns when the server answers a request for `path`.
    pub fn start(dir: &Path, path: &str, command: impl Fn(u16) -> Command) -> Self {
        let mut said = String::new();
        for _ in 0..TRIES {
            let port = free_port();
            let log = dir.join("log");
            let mut server = Self::spawn(&log, port, command(port));
            match server.wait(path) {
                Ok(()) => return server,
                Err(why) => said += &format!("{why}\n{}", read(&log)),
            }
        }
        panic!("the server does not start:\n{said}")
    }

    fn spawn(log: &Path, port: u16, mut command: Command) -> Self {
        let log = File::create(log).expect("a log file");
        let errors = log.try_clone().expect("a file can be shared");
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, port }
    }

    fn wait(&mut self, path: &str) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait().expect("a child can be waited for");
            if let Some(status) = ended {
                return Err(format!("ended with {status}"));
            }
            if answers(self.port, path) {
                return Ok(());
            }
            if start.elapsed() > START_TIMEOUT {
                return Err(format!("silent for {START_TIMEOUT:?}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Returns whether a server that speaks HTTP, or at least TLS, listens there.
fn answers(port: u16, path: &str) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return false;
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let mut answer = [0; 4];
    let limit = Some(Duration::from_secs(5));
    stream.set_read_timeout(limit).is_ok()
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
