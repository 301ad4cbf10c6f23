//! An image behind a link: fetched whole before it is read, or by forerun as it is read.
//!
//! The server is of this process, at the loopback address. Its link is one line for all requests, each byte of which takes
//! its time, and a round trip before the first byte of an answer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use forerun::Writer;
use forerun::build::ErofsOptions;

use super::files::FILE;
use super::parts::{Kit, PartName, expected, failed, hashed, same};
use super::report::{Part, Role, Row};
use crate::error::{Failure, Result};
use crate::measure::process;
use crate::measure::run::{Run, timed};
use crate::size;

/// The link: that of a good connection to a server far away.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const BYTES_PER_SECOND: u64 = 100_000_000;
/// Bytes that cross the line together.
const PIECE: u64 = 16 << 10;

pub fn measure(kit: &Kit) -> Result<Part> {
    let all = kit.data.len / 4;
    let len = all / 8;
    let mut part = Part::new(
        PartName::Link,
        format!(
            "Reads a file of {} in an EROFS image of {} behind a simulated link of 100 MB/s, 20 ms away.",
            size::human(len),
            size::human(all)
        ),
        "The legacy way is forerun pull, and then forerun cat of what it has fetched.",
    );
    let image = kit.dir.join("image.erofs");
    kit.data.pack(
        &Writer::Erofs(ErofsOptions::default()),
        &image,
        len,
        all - len,
    )?;
    let expected = expected(kit, len)?;
    let server =
        FarServer::start(&image).map_err(|error| Failure::source(&error).of(image.display()))?;
    let url = format!("http://{}/image.erofs", server.address);
    let copy = kit.dir.join("copy.erofs");
    let cat = |image: &Path| {
        let mut cat = Command::new(&kit.program);
        cat.arg("cat").arg("--cache-dir").arg(kit.dir.join("cache"));
        hashed(cat.arg(image).arg(FILE))
    };
    let whole = || -> anyhow::Result<Run> {
        let mut pull = Command::new(&kit.program);
        pull.args(["pull", "--quiet", &url]).arg(&copy);
        let (seconds, _) = timed(|| process::output(&mut pull))?;
        let mut run = cat(&copy)?;
        run.seconds += seconds;
        Ok(run)
    };
    let mut add = |id, role, what, run: &dyn Fn() -> anyhow::Result<Run>| -> Result<()> {
        let before = server.sent.load(Ordering::Relaxed);
        let mut run = run().map_err(failed)?;
        same(&run, &expected, what)?;
        let sent = server.sent.load(Ordering::Relaxed) - before;
        run.counters.insert("sent".to_string(), sent >> 10);
        part.rows.push(Row::new(id, role, what, &run, "sent"));
        Ok(())
    };
    let remote = || cat(Path::new(&url));
    add("on_demand", Role::Ours, "forerun", &remote)?;
    add("whole", Role::Legacy, "legacy: fetched, then read", &whole)?;
    add("cached", Role::Reference, "forerun, a second time", &remote)?;
    Ok(part)
}

/// A server with one file.
struct FarServer {
    address: SocketAddr,
    /// Bytes that it has sent.
    sent: Arc<AtomicU64>,
}

/// The sending end of the link.
struct Sender {
    file: File,
    len: u64,
    sent: Arc<AtomicU64>,
    /// When the line has carried all that was sent so far.
    line: Mutex<Instant>,
}

impl FarServer {
    /// Serves the file at `path`, as long as the process lives.
    fn start(path: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let file = File::open(path)?;
        let sent = Arc::new(AtomicU64::new(0));
        let sender = Arc::new(Sender {
            len: file.metadata()?.len(),
            file,
            sent: Arc::clone(&sent),
            line: Mutex::new(Instant::now()),
        });
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = Arc::clone(&sender);
                // A client that goes away ends its connection.
                thread::spawn(move || drop(sender.serve(&stream)));
            }
        });
        Ok(Self { address, sent })
    }
}

impl Sender {
    /// Answers the requests of a connection, of which only the method and the range matter.
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        while let Some(request) = lines.next() {
            let is_head = request?.starts_with("HEAD ");
            let mut asked = None;
            for line in lines.by_ref() {
                let line = line?.to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                let range = line.strip_prefix("range: bytes=");
                asked = asked.or(range.and_then(|range| self.range(range)));
            }
            let (from, to) = asked.unwrap_or((0, self.len));
            let status = match asked {
                Some(_) => format!(
                    "206 Partial Content\r\nContent-Range: bytes {from}-{}/{}",
                    to - 1,
                    self.len
                ),
                None => "200 OK".to_string(),
            };
            thread::sleep(ROUND_TRIP);
            let len = to - from;
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\n\r\n"
            )?;
            if !is_head {
                self.send(stream, from, to)?;
            }
        }
        Ok(())
    }

    /// Parses a range: the first byte, and the one behind the last.
    fn range(&self, asked: &str) -> Option<(u64, u64)> {
        let (from, last) = asked.split_once('-')?;
        let from: u64 = from.parse().ok()?;
        let last: u64 = last.parse().unwrap_or(self.len);
        let to = last.checked_add(1)?.min(self.len);
        (from < to).then_some((from, to))
    }

    /// Sends a part of the file. Each piece arrives when the line has carried it, after all that was sent before.
    fn send(&self, mut out: impl Write, from: u64, to: u64) -> io::Result<()> {
        let mut piece = Vec::new();
        let mut at = from;
        while at < to {
            let len = PIECE.min(to - at);
            piece.resize(usize::try_from(len).map_err(io::Error::other)?, 0);
            self.file.read_exact_at(&mut piece, at)?;
            let arrives = {
                let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
                let time = Duration::from_nanos(len * 1_000_000_000 / BYTES_PER_SECOND);
                *line = (*line).max(Instant::now()) + time;
                *line
            };
            thread::sleep(arrives.saturating_duration_since(Instant::now()));
            self.sent.fetch_add(len, Ordering::Relaxed);
            out.write_all(&piece)?;
            at += len;
        }
        Ok(())
    }
}
