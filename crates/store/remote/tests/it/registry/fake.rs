//! An HTTP server that answers with a closure and records the requests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// Returns a header. `name` must be in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }
}

/// The server. It stops when dropped.
pub struct Fake {
    port: u16,
    log: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
}

impl Fake {
    pub fn start(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (log, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let handler = Arc::new(handler);
        let (of_log, of_stop) = (Arc::clone(&log), Arc::clone(&stop));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_stop.load(Ordering::SeqCst) {
                    return;
                }
                let (handler, log) = (Arc::clone(&handler), Arc::clone(&of_log));
                let Ok(stream) = stream else { continue };
                std::thread::spawn(move || serve(&stream, &*handler, &log));
            }
        });
        Self { port, log, stop }
    }

    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the server, which may already be gone.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Answers one request on a connection and closes it (`Connection: close`).
fn serve(stream: &TcpStream, handler: &dyn Fn(&Request) -> Answer, log: &Mutex<Vec<Request>>) {
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let Some(request) = read(stream) else { return };
    log.lock().unwrap().push(request.clone());
    let answer = handler(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    if !answer
        .headers
        .iter()
        .any(|(name, _)| name == "Content-Length")
    {
        head += &format!("Content-Length: {}\r\n", answer.body.len());
    }
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = stream;
    // The client may close before it has read everything.
    let _ = stream.write_all(format!("{head}\r\n").as_bytes());
    if request.method != "HEAD" {
        let _ = stream.write_all(&answer.body);
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_string(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_string()));
    }
    let mut request = Request {
        method,
        path: path.to_string(),
        query: query.to_string(),
        headers,
        body: Vec::new(),
    };
    let len: usize = request
        .header("content-length")
        .map_or(0, |len| len.parse().unwrap());
    request.body = vec![0; len];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}
