//! A single request to a server of the program under test.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Reads the whole answer to a GET of `path` at `authority` (`127.0.0.1:PORT`), head and body.
pub fn get(authority: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(authority).expect("a connection");
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a question");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
