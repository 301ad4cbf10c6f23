//! An image behind a link: either fetched whole and then read, or read on demand by forerun.
//!
//! The server runs in this process, on the loopback address. It simulates a link that all requests
//! share: each byte takes its time, and the first byte of an answer takes a round trip more.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
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
use super::parts::{Kit, PartName, failed, hashed, same};
use super::report::Part;
use crate::error::{Failure, Result};
use crate::measure::process;
use crate::measure::run::{Run, timed};
use crate::size;

/// The link: a good connection to a distant server.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const BYTES_PER_SECOND: u64 = 100_000_000;
/// Bytes sent over the link together.
const PIECE: u64 = 16 << 10;

pub fn measure(kit: &Kit) -> Result<Part> {
    let all = kit.data.len / 4;
    let len = all / 8;
    let what = format!(
        "Reads a file of {} in an EROFS image of {} behind a simulated link of 100 MB/s, 20 ms away.",
        size::human(len),
        size::human(all)
    );
    let mut part = Part::new(PartName::Link, what);
    let writer = Writer::Erofs(ErofsOptions::default());
    let image = kit.packed("erofs", &writer, len, all - len)?.image;
    let expected = kit.expected(len)?;
    let server = FarServer::start(&image);
    let (server, address) = server.map_err(|error| Failure::source(&error).of(image.display()))?;
    let url = format!("http://{address}/image.erofs");
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
    let counted = |run: &dyn Fn() -> anyhow::Result<Run>| -> Result<Run> {
        let before = server.sent.load(Ordering::Relaxed);
        let run = run().and_then(|run| same(run, &expected));
        let mut run = run.map_err(failed)?;
        let sent = server.sent.load(Ordering::Relaxed) - before;
        run.counters.insert("sent".to_string(), sent >> 10);
        Ok(run)
    };
    let remote = || cat(Path::new(&url));
    part.add_ours(&counted(&remote)?);
    part.add_legacy(&counted(&whole)?, all, all);
    part.add_reference("cached", "forerun, a second time", &counted(&remote)?);
    Ok(part)
}

struct FarServer {
    file: File,
    len: u64,
    sent: AtomicU64,
    /// When the link will have carried everything sent so far.
    line: Mutex<Instant>,
}

impl FarServer {
    /// Serves the file at `path` as long as the process lives. Returns the server and its address.
    fn start(path: &Path) -> io::Result<(Arc<Self>, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let file = File::open(path)?;
        let server = Arc::new(Self {
            len: file.metadata()?.len(),
            file,
            sent: AtomicU64::new(0),
            line: Mutex::new(Instant::now()),
        });
        let serving = Arc::clone(&server);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&serving);
                // A client that disconnects ends its connection.
                thread::spawn(move || drop(server.serve(&stream)));
            }
        });
        Ok((server, address))
    }

    /// Answers the requests of a connection. Only the method and the range matter.
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        while let Some(request) = lines.next() {
            let is_head = request?.starts_with("HEAD ");
            let (mut part, mut status) = (0..self.len, "200 OK".to_string());
            for line in lines.by_ref() {
                let line = line?.to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                if let Some((first, last)) = parse_range(&line).filter(|(_, last)| *last < self.len)
                {
                    part = first..last + 1;
                    status = format!(
                        "206 Partial Content\r\nContent-Range: bytes {first}-{last}/{}",
                        self.len
                    );
                }
            }
            thread::sleep(ROUND_TRIP);
            let len = part.end - part.start;
            write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Length: {len}\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\n\r\n"
            )?;
            if !is_head {
                self.send(stream, part)?;
            }
        }
        Ok(())
    }

    /// Sends a part of the file. Each piece arrives when the link has carried it, after everything
    /// sent before.
    fn send(&self, mut out: impl Write, part: Range<u64>) -> io::Result<()> {
        let mut piece = Vec::new();
        let mut at = part.start;
        while at < part.end {
            let len = PIECE.min(part.end - at);
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

fn parse_range(header: &str) -> Option<(u64, u64)> {
    let (first, last) = header.strip_prefix("range: bytes=")?.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}
